"""Rows within ranges, and sorted runs put together, against plain Python over dictionaries of states."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.tasks.boxes.sorted_runs import RowRun
from bucketflow.tasks.boxes.stores import ChunkFiles
from bucketflow.tasks.gpu import arrays
from bucketflow.tasks.rows.device_algebra import values_there
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.ordering import (
    KeysWithin,
    ends,
    gathered,
    inside,
    next_inside,
    put_back,
    shifted,
    union,
    where_inside,
    within,
)
from bucketflow.tasks.rows.relation import Dense, Relation, from_dense, to_dense
from bucketflow.tasks.steps.semiring import LOG_SUM, SUM_PRODUCT, Semiring, min_plus, mod_sum_product
from tests.tasks.test_relations import plus, rows_of

SEMIRINGS = [min_plus("int32", 2), SUM_PRODUCT, LOG_SUM, mod_sum_product(13)]
# of two words, of one, and one state of everything
LAYOUTS = [Keys((4, 1, 2), (1 << 40, 3, 1 << 40)), Keys((0, 2, 1), (3, 4, 2)), Keys((5,), (1,))]


def relation(keys: Keys, semiring: Semiring, rows: int, rng: np.random.Generator) -> Relation:
    states = np.array([rng.integers(0, min(d, 4), rows) for d in keys.dims])
    values = rng.integers(1, 9, rows).astype(semiring.dtype)
    return gathered(keys, keys.pack(states), values, semiring)


@given(st.sampled_from(SEMIRINGS), st.sampled_from(LAYOUTS), st.lists(st.integers(0, 30), min_size=1, max_size=5))
def test_runs_are_summed(semiring: Semiring, keys: Keys, rows: list[int]) -> None:
    rng = np.random.default_rng(sum(rows))
    runs = [relation(keys, semiring, count, rng) for count in rows]
    wanted: dict[tuple[int, ...], list[float]] = {}
    for run in runs:
        for states, value in rows_of(run, semiring).items():
            wanted.setdefault(states, []).append(value)
    found = rows_of(union(runs, semiring), semiring)
    sums = {states: plus(semiring, values) for states, values in wanted.items()}
    assert found == pytest.approx({states: value for states, value in sums.items() if value != semiring.zero})


@given(st.sampled_from(LAYOUTS), st.integers(0, 40), st.tuples(st.integers(0, 3), st.integers(1, 4)))
def test_rows_within_ranges(keys: Keys, rows: int, part: tuple[int, int]) -> None:
    semiring = min_plus("int32", 2)
    table = relation(keys, semiring, rows, np.random.default_rng(rows))
    dims = dict(zip(keys.variables, keys.dims, strict=True))
    ranges = {v: (min(part[0], d - 1), min(part[0] + part[1], d)) for v, d in dims.items()}
    part = within(table, ranges)
    assert isinstance(part, Relation)
    assert part.keys.dims == tuple(b - a for a, b in ranges.values())
    again = shifted(put_back(part, keys, ranges), ranges)
    assert again.keys == part.keys
    assert again.words.tobytes() == part.words.tobytes()
    found = put_back(part, keys, ranges)
    wanted = {
        states: value
        for states, value in rows_of(table, semiring).items()
        if all(a <= s < b for s, (a, b) in zip(states, ranges.values(), strict=True))
    }
    assert rows_of(found, semiring) == wanted
    starts = [a for a, _ in ranges.values()]
    moved = {tuple(s - a for s, a in zip(states, starts, strict=True)): value for states, value in wanted.items()}
    assert rows_of(part, semiring) == moved
    if len(found):
        low, high = (end.tolist()[0] for end in ends(keys, ranges))
        assert low <= found.words[0].tolist()
        assert found.words[-1].tolist() <= high
    if table.cells < 100:
        dense = within(to_dense(table, semiring), ranges)
        assert isinstance(dense, Dense)
        assert rows_of(from_dense(dense, semiring), semiring) == moved


def test_nothing_is_no_union() -> None:
    with pytest.raises(ValueError, match="nothing to unite"):
        union([], SUM_PRODUCT)


def test_parts_of_dense_tables() -> None:
    keys, semiring = Keys((0, 1), (3, 4)), min_plus("int32", 2)
    table = to_dense(relation(keys, semiring, 9, np.random.default_rng(0)), semiring)
    parts = [from_dense(table, semiring, slice(start, start + 5)) for start in range(0, 12, 5)]
    whole = from_dense(table, semiring)
    assert np.array_equal(np.concatenate([part.words for part in parts]), whole.words)
    assert np.array_equal(np.concatenate([part.values for part in parts]), whole.values)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4))
def test_the_next_key_within_ranges(parts: list[tuple[int, int, int]]) -> None:
    """Of every key, against all keys one after the other."""
    keys = Keys(tuple(range(len(parts)))[::-1], tuple([dim for dim, _, _ in parts]))
    own = [(min(first, dim - 1), min(first + more, dim)) for dim, first, more in parts]
    every = [*product(*(range(dim) for dim in keys.dims))]
    allowed = [s for s in every if all(a <= state < b for state, (a, b) in zip(s, own, strict=True))]
    found, there = next_inside(keys, keys.pack(np.array(every).T), dict(zip(keys.variables, own, strict=True)))
    for states, one, is_there in zip(every, keys.unpack(found).T.tolist(), there.tolist(), strict=True):
        wanted = min((s for s in allowed if s >= states), default=None)
        assert (tuple(one) if is_there else None) == wanted


@pytest.mark.parametrize("device", [False, pytest.param(True, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dims", [(6, 1, 5, 7), (6, 1 << 40, 5, 1 << 40)])
def test_rows_within_ranges_are_found_by_any_search(dims: tuple[int, ...], device: bool) -> None:
    """Those that follow each other by their first and last key, others one by one."""
    if device:
        pytest.importorskip("cupy", reason="CuPy is not installed")
    rng, keys = np.random.default_rng(0), Keys((3, 0, 2, 1), dims)
    states = np.array([rng.integers(0, min(d, 8), 500) for d in dims])
    rows = gathered(keys, keys.pack(states), np.ones(500, np.int32), min_plus("int32", 2))
    words = values_there([rows])[0].words if device else rows.words
    states, follow = keys.unpack(rows.words), 0
    for _ in range(100):
        chosen = {v: tuple(sorted(rng.choice(min(d, 8) + 1, 2, replace=False).tolist())) for v, d in keys.sizes.items()}
        ranges: Any = {v: chosen[v] for v in keys.variables if rng.random() < 0.5}
        own = [ranges.get(v, (0, d)) for v, d in keys.sizes.items()]
        wanted = np.all([(a <= row) & (row < b) for row, (a, b) in zip(states, own, strict=True)], axis=0)
        found = where_inside(keys, words, ranges)
        follow += isinstance(found, slice)
        found = found if isinstance(found, slice) else arrays.on_host(found)
        assert np.arange(len(rows))[found].tolist() == np.flatnonzero(wanted).tolist()
    assert 0 < follow < 100


@pytest.mark.parametrize("keys", [Keys((4, 1, 2), (40, 25, 30)), Keys((4, 1, 2), (40, 1 << 40, 1 << 40))])
def test_only_chunks_that_may_have_rows_are_read(keys: Keys, tmp_path: Path) -> None:
    """Also where the first variable of the keys has any state: of each of its states at most two chunks."""
    rng, store = np.random.default_rng(0), ChunkFiles(tmp_path)
    states = np.array([rng.integers(0, min(d, 30), 6_000) for d in keys.dims])
    rows = gathered(keys, keys.pack(states), rng.integers(1, 9, 6_000).astype("int32"), min_plus("int32", 2))
    run = RowRun("rows_1", keys, len(rows), 10, "int32", {})
    receipts = {receipt.key: receipt for receipt in run.write(store, [rows], {})}
    run = run.with_receipts(receipts) or run
    wanted = {4: (0, 40), 1: (7, 8), 2: (3, 4)}
    found = union([*run.read(store, wanted)], min_plus("int32", 2))
    assert found.words.tolist() == rows.words[inside(keys, rows.words, wanted)].tolist()
    assert len(found)
    assert len(run.between(KeysWithin(keys, wanted))) <= 30 + 1 < run.chunks // 8
