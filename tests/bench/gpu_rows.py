"""Tables of rows on devices: ``python tests/bench/gpu_rows.py [join] [cube] [cards] [--quick]``; not cards by default.

"join": rows of three variables lie in a Zarr array of twenty times what the device may take; boxes read them, join them
with a table of one variable, minimise that variable, and write what is left. The floor is the time
that the bytes of these rows take over the link alone, as one copy from page-locked memory; "files" is the time that
as many threads take in Python to read and check the chunks and do nothing with them. Boxes read by compiled code, as
a run does that has read some gigabytes.

"cube": the instances of Bistaffa, Bombieri & Farinelli 2016 (table III, a Tesla K40), by rows on the host, in the
device's memory, and through it with ``--gpu-memory`` so small that tables of rows are on disk.

"cards": one card beside two. First joins alone, of tables that lie on the first card: "looked up" multiplies rows with
an array and sums in place, "meets" joins each row with four others, "grows" with 256, "sorts" sums in another order.
Then whole questions: instances, and a ring of four variables whose two halves are large joins that both lead to a
larger one. "between" is what went from card to card; answers, and of joins alone all rows, are compared bit for bit.
"""

from __future__ import annotations

import argparse
import faulthandler
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.cluster.pool import Call, DeviceThreads, Node, SerialPool, ThreadPool
from bucketflow.pipeline.models.function import Function
from bucketflow.pipeline.runs.pools import open_tables
from bucketflow.pipeline.runs.row_devices import DeviceTeam
from bucketflow.tasks.boxes.device_stores import BufferedFiles
from bucketflow.tasks.boxes.row_box import RowBoxes, chunk_bytes, known_run, row_box_phases, run_row_box
from bucketflow.tasks.boxes.sorted_runs import RowRun
from bucketflow.tasks.gpu import arrays
from bucketflow.tasks.rows.algebra import PlainRows, Representation
from bucketflow.tasks.rows.device_algebra import rows_there
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.memory_account import MemoryAccount, RowsNoRoomError
from bucketflow.tasks.rows.ordering import Ranges, concatenated
from bucketflow.tasks.rows.relation import Dense, Relation
from bucketflow.tasks.steps.policy import BoxPolicy
from bucketflow.tasks.steps.semiring import min_plus
from bucketflow.tasks.steps.step import Step, make_step
from bucketflow.tasks.sweeps.sweep import Plain

COSTS = min_plus("int32")
#: States of the variables of the stored rows, and how many rows a pair of the first two has.
SIZES = (1 << 10, 1 << 10, 1 << 12)
#: Runs of which the shortest counts.
RUNS = 4
#: Instance, file, seconds of the paper, what the device may take; without ternary functions where the paper has none.
CUBE = (
    ("54", "wcsp/spot5/54.wcsp", "3.01", "4MB"),
    ("29", "wcsp/spot5/29.wcsp", "5.36", "8MB"),
    ("404", "wcsp/spot5/404.wcsp.xz", "12.4", "12MB"),
    ("503", "wcsp/spot5/503.wcsp", "17.5", "4MB"),
    ("505, binary", "wcsp/spot5_orig/505.wcsp.xz", "", "64MB"),
    ("408, binary", "wcsp/spot5_orig/408.wcsp.xz", "", "64MB"),
)


def blocks(each: int, keys: Keys) -> Iterator[Relation]:
    """Yield rows in order: of every pair of the first two variables so many states of the third."""
    rng = np.random.default_rng(0)
    _, b, c = SIZES
    for a in range(SIZES[0]):
        first = np.full(b * each, a)
        third = (np.arange(each)[None, :] * (c // each) + rng.integers(0, c // each, (b, each))).reshape(-1)
        words = keys.pack(np.stack([first, np.repeat(np.arange(b), each), third]))
        yield Relation(keys, words, rng.integers(0, 1000, len(words)).astype(np.int32))


def stored_rows(store: BufferedFiles, each: int, budget: int) -> RowRun:
    """Write the rows."""
    keys = Keys((0, 1, 2), SIZES)
    rows = SIZES[0] * SIZES[1] * each
    run = RowRun("rows_1", keys, rows, chunk_bytes(budget, device=True) // 12, "int32", {})
    receipts = {receipt.key: receipt for receipt in run.write(store, blocks(each, keys), {})}
    found = run.with_receipts(receipts)
    assert found is not None
    return found


def tasks_seconds(pool: SerialPool, tasks: int, call: Callable[[int], Call]) -> float:
    """Return the seconds of so many tasks."""
    nodes = {i: Node(set(), call) for i in range(tasks)}
    start = time.perf_counter()
    for _, found in pool.run_graph(nodes):
        if isinstance(found, BaseException):
            raise found
    return time.perf_counter() - start


def link_seconds(nbytes: int) -> float:
    """Return the seconds that so many bytes take from page-locked memory to the device."""
    import cupy

    from bucketflow.tasks.gpu.memory import Pinned, to_device

    part = min(nbytes, 1 << 28)
    block, there = Pinned().take(part)[:part], cupy.empty(part, np.uint8)
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        to_device(block, there)
        cupy.cuda.Device().synchronize()
        best = min(best, time.perf_counter() - start)
    return float(best * nbytes / part)


def join(quick: bool) -> Table:
    """Measure a join whose input is twenty times what the device may take."""
    table = Table("rows", "bytes", "device", "boxes", "link s", "files s", "s", "/ link", "/ files", "GB/s")
    table.title = "a join and its reduction of rows on disk"
    for each in (128,) if quick else (128, 512):
        with tempfile.TemporaryDirectory() as folder, BoxPolicy.using(compiled_read_bytes=0):
            table.add_row(*one_join(Path(folder), each))
    return table


def one_join(folder: Path, each: int) -> list[str]:
    """Return the figures of a join."""
    store = BufferedFiles(folder / "tables")
    open_tables(SerialPool(), store.folder, {})
    nbytes = SIZES[0] * SIZES[1] * each * 12
    budget = nbytes // 20
    run = stored_rows(store, each, budget)
    room = MemoryAccount(budget)
    algebra: Any = rows_there(PlainRows(Representation(COSTS, SIZES, room), Plain(COSTS)))
    policy = BoxPolicy.current()
    step = make_step(3, (1, 2), ((0, 1, 2), (2,)), (0, 1), SIZES, COSTS, keep=False)
    costs = np.random.default_rng(1).integers(0, 1000, SIZES[2]).astype(np.int32)
    boxes: Any = RowBoxes(step, algebra, COSTS, SIZES, store, {2: costs}, {1: [run]}, "rows_3", budget, device=True)
    parts = 20 * policy.device_input_part * 5 // 4
    edges = np.linspace(0, SIZES[0], min(parts, SIZES[0]) + 1).astype(int).tolist()
    ranges = [{0: (first, stop)} for first, stop in pairwise(edges)]
    run_row_box(boxes, (len(ranges),), ranges[0], 1)  # compiled and loaded
    seconds = np.inf
    for number in range(3, 3 + RUNS):
        again = replace(boxes, name=f"rows_{number}")
        taken = tasks_seconds(SerialPool(), len(ranges), partial(_box_call, again, ranges))
        seconds = min(seconds, taken)
    check(boxes, run, ranges[0], costs)

    def read(i: int) -> None:
        for spec, receipt in zip(run.specs, run.receipts[i], strict=True):
            store.load(spec, np.empty((1, *spec.chunk_shape[1:]), spec.dtype), [receipt], {0: i})

    files = min(tasks_seconds(ThreadPool(policy.reading_threads), run.chunks, lambda i: (read, i)) for _ in range(RUNS))
    link = link_seconds(nbytes)
    counts = [f"{run.rows:,}", f"{nbytes / 1e9:.2f} GB", f"{budget / 1e6:.0f} MB", f"{len(ranges)}"]
    times = [f"{link:.3f}", f"{files:.3f}", f"{seconds:.3f}", f"{seconds / link:.2f}", f"{seconds / files:.2f}"]
    return [*counts, *times, f"{nbytes / seconds / 1e9:.2f}"]


def _box_call(boxes: Any, ranges: Sequence[Ranges], i: int) -> Call:
    """Return the call of a box."""
    return row_box_phases, boxes, (i,), ranges[i], 1


def check(boxes: Any, run: RowRun, ranges: Ranges, costs: Any) -> None:
    """Compare what a box wrote with NumPy's answer."""
    receipts = boxes.store.known({})
    made = known_run(receipts["rows_3", (0,)], boxes.keys, receipts)
    assert made is not None
    (found,) = made.read(boxes.store, {})
    (part,) = [concatenated([*run.read(boxes.store, ranges)])]
    states = [
        part.words[:, 0] >> np.uint64(shift) & np.uint64((1 << n) - 1) for _, shift, n in run.keys.fields.values()
    ]
    keys = boxes.keys.pack(np.stack(states[:2]).astype(np.int64))[:, 0]
    sums, starts = part.values + costs[states[2].astype(int)], np.flatnonzero(np.diff(keys, prepend=keys[0] + 1))
    assert np.array_equal(found.words[:, 0], keys[starts])
    assert np.array_equal(found.values, np.minimum.reduceat(sums, starts))


def cube(quick: bool) -> Table:
    """Measure the instances of CUBE's paper."""
    table = Table("instance", "optimum", "paper s", "host s", "device s", "through it s", "written", "boxes may take")
    table.title = "CUBE's instances by rows"
    for name, file, paper, memory in CUBE[:3] if quick else CUBE:
        model = bucketflow.load(data_folder() / file)
        if "binary" in name:
            model = replace(model, functions=tuple(f for f in model.functions if len(f.scope) < 3))
        optimum = bucketflow.solve(model).value
        host, device = asked(model, optimum, 60), asked(model, optimum, 60, gpus=1)
        stored = asked(model, optimum, 100, gpus=1, fit="spill", gpu_memory=memory)
        told = [f"{times:.3f}" if found else why for times, found, why in (host, device, stored)]
        written = f"{stored[1].rows_work.written_bytes:,}" if stored[1] else ""
        table.add_row(name, str(optimum), paper, *told, written, memory)
    return table


def asked(model: Any, optimum: int, limit: float, **options: Any) -> tuple[float, Any, str]:
    """Return the least seconds of two runs, and the last answer; or why there is none."""
    best, found = np.inf, None
    for _ in range(2):
        start = time.perf_counter()
        try:
            found = bucketflow.solve(model, representation="rows", **options)
        except bucketflow.BucketflowError as error:
            return best, None, str(error).split(";")[0]
        best = min(best, time.perf_counter() - start)
        if found.value != optimum:
            return best, None, f"{found.value}, not {optimum}"
        if best > limit / 2:
            break
    return float(best), found, ""


#: Of the joins alone: states of the variables, of whose cells rows are drawn; the rows that a join may have.
CARD_SIZES, CARD_JOINED_ROWS = (1 << 12, 1 << 10, 1 << 8), 1 << 31
#: Instance, file, question, whether without ternary functions; and the states and neighbours of the ring.
CARD_QUESTIONS = (
    ("54", "wcsp/spot5/54.wcsp", "optimum"),
    ("29", "wcsp/spot5/29.wcsp", "optimum"),
    ("404", "wcsp/spot5/404.wcsp.xz", "optimum"),
    ("503", "wcsp/spot5/503.wcsp", "optimum"),
    ("505, binary", "wcsp/spot5_orig/505.wcsp.xz", "optimum"),
    ("408, binary", "wcsp/spot5_orig/408.wcsp.xz", "optimum"),
    ("29", "wcsp/spot5/29.wcsp", "count"),
    ("404", "wcsp/spot5/404.wcsp.xz", "count"),
)
CARD_RING = 1 << 16, 32
#: A bench that takes longer than so many seconds says where, and ends.
CARD_SECONDS = 140.0


class Between:
    """Bytes that go from card to card."""

    def __init__(self) -> None:
        self.nbytes, self._copy = 0, arrays.copy_to

    def __call__(self, card: int, source: Any, target: Any) -> None:
        """Count and copy."""
        self.nbytes += source.nbytes
        self._copy(card, source, target)


def card_joins(quick: bool) -> Table:
    """Measure joins of tables on the first card, done there and by both."""
    table = Table("join", "rows", "one card s", "two s", "gain", "between", "rows left", "same")
    table.title = "joins by ranges of keys on two cards"
    pool = DeviceThreads(2, 1)
    team = DeviceTeam(pool, [MemoryAccount(40 << 30), MemoryAccount(40 << 30)])
    for exponent in (12, 14) if quick else (18, 20, 21, 22, 23, 24, 26, 28):
        for kind, step, tables in card_cases(1 << exponent):
            try:
                table.add_row(kind, f"2^{exponent}", *one_card_join(team, step, tables))
            except RowsNoRoomError:
                table.add_row(kind, f"2^{exponent}", "no room")
            tables.clear()
            team.close()
            arrays.free_pools()
    return table


def one_card_join(team: DeviceTeam, step: Step, tables: Sequence[Any]) -> list[str]:
    """Return the figures of a join of tables on the present card."""
    given: Any = PlainRows(Representation(COSTS, (*CARD_SIZES, 1 << 10), team.rooms[0]), Plain(COSTS))
    choice = cast(Any, rows_there(given)).choice
    alone, one = least_seconds(lambda: finished_on(choice.joined_there(step, tables)))
    with patch.object(arrays, "copy_to", Between()) as between:
        both, two = least_seconds(lambda: finished_on(team.joined(choice, step, tables)))
    same = bool((one.words == two.words).all()) and one.values.tobytes() == two.values.tobytes()
    figures = [f"{alone:.5f}", f"{both:.5f}", f"{alone / both:.2f}", f"{between.nbytes / RUNS / 1e6:.1f} MB"]
    return [*figures, f"{len(one):,}", str(same)]


def card_cases(rows: int) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield joins by name: the step, and its tables on the present card."""
    from bucketflow.tasks.gpu.kernels import cupy

    cp, sizes = cupy(), (CARD_SIZES[0], CARD_SIZES[1], CARD_SIZES[2], 1 << 10)
    keys = Keys((0, 1, 2), sizes[:3])
    apart = (1 << 30) // rows
    numbers = cp.arange(rows, dtype=np.uint64)
    drawn = numbers * np.uint64(2654435761) >> np.uint64(7)
    numbers = numbers * np.uint64(apart) + drawn % np.uint64(apart)
    values = (drawn % np.uint64(1000)).astype(np.int32)
    many = Relation(keys, numbers.reshape(-1, 1), values)
    array = Dense(Keys((2,), sizes[2:3]), cp.arange(sizes[2], dtype=np.int32))
    for kind, scope, each in (
        ("looked up", (0, 1), 0),
        ("meets", (0, 1, 3), 4),
        ("grows", (0, 1), 256),
        ("sorts", (2, 0), 0),
    ):
        if each * rows > CARD_JOINED_ROWS:
            continue
        inputs: list[Any] = [many, array]
        if each:
            pairs = np.stack([np.repeat(np.arange(sizes[2]), each), np.arange(sizes[2] * each) % sizes[3]])
            meeting = Keys((2, 3), sizes[2:])
            inputs[1] = Relation(meeting, cp.asarray(meeting.pack(pairs)), cp.arange(len(pairs[0]), dtype=np.int32))
        read = tuple(one.keys.variables for one in inputs)
        yield kind, make_step(9, (1, 2), read, scope, sizes, COSTS, keep=False), inputs


def least_seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least seconds of some calls, and what the last returned."""
    best, found = np.inf, None
    for _ in range(RUNS):
        found = None
        start = time.perf_counter()
        found = function()
        best = min(best, time.perf_counter() - start)
    return float(best), found


def finished_on(relation: Relation) -> Relation:
    """Return rows that are done."""
    from bucketflow.pipeline.runs.row_devices import finished

    finished()
    return relation


def card_questions(quick: bool) -> Table:
    """Measure whole questions on one card and on two."""
    table = Table("instance", "question", "answer", "one card s", "two s", "gain", "between", "joined", "same")
    table.title = "questions by rows in memory, on one card and on two"
    states, each = (1 << 10, 8) if quick else CARD_RING
    models: list[tuple[str, Any, str]] = [("ring", row_ring(states, each), "optimum")]
    for name, file, query in CARD_QUESTIONS[:2] if quick else CARD_QUESTIONS:
        model = bucketflow.load(data_folder() / file)
        if "binary" in name:
            model = replace(model, functions=tuple(f for f in model.functions if len(f.scope) < 3))
        models.append((name, model, query))
    for name, model, query in models:
        one = timed_answer(model, query, 1)
        with patch.object(arrays, "copy_to", Between()) as between:
            two = timed_answer(model, query, 2)
        same = answer_of(one[1]) == answer_of(two[1])
        seconds = [f"{times:.3f}" for times, _ in (one, two)]
        more = [f"{one[0] / two[0]:.2f}", f"{between.nbytes / 2e6:.1f} MB", f"{two[1].rows_work.joined_rows:,}"]
        table.add_row(name, query, str(one[1].value), *seconds, *more, str(same))
        print(name, query, *seconds, *more, same, flush=True)
    return table


def answer_of(result: Any) -> tuple[Any, Any]:
    """Return what has to be the same on any number of cards."""
    return result.value, result.to_dict().get("assignment")


def timed_answer(model: Any, query: str, gpus: int) -> tuple[float, Any]:
    """Return the lesser seconds of two runs by rows, and the answer."""
    best, found = np.inf, None
    for _ in range(2):
        start = time.perf_counter()
        found = bucketflow.solve(model, query, representation="rows", gpus=gpus)
        best = min(best, time.perf_counter() - start)
    return float(best), found


def row_ring(states: int, each: int) -> Any:
    """Return a ring of four variables, each state of which has so many neighbours of the next variable."""
    rng, functions = np.random.default_rng(3), []
    for first in range(4):
        pairs = np.stack([np.repeat(np.arange(states), each), rng.integers(0, states, states * each)], axis=1)
        rows = np.unique(pairs, axis=0)
        functions.append(Function((first, (first + 1) % 4), rng.integers(0, 1000, len(rows)), rows, default=1 << 20))
    names = {f"x{i}": states for i in range(4)}
    found = bucketflow.Model.build("cost", names, [])
    return replace(found, functions=tuple(functions), top=1 << 20)


def cards(quick: bool) -> Iterator[Table]:
    """Measure one card beside two; ends by itself where that hangs."""
    faulthandler.dump_traceback_later(CARD_SECONDS, exit=True)
    yield card_joins(quick)
    yield card_questions(quick)
    faulthandler.cancel_dump_traceback_later()


PARTS: dict[str, Callable[[bool], Iterable[Table]]] = {
    "join": lambda quick: [join(quick)],
    "cube": lambda quick: [cube(quick)],
    "cards": cards,
}


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["join", "cube"], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="smaller ones")
    options = parser.parse_args()
    if unknown := {*options.parts} - {*PARTS}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    console = Console(width=160)
    for name in options.parts:
        for table in PARTS[name](options.quick):
            console.print(table)


if __name__ == "__main__":
    main()
