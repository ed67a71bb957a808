"""What z buys: ``python tests/bench/mini_buckets.py [--only linkage_18] [--up-to 20] [--seconds 10] [--gpus 1]``.

With ``--memory 64MB`` all tables have to fit that; from the z on where they do not, messages are on disk in a temporary
folder, which the column says. There what memory grew by is shown, too.

Bounds by mini-buckets of at most z variables, z = 2, 3, … up to 10 and from there in steps of two, beside the published
answer, with CPU-seconds of the whole call (the order is found once, before). An instance ends when nothing is split,
or when a call took longer than ``--seconds``. Partition functions are bounded where one is published.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from parts.instances import Question, questions
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow import Bounds, BudgetError, Model
from bucketflow.pipeline.errors import format_bytes
from bucketflow.pipeline.formats.read import split_evidence
from bucketflow.pipeline.orders.depth_first import depth_first_order
from bucketflow.pipeline.preprocessing.preprocess import reduce_model

NAMES = ("54.wcsp", "CELAR6-SUB0", "linkage_18", "Grids_11", "Grids_28", "75-26-5", "Promedas_35", "pdb1a62")


def main() -> None:
    """Print a table for each instance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="a part of the instance's name")
    parser.add_argument("--up-to", type=int, default=24, help="largest z")
    parser.add_argument("--seconds", type=float, default=10.0, help="the last z is the first that takes so long")
    parser.add_argument("--gpus", type=int, help="join on a GPU")
    parser.add_argument("--memory", help="of all tables; what does not fit goes to disk")
    options = parser.parse_args()
    wanted = NAMES if options.only is None else (options.only,)
    for question in questions(data_folder()):
        name = question.path.name
        if any(part in name for part in wanted) and (question.query == "optimum" or question.references):
            Console().print(table_of(question, options))


def table_of(question: Question, options: argparse.Namespace) -> Table:
    """Bounds by z of one question."""
    known = question.references[0] if question.references else None
    table = Table(title=f"{question.name}, {question.query}, {known or 'unknown'}")
    for column in ("z", "largest", "lower", "upper", "proved gap %", "CPU-s", "wall s", "on disk", "grown"):
        table.add_column(column, justify="right")
    model = bucketflow.load(question.path)
    order = order_of(model, question)
    for z in range(2, options.up_to + 1, 1):
        if z > 10 and z % 2:
            continue
        cpu, wall = time.process_time(), time.perf_counter()
        reset_peak()
        before = resident("VmRSS")
        try:
            found = bound_of(model, question, order, z, options)
        except BudgetError:
            break
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        grown = format_bytes(max(0, resident("VmHWM") - before))
        table.add_row(*row_of(z, found, model, None if known is None else known.value, cpu, wall), grown)
        if wall > options.seconds or all(each.exact for each in found.rounds):
            break
    return table


def bound_of(model: Model, question: Question, order: list[str], z: int, options: argparse.Namespace) -> Bounds:
    """Bounds by one z; on disk where a memory is given that they do not fit."""
    ask = partial(bucketflow.bound, model, question.query, evidence=question.evidence, z=z, order=order)
    if options.memory is None:
        return ask(gpus=options.gpus)
    with TemporaryDirectory() as folder:
        return ask(gpus=options.gpus, memory=options.memory, workdir=folder)


def reset_peak() -> None:
    """Let the peak of resident memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(key: str) -> int:
    """Bytes of this process, now or at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])


def order_of(model: Model, question: Question) -> list[str]:
    """Names in the order of elimination; the same for every z."""
    network = reduce_model(model, question.query, split_evidence(model, question.evidence)[0])
    return [model.names[network.variables[v]] for v in depth_first_order(network.dims, network.scopes)]


def row_of(z: int, found: Bounds, model: Model, known: Decimal | None, cpu: float, wall: float) -> Iterator[str]:
    """Cells of one line; the gap is between the bound that is proved and the answer, or the assignment."""
    yield str(z)
    yield f"{found.rounds[0].largest:,}" if found.rounds else "0"
    yield from (("-" if x is None else f"{x:.10g}") for x in (found.lower, found.upper))
    least = model.kind == "cost" and not model.maximize
    proved, other = (found.lower, found.upper) if least else (found.upper, found.lower)
    best = float(known) if known is not None else other if other is None else float(other)
    yield "-" if best is None or proved is None else f"{100 * abs(best - float(proved)) / max(abs(best), 1e-9):.3g}"
    yield f"{cpu:.2f}"
    yield f"{wall:.2f}"
    disk = sum(each.disk_bytes for each in found.rounds)
    yield format_bytes(disk) if disk else "-"


if __name__ == "__main__":
    main()
