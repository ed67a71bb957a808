"""Known answers, instance by instance: ``python tests/bench/ladder.py [--up-to 24] [--limit 60] [--only grids]``.

Every instance whose largest min-fill clique has at most 2^up-to cells is solved in a child process. The answer
is compared with the published one, and the value of the returned assignment is computed again. The exit code
is 1 if anything is wrong, crashed, unreadable or above the memory limit.

The column of rows is what the largest table of rows has of its dense cells. The last column of numbers is what the
child's resident size has grown by, in percent of ``--memory``: its peak without that of a process that asked the same
of a tiny model. Rows above 100 are counted as over budget. With ``--workers`` the same goes for each Dask worker, and
the larger share counts.

With ``--gpus`` the budget is the device's, or each child's share of it with ``--jobs``, and the last columns are what
the memory pools took there at most and how many steps ran there. Answers of short runs are compared with the CPU's:
integers have to be equal, floats within rounding.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from signal import SIGINT, signal
from typing import Literal, get_args

from dask.utils import parse_bytes
from parts.instances import Question, grid_model, questions
from parts.ladder_child import Solved, solve
from parts.ladder_gpu import Used, share_bytes
from parts.measure import Outcome, run_child
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.models.query import Representation
from bucketflow.pipeline.options import Method

#: What bucketflow declines to read on purpose, by the words of its messages.
BY_DESIGN = ("which is not read", "a compact one")
FAILURES = ("wrong", "crashed", "unreadable", "over memory")
#: A child is killed when it is this much above the budget and the empty process.
TOLERATED_BYTES = 200_000_000
#: What a child with a GPU may have besides tables: libraries, context, kernels, what is compiled.
HOST_BYTES = 4_000_000_000
PASSED = ("memory", "tree", "fit", "representation", "workers", "order", "gpus", "gpu_memory", "method")
_REASONS = {"out of time": "out of time", "out of memory": "over memory"}
_ERRORS = {"BudgetError": "refused", "FormatError": "unreadable"}


@dataclass(frozen=True)
class Row:
    """One line of the scoreboard."""

    question: Question
    verdict: str
    outcome: Outcome
    budget_share: float
    """Growth of the resident size, or what the pools of the device held, over the budget."""
    empty: tuple[int, int] = (0, 0)
    """Of a process that asked the same of a tiny model, and of its workers."""

    @property
    def solved(self) -> Solved | None:
        """The child's answer, if it gave one."""
        return self.outcome.value if self.outcome.end == "done" else None

    @property
    def used(self) -> Used | None:
        """What it took on a device, if that is known."""
        return self.solved.used if self.solved else None

    @property
    def remark(self) -> str:
        """Why the row is not right."""
        if self.solved is None:
            return f"{self.outcome.value or ''} {self.outcome.message}".strip()
        expected = ", ".join(f"{r} ({r.source})" for r in self.question.references)
        return self.solved.defect or ("" if self.verdict == "right" else f"expected {expected}")


def verdict(question: Question, outcome: Outcome) -> str:
    """Compare an outcome with the known answers."""
    if outcome.end == "done":
        solved: Solved = outcome.value
        agrees = not solved.defect and all(r.agrees(solved.value) for r in question.references)
        return "right" if agrees else "wrong"
    if outcome.end == "raised":
        named = any(words in outcome.message for words in BY_DESIGN)
        return "refused by name" if named else _ERRORS.get(outcome.value, "crashed")
    return _REASONS.get(outcome.end, "crashed")


def empty_process(query: str, kind: Literal["cost", "markov"], compiled: bool, workers: int | None) -> None:
    """Load everything that a run can need."""
    if compiled:
        import_module("numba")
    placement.TASK_SECONDS = 1e-9
    width = 8 if compiled else 5
    bucketflow.solve(grid_model(width, width, 4, kind), query, fit="spill", order_time=0.1, workers=workers)


def empty_bytes(question: Question, compiled: bool, workers: int | None) -> tuple[int, int]:
    """Return the peak resident size of a process that asked the same of a tiny model only, and of its workers.

    With the compiler, if it was used, which takes more than most tables.
    """
    costs = "wcsp/" in question.name or "cfn" in question.name or "dcop/" in question.name
    return _empty_bytes(question.query, "cost" if costs else "markov", compiled, workers)


@cache
def _empty_bytes(query: str, kind: Literal["cost", "markov"], compiled: bool, workers: int | None) -> tuple[int, int]:
    work = partial(empty_process, query, kind, compiled, workers)
    outcome = run_child(work, seconds=120, memory_bytes=1 << 33, watch_workers=bool(workers))
    if outcome.end != "done":
        raise RuntimeError(f"the empty process: {outcome.end} {outcome.message}")
    return outcome.peak_bytes, outcome.worker_bytes


def table_of(rows: Sequence[Row]) -> Table:
    """Lay the rows out."""
    table = Table(title="Known answers (log2 cells: largest clique of min-fill; our plan in all; its largest table)")
    table.add_column("instance", overflow="fold")
    table.add_column("query")
    for heading in ("clique", "cells", "table", "rows", "slices", "ours", "known"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for heading in ("s", "CPU-s", "MB", "budget", "on GPU"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("remark", overflow="fold")
    for row in rows:
        table.add_row(*cells_of(row), style=None if row.verdict == "right" else "bold")
    return table


def cells_of(row: Row) -> list[str]:
    """Return the texts of one line."""
    question, solved, used = row.question, row.solved, row.used
    seconds = (solved.seconds, solved.cpu_seconds) if solved else (row.outcome.wall_seconds, row.outcome.cpu_seconds)
    peak_bytes = used.peak_bytes if used else max(row.outcome.peak_bytes, row.outcome.worker_bytes)
    return [
        question.name,
        question.query,
        f"{question.log2_clique:.1f}",
        _log(solved and solved.log2_cells),
        _log(solved and solved.log2_largest),
        "–" if solved is None or solved.rows is None else f"{solved.rows:.2g}",
        solved.cut if solved else "–",
        _answer(solved),
        str(question.references[0]),
        row.verdict,
        *(f"{each:.2f}" for each in seconds),
        f"{peak_bytes / 1e6:.0f}",
        f"{row.budget_share:.0%}",
        str(used.steps) if used else "–",
        row.remark,
    ]


def _log(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _answer(solved: Solved | None) -> str:
    if solved is None:
        return "–"
    return "infeasible" if solved.value is None else f"{solved.value:.10g}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--up-to", type=float, default=24.0, metavar="LOG2", help="cells of the largest clique")
    parser.add_argument("--from", dest="start", type=float, default=0.0, metavar="LOG2", help="smallest such clique")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="wall time of each answer")
    parser.add_argument("--memory", type=parse_bytes, default=parse_bytes("8GB"), metavar="SIZE", help="e.g. 4GB")
    parser.add_argument("--only", default=[""], nargs="+", metavar="SUBSTR", help="part of the path, any of several")
    parser.add_argument("--query", choices=["all", "optimum", "partition"], default="all")
    parser.add_argument("--tree", choices=["refined", "bucket", "junction"], default="refined")
    parser.add_argument("--representation", choices=get_args(Representation), default="auto", help="of tables")
    parser.add_argument("--fit", choices=["auto", "slice", "spill", "refuse"], default="auto")
    parser.add_argument("--method", choices=get_args(Method), default="auto", help="dense sweeps every optimum")
    parser.add_argument("--workers", type=int, metavar="N", help="Dask workers for each answer")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs for each answer")
    parser.add_argument("--gpu-memory", type=parse_bytes, metavar="SIZE", help="of each answer; else a fair share")
    parser.add_argument("--least-cells", type=int, metavar="N", help="run smaller steps on the GPU than pays")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="answers side by side")
    parser.add_argument("--order", default="auto", metavar="NAME", help="a worse heuristic makes tables large")
    parser.add_argument("--failures", action="store_true", help="print only rows that are not right or over budget")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Question]:
    """Return the questions with a known answer that the command line asks for, smallest first."""
    found = [
        q
        for q in questions(data_folder())
        if q.references
        and options.start <= q.log2_clique <= options.up_to
        and any(part in q.name for part in options.only)
        and options.query in ("all", q.query)
    ]
    return sorted(found, key=rank)


def rank(question: Question) -> tuple[float, str, str]:
    """Sort the smallest first."""
    return question.log2_clique, question.name, question.query


def answer(question: Question, options: argparse.Namespace) -> Row:
    """Run one question in a child."""
    passed = {key: getattr(options, key) for key in PASSED}
    workers = options.workers
    work = partial(solve, question, passed, options.least_cells)
    if options.gpus:  # the host's memory is the context's, the libraries' and that of page-locked tables
        outcome = run_child(work, seconds=options.limit, memory_bytes=options.memory + HOST_BYTES)
        row = Row(question, verdict(question, outcome), outcome, 0.0)
        return replace(row, budget_share=row.used.peak_bytes / options.gpu_memory) if row.used else row
    limit_bytes = options.memory + empty_bytes(question, True, workers)[0] + TOLERATED_BYTES
    outcome = run_child(work, seconds=options.limit, memory_bytes=limit_bytes, watch_workers=bool(workers))
    empty = empty_bytes(question, outcome.end != "done" or outcome.value.compiled, workers)
    share = max(0, outcome.peak_bytes - empty[0], outcome.worker_bytes - empty[1]) / options.memory
    return Row(question, verdict(question, outcome), outcome, share, empty)


def quiet_end() -> None:
    """End this process without a word when the ladder is stopped; its children do the same."""
    signal(SIGINT, lambda *_: os._exit(130))


def run_all(asked: Sequence[Question], options: argparse.Namespace) -> Iterator[Row]:
    """Run the questions, ``--jobs`` at a time, each in a child of one of so many processes."""
    with ProcessPoolExecutor(options.jobs, get_context("fork"), quiet_end) as processes:
        running = [processes.submit(answer, question, options) for question in asked]
        try:
            for k, done in enumerate(as_completed(running), 1):
                print(f"\r{k}/{len(asked)} {done.result().question.name:70.70}", end="", file=sys.stderr, flush=True)
                yield done.result()
        finally:
            processes.shutdown(wait=False, cancel_futures=True)


def summary(rows: Sequence[Row], options: argparse.Namespace) -> str:
    """Say how many rows are over budget, and what was measured beside them."""
    over = f"{sum(row.budget_share > 1 for row in rows)} over budget"
    if not options.gpus:
        sizes = ", ".join("/".join(f"{e / 1e6:.0f}" for e in both if e) for both in sorted({row.empty for row in rows}))
        return f"{over}; empty processes have {sizes} MB"
    there = [row.used.steps for row in rows if row.used]
    device = f"{options.gpu_memory / 1e9:.1f} GB of a device for each of {options.jobs}"
    return f"{over} of {device}; {sum(map(bool, there))} rows with steps on the GPU, {sum(there)} steps"


def main() -> int:
    """Run the ladder and print it."""
    options = arguments()
    if options.gpus and options.gpu_memory is None:
        options.gpu_memory = share_bytes(options.jobs)
    rows: list[Row] = []
    try:
        rows.extend(run_all(chosen(options), options))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    print(file=sys.stderr)
    rows.sort(key=lambda row: rank(row.question))
    console = Console(width=None if sys.stdout.isatty() else 220)
    console.print(table_of([r for r in rows if not options.failures or r.verdict != "right" or r.budget_share > 1]))
    counts = Counter(row.verdict for row in rows)
    console.print(", ".join(f"{count} {word}" for word, count in counts.most_common()) or "nothing to run")
    console.print(summary(rows, options))
    bad = any(counts[word] for word in FAILURES) or any(row.budget_share > 1 for row in rows)
    unused = options.gpus == 1 and not any(row.used and row.used.steps for row in rows)
    return int(bad or unused)


if __name__ == "__main__":
    sys.exit(main())
