"""All marginals side by side: ``python tests/bench/marginals.py [--only pigs] [--repeat 3] [--cases 10000]``.

Each solver answers each question in a child process with limits of time and memory: without evidence, with
evidence on 30% of the leaves, and after one finding changed. Planning, which is part of a fresh answer, is
counted, except where a plan is ``remembered``; reading the file is not. ``first`` is the first answer, which warms
caches and loads compilers, ``best`` the best of the others. ``compiled`` computes all messages of a compiled model
and all posteriors, when the evidence has been entered; after one changed finding, ``bucketflow`` is an update,
entering included, with all posteriors, and ``one asked`` an update with one posterior. Compiled models find the
compiler loaded. A second table shows updates as a part of a full propagation, a third the throughput of many cases.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from parts.measure import Outcome, run_child
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.plans.planner import forget_plans

NETWORKS = ("alarm", "hailfinder", "insurance", "water", "barley", "diabetes", "pigs", "munin3", "andes", "link")
SCENARIOS = ("prior", "30% leaves", "one changed")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_BATCHES = ("alarm", "hailfinder")
_LOOPED_CASES = 200

Evidence = dict[str, int]
Answer = Callable[[], dict[str, Any]]
Totals = dict[tuple[str, str], float]
"""CPU seconds by solver and scenario."""


@dataclass(frozen=True)
class Measured:
    """CPU seconds of the first answer and of the best of the others, wall seconds of that, and some marginals."""

    first: float
    cpu: float
    wall: float
    tables: dict[str, list[float]]


@dataclass(frozen=True)
class Prepared:
    """An answer that needs something done before, each time, that is not measured."""

    prepare: Callable[[], object]
    answer: Answer


def questions(model: bucketflow.Model, scenario: str) -> tuple[Evidence, Evidence]:
    """Evidence before and for the question; fixed seeds, states that are possible together by sampling."""
    rng = np.random.default_rng(7)
    sample = forward_sample(model, rng)
    parents = {v for f in model.functions for v in f.scope if v != f.child}
    leaves = [v for v in range(len(model.dims)) if v not in parents]
    chosen = sorted(rng.permutation(leaves)[: max(1, round(0.3 * len(leaves)))].tolist())
    before = {model.names[v]: sample[v] for v in chosen}
    if scenario == "prior":
        return {}, {}
    if scenario == "30% leaves":
        return before, before
    other = forward_sample(model, rng)
    changed = next((v for v in chosen if other[v] != sample[v]), chosen[0])
    return before, {**before, model.names[changed]: other[changed]}


def forward_sample(model: bucketflow.Model, rng: np.random.Generator) -> dict[int, int]:
    """Draw one joint state of a Bayesian network, parents first."""
    waiting = {f.child: f for f in model.functions}
    states: dict[int, int] = {}
    while waiting:
        for v, f in list(waiting.items()):
            if all(u in states for u in f.scope if u != v):
                index = tuple(slice(None) if u == v else states[u] for u in f.scope)
                p = np.asarray(f.values[index], dtype=np.float64)
                states[v] = int(rng.choice(len(p), p=p / p.sum()))
                del waiting[v]
    return states


def ours(remembered: bool, path: Path, scenario: str, threads: int) -> Answer:
    """A fresh answer, with or without a plan from the last time; for a changed finding, an update."""
    model = bucketflow.load(path)
    before, now = questions(model, scenario)

    def fresh() -> dict[str, Any]:
        if not remembered:
            forget_plans()
        return dict(bucketflow.marginals(model, evidence=now, threads=threads))

    if scenario != "one changed":
        return fresh
    compiled, before, now = _compiled(path, scenario, threads)
    return _alternating(compiled.set_evidence, before, now, lambda: dict(compiled.marginals()))


def ours_one_asked(path: Path, scenario: str, threads: int) -> Answer:
    """One posterior after a changed finding: that of the variable in the middle of the file."""
    compiled, before, now = _compiled(path, scenario, threads)
    asked = [compiled.model.names[len(compiled.model.names) // 2]]
    return _alternating(compiled.set_evidence, before, now, lambda: dict(compiled.marginals(asked)))


def ours_compiled(path: Path, scenario: str, threads: int) -> Prepared:
    """All messages of a compiled model from its leaves: what a changed finding is measured against."""
    compiled, _, now = _compiled(path, scenario, threads)

    def forget() -> None:
        compiled.reset()
        compiled.set_evidence(now)

    return Prepared(forget, lambda: dict(compiled.marginals()))


def _compiled(path: Path, scenario: str, threads: int) -> tuple[bucketflow.Compiled, Evidence, Evidence]:
    """A compiled model with the compiler loaded, which models that are asked for long do by themselves."""
    import bucketflow.tasks.incremental.packed

    model = bucketflow.load(path)
    return bucketflow.compile(model, threads=threads), *questions(model, scenario)


def _alternating(
    set_evidence: Callable[[Evidence], object], before: Evidence, now: Evidence, ask: Callable[[], dict[str, Any]]
) -> Answer:
    """Change one finding to and fro, so that every answer is an update; return the latest one to the question."""
    set_evidence(now)
    found = ask()
    pending = cycle((before, now))

    def answer() -> dict[str, Any]:
        nonlocal found
        evidence = next(pending)
        set_evidence(evidence)
        tables = ask()
        found = tables if evidence is now else found
        return found

    answer()
    answer()
    return answer


def pyagrum(kind: str, path: Path, scenario: str, threads: int) -> Answer:
    """Answer with one of pyAgrum's inferences."""
    import pyagrum as gum

    model = bucketflow.load(path)
    before, now = questions(model, scenario)
    network = gum.loadBN(str(path))

    def fresh(evidence: Evidence) -> Any:
        inference = getattr(gum, kind)(network)
        inference.setNumberOfThreads(threads)
        inference.setEvidence(evidence)
        return inference

    def read(inference: Any) -> dict[str, Any]:
        inference.makeInference()
        return {name: inference.posterior(name).toarray() for name in model.names}

    if scenario != "one changed":
        return lambda: read(fresh(now))
    inference = fresh(before)

    def change(evidence: Evidence) -> None:
        for name, state in evidence.items():
            inference.chgEvidence(name, state)

    return _alternating(change, before, now, lambda: read(inference))


def pgmpy(path: Path, scenario: str, threads: int) -> Answer:
    """Answer with pgmpy's variable elimination, one query for each variable."""
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    model = bucketflow.load(path)
    _, now = questions(model, scenario)
    network = BIFReader(str(path)).get_model()
    evidence = {name: model.label(model.index[name], state) for name, state in now.items()}
    inference = VariableElimination(network)

    def answer() -> dict[str, Any]:
        asked = [name for name in model.names if name not in evidence]
        return {n: inference.query([n], evidence=evidence, show_progress=False).values for n in asked}

    return answer


SOLVERS: dict[str, Callable[[Path, str, int], Answer | Prepared]] = {
    "bucketflow": partial(ours, False),
    "plan remembered": partial(ours, True),
    "compiled": ours_compiled,
    "one asked": ours_one_asked,
    "LazyPropagation": partial(pyagrum, "LazyPropagation"),
    "ShaferShenoy": partial(pyagrum, "ShaferShenoyInference"),
    "pgmpy": pgmpy,
}


def measured(solver: str, path: Path, scenario: str, threads: int, repeat: int) -> Measured:
    """Work of the child: prepare, answer several times."""
    found = SOLVERS[solver](path, scenario, threads)
    question = found if isinstance(found, Prepared) else Prepared(lambda: None, found)
    times = []
    for _ in range(repeat + 1):
        question.prepare()
        cpu, wall = time.process_time(), time.perf_counter()
        tables = question.answer()
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    best = min(times[1:] or times)
    return Measured(times[0][0], *best, {name: np.asarray(t).tolist() for name, t in tables.items()})


def difference(left: Measured, right: Measured) -> float:
    """Largest difference of two posteriors."""
    common = left.tables.keys() & right.tables.keys()
    return max((np.abs(np.subtract(left.tables[n], right.tables[n])).max() for n in common), default=0.0)


def child(solver: str, path: Path, scenario: str, threads: int, options: argparse.Namespace) -> Outcome:
    """Run one question with limits."""
    work = partial(measured, solver, path, scenario, threads, options.repeat)
    return run_child(work, seconds=options.limit, memory_bytes=int(options.memory * 1e9))


def asked_of(solver: str, scenario: str) -> bool:
    """Whether a solver has something to say in a scenario."""
    changed = scenario == "one changed"
    return not (solver == "plan remembered" and changed) and not (solver == "one asked" and not changed)


def compare(name: str, path: Path, options: argparse.Namespace, tables: Sequence[Table], totals: Totals) -> None:
    """Add one network's lines to the tables, and to the totals if every solver but pgmpy answered."""
    answered: Totals = {}
    complete, lost = True, set()
    for scenario in SCENARIOS:
        reference: Measured | None = None
        for solver in SOLVERS:
            if not asked_of(solver, scenario) or solver in lost or (solver == "pgmpy" and not have_pgmpy()):
                continue
            one = child(solver, path, scenario, 1, options)
            if one.end != "done":
                complete = complete and solver == "pgmpy"
                lost.add(solver)
                words = f"{one.end} {one.value or ''} {one.message}".strip()
                cells = ["–"] * 4 + [f"{one.peak_bytes / 1e6:.0f}", words[:60]]
                tables[0].add_row(name, scenario, solver, *cells)
                continue
            found: Measured = one.value
            reference = reference or found
            answered[solver, scenario] = found.cpu
            gap = difference(reference, found)
            note = "" if found is reference else f"{found.cpu / reference.cpu:.2f}×, differs by {gap:.1g}"
            cells = [f"{t:.5f}" for t in (found.first, found.cpu, found.wall)]
            two = child(solver, path, scenario, 2, options) if solver != "pgmpy" else None
            cells.append("" if two is None else f"{two.value.wall:.5f}" if two.end == "done" else two.end)
            tables[0].add_row(name, scenario, solver, *cells, f"{one.peak_bytes / 1e6:.0f}", note)
    for key, seconds in answered.items() if complete else ():
        totals[key] = totals.get(key, 0.0) + seconds
    full = answered.get(("compiled", "one changed"))
    if full:
        parts = [answered.get((solver, "one changed")) for solver in ("bucketflow", "one asked")]
        tables[1].add_row(name, f"{full:.5f}", *("–" if p is None else f"{p / full:.2f}" for p in parts))
    tables[0].add_section()


def have_pgmpy() -> bool:
    """Whether pgmpy can be imported; it is looked for without loading it."""
    from importlib.util import find_spec

    return find_spec("pgmpy") is not None


def batch(name: str, path: Path, count: int, table: Table) -> None:
    """Compare the throughput of many cases with a loop over a part of them in pyAgrum."""
    import pyagrum as gum

    model = bucketflow.load(path)
    rng = np.random.default_rng(11)
    parents = {v for f in model.functions for v in f.scope if v != f.child}
    samples = [forward_sample(model, rng) for _ in range(count)]
    leaves = [v for v in range(len(model.dims)) if v not in parents]
    seen = rng.random((count, len(leaves))) < 0.5
    cases = {
        model.names[v]: np.where(seen[:, k], [s[v] for s in samples], -1).astype(np.int64) for k, v in enumerate(leaves)
    }
    compiled = bucketflow.compile(model, threads=1)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        found = compiled.marginals_batch(cases)
        seconds.append(time.process_time() - start)
    inference = gum.LazyPropagation(gum.loadBN(str(path)))
    inference.setNumberOfThreads(1)
    looped = range(min(_LOOPED_CASES, count))
    evidence = [{n: int(c[k]) for n, c in cases.items() if c[k] >= 0} for k in looped]
    start, tables = time.process_time(), []
    for case in evidence:
        inference.eraseAllEvidence()
        inference.setEvidence(case)
        inference.makeInference()
        tables.append({n: inference.posterior(n).toarray() for n in model.names})
    loop = (time.process_time() - start) / len(looped) * count
    gap = max(np.abs(found[n][k] - t).max() for k in looped for n, t in tables[k].items())
    best = min(seconds[1:])
    table.add_row(name, f"{seconds[0]:.3f}", f"{best:.3f}", f"{loop:.1f}", f"{loop / best:.0f}×", f"{gap:.1g}")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME", help="one network")
    parser.add_argument("--repeat", type=int, default=3, help="answers after the first")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="wall time of each child")
    parser.add_argument("--memory", type=float, default=4.0, metavar="GB", help="resident size of each child")
    parser.add_argument("--cases", type=int, default=10_000, help="cases of a batch; 0 for no batch")
    return parser.parse_args()


def main() -> None:
    """Print both tables."""
    options = arguments()
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    table = Table(title="CPU seconds for all marginals, planning included")
    for heading in ("network", "evidence", "solver", "first", "best", "wall", "wall 2 threads", "MB", "against ours"):
        table.add_column(heading, no_wrap=True)
    changes = Table(title="one changed finding, as a part of a full propagation of a compiled model")
    for heading in ("network", "full, CPU seconds", "update, all posteriors", "update, one posterior"):
        changes.add_column(heading)
    totals: Totals = {}
    batches = Table(title=f"{options.cases} cases, CPU seconds on one thread")
    for heading in ("network", "ours, first", "ours", "pyAgrum loop", "ratio", "differs by"):
        batches.add_column(heading)
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            if options.only not in ("", name):
                continue
            path = Path(folder) / f"{name}.bif"
            path.write_bytes(gzip.decompress((data_folder() / "bn" / f"{name}.bif.gz").read_bytes()))
            # first without a limit that matters: where no machine code is cached yet, it is made here
            run_child(partial(measured, "compiled", path, "prior", 1, 0), seconds=600, memory_bytes=int(8e9))
            compare(name, path, options, (table, changes), totals)
            if options.cases and name in _BATCHES:
                batch(name, path, options.cases, batches)
    console = Console(width=180)
    console.print(table)
    for (solver, scenario), seconds in sorted(totals.items(), key=lambda item: item[0][::-1]):
        console.print(f"{scenario:<12} {solver:<18} {seconds:9.4f} CPU-s over the networks that all answered")
    console.print(changes)
    if not have_pgmpy():
        console.print("pgmpy is left out: it is not installed")
    if batches.row_count:
        console.print(batches)


if __name__ == "__main__":
    main()
