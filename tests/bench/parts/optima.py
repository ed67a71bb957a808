"""Optima that dense plans do not reach, beside toulbar2: ``peers.py --optimum [--limit 60] [--only CELAR] [--sample]``.

Each solver has a fresh process for each instance, one thread, and a limit of CPU seconds. Counted are the CPU seconds
of solving, and those of the whole process with its start and the reading of the file.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from parts.instances import Question, questions
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

#: Configurations of toulbar2; the first is its default.
PEERS = ("toulbar2", "toulbar2 -B=1 -O=-3", "toulbar2 VAC + RASPS")
OURS = "bucketflow"
#: Instances that are told apart by their names, with a folder where several have the same.
NAMES = """
    75-26-5 90-30-5 90-38-5 pdb1a62 pdb1hyp uai2014/BN_69 uai2014/BN_71 uai2014/linkage_11 uai2014/linkage_13
    uai2014/linkage_15 uai2014/linkage_17 uai2014/linkage_18 uai2014/linkage_21 uai2014/linkage_25 uai2014/linkage_26
    uai2014/Grids_11 Grids_18 Grids_23 Grids_27 Grids_28 Grids_29 ImageAlignment_12 ObjectDetection_11 Promedas_11
    Promedas_17 Promedas_29 Promedas_35 Promedas_41 Promedas_47 Promedas_59 ProteinFolding_19 wcsp_11
    wcsp_13 wcsp_14 wcsp_15 CELAR6-SUB0 celar/CELAR6-SUB1 celar/CELAR6-SUB3 CELAR6-SUB4-20 CELAR6-SUB4
    CELAR7-SUB0 celar/scen06 celar/scen07 iscas89/c432 iscas89/c880 iscas89/s1196 iscas89/s1238 iscas89/s1423
    iscas89/s1494 iscas89/s953 mastermind_03_08_04 mastermind_03_08_05 mastermind_10_08_03 cap131 spot5/29 spot5/54
    spot5/404 spot5/503 spot5_tb2/505 28_VAC 408_VAC 412_VAC 414_VAC 505_VAC 509_VAC
"""
#: A few that take a second.
SAMPLE = ("pdb1a62", "uai2014/BN_71", "Promedas_35", "iscas89/s953", "spot5_tb2/505", "CELAR6-SUB0")
#: Times are compared from so many seconds on.
_COMPARED_FROM = 1.0
#: Relative to a logarithm: toulbar2 rounds each of its costs, ten million of them a unit.
_ROUNDED = 1e-6


@dataclass(frozen=True)
class Answer:
    """What a process said.

    Parameters
    ----------
    seconds, total : float
        CPU seconds of solving and of the whole process.
    value, bound : float or None
        A cost and a lower bound of all, or the logarithm of a product and an upper bound.
    way, tried
        What completed our proof, and the CPU seconds of each way.
    """

    seconds: float = math.nan
    total: float = math.nan
    proved: bool = False
    value: float | None = None
    bound: float | None = None
    way: str = ""
    tried: Any = None
    failed: str = ""

    @property
    def text(self) -> str:
        """In a few words."""
        if self.failed:
            return self.failed
        if self.proved:
            return "infeasible" if self.value is None else f"{self.value:.10g}"
        return " … ".join("?" if end is None else f"{end:.8g}" for end in (self.value, self.bound))


def asked(solver: str, question: Question, limit: float, memory: float) -> Answer:
    """Ask in a fresh process."""
    evidence = question.evidence if isinstance(question.evidence, str) else ""
    child = Path(__file__).with_name("optima_child.py")
    command = [sys.executable, str(child), solver, str(question.path), evidence, str(limit), str(int(memory * 1e9))]
    try:
        patience = None if math.isinf(limit) else 120 + 20 * limit
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return Answer(failed="killed")
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return Answer(failed=(done.stderr.splitlines() or ["crashed"])[-1][:60])
    return Answer(**json.loads(lines[-1]))


def difference(ours: Answer, theirs: Answer, costs: bool) -> str:
    """Say where two answers contradict each other."""
    sign = 1.0 if costs else -1.0
    for one, other in ((ours, theirs), (theirs, ours)):
        if one.failed or other.failed or not one.proved:
            continue
        value, found, bound = (math.inf if end is None else sign * end for end in (one.value, other.value, other.bound))
        slack = 0.0 if costs or math.isinf(value) else _ROUNDED * max(1.0, abs(value))
        if found < value - slack:
            return "DIFFERS: better than proved"
        if other.bound is not None and bound > value + slack:
            return "DIFFERS: bound excludes the optimum"
    return ""


def chosen(options: argparse.Namespace) -> Iterator[Question]:
    """Yield what was asked for, in the order of the names."""
    everything = [q for q in questions(data_folder()) if q.query == "optimum"]
    for name in SAMPLE if options.sample else NAMES.split():
        if options.only in name:
            matching = [q for q in everything if f"/{q.name}".partition(".")[0].endswith(f"/{name}")]
            yield from matching[:1]


def new_table(limit: float) -> Table:
    """Lay out the columns."""
    table = Table(title=f"CPU seconds of solving (of the whole process), limit {limit:g}")
    table.add_column("instance", no_wrap=True)
    table.add_column("solver", no_wrap=True)
    table.add_column("answer … bound", no_wrap=True)
    for heading in ("CPU-s", "process"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("by")
    return table


def texts(question: Question, solver: str, answer: Answer, ours: Answer) -> tuple[str, ...]:
    """Return the cells of one line."""
    told = ", ".join(f"{way} {seconds:.1f}" for way, seconds in (answer.tried or {}).items())
    by = f"{answer.way}: {told}" if solver == OURS else difference(ours, answer, costs=ours_in_costs(question))
    mark = "" if answer.proved else "> "
    return (question.name, solver, answer.text, f"{mark}{answer.seconds:.2f}", f"{answer.total:.2f}", by)


def ours_in_costs(question: Question) -> bool:
    """Whether less is better."""
    return question.name.startswith(("wcsp", "cfn"))


def summary(found: list[tuple[Question, dict[str, Answer]]]) -> list[str]:
    """Count proofs, and compare times where both took a while."""
    lines = [f"{OURS}: {sum(a[OURS].proved for _, a in found)} of {len(found)} proved"]
    for peer in {solver for _, answers in found for solver in answers} - {OURS}:
        pairs = [(q, a[OURS], a[peer]) for q, a in found if peer in a]
        lost = [q.path.name.partition(".")[0] for q, a, b in pairs if b.proved and not a.proved]
        won = [q.path.name.partition(".")[0] for q, a, b in pairs if a.proved and not b.proved]
        both = [(a.seconds, b.seconds) for _, a, b in pairs if a.proved and b.proved]
        both = [(a, b) for a, b in both if max(a, b) >= _COMPARED_FROM]
        mean = math.exp(math.fsum(math.log(a / b) for a, b in both) / len(both)) if both else math.nan
        wrong = [q.name for q, a, b in pairs if difference(a, b, ours_in_costs(q))]
        lines += [
            f"{peer}: {sum(b.proved for _, _, b in pairs)} proved; differences: {wrong or 0}",
            f"  only {peer}: {' '.join(lost) or 'none'}",
            f"  only {OURS}: {' '.join(won) or 'none'}",
            f"  time of ours / theirs where both prove, one after {_COMPARED_FROM:g} s: {mean:.2f} ({len(both)})",
        ]
    return lines


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimum", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="CPU time of each solver")
    parser.add_argument("--memory", type=float, default=1.0, metavar="GB", help="our budget")
    parser.add_argument("--only", default="", metavar="SUBSTR", help="part of the name")
    parser.add_argument("--sample", action="store_true", help="a few instances that take a second")
    parser.add_argument("--alone", action="store_true", help="without toulbar2")
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="at the same time, each on a core of its own"
    )
    parser.add_argument("--kept", type=Path, metavar="FILE", help="answers are kept there, and not asked for again")
    parser.add_argument("--configurations", action="store_true", help="further configurations of toulbar2")
    return parser.parse_args()


class Kept:
    """Answers that are kept in a file, a line each, and not asked for again.

    Parameters
    ----------
    path : Path or None
        None keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._writing = path, Lock()
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._known = {key: Answer(**answer) for key, answer in map(json.loads, lines)}

    def asked(self, solver: str, question: Question, limit: float, memory: float) -> Answer:
        """Ask, unless the answer is known."""
        key = f"{question.name} {solver} {limit:g} s {memory:g} GB"
        if key not in self._known:
            self._known[key] = answer = asked(solver, question, limit, memory)
            if self._path is not None:
                with self._writing, self._path.open("a") as file:
                    file.write(json.dumps([key, asdict(answer)]) + "\n")
        return self._known[key]


def answers_of_all(
    questions: list[Question], solvers: tuple[str, ...], options: argparse.Namespace
) -> Generator[Answer]:
    """Yield the answers of every solver to every question, a question after the other, with some ahead of time."""
    kept = Kept(options.kept)
    with ThreadPoolExecutor(options.processes) as pool:
        futures = [pool.submit(kept.asked, s, q, options.limit, options.memory) for q in questions for s in solvers]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> None:
    """Ask everybody and print one table."""
    options = arguments()
    solvers = (OURS, *(() if options.alone else PEERS if options.configurations else PEERS[:1]))
    table, found = new_table(options.limit), list[tuple[Question, dict[str, Answer]]]()
    asked_of = list(chosen(options))
    came = answers_of_all(asked_of, solvers, options)
    try:
        for question in asked_of:
            answers = dict(zip(solvers, came, strict=False))
            for solver, answer in answers.items():
                line = texts(question, solver, answer, answers[OURS])
                table.add_row(*line)
                print(" | ".join(line), file=sys.stderr, flush=True)
            found.append((question, answers))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    finally:
        came.close()
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    print("\n".join(summary(found)))
