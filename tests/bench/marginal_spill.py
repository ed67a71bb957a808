"""Marginals within small budgets: ``python tests/bench/marginal_spill.py [--only link] [--shares 4 16]``.

Each network is answered in memory, and with parts of the memory that this takes: in slices, and with its tables on
disk. Each answer is the second of a child process, its CPU seconds without planning. Memory is what the process grew
by as it ran, beside what the plan said.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from parts.instances import grid_model
from parts.measure import peak_bytes, reset_peak, run_child
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.answering import running as propagation
from bucketflow.pipeline.errors import format_bytes

NETWORKS = (
    "bn/link.bif.gz",
    "bn/munin.bif.gz",
    "bn/munin3.bif.gz",
    "bn/diabetes.bif.gz",
    "grid 12x12x4",
    "grid 20x20x2",
)
_SECONDS, _BYTES = 300.0, 8 << 30


@dataclass(frozen=True)
class Answer:
    """What one way cost; ``tables`` are all posteriors side by side."""

    plan: dict[str, Any]
    planning: float
    cpu: float
    wall: float
    grown: float
    log10: float
    tables: NDArray[np.float64]


def load(name: str) -> bucketflow.Model:
    """Read a network, or make a grid."""
    if not name.startswith("grid"):
        return bucketflow.load(data_folder() / name)
    rows, columns, states = map(int, name.split()[1].split("x"))
    return grid_model(rows, columns, states, "markov")


def answered(model: bucketflow.Model, **options: Any) -> Answer:
    """Answer twice and measure the second time."""
    bucketflow.marginals(model, threads=1, **options)
    spent: list[float] = []
    propagate = propagation.propagate

    def timed(*args: Any) -> Any:
        before = reset_peak()
        cpu, wall = time.process_time(), time.perf_counter()
        beliefs = propagate(*args)
        spent.extend((time.process_time() - cpu, time.perf_counter() - wall, peak_bytes() - before))
        return beliefs

    propagation.propagate = timed
    found = bucketflow.marginals(model, threads=1, **options)
    assert found.log10_evidence is not None
    tables = np.concatenate(list(found.values()))
    return Answer(found.to_dict()["plan"], found.seconds["plan"], *spent, found.log10_evidence, tables)


def row(name: str, answer: Answer, whole: Answer) -> list[str]:
    """Format one way beside the way in memory."""
    plan = answer.plan
    return [
        name,
        plan["way"],
        f"{plan['tasks']:,}",
        format_bytes(plan["peak_bytes"]),
        format_bytes(int(answer.grown)),
        format_bytes(plan["disk_bytes"]),
        format_bytes(plan["disk_written_bytes"] + plan["disk_read_bytes"]),
        f"{answer.planning:.2f}",
        f"{answer.cpu:.2f}",
        f"{answer.cpu / whole.cpu:.2f}",
        f"{answer.wall:.2f}",
        f"{np.abs(answer.tables - whole.tables).max():.1e}",
    ]


def measured(work: Callable[[], Answer], table: Table, name: str, way: str, whole: Answer | None) -> Answer | None:
    """Run one way in a child and add its row."""
    outcome = run_child(work, seconds=_SECONDS, memory_bytes=_BYTES)
    if outcome.end != "done":
        table.add_row(name, way, outcome.message[:60] or outcome.end)
        return None
    answer: Answer = outcome.value
    table.add_row(*row(name, answer, whole or answer))
    return answer


def main() -> None:
    """Measure the networks that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="networks whose name contains this")
    parser.add_argument("--shares", type=int, nargs="+", default=[4, 16], metavar="N", help="of the memory: 1/N")
    options = parser.parse_args()
    table = Table(title="marginals in memory, in slices and on disk")
    for column in (
        "network",
        "way",
        "tasks",
        "planned",
        "grown",
        "disk",
        "moved",
        "planning",
        "CPU s",
        "ratio",
        "wall s",
        "differs",
    ):
        table.add_column(column, justify="left" if column in ("network", "way") else "right")
    for name in NETWORKS:
        if options.only and options.only not in name:
            continue
        model = load(name)
        whole = measured(lambda m=model: answered(m), table, name, "memory", None)  # type: ignore[misc]
        for share in options.shares if whole else ():
            limit = whole.plan["peak_bytes"] // share
            for fit in ("slice", "spill"):
                work = lambda m=model, b=limit, f=fit: answered(m, memory=b, fit=f)  # noqa: E731
                measured(work, table, f"{name} 1/{share}", fit, whole)
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
