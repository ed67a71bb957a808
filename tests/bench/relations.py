"""Operations on tables of rows beside sorting as many keys, memcpy, two databases and CUBE's index tables.

``python tests/bench/relations.py [--quick] [--gpu]`` prints one table. Rates are of rows (those of the join, where
there is one; else those that go in) per CPU-second, or per second of a GPU; bytes are those of rows that go in, are
joined, and come out, each counted once. "/ keys" is the time beside that of np.sort or cupy.sort of as many keys as
come out, "/ rows" beside that of sorting them with their values by argsort, as all of these operations deliver them,
and "/ copy" beside that of reading and writing as many bytes. Peers are shown by their rates. DuckDB and Polars
(``pip install -e '.[bench]'``) run in one thread, with a column for each variable. CUBE's published method
(Bistaffa, Bombieri & Farinelli 2016, section IV) is in NumPy or CuPy: columns are reordered and sorted by the shared
variables, an index table of their states counts the rows of each, an output row finds its group in it, and the result
is sorted again.

With ``--gpu`` a second table has the instances of that paper, answered by rows on the device: with each table as
whichever takes less, and with nothing but rows (and arrays of up to 1,024 cells); seconds are of sweep and
decoding, all loaded. They are looked for where ``gpu_models.py`` looks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
from gpu_models import CASES as MODELS
from kernels import cpu_seconds
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table
from rows import device_seconds

import bucketflow
from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.answering.running import answered
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.results.result import Result
from bucketflow.tasks.rows import host
from bucketflow.tasks.rows.joins import joined, joined_reduced, semijoin, shared
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.ordering import disorder, gathered, layout, merged, moved, reordered
from bucketflow.tasks.rows.relation import Relation, from_dense, restricted, to_dense
from bucketflow.tasks.rows.row_backend import backend_of
from bucketflow.tasks.steps.policy import RowPolicy
from bucketflow.tasks.steps.semiring import min_plus

COSTS = min_plus("int32")
BITS = 5
STATES = 1 << BITS
PEERS = ("DuckDB", "Polars", "CUBE")


@dataclass(frozen=True)
class Case:
    """One operation: rows that count, bytes that it must touch, keys to sort instead, and what others take."""

    name: str
    rows: int
    nbytes: int
    keys: int
    run: Callable[[], Any]
    peers: dict[str, Callable[[], Any]] = field(default_factory=dict)


def random_relation(xp: Any, variables: Sequence[int], rows: int, seed: int) -> Relation:
    """Draw distinct rows of variables of 32 states."""
    keys = Keys(tuple(variables), (STATES,) * len(variables))
    first = xp.random.default_rng(seed)
    words = xp.unique(first.integers(0, 1 << BITS * len(variables), rows, dtype=xp.int64)).view(np.uint64)
    return Relation(keys, words.reshape(-1, 1), first.integers(1, 100, len(words), dtype=xp.int64).astype(np.int32))


def by_index_tables(a: Relation, b: Relation, scope: Sequence[int]) -> Any:
    """Join and minimise as CUBE does."""
    xp = backend_of(a.words).arrays
    common = shared(a.keys, b.keys)
    tables = []
    for table in (a, b):
        states = moved(table.words, table.keys, layout(table.keys, common))[:, 0]
        order = xp.argsort(states)
        found, counts = xp.unique(states[order], return_counts=True)
        out = layout(joined(a.keys, b.keys), scope)
        tables.append((moved(table.words, table.keys, out)[order, 0], table.values[order], found, counts))
    (left, left_values, ours, our_counts), (right, right_values, theirs, their_counts) = tables
    found = xp.intersect1d(ours, theirs)
    i, j = xp.searchsorted(ours, found), xp.searchsorted(theirs, found)
    sizes, ends = their_counts[j], xp.cumsum(our_counts[i] * their_counts[j])
    outputs = xp.arange(int(ends[-1]))
    group = xp.searchsorted(ends, outputs, side="right")
    local = outputs - (ends - our_counts[i] * their_counts[j])[group]
    row = (xp.cumsum(our_counts) - our_counts)[i][group] + local // sizes[group]
    other = (xp.cumsum(their_counts) - their_counts)[j][group] + local % sizes[group]
    keys, values = left[row] | right[other], left_values[row] + right_values[other]
    return minimised(xp, keys, values)


def minimised(xp: Any, keys: Any, values: Any) -> Any:
    """Sort rows by their keys and keep the least value of each."""
    order = xp.argsort(keys)
    keys, values = keys[order], values[order]
    starts = xp.flatnonzero(xp.concatenate([xp.ones(1, bool), keys[1:] != keys[:-1]]))
    if xp is np:
        return keys[starts], np.minimum.reduceat(values, starts)
    least = xp.full(len(starts), np.iinfo(np.int32).max, np.int32)
    heads = xp.zeros(len(keys), np.int32)
    heads[starts] = 1
    xp.minimum.at(least, xp.cumsum(heads) - 1, values)
    return keys[starts], least


def columns_of(table: Relation) -> dict[str, Any]:
    """Return a column of states for each variable, and one of costs."""
    states = table.keys.unpack(table.words).astype(np.int16)
    return {f"v{v}": row for v, row in zip(table.keys.variables, states, strict=True)} | {"cost": table.values}


class Databases:
    """DuckDB and Polars over some relations, each named by a letter."""

    def __init__(self, **tables: Relation) -> None:
        self.columns = {
            name: {
                f"v{v}": row.astype(np.int16) for v, row in zip(t.keys.variables, t.keys.unpack(t.words), strict=True)
            }
            | {"cost": t.values}
            for name, t in tables.items()
        }
        self.frames: dict[str, Any] = {}
        if find_spec("duckdb"):
            import duckdb

            self.duck = duckdb.connect(config={"threads": 1})
            for name, columns in self.columns.items():
                self.duck.register("given", columns)
                self.duck.execute(f"create table {name} as select * from given")
        if find_spec("polars"):
            import polars

            self.frames = {name: polars.DataFrame(columns) for name, columns in self.columns.items()}

    def sql(self, query: str) -> dict[str, Callable[[], Any]]:
        """Return the run of a query whose result becomes a table."""
        if not find_spec("duckdb"):
            return {}
        return {"DuckDB": lambda: self.duck.execute(f"create or replace temp table made as {query}")}

    def join(self, common: Sequence[int], scope: Sequence[int], how: str = "inner") -> dict[str, Callable[[], Any]]:
        """Return runs of the join of a and b, then the least cost of each state of `scope` where it is not empty."""
        on = [f"v{v}" for v in common]
        names = ", ".join([f"{'a' if f'v{v}' in self.columns['a'] else 'b'}.v{v}" for v in scope])
        what, last = "a.* exclude (cost), b.* exclude (cost), a.cost + b.cost as cost", ""
        if how == "semi":
            what = "*"
        elif scope:
            what, last = f"{names}, min(a.cost + b.cost)", f" group by {names}"
        query = self.sql(f"select {what} from a {how} join b using ({', '.join(on)}){last}")
        return query | self._frames(on, [f"v{v}" for v in scope], how)

    def _frames(self, on: list[str], scope: list[str], how: str) -> dict[str, Callable[[], Any]]:
        if not self.frames:
            return {}
        import polars

        def run() -> Any:
            found = self.frames["a"].lazy().join(self.frames["b"].lazy(), on=on, how=how)
            if how != "semi":
                found = found.with_columns(cost=polars.col("cost") + polars.col("cost_right"))
            return (found.group_by(scope).agg(polars.col("cost").min()) if scope else found).collect()

        return {"Polars": run}


def single_cases(xp: Any, n: int) -> list[Case]:
    """Operations on one relation."""
    a = random_relation(xp, range(8), n, 0)
    rows, nbytes = len(a), a.nbytes
    mixed = xp.random.permutation(len(a))
    words, values = a.words[mixed], a.values[mixed]
    turned = (0, 1, 2, 5, 3, 4, 6, 7)
    axes = range(4 if xp is np else 5)
    dense = to_dense(random_relation(xp, axes, STATES ** len(axes) // 10, 5), COSTS)
    parts = [Relation(a.keys, a.words[i::8].copy(), a.values[i::8].copy()) for i in range(8)]
    many = xp.random.default_rng(1).integers(0, rows, rows)
    copies, costs = a.words[many], a.values[many]
    peers = {}
    if xp is np:
        peers = Databases(a=Relation(a.keys, words, values)).sql("select * from a order by all")
    wide = [
        to_dense(random_relation(xp, scope, 40 * STATES**3, 9), COSTS) for scope in ((0, 3, 5), (1, 2, 7), (2, 4, 6))
    ]
    other, side, unordered = layout(a.keys, turned), backend_of(words), disorder((), a.keys)
    return [
        Case("keys to another layout", rows, 2 * 8 * rows, rows, lambda: moved(a.words, a.keys, other)),
        Case("sort", rows, 2 * nbytes, rows, lambda: side.gathered(words, values, None, *unordered), peers),
        Case("order of rows", rows, 2 * 8 * rows, rows, lambda: words[side.order(words)]),
        Case("one variable moved", rows, 2 * nbytes, rows, lambda: reordered(a, turned)),
        Case("groups", rows, 8 * rows, rows, lambda: side.starts(a.words)),
        Case("last summed out", rows, 2 * nbytes, rows, lambda: joined_reduced([a], range(7), COSTS)),
        Case(
            "inner summed out",
            rows,
            2 * nbytes,
            rows,
            lambda: joined_reduced([a], [v for v in range(8) if v != 4], COSTS),
        ),
        Case(
            "3 arrays, turned around",
            rows,
            2 * nbytes,
            rows,
            lambda: joined_reduced([a, *wide], range(7, 0, -1), COSTS),
        ),
        Case("8 runs merged", rows, 2 * nbytes, rows, lambda: merged(parts, COSTS)),
        Case("duplicates", rows, 2 * nbytes, rows, lambda: gathered(a.keys, copies, costs, COSTS)),
        Case("one variable fixed", rows, nbytes, rows, lambda: restricted(a, {3: 1})),
        Case("dense to rows", len(dense), 4 * len(dense), len(dense) // 10, lambda: from_dense(dense, COSTS)),
    ]


def join_cases(xp: Any, n: int) -> list[Case]:
    """Operations on two relations."""
    few = n // 16 if xp is np else n // 4  # a device is done with fewer before the next is launched
    shapes = {
        "sorted": ((range(8), few), ((6, 7, 8), STATES**3 // 2), range(7)),
        "subset": ((range(8), n), ((3, 6, 7), STATES**3 // 2), range(7)),
        "bucket": (((0, 1, 2, 4, 5, 9), n // 8), ((1, 3, 9), STATES**3 // 4), range(6)),
        "first from the smaller": (((1, 2, 3, 4, 9), n // 8), ((0, 9), STATES**2 // 4), range(5)),
        "sparse": (((0, 1, 2, 3, 4, 5), n // 4), ((3, 4, 5, 6, 7), STATES**3 * 4), (0, 1, 2, 3, 6, 7)),
    }
    cases, budget = [], 1 << 24 if xp is np else 1 << 28
    for name, ((left, rows), (right, others), scope) in shapes.items():
        a, b = random_relation(xp, left, rows, 1), random_relation(xp, right, others, 2)
        sizes, common = list[int](), shared(a.keys, b.keys)
        variables = joined(a.keys, b.keys).variables
        joined_reduced([a, b], variables, COSTS, budget, on_join=sizes.append)
        size = sum(sizes)
        run = partial(joined_reduced, [a, b], scope, COSTS, budget)
        bases = Databases(a=a, b=b) if xp is np else None
        nbytes = a.nbytes + b.nbytes + 12 * size
        if name == "sorted":
            whole = partial(joined_reduced, [a, b], variables, COSTS, budget)
            semi, full = (bases.join(common, (), "semi"), bases.join(common, ())) if bases else ({}, {})
            cases += [
                Case("semijoin", len(a), a.nbytes + b.nbytes, len(a), partial(semijoin, a, b), semi),
                Case("join", size, nbytes, size, whole, full),
            ]
        peers = bases.join(common, scope) if bases else {}
        peers["CUBE"] = partial(by_index_tables, a, b, scope)
        out = len(run())
        cases.append(Case(f"join + reduce, {name}", size, nbytes + 12 * out, out, run, peers))
    return cases


def line(
    case: Case, xp: Any, seconds: Callable[[Any], float], per_key: float, per_row: float, per_byte: float
) -> list[str]:
    """Return the figures of a case."""
    case.run()
    took = seconds(case.run)
    scale, unit = (1e9, 2) if xp is not np else (1e6, 1)
    found = [f"{case.rows / took / scale:.{unit}f}", f"{case.nbytes / took / 1e9:.1f}"]
    found += [f"{took / (case.keys * per):.2f}" for per in (per_key, per_row)]
    found.append(f"{took / (case.nbytes * per_byte):.1f}")
    for peer in PEERS:
        run = case.peers.get(peer)
        found.append(f"{case.rows / seconds(run) / scale:.{unit}f}" if run else "")
    return found


def measure(xp: Any, n: int) -> Table:
    """Return all figures of one side."""
    on_host = xp is np
    seconds = partial(cpu_seconds, repeats=3) if on_host else device_seconds
    drawn = random_relation(xp, range(8), n, 3)
    order = xp.random.permutation(len(drawn))
    mixed, values = drawn.words[order, 0], drawn.values[order]

    def by_argsort() -> tuple[Any, Any]:
        order = xp.argsort(mixed)
        return mixed[order], values[order]

    per_key, per_row = (seconds(run) / len(mixed) for run in (lambda: xp.sort(mixed), by_argsort))
    per_byte = seconds(mixed.copy) / (2 * mixed.nbytes)
    rate = "M rows/s" if on_host else "G rows/s"
    title = (
        f"{n:,} rows; {'np' if on_host else 'cupy'}.sort {1e-6 / per_key:.1f} M keys/s, "
        f"with values {1e-6 / per_row:.1f} M rows/s, copy {1e-9 / per_byte:.1f} GB/s"
    )
    table = Table("", rate, "GB/s", "/ keys", "/ rows", "/ copy", *(f"{peer} {rate}" for peer in PEERS), title=title)
    for case in single_cases(xp, n) + join_cases(xp, n):
        table.add_row(case.name, *line(case, xp, seconds, per_key, per_row, per_byte))
    return table


#: What makes every table of more than a few cells rows, and every step a join.
NOTHING_BUT_ROWS = {"cells_of_a_row": 0, "array_share": 0.0}


def instances(repeats: int = 4) -> Table:
    """Return what instances of CUBE's paper take by rows on the device."""
    headings = ("instance", "kept as", "optimum", "tables", "rows of the largest", "its cells", "first s", "s")
    table = Table(*headings, title="CUBE's instances by rows on the device")
    for case in [case for case in MODELS if case.name in ("SPOT5 54", "SPOT5 29", "SPOT5 404", "SPOT5 503")]:
        for kept in ("less", "rows"):
            with RowPolicy.using(**NOTHING_BUT_ROWS) if kept == "rows" else nullcontext():
                found, times = asked(case.file, repeats)
            work, right = found.rows_work, "" if found.value == case.answer else f", not {case.answer}"
            figures = (f"{work.tables}", f"{work.largest_rows:,}", f"{work.largest_cells:,}") if work else ("",) * 3
            table.add_row(case.name, kept, f"{found.value}{right}", *figures, f"{times[0]:.2f}", f"{min(times):.3f}")
    return table


def asked(file: str, repeats: int) -> tuple[Result, list[float]]:
    """Answer an instance some times by rows on the device."""
    question = question_of(bucketflow.load(data_folder() / file), "optimum")
    prepared, times = prepare(question, Resources(Options(representation="rows", gpus=1))), []
    for _ in range(repeats):
        start = time.perf_counter()
        found = answered(prepared, None, None, [])
        times.append(time.perf_counter() - start)
    assert isinstance(found, Result)
    return found, times


def main() -> None:
    """Measure the host, or with ``--gpu`` the device too."""
    console = Console(width=150)
    host.HOST.compiles(1 << 30)  # as if many rows were seen before
    console.print(measure(np, 100_000 if "--quick" in sys.argv else 1_000_000))
    if "--gpu" in sys.argv:
        import cupy

        console.print(measure(cupy, 50_000_000))
        console.print(instances())


if __name__ == "__main__":
    main()
