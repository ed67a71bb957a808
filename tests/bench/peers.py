"""Side by side with other solvers: ``python tests/bench/peers.py [--group bayes] [--only link] [--repeat 3]``.

Each solver has a child process of its own for each question, one thread, and limits of time and memory. It
answers several times and the best counts; the first, which loads and compiles, is shown too. Reading the file is
never counted. ``--optimum`` compares hard optima with toulbar2's instead; ``--optimum --help`` tells how. ``--views``
compares whole processes and warm calls of all families, as in ``docs/peers.md``.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from parts import optima, views
from parts.instances import Query, Question, questions
from parts.measure import Outcome, run_child
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from bucketflow.pipeline.plans.plan import Plan

#: Two answers agree within this, relative to their size: the tolerance of float64 sums in any order.
AGREEMENT = Decimal("1e-6")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Session:
    """A solver that has read its file; ``run`` is what is timed, ``planned`` the CPU seconds of its planning."""

    run: Callable[[], float | Decimal | None]
    planned: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Timing:
    """One answer: CPU seconds in all, those of planning among them, wall seconds in all."""

    cpu_seconds: float
    plan_seconds: float
    wall_seconds: float

    @property
    def run_seconds(self) -> float:
        """CPU seconds after planning."""
        return max(0.0, self.cpu_seconds - self.plan_seconds)


@dataclass(frozen=True)
class Measured:
    """What a child sends back: the answer, the first timing, which includes loading and compiling, and the best."""

    value: Decimal | None
    first: Timing
    best: Timing


@dataclass(frozen=True)
class Group:
    """Instances with one target.

    Parameters
    ----------
    members : tuple of str
        Patterns of instance names.
    seconds : float
        CPU seconds that our answer may take; ``planned`` tells whether planning counts.
    memory_bytes : int
        Budget that our solver is given, and its peak that the target allows.
    contracted : bool
        Whether we must be no slower than the same tree in NumPy.
    """

    name: str
    query: Query
    members: tuple[str, ...]
    seconds: float
    planned: bool
    solvers: tuple[str, ...]
    memory_bytes: int = 2_000_000_000
    largest_clique: float = math.inf
    contracted: bool = False

    @property
    def target(self) -> str:
        """The target in words."""
        return f"{'plan+run' if self.planned else 'run'} < {self.seconds:g} CPU-s"


GROUPS = (
    Group(
        "bayes",
        "partition",
        tuple(f"bn/{name}.bif*" for name in ("water", "barley", "diabetes", "link", "munin", "munin3", "munin4")),
        0.5,
        True,
        ("bucketflow", "cotengra", "pyAgrum"),
    ),
    Group(
        "wcsp",
        "optimum",
        (
            *(f"wcsp/spot5/{name}.wcsp*" for name in (54, 503, 404, 29)),
            *(f"wcsp/iscas89/{name}.wcsp*" for name in ("s386", "c432", "c880")),
        ),
        2.0,
        False,
        ("bucketflow", "toulbar2", "toulbar2 -B=1 -O=-3"),
    ),
    Group(
        "uai",
        "partition",
        (
            "uai/uai2014/Grids_1[1-7].uai*",
            *(f"uai/uai2014/{name}.uai*" for name in ("linkage_21", "linkage_14", "Pedigree_*")),
        ),
        5.0,
        False,
        ("bucketflow", "cotengra"),
        contracted=True,
    ),
    Group(
        "promedus",
        "partition",
        ("uai/uai2014/Promedus_*",),
        5.0,
        False,
        ("bucketflow", "cotengra"),
        largest_clique=28.0,
        contracted=True,
    ),
    Group("refused", "partition", ("uai/*/Grids_18.uai*",), 5.0, False, ("bucketflow",)),
)


def bucketflow_session(question: Question, memory_bytes: int) -> Session:
    """Solve through the public function, with the clock read where planning ends."""
    import bucketflow
    from bucketflow.pipeline.answering import running
    from bucketflow.pipeline.api import solve

    model = bucketflow.load(question.path)
    planned: list[float] = []

    def clocked(*args: Any) -> running.Prepared:
        start = time.process_time()
        prepared = prepare(*args)
        planned.append(time.process_time() - start)
        return prepared

    prepare = running.prepare

    def run() -> float | Decimal | None:
        with patch.object(running, "prepare", clocked):
            result = solve.solve(model, question.query, evidence=question.evidence, memory=memory_bytes, threads=1)
        if result.value is not None:
            return Decimal(result.value)
        return result.log10

    return Session(run, planned)


def cotengra_session(question: Question, memory_bytes: int) -> Session:
    """Build our leaf tables and contract them along our tree with NumPy, in one piece where our plan is sliced."""
    import bucketflow
    from bucketflow.pipeline.answering.prepared import prepare
    from bucketflow.pipeline.answering.question import question_of
    from bucketflow.pipeline.machine.resources import Resources
    from bucketflow.pipeline.options import Options
    from bucketflow.pipeline.preprocessing.preprocess import fixed_value

    asked = question_of(bucketflow.load(question.path), question.query, question.evidence)
    prepared = prepare(asked, Resources(Options(memory=memory_bytes)))
    network, plan = prepared.network, prepared.plan
    fixed = fixed_value(network)
    if fixed is None:
        return Session(lambda: None)
    constant = fixed + math.log(network.free_states)
    if plan is None:
        return Session(lambda: constant / math.log(10))
    tree = contraction_tree([leaf.scope for leaf in network.leaves], plan)

    def run() -> float:
        leaves = [prepared.arithmetic.leaf(leaf, leaf.scope) for leaf in network.leaves]
        shapes = [[plan.dims[v] for v in leaf.scope] for leaf in network.leaves]
        tables = [leaf.values.reshape(shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return contract(tree, tables, math.fsum((constant, *(leaf.log_scale for leaf in leaves))))

    return Session(run)


def contraction_tree(scopes: list[tuple[int, ...]], plan: Plan) -> Any:
    """Make our tree a cotengra tree; a node of several children becomes pairs, chosen by cotengra."""
    import cotengra

    symbols = [cotengra.get_symbol(v) for v in range(len(plan.dims))]
    inputs = [[symbols[v] for v in scope] for scope in scopes]
    sizes = dict(zip(symbols, plan.dims, strict=True))
    path = plan.tree.children
    return cotengra.ContractionTree.from_path(
        inputs, (), sizes, ssa_path=path, optimize="random-greedy", autocomplete=True
    )


def contract(tree: Any, tables: list[Any], constant: float) -> float:
    """Return log10 of the contraction, with a running exponent only where float64 does not hold the sum."""
    import numpy as np

    with np.errstate(all="ignore"):
        total = float(tree.contract(tables))
        if total > 0.0 and math.isfinite(total):
            return (math.log(total) + constant) / math.log(10)
        mantissa, exponent = tree.contract(tables, strip_exponent=True)
    return math.log10(float(mantissa)) + float(exponent) + constant / math.log(10)


def agrum_session(question: Question, memory_bytes: int) -> Session:
    """Probability of the evidence by lazy propagation; memory is only bounded from outside."""
    import pyagrum

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "network.bif"
        with gzip.open(question.path) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target)
        network = pyagrum.loadBN(str(plain))
    inference = pyagrum.LazyPropagation(network)
    inference.setNumberOfThreads(1)
    inference.setEvidence(dict(question.evidence) if isinstance(question.evidence, dict) else {})
    return Session(lambda: math.log10(inference.evidenceProbability()))


def toulbar2_session(question: Question, memory_bytes: int, *, decomposed: bool = False) -> Session:
    """Search by branch and bound, or on the tree of min-fill (``-B=1 -O=-3``); memory is bounded from outside."""
    from pytoulbar2 import CFN

    problem = CFN(verbose=-1)
    if decomposed:
        problem.Option.btdMode = 1
        problem.Option.setVarOrder("-3")
    problem.Read(str(question.path))

    def run() -> Decimal | None:
        found = problem.Solve()
        return None if found is None else Decimal(repr(found[1]))

    return Session(run)


SOLVERS: dict[str, Callable[[Question, int], Session]] = {
    "bucketflow": bucketflow_session,
    "cotengra": cotengra_session,
    "pyAgrum": agrum_session,
    "toulbar2": toulbar2_session,
    "toulbar2 -B=1 -O=-3": partial(toulbar2_session, decomposed=True),
}


def measured(session: Callable[[], Session], repeat: int, limit: float) -> Measured:
    """Answer ``repeat`` times after the first, as long as another answer fits the time limit."""
    start = time.perf_counter()
    timings: list[Timing] = []
    value: float | Decimal | None = None
    while len(timings) <= repeat:
        round_start = time.perf_counter()
        ready = session()
        wall, cpu = time.perf_counter(), time.process_time()
        value = ready.run()
        timings.append(Timing(time.process_time() - cpu, sum(ready.planned), time.perf_counter() - wall))
        now = time.perf_counter()
        if now - start + 1.5 * (now - round_start) > limit:
            break
    best = min(timings, key=lambda t: t.cpu_seconds)
    return Measured(None if value is None else Decimal(value), timings[0], best)


@dataclass(frozen=True)
class Line:
    """One solver's result on one question."""

    group: Group
    question: Question
    solver: str
    outcome: Outcome

    @property
    def found(self) -> Measured | None:
        """The measurement, if the solver finished."""
        return self.outcome.value if self.outcome.end == "done" else None


def run_question(group: Group, question: Question, options: argparse.Namespace) -> list[Line]:
    """Run every solver of the group on one question."""
    lines = []
    for solver in group.solvers:
        session = partial(SOLVERS[solver], question, group.memory_bytes)
        work = partial(measured, session, options.repeat, options.limit)
        outcome = run_child(work, seconds=options.limit, memory_bytes=int(options.memory * 1e9))
        lines.append(Line(group, question, solver, outcome))
    return lines


def agreement(line: Line, ours: Line) -> str:
    """Compare an answer with the published one, or with ours where none is."""
    if line.found is None:
        return "–"
    if line.question.references:
        agrees = all(r.agrees(line.found.value) for r in line.question.references)
        return "right" if agrees else f"not {line.question.references[0]}"
    if line is ours or ours.found is None:
        return "no reference"
    left, right = line.found.value, ours.found.value
    if left is None or right is None:
        return "agrees" if left is right else "differs from ours"
    return "agrees" if abs(left - right) <= AGREEMENT * max(Decimal(1), abs(right)) else "differs from ours"


def ratio(line: Line, ours: Line) -> float | None:
    """CPU time over ours: without planning for the same tree, else with it."""
    if line is ours or line.found is None or ours.found is None:
        return None
    same_tree = line.solver == "cotengra"
    base = ours.found.best.run_seconds if same_tree else ours.found.best.cpu_seconds
    return line.found.best.cpu_seconds / max(base, 1e-6)


def verdict(line: Line, lines: list[Line]) -> str:
    """Say whether our answer meets the group's target."""
    if line.solver != "bucketflow":
        return ""
    if line.found is None:
        return "not met"
    best = line.found.best
    met = (best.cpu_seconds if line.group.planned else best.run_seconds) < line.group.seconds
    met = met and line.outcome.peak_bytes <= line.group.memory_bytes
    ratios = [ratio(other, line) for other in lines if other.solver == "cotengra"]
    slower = line.group.contracted and any(r is not None and r < 1.0 for r in ratios)
    return "slower than cotengra" if slower else ("met" if met else "not met")


def start_line(repeat: int) -> tuple[str, ...]:
    """Time a process from its start to the answer on a tiny model, by the wall."""
    command = [sys.executable, "-m", "bucketflow", "solve", "satellite"]
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    best = min(seconds[1:] or seconds)
    verdict = "met" if best < 1.0 else "not met"
    return ("satellite", "bucketflow solve", "", "", "", "", f"{best:.3f}", "", "", "process < 1 s", verdict)


def new_table() -> Table:
    """Lay out the columns."""
    table = Table(
        title="CPU seconds after reading, one thread, best of the repeats",
        caption="ratio: a peer's CPU-s over ours; for cotengra, which is given our tree, over our run alone",
    )
    table.add_column("instance", no_wrap=True)
    table.add_column("solver", no_wrap=True)
    for heading in ("answer", "CPU-s", "run", "first", "wall", "MB", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    return table


def texts(line: Line, lines: list[Line]) -> tuple[str, ...]:
    """Return the cells of one line."""
    ours = lines[0]
    megabytes = f"{line.outcome.peak_bytes / 1e6:.0f}"
    target = line.group.target if line is ours else ""
    if line.found is None:
        end = line.outcome
        words = f"{end.value}: {end.message}" if end.end == "raised" else f"{end.end} {end.message}"
        cpu = f"> {end.cpu_seconds:.1f}" if end.end == "out of time" else "–"
        return (line.question.name, line.solver, "–", cpu, "–", "–", "–", megabytes, "–", target, words)
    best, value = line.found.best, line.found.value
    times = (best.cpu_seconds, best.run_seconds, line.found.first.cpu_seconds, best.wall_seconds)
    factor = ratio(line, ours)
    checks = ", ".join(word for word in (agreement(line, ours), verdict(line, lines)) if word)
    answer = "infeasible" if value is None else f"{value:.10g}"
    shown = "" if factor is None else f"{factor:.2f}"
    return (line.question.name, line.solver, answer, *(f"{t:.3f}" for t in times), megabytes, shown, target, checks)


def chosen(options: argparse.Namespace) -> Iterator[tuple[Group, Question]]:
    """Yield the questions of the groups that were asked for, smallest first."""
    everything = sorted(questions(data_folder()), key=lambda q: (q.log2_clique, q.name))
    for group in GROUPS:
        if options.group not in ("all", group.name):
            continue
        for question in everything:
            named = any(fnmatch(question.name, pattern) for pattern in group.members)
            fits = question.query == group.query and question.log2_clique <= group.largest_clique
            if named and fits and options.only in question.name:
                yield group, question


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=["all", "start", *(g.name for g in GROUPS)], default="all")
    parser.add_argument("--only", default="", metavar="SUBSTR", help="part of the path")
    parser.add_argument("--repeat", type=int, default=3, help="counted answers of each solver")
    parser.add_argument("--limit", type=float, default=20.0, metavar="SECONDS", help="wall time of each solver")
    parser.add_argument("--memory", type=float, default=6.0, metavar="GB", help="resident size of each solver")
    return parser.parse_args()


def main() -> None:
    """Run the groups and print one table."""
    if "--optimum" in sys.argv:
        return optima.main()
    if "--views" in sys.argv:
        return views.main()
    options = arguments()
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    table = new_table()
    asked = list(chosen(options))
    try:
        for k, (group, question) in enumerate(asked):
            print(f"\r{k + 1}/{len(asked)} {question.name:70.70}", end="", file=sys.stderr, flush=True)
            lines = run_question(group, question, options)
            for line in lines:
                table.add_row(*texts(line, lines), end_section=line is lines[-1])
        if options.group in ("all", "start"):
            table.add_row(*start_line(options.repeat))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    print(file=sys.stderr)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


if __name__ == "__main__":
    main()
