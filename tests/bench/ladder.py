"""Known answers, instance by instance: ``python tests/bench/ladder.py [--up-to 24] [--limit 60] [--only grids]``.

Every instance whose largest min-fill clique has at most 2^up-to cells is solved in a child process. The answer
is compared with the published one, and the value of the returned assignment is computed again. The exit code
is 1 if anything is wrong, crashed, unreadable or above the memory limit.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import partial
from math import log2
from time import process_time
from typing import Any

from dask.utils import parse_bytes
from instances import Question, data_folder, questions
from measure import Outcome, run_child
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.answer import objective
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.result import Result

#: What bucketflow declines to read on purpose, by the words of its messages.
BY_DESIGN = ("which is not read", "a compact one")
FAILURES = ("wrong", "crashed", "unreadable", "over memory")
#: The interpreter with its libraries, which no plan counts.
INTERPRETER_BYTES = 400_000_000
_REASONS = {"out of time": "out of time", "out of memory": "over memory"}
_ERRORS = {"BudgetError": "refused", "FormatError": "unreadable"}


@dataclass(frozen=True)
class Solved:
    """What a child sends back."""

    value: Decimal | None
    log2_cells: float | None
    log2_largest: float | None
    cpu_seconds: float
    defect: str


@dataclass(frozen=True)
class Row:
    """One line of the scoreboard."""

    question: Question
    verdict: str
    outcome: Outcome

    @property
    def solved(self) -> Solved | None:
        """The child's answer, if it gave one."""
        return self.outcome.value if self.outcome.end == "done" else None

    @property
    def remark(self) -> str:
        """Why the row is not right."""
        if self.solved is None:
            return f"{self.outcome.value or ''} {self.outcome.message}".strip()
        expected = ", ".join(f"{r} ({r.source})" for r in self.question.references)
        return self.solved.defect or ("" if self.verdict == "right" else f"expected {expected}")


def solve(question: Question, options: dict[str, Any]) -> Solved:
    """Answer a question and look at the answer from outside."""
    model = bucketflow.load(question.path)
    start = process_time()
    result = bucketflow.solve(model, question.query, evidence=question.evidence, **options)
    seconds = process_time() - start
    found = result.value if model.kind == "cost" else result.log10
    value = None if found is None else Decimal(found)
    plan = result.plan
    return Solved(
        value,
        log2(plan.cells) if plan else None,
        log2(plan.cost.largest_table_cells) if plan else None,
        seconds,
        assignment_defect(model, question, result),
    )


def assignment_defect(model: bucketflow.Model, question: Question, result: Result) -> str:
    """Say what is wrong with the returned assignment; nothing if its value and evidence are those asked for."""
    if result.status != "optimal":
        return ""
    if result.assignment is None or list(result.assignment) != list(model.names):
        return "the assignment does not name every variable"
    states = [model.state_index(v, result.assignment[name]) for v, name in enumerate(model.names)]
    for v, state in bucketflow.pipeline.api.observed(model, question.evidence).items():
        if states[v] != state:
            return f"the assignment contradicts the evidence on {model.names[v]}"
    if model.kind == "cost":
        cost = model.cost(states)
        again: Any = None if cost is None else objective(model, cost)
        return "" if again == result.value else f"the assignment is worth {again}"
    again = model.log10_value(states)
    agrees = result.log10 is not None and abs(again - result.log10) <= 1e-9 * max(1.0, abs(again))
    return "" if agrees else f"the assignment is worth {again}"


def judge(question: Question, outcome: Outcome) -> Row:
    """Compare an outcome with the known answers."""
    if outcome.end == "done":
        solved: Solved = outcome.value
        agrees = not solved.defect and all(r.agrees(solved.value) for r in question.references)
        return Row(question, "right" if agrees else "wrong", outcome)
    if outcome.end == "raised":
        named = any(words in outcome.message for words in BY_DESIGN)
        return Row(question, "refused by name" if named else _ERRORS.get(outcome.value, "crashed"), outcome)
    return Row(question, _REASONS.get(outcome.end, "crashed"), outcome)


def table_of(rows: Sequence[Row]) -> Table:
    """Lay the rows out."""
    table = Table(title="Known answers (log2 cells: largest clique of min-fill; our plan in all; its largest table)")
    table.add_column("instance", overflow="fold")
    table.add_column("query")
    for heading in ("clique", "cells", "table", "ours", "known"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for heading in ("CPU-s", "MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("remark", overflow="fold")
    for row in rows:
        table.add_row(*cells_of(row), style=None if row.verdict == "right" else "bold")
    return table


def cells_of(row: Row) -> list[str]:
    """Return the texts of one line."""
    question, solved = row.question, row.solved
    seconds = solved.cpu_seconds if solved else row.outcome.cpu_seconds
    return [
        question.name,
        question.query,
        f"{question.log2_clique:.1f}",
        _log(solved and solved.log2_cells),
        _log(solved and solved.log2_largest),
        _answer(solved),
        str(question.references[0]),
        row.verdict,
        f"{seconds:.2f}",
        f"{row.outcome.peak_bytes / 1e6:.0f}",
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
    parser.add_argument("--only", default="", metavar="SUBSTR", help="part of the path")
    parser.add_argument("--query", choices=["all", "optimum", "partition"], default="all")
    parser.add_argument("--tree", choices=["refined", "bucket", "junction"], default="refined")
    parser.add_argument("--fit", help="how a plan is made to fit, where this version has the choice")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Question]:
    """Return the questions with a known answer that the command line asks for, smallest first."""
    found = [
        q
        for q in questions(data_folder())
        if q.references
        and options.start <= q.log2_clique <= options.up_to
        and options.only in q.name
        and options.query in ("all", q.query)
    ]
    return sorted(found, key=lambda q: (q.log2_clique, q.name))


def main() -> int:
    """Run the ladder and print it."""
    options = arguments()
    known = {field.name for field in fields(Options)}
    given = {key: value for key in ("memory", "tree", "fit") if (value := getattr(options, key)) is not None}
    passed = {key: value for key, value in given.items() if key in known}
    asked = chosen(options)
    rows: list[Row] = []
    try:
        for question in asked:
            print(f"\r{len(rows) + 1}/{len(asked)} {question.name:70.70}", end="", file=sys.stderr, flush=True)
            limit_bytes = options.memory + INTERPRETER_BYTES
            outcome = run_child(partial(solve, question, passed), seconds=options.limit, memory_bytes=limit_bytes)
            rows.append(judge(question, outcome))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    print(file=sys.stderr)
    console = Console(width=None if sys.stdout.isatty() else 220)
    console.print(table_of(rows))
    counts = Counter(row.verdict for row in rows)
    console.print(", ".join(f"{count} {word}" for word, count in counts.most_common()) or "nothing to run")
    return 1 if any(counts[word] for word in FAILURES) else 0


if __name__ == "__main__":
    sys.exit(main())
