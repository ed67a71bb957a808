"""Every family of questions beside the program that answers it, in two views: ``peers.py --views``.

A *process* reads the file, answers once and ends. A *warm call* is the best of some later calls in a process that has
read the file. Each figure is CPU seconds of a child process with one thread. The answers are compared.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .needs import data_folder

Call = Callable[[], float | None]
_REPEATS = 3


@dataclass(frozen=True)
class Family:
    """Files of one kind of question, and the programs that answer it.

    Parameters
    ----------
    query : str
    peers : tuple of str
        Names in :data:`PEERS`.
    files : tuple of str
        Below the folder of the benchmark files.
    """

    query: str
    peers: tuple[str, ...]
    files: tuple[str, ...]


FAMILIES = (
    Family(
        "optimum",
        ("toulbar2",),
        (
            *(f"wcsp/spot5/{name}" for name in ("54.wcsp", "503.wcsp", "404.wcsp.xz")),
            *(f"wcsp/mastermind/mastermind_03_08_0{k}.wcsp.xz" for k in (3, 4, 5)),
            "wcsp/coloring/queen5_5_4.wcsp",
            *(f"wcsp/iscas89/{name}" for name in ("s386.wcsp", "s953.wcsp.xz", "s1196.wcsp.xz")),
            "wcsp/misc/cap131.wcsp.xz",
            "wcsp/celar/CELAR6-SUB0.wcsp.xz",
        ),
    ),
    Family(
        "count",
        ("Ganak",),
        tuple(
            f"cnf/counting/{name}.cnf.xz"
            for name in ("s344_7_4", "s510_15_7", "s641_7_4", "50-14-5-q", "or-50-20-1-UC-10", "tire-1", "4step")
        ),
    ),
    Family(
        "partition",
        ("cotengra",),
        (
            *(f"uai/uai2014/{name}" for name in ("Grids_11.uai", "linkage_21.uai.xz")),
            *(f"bn/{name}.bif.gz" for name in ("water", "barley", "pigs")),
        ),
    ),
    Family(
        "posteriors",
        ("pyAgrum", "pgmpy"),
        tuple(
            f"bn/{name}.bif.gz"
            for name in ("asia", "child", "insurance", "alarm", "hailfinder", "win95pts", "water", "pigs")
        ),
    ),
)


def plain(path: Path, folder: Path) -> Path:
    """Return a file that is not compressed, for programs that read no other."""
    if path.suffix not in (".xz", ".gz"):
        return path
    import gzip

    target = folder / path.stem
    with (lzma if path.suffix == ".xz" else gzip).open(path) as source:
        target.write_bytes(source.read())
    return target


def first_probabilities(tables: Iterator[Any]) -> float:
    """Return one number for all posteriors: the sum over variables of the square sums of their probabilities."""
    return math.fsum(float(p) * float(p) for table in tables for p in table)


def bucketflow_call(path: Path, query: str) -> Call:
    """Ask the public functions."""
    import bucketflow

    model = bucketflow.load(path)
    if query == "posteriors":
        return lambda: first_probabilities(iter(bucketflow.marginals(model, threads=1).values()))
    if query == "partition":
        return lambda: bucketflow.solve(model, query, threads=1).log10
    return lambda: float(bucketflow.solve(model, query, threads=1).value)


def toulbar2_call(path: Path, query: str) -> Call:
    """Search by the default options. A second call needs the file again, so that there is none."""
    from pytoulbar2 import CFN

    problem = CFN(verbose=-1)
    problem.Read(str(path))

    def run() -> float | None:
        found = problem.Solve()
        return None if found is None else float(found[1])

    return run


def ganak_call(path: Path, query: str) -> Call:
    """Count a formula that was read by a loop in Python."""
    import pyganak

    clauses, variables = [], 0
    for line in path.read_text().splitlines():
        if line.startswith("p cnf"):
            variables = int(line.split()[2])
        elif line and line[0] not in "cp%w":
            clauses.append([int(word) for word in line.split()[:-1]])

    def run() -> float:
        counter = pyganak.Counter()
        counter.new_vars(variables)
        counter.add_clauses(clauses)
        return float(counter.count())

    return run


def cotengra_call(path: Path, query: str) -> Call:
    """Contract the functions that we read, by a tree that cotengra plans in each call."""
    import cotengra
    import numpy as np

    import bucketflow

    model = bucketflow.load(path)
    arrays = [np.asarray(f.values, float) for f in model.functions]
    inputs = [f.scope for f in model.functions]

    def run() -> float:
        mantissa, exponent = cotengra.array_contract(arrays, inputs, (), optimize="auto", strip_exponent=True)
        return math.log10(float(mantissa)) + float(exponent)

    return run


def agrum_call(path: Path, query: str) -> Call:
    """All posteriors by lazy propagation."""
    import pyagrum

    network = pyagrum.loadBN(str(path))

    def run() -> float:
        inference = pyagrum.LazyPropagation(network)
        inference.setNumberOfThreads(1)
        inference.makeInference()
        return first_probabilities(inference.posterior(name).tolist() for name in network.names())

    return run


def pgmpy_call(path: Path, query: str) -> Call:
    """All posteriors, one elimination for each variable."""
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    network = BIFReader(str(path)).get_model()

    def run() -> float:
        inference = VariableElimination(network)
        return first_probabilities(
            inference.query([name], show_progress=False).values.tolist() for name in network.nodes()
        )

    return run


#: How each program is called, the package that it needs, and whether a process can call it again.
PEERS: dict[str, tuple[Callable[[Path, str], Call], str, bool]] = {
    "bucketflow": (bucketflow_call, "bucketflow", True),
    "toulbar2": (toulbar2_call, "pytoulbar2", False),
    "Ganak": (ganak_call, "pyganak", True),
    "cotengra": (cotengra_call, "cotengra", True),
    "pyAgrum": (agrum_call, "pyagrum", True),
    "pgmpy": (pgmpy_call, "pgmpy", True),
}


def answer(name: str, path: str, query: str, repeats: int) -> None:
    """Answer in this process, and print the answer, the CPU seconds before the first warm call, and the best call."""
    call, _, again = PEERS[name]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(path) if name in ("bucketflow", "cotengra") else plain(Path(path), Path(folder))
        ask = call(source, query)
        start = time.process_time()
        value, first = ask(), time.process_time() - start
        process = time.process_time()
        calls = []
        for _ in range(repeats if again else 0):
            start = time.process_time()
            ask()
            calls.append(time.process_time() - start)
    print(json.dumps({"value": value, "process": process, "warm": min(calls, default=first)}))


@dataclass(frozen=True)
class Measured:
    """What a child reported; without an answer, why."""

    value: float | None = None
    process: float = math.inf
    warm: float = math.inf
    why: str = ""


def measured(name: str, path: Path, query: str, limit: float) -> Measured:
    """Answer in a process of its own."""
    one = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    bench, asked = str(Path(__file__).parents[1]), (name, str(path), query, _REPEATS)
    code = f"import sys; sys.path.insert(0, {bench!r}); from parts.views import answer; answer(*{asked!r})"
    script = [sys.executable, "-c", code]
    try:
        done = subprocess.run(script, capture_output=True, text=True, timeout=limit, env={**os.environ, **one})
    except subprocess.TimeoutExpired:
        return Measured(why=f"not in {limit:g} s")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return Measured(why=f"failed: {next((line for line in lines if 'rror' in line), lines[-1])[:80]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def verdict(ours: Measured, theirs: Measured) -> str:
    """Compare the answers."""
    if ours.why or theirs.why:
        return "–"
    if ours.value is None or theirs.value is None:
        return "agree" if ours.value is theirs.value else "DIFFER"
    return "agree" if math.isclose(ours.value, theirs.value, rel_tol=1e-6, abs_tol=1e-9) else "DIFFER"


def shown(mine: Measured, seconds: float) -> str:
    """Write seconds, or why there are none."""
    return mine.why or f"{seconds:.3f}"


def main() -> None:
    """Print one table of all families, as Markdown if it is asked for."""
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", action="store_true")
    parser.add_argument("--only", default="", help="part of a query, a program or a file")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="wall time of each process")
    parser.add_argument("--markdown", action="store_true", help="print the rows of docs/peers.md")
    options = parser.parse_args()
    columns = ("query", "file", "program", "process: ours", "theirs", "warm call: ours", "theirs", "answers")
    table, rows = Table(*columns, title="CPU seconds, one thread"), list[tuple[str, ...]]()
    for family in FAMILIES:
        installed = [peer for peer in family.peers if find_spec(PEERS[peer][1]) is not None]
        for file in family.files if installed else ():
            if not any(options.only in text for text in (family.query, *family.peers, file)):
                continue
            ours = measured("bucketflow", data_folder() / file, family.query, options.limit)
            for peer in installed:
                theirs = measured(peer, data_folder() / file, family.query, options.limit)
                name = Path(file).name.partition(".")[0]
                process, warm = (
                    (shown(ours, ours.process), shown(theirs, theirs.process)),
                    (
                        shown(ours, ours.warm),
                        shown(theirs, theirs.warm),
                    ),
                )
                rows.append((family.query, name, peer, *process, *warm, verdict(ours, theirs)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    for row in rows:
        table.add_row(*row)
    if options.markdown:
        print("\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)))
    else:
        Console(width=None if sys.stdout.isatty() else 180).print(table)
