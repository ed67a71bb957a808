"""The device's loops, run cell by cell in NumPy: every output cell is written once, and rightly."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.tasks.cpu.numpy_blocks import run_blocks
from bucketflow.tasks.gpu.tiling.brick_layout import Brick, BrickSlice
from bucketflow.tasks.gpu.tiling.buckets import GROUPS, STATES, TABLE_BYTES, TURNS, Bucket, BucketJoin, one_launch
from bucketflow.tasks.gpu.tiling.device_lowering import device_step
from bucketflow.tasks.gpu.tiling.pass_prices import passes_seconds
from bucketflow.tasks.gpu.tiling.passes import (
    BrickPass,
    BucketPass,
    DeviceStep,
    JoinPass,
    ProductPass,
    ReorderPass,
    RowsPass,
    StreamPass,
    device_step_of,
)
from bucketflow.tasks.gpu.tiling.product_tiles import step_depth
from bucketflow.tasks.gpu.tiling.reorders import MOST_ITEMS, Reorder, reorder_tiles
from bucketflow.tasks.gpu.tiling.streams import DEEP_STATES, THREADS, Axis, Stream
from bucketflow.tasks.gpu.tiling.tiling_policy import TilingPolicy
from bucketflow.tasks.steps.lowering import Lowered, lower
from bucketflow.tasks.steps.semiring import MIN_PLUS, min_plus
from tests.drawn_steps import STEP_FAMILIES, drawn_steps


def offsets(axes: Sequence[Axis], table: int) -> np.ndarray:
    """Where the cells of a group of axes lie in an input, or in the output for -1."""
    at = np.zeros(1, np.int64)
    for axis in axes:
        stride = axis.out if table < 0 else axis.strides[table]
        at = (at[:, None] + np.arange(axis.size) * stride).reshape(-1)
    return at


def present(axes: Sequence[Axis], index: int, cut: tuple[int, int, int]) -> int:
    """Items of block number ``index``, as in ``cuda/stream.cu``."""
    part, size, inner = cut
    digit = index % axes[-1].size if axes else 0
    return (min(part, size - digit * part) if part < size else part) * inner


def run_stream(stream: Stream, tables: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Run one launch: minimum of sums."""
    tiles, low, blocks, states = stream.segments
    count = stream.cut[0] * stream.cut[2]
    assert count <= THREADS * stream.positions
    assert math.prod(a.size for a in low) == count
    lanes = np.arange(stream.width)
    assert stream.unrolled or math.prod(a.size for a in states) <= DEEP_STATES
    for tile in range(stream.tiles):
        positions = present(tiles, tile, stream.cut)
        at = offsets(tiles, -1)[tile] + offsets(low, -1)[:positions, None] + lanes
        best = np.full(at.shape, np.inf)
        for block in range(stream.deep_blocks):
            n = stream.unrolled or present(blocks, block, stream.deep)
            total = np.zeros((positions, n, stream.width))
            for i, table in enumerate(tables):
                deep = np.array(stream.shifts[i]) if stream.unrolled else offsets(states, i)[:n]
                base = offsets(tiles, i)[tile] + offsets(blocks, i)[block]
                cells = base + offsets(low, i)[:positions, None] + deep
                assert not stream.vectors[i] or (cells % stream.width == 0).all()
                total += table[cells[..., None] + lanes * stream.lanes[i]]
            best = np.minimum(best, total.min(axis=1))
        assert np.isnan(out[at]).all(), "written twice"
        assert stream.width == 1 or (at[:, 0] % stream.width == 0).all()
        out[at] = best


def run_reorder(reorder: Reorder, table: np.ndarray, out: np.ndarray) -> None:
    """Run one launch, tile by tile."""
    tiles, *halves = reorder.segments
    assert all(math.prod([a.size for a in half]) <= THREADS for half in halves)
    read, written = halves[0] + halves[1], halves[2] + halves[3]
    lanes = np.arange(reorder.width)
    assert reorder.items <= THREADS * reorder.items_of_thread <= THREADS * MOST_ITEMS
    assert math.prod(a.size for a in read) == math.prod(a.size for a in written) == reorder.items
    assert math.prod(a.size for a in tiles) == reorder.tiles
    for first, start in zip(offsets(tiles, 0), offsets(tiles, -1), strict=True):
        held = np.full((reorder.items, reorder.width), np.nan)
        held[offsets(read, -1)] = table[(first + offsets(read, 0)[:, None]) * reorder.width + lanes]
        at = (start + offsets(written, -1)[:, None]) * reorder.width + lanes
        assert np.isnan(out[at]).all(), "written twice"
        out[at] = held


def run_bucket(bucket: Bucket, tables: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Run one launch, block by block: minimum of sums, up to partial sums."""
    blocks, parts, steps, turns, states, across, along, vector = bucket.segments
    counts = bucket.counts
    assert sorted(t for group in bucket.groups for t in group) == list(range(len(tables)))
    assert counts[3] <= TURNS
    assert counts[4] <= STATES
    assert counts[5] * counts[6] <= THREADS
    assert counts[3] == 1 or counts[2] == counts[6] == 1, "a thread keeps sums of one output over steps or for others"
    assert bucket.first[-1] + bucket.cells[-1] <= TABLE_BYTES // 8
    assert len(bucket.groups) <= GROUPS
    outputs, deep = (*turns, *across), (*states, *along)
    for block, place in enumerate(offsets((*blocks, *parts), -1)):
        best = np.full(counts[3] * counts[5], np.inf)
        for step in range(counts[2]):
            bases = [offsets((*blocks, *parts), t)[block] + offsets(steps, t)[step] for t in range(len(tables))]
            total = np.zeros((best.size, counts[4] * counts[6], counts[7]))
            for number in range(len(bucket.groups)):
                total += shared_values(bucket, number, bases, tables, (outputs, deep, vector))
            best = np.minimum(best, total.min(axis=(1, 2)))
        at = place + offsets(outputs, -1)
        assert np.isnan(out[at]).all(), "written twice"
        out[at] = best


def shared_values(
    bucket: Bucket,
    number: int,
    bases: Sequence[int],
    tables: Sequence[np.ndarray],
    wanted: Sequence[Sequence[Axis]],
) -> np.ndarray:
    """Join a group in a shared table, and read what each output, state and lane of a vector needs."""
    group, lanes = bucket.groups[number], bucket.counts[7]
    local = [axis for segment in bucket.segments[3:] for axis in segment]
    inner = {id(axis): Axis(axis.size, (place,), 0) for axis, place in zip(local, bucket.inner[number], strict=True)}
    held = [axis for axis in local if inner[id(axis)].strides[0]]
    shared = np.full(bucket.cells[number], np.nan)
    shared[offsets([inner[id(axis)] for axis in held], 0)] = sum(tables[t][bases[t] + offsets(held, t)] for t in group)
    assert not np.isnan(shared).any()
    outputs, deep, vector = (offsets([inner[id(axis)] for axis in axes], 0) for axes in wanted)
    at = outputs[:, None, None] + deep[:, None]
    wide = bucket.wide[number]
    assert not wide or ((bucket.first[number] + at) % lanes == 0).all()
    assert (vector == (np.arange(lanes) if wide else 0)).all()
    return shared[at + vector]


def mixed(sizes: Sequence[int], steps: Sequence[int]) -> np.ndarray:
    """Where every item of some axes lies; the first axis varies fastest."""
    at = np.zeros(1, np.int64)
    for size, step in zip(sizes, steps, strict=True):
        at = (np.arange(size)[:, None] * step + at).reshape(-1)
    return at


def fetched(piece: BrickSlice, table: np.ndarray, base: int, threads: int) -> np.ndarray:
    """Copy a brick's part of an input, as all threads together do."""
    shared = np.full(piece.cells, np.nan)
    assert math.prod(c.size for c in piece.near) <= threads
    source, target = (
        mixed([c.size for c in piece.near + piece.far], [getattr(c, side) for c in piece.near + piece.far])
        for side in ("source", "target")
    )
    assert not ((source + base) % piece.unit).any()
    assert piece.spread or not ((target + piece.start) % piece.unit).any()
    cells = np.arange(piece.unit)
    at = target[:, None] + cells * (piece.spread or 1)
    assert np.isnan(shared[at]).all()
    shared[at] = table[base + source[:, None] + cells]
    return shared


def brick_numbers(brick: Brick) -> Iterator[int]:
    """Yield the bricks of every block, as in ``cuda/brick.cu``."""
    bricks = math.prod(a.size for a in brick.bricks)
    assert brick.blocks * brick.run <= bricks
    for block in range(brick.blocks):
        mine = 0
        while (number := (mine // brick.run * brick.blocks + block) * brick.run + mine % brick.run) < bricks:
            yield number
            mine += 1


def run_brick(brick: Brick, tables: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Run one launch: minimum of sums, a value with the same rows or columns read once for all of them."""
    threads_end, inner_end = brick.ends
    parts = (slice(threads_end), slice(threads_end, inner_end), slice(inner_end, None))
    assert math.prod(brick.places[parts[0]]) == brick.threads
    at_out = (
        mixed(brick.places[parts[0]], brick.out_places)[:, None, None]
        + np.array(brick.out_rows)[:, None]
        + np.array(brick.out_columns)
    )
    for number in brick_numbers(brick):
        best = np.full(at_out.shape, np.inf)
        for stage in range(math.prod(a.size for a in brick.stages)):
            first, second = np.zeros(()), np.zeros(())
            for i, (piece, table) in enumerate(zip(brick.slices, tables, strict=True)):
                base = offsets(brick.bricks, i)[number] + offsets(brick.stages, i)[stage]
                low, inner, outer = (mixed(brick.places[p], piece.places[p]) for p in parts)
                assert piece.inner or not inner.any()
                rows = np.arange(brick.rows) * (piece.row if piece.columns else 1) * piece.rows
                at = (
                    outer[:, None, None, None, None]
                    + inner[: len(inner) if piece.inner else 1, None, None, None]
                    + low[:, None, None]
                    + rows[:, None]
                    + np.arange(brick.columns) * piece.columns
                )
                value = fetched(piece, table, base, brick.threads)[at]
                if piece.inner:
                    first = first + value
                else:
                    second = second + value
            least = np.broadcast_to(first, (*brick.states[::-1], *at_out.shape)).min(axis=1)
            best = np.minimum(best, (least + (second[:, 0] if second.ndim else 0)).min(axis=0))
        at = at_out + offsets(brick.bricks, -1)[number]
        assert np.isnan(out[at]).all(), "written twice"
        assert not brick.vectors or not (at[..., 0] % brick.columns).any()
        out[at] = best


def emulate(
    step: DeviceStep, lowered: Lowered, tables: Sequence[np.ndarray], order: Sequence[int] | None = None
) -> np.ndarray:
    """Run all passes of a step in the given order; a pass never overwrites a table that a later pass reads."""
    workspace = np.full(step.workspace_cells, np.nan)
    shared = [workspace[place : place + n] for n, place in zip(step.temporaries, step.places, strict=True)]
    arrays = [*tables, *shared, np.full(lowered.out_cells, np.nan)]
    for each in step.passes if order is None else [step.passes[i] for i in order]:
        for written in [join.output for join in each.joins] if isinstance(each, JoinPass) else [each.output]:
            arrays[written][:] = np.nan
        if isinstance(each, JoinPass):
            assert one_launch(each.joins)
            for join in each.joins:
                table = arrays[join.output]
                table[:] = sum(arrays[t][offsets(join.axes, i)] for i, t in enumerate(join.inputs))
                assert (offsets(join.axes, -1) == np.arange(table.size)).all()
            continue
        out = arrays[each.output]
        if isinstance(each, StreamPass):
            run_stream(each.stream, [arrays[i] for i in each.inputs], out)
        elif isinstance(each, BrickPass):
            run_brick(each.brick, [arrays[i] for i in each.inputs], out)
        elif isinstance(each, BucketPass):
            run_bucket(each.bucket, [arrays[i] for i in each.inputs], out)
        elif isinstance(each, ReorderPass):
            run_reorder(each.reorder, arrays[each.inputs[0]], out)
        elif isinstance(each, RowsPass):
            out[:] = arrays[each.inputs[0]].reshape(each.rows, each.length).min(axis=1)
        else:
            run_matrix(each, [arrays[i] for i in each.inputs], out)
    return arrays[-1]


def run_matrix(each: ProductPass, tables: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Run one product."""
    batch, rows, columns, depth = each.groups
    left = offsets(batch, 0)[:, None, None] + offsets(rows, 0)[:, None] + offsets(depth, 0)
    right = offsets(batch, 1)[:, None, None] + offsets(columns, 1)[:, None] + offsets(depth, 1)
    at = offsets(batch, -1)[:, None, None] + offsets(rows, -1)[:, None] + offsets(columns, -1)
    assert np.isnan(out[at]).all()
    out[at] = (tables[0][left][:, :, None] + tables[1][right][:, None]).min(axis=-1)


def check(lowered: Lowered) -> DeviceStep:
    """Compare the emulated device with NumPy."""
    rng = np.random.default_rng(1)
    tables = [rng.integers(0, 1000, n).astype(float) for n in lowered.input_cells]
    expected = np.empty(lowered.out_cells)
    run_blocks(lowered.blocks, MIN_PLUS, tables, expected)
    step = device_step.__wrapped__(lowered)
    np.testing.assert_array_equal(emulate(step, lowered, tables), expected)
    # passes that do not wait for each other may run concurrently, and therefore in any order
    if any(before != (k - 1,) for k, before in enumerate(step.waits) if k):
        for order in other_orders(step):
            np.testing.assert_array_equal(emulate(step, lowered, tables, order), expected)
    return step


def other_orders(step: DeviceStep) -> Iterator[list[int]]:
    """Yield orders in which each pass follows the passes that it waits for: last passes first, and at random."""
    for rng in (None, random.Random(1)):
        waiting, order = list(range(len(step.passes))), list[int]()
        while waiting:
            ready = [i for i in waiting if {*step.waits[i]} <= {*order}]
            order.append(ready[-1] if rng is None else rng.choice(ready))
            waiting.remove(order[-1])
        yield order


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_steps(data: st.DataObject) -> None:
    check(drawn_step(data))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_sums_of_some_inputs_come_first(data: st.DataObject) -> None:
    """Whether that pays or not; of several eliminated axes in turn."""
    with TilingPolicy.using(
        inner_sum_least_cells=1,
        inner_sum_price=math.inf,
        inner_sum_ratio=0,
        brick_least_cells=data.draw(st.sampled_from([1 << 6, 1 << 25])),
        brick_join_least_cells=data.draw(st.sampled_from([1 << 6, 1 << 19])),
        brick_least_output_cells=1 << 4,
    ):
        check(drawn_step(data))


@pytest.mark.parametrize("layout", ["mkb knb mnb", "kmb bkn bnm", "bmk nkb nmb", "bmk bkn bmn"])
@pytest.mark.parametrize("ratio", [0.5, 1.5])
def test_products_whose_batches_are_innermost_take_and_write_their_tables_in_another_order(
    layout: str, ratio: float
) -> None:
    """As many of these tables as there is memory for; a batch is two axes, one of an odd number of states."""
    sizes = dict(zip("bcmkn", (7, 22, 36, 12, 44), strict=True))
    left, right, out = ([v for c in part for v in ("bc" if c == "b" else c)] for part in layout.split())
    scopes = [tuple("bcmkn".index(v) for v in part) for part in (left, right, out)]
    lowered = lower(scopes[:2], scopes[2], {"bcmkn".index(v): n for v, n in sizes.items()}, "float64", MIN_PLUS)
    policy = {"product_searched_cells": 0, "product_reorder_share": math.inf, "product_poor_ratio": math.inf}
    with TilingPolicy.using(**policy, product_reorder_ratio=ratio):
        step = check(lowered)
    copies = [each for each in step.passes if isinstance(each, ReorderPass)]
    broken = [part for part in layout.split() if part[-1] == "b"]
    assert (len(copies) > 0) == (len(broken) > 0)
    assert sum(step.temporaries) * ratio <= sum(lowered.input_cells) + lowered.out_cells
    if ratio < 1.0:
        with TilingPolicy.using(product_searched_cells=0, product_poor_ratio=math.inf):
            assert step_seconds(device_step.__wrapped__(lowered), lowered) <= step_seconds(step, lowered)


def test_large_products_of_scattered_batches_are_made_in_another_order_or_not_at_all() -> None:
    """Written cell by cell, far apart, one took eleven times as long as its arithmetic."""
    sizes = {0: 44, 1: 36, 2: 968, 3: 44, 4: 44}
    lowered = lower([(3, 1, 0, 2), (1, 3, 4)], (2, 4, 0, 1), sizes, "float64", MIN_PLUS)
    step = device_step(lowered)
    with TilingPolicy.using(product_searched_cells=1 << 60, product_poor_ratio=math.inf):
        plain = device_step.__wrapped__(lowered)
    assert [type(each) for each in plain.passes] == [ProductPass]
    assert step_seconds(step, lowered) < 0.7 * step_seconds(plain, lowered)


def test_what_lacks_the_eliminated_states_is_multiplied_in_afterwards() -> None:
    """A matrix product times a function of its rows and columns: not a product, but one and a join."""
    sizes = {0: 1 << 9, 1: 1 << 9, 2: 1 << 12}
    first, *others = device_step(lower([(0, 2), (1, 2), (0, 1)], (0, 1), sizes, "float64", MIN_PLUS)).passes
    assert isinstance(first, ProductPass)
    assert first.output > 2
    assert all(not isinstance(each, ProductPass) for each in others)
    # nothing is summed first where all inputs have what is eliminated
    passes = device_step(lower([(0, 2), (1, 2), (0, 1, 2)], (0, 1), sizes, "float64", MIN_PLUS)).passes
    assert all(each.output == -1 for each in passes)


@pytest.mark.parametrize(("first", "second"), [(7, 3), (3, 5), (9, 1)])
def test_bricks_write_long_runs_where_these_begin_within_a_sector(first: int, second: int) -> None:
    """Short ones took up to four times as long."""
    sizes = {0: 64, 1: 64, 2: 44, 3: 25, 4: second, 5: first, 6: 4}
    scopes = [(6, 5, 0, 1), (6, 4, 2, 3), (0, 3, 6), (5, 1, 2)]
    lowered = lower(scopes, (0, 1, 2, 3, 4, 5), sizes, "float64", min_plus("float64", 4))
    (brick,) = (each.brick for each in device_step(lowered).passes if isinstance(each, BrickPass))
    run = min(axis.out for axis in brick.bricks) * 8
    assert run >= 256 or run % 32 == 0


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_copies_in_another_order_are_right(data: st.DataObject) -> None:
    """Whole lines of both tables are in a tile where axes have parts of such a size."""
    itemsize = data.draw(st.sampled_from([2, 4, 8]))
    sizes = data.draw(st.lists(st.sampled_from([2, 3, 4, 5, 7, 16, 22, 44, 101]), min_size=1, max_size=7))
    while math.prod(sizes) > 200_000:
        sizes.pop()
    order = data.draw(st.permutations(range(len(sizes))))
    strides = {v: math.prod([sizes[u] for u in order[k + 1 :]]) for k, v in enumerate(order)}
    axes = [Axis(n, (strides[v],), math.prod(sizes[v + 1 :])) for v, n in enumerate(sizes)]
    reorder = reorder_tiles(axes, itemsize)
    if reorder is None:
        assert 101 in sizes
        return
    table, out = np.arange(float(math.prod(sizes))), np.full(math.prod(sizes), np.nan)
    run_reorder(reorder, table, out)
    assert (out.reshape(sizes) == table.reshape([sizes[v] for v in order]).transpose(np.argsort(order))).all()
    for k, place in ((1, 0), (3, -1)):
        runs = 1 + (np.diff(np.sort(offsets(reorder.segments[k] + reorder.segments[k + 1], place))) > 1).sum()
        assert runs == 1 or reorder.items * reorder.width * itemsize / runs >= 32


def drawn_step(data: st.DataObject) -> Lowered:
    names = list(range(10))
    sizes = {v: data.draw(st.sampled_from([1, 2, 2, 2, 3, 4, 5, 16])) for v in names}
    while np.prod(list(sizes.values())) > 60_000:
        sizes[max(sizes, key=sizes.__getitem__)] = 1
    inputs = []
    for _ in range(data.draw(st.integers(1, 9))):
        order = data.draw(st.permutations(names))
        inputs.append(tuple(order[: data.draw(st.integers(0, 10))]))
    inputs[0] = tuple(data.draw(st.permutations(names)))
    output = tuple(data.draw(st.permutations(names))[: data.draw(st.integers(0, 10))])
    return lower(inputs, output, sizes, "float64", MIN_PLUS)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_random_bricks(data: st.DataObject) -> None:
    names = list(range(11))
    states = data.draw(st.sampled_from([(2,), (2, 4), (4,), (2, 3, 4), (3, 5), (2, 4, 16), (1, 2, 6)]))
    sizes = {v: data.draw(st.sampled_from(states)) for v in names}
    while np.prod(list(sizes.values())) > 60_000:
        sizes[max(sizes, key=sizes.__getitem__)] = 1
    scopes = st.permutations(names)
    inputs = [tuple(data.draw(scopes)[: data.draw(st.integers(8, 11))])]
    inputs += [tuple(data.draw(scopes)[: data.draw(st.integers(0, 11))]) for _ in range(data.draw(st.integers(0, 8)))]
    inputs += [tuple(data.draw(scopes)[:2]) for _ in range(data.draw(st.integers(0, 12)))]
    held = {v for scope in inputs for v in scope}
    output = [v for v in data.draw(scopes) if v in held][: data.draw(st.integers(4, 11))]
    semiring = data.draw(st.sampled_from([MIN_PLUS, min_plus("int32"), min_plus("int16")]))
    lowered = lower(inputs, tuple(output), sizes, semiring.dtype, semiring)
    searched = data.draw(st.sampled_from([1 << 10, 1 << 30]))
    with TilingPolicy.using(
        brick_least_cells=1 << 10,
        brick_least_output_cells=1 << 6,
        brick_compared_cells=searched,
    ):
        check(lowered)


@pytest.mark.parametrize(
    ("inputs", "output", "sizes"),
    [
        ([(0,)], (0,), (10007,)),
        ([(0,)], (), (10007,)),
        ([(0,)], (), (1 << 16,)),
        ([(0, 1)], (0,), (5, 9973)),
        ([(0, 1)], (1,), (9973, 5)),
        ([(0, 1)], (1,), (4096, 33)),
        ([(0, 1), (0,)], (1, 0), (700, 90)),
        ([(0, 1, 2), (1, 2)], (0, 2), (100, 2, 48)),
        ([(0, 1, 2), (1, 2)], (0, 2), (30, 3, 49)),
        ([(0, 1), (1, 2)], (0, 2), (40, 30, 50)),
        ([(0, 1), (1, 2), (0,), (1,)], (2, 0), (20, 700, 18)),
        ([(), ()], (), ()),
    ],
    ids=str,
)
def test_shapes(inputs: list[tuple[int, ...]], output: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    check(lower(inputs, output, dict(enumerate(sizes)), "float64", MIN_PLUS))


def test_regimes() -> None:
    """A total sum is done in rows, a deep product in pieces, a wide step in one pass of vectors."""
    total = check(lower([(0,)], (), {0: 1 << 17}, "float64", MIN_PLUS))
    assert isinstance(total.passes[-1], RowsPass)
    deep = check(lower([(0, 1), (1, 2)], (0, 2), {0: 16, 1: 1024, 2: 16}, "float64", MIN_PLUS))
    assert isinstance(deep.passes[0], ProductPass)
    assert len(deep.passes) > 1
    sizes = dict.fromkeys(range(18), 2)
    left, right, output = (*range(5), *range(5, 13)), (*range(13, 18), *range(5, 13)), (*range(5), *range(13, 18))
    binary = check(lower([left, right[::-1]], output, sizes, "float64", MIN_PLUS))
    assert isinstance(binary.passes[0], ProductPass)
    assert math.prod(a.size for a in binary.passes[0].groups[3]) == 64
    (many,) = check(lower([(0, 1)] * 40 + [(1, 2)], (0,), {0: 20, 1: 30, 2: 16}, "float64", MIN_PLUS)).passes
    assert isinstance(many, BucketPass)
    wide = device_step(lower([(0, 1, 2), (1, 2)], (0, 2), {0: 1 << 18, 1: 2, 2: 128}, "float64", MIN_PLUS))
    (only,) = wide.passes
    assert isinstance(only, StreamPass)
    assert (only.stream.width, only.stream.unrolled) == (2, 2)
    (even,) = device_step(lower([(0, 1), (1, 2)], (0, 2), {0: 512, 1: 4, 2: 512}, "float64", MIN_PLUS)).passes
    assert isinstance(even, StreamPass)
    assert even.stream.width == 2


def test_many_inputs_of_a_large_output_are_joined_in_one_launch() -> None:
    scopes = [(v, (v + 1) % 22) for v in range(22)]
    step = device_step(lower(scopes, tuple(range(22)), dict.fromkeys(range(22), 2), "float64", MIN_PLUS))
    joins, last = step.passes
    assert isinstance(joins, JoinPass)
    assert isinstance(last, StreamPass)


@pytest.mark.parametrize("output", [(), (0, 3)], ids=str)
def test_more_inputs_than_a_launch_takes(output: tuple[int, ...]) -> None:
    """The smallest are joined before, the rest in one launch with the elimination."""
    rng = np.random.default_rng(2)
    scopes = [tuple(int(v) for v in rng.permutation(10)[: rng.integers(0, 4)]) for _ in range(170)]
    step = check(lower([tuple(range(10)), *scopes], output, dict.fromkeys(range(10), 2), "float64", MIN_PLUS))
    kinds = [type(each) for each in step.passes]
    assert kinds == [JoinPass, BucketPass]


def test_sums_of_few_outputs_are_shared_between_blocks() -> None:
    """Three small tables over 2^20 states: partial sums, and one more launch."""
    scopes = [(0, 1, 2), (2, 3, 4), (4, 0)]
    step = check(lower(scopes, (0,), {0: 2, 1: 32, 2: 16, 3: 32, 4: 32}, "float64", MIN_PLUS))
    bucket, rows = step.passes
    assert isinstance(bucket, BucketPass)
    assert isinstance(rows, RowsPass)
    assert bucket.bucket.parts == rows.length > 1


def test_small_inputs_of_a_product_are_multiplied_into_a_factor_at_once() -> None:
    """Forty tables of two variables: a few launches before the product, in little more than the new factor takes."""
    sizes = dict.fromkeys(range(15), 2)
    left, right = tuple(range(10)), (*range(5), *range(10, 15))
    pairs = [(v % 10, (v + 1 + v // 10) % 10) for v in range(40)]
    step = check(lower([left, right, *pairs], tuple(range(5, 15)), sizes, "float64", MIN_PLUS))
    assert isinstance(step.passes[-1], ProductPass)
    assert len(step.passes) <= 5
    assert step.workspace_cells <= 4 << 10


def join_pass(one: int, other: int, output: int) -> JoinPass:
    """Return a launch that multiplies two tables of 100 cells."""
    return JoinPass((BucketJoin((one, other), output, (Axis(100, (1, 1), 1),)),))


def test_independent_joins_run_concurrently() -> None:
    """Two chains of joins meet in the last pass. None of their tables may lie where the other chain writes."""
    pairs = [(0, 1, 8), (2, 3, 9), (8, 9, 10), (4, 5, 11), (6, 7, 12), (11, 12, 13), (10, 13, -1)]
    passes = [join_pass(*each) for each in pairs]
    step = device_step_of(8, passes, [100] * 6, [1.0] * 7)
    assert step.passes == (*(passes[i] for i in (0, 1, 3, 4, 2, 5)), passes[6])
    assert step.waits == ((), (), (), (), (0, 1), (2, 3), (4, 5))


def test_passes_wait_for_memory_only_if_it_is_free_when_they_can_begin() -> None:
    """The tables of a chain reuse memory. A late table may use the memory of a table of a short chain."""
    chain = device_step_of(2, [join_pass(k, k + 1, k + 2) for k in range(5)], [100] * 5, [1.0] * 5)
    assert chain.workspace_cells < 3 * 256
    assert all(k - 1 in before for k, before in enumerate(chain.waits) if k)
    # the second chain has used its first table when the long pass of the first chain ends
    passes = [join_pass(0, 1, 4), join_pass(2, 3, 5), join_pass(5, 3, 6), join_pass(4, 1, 7), join_pass(6, 7, -1)]
    step = device_step_of(4, passes, [100] * 4, [9.0, 1.0, 1.0, 1.0, 1.0])
    assert step.places[3] == step.places[1]
    assert step.waits == ((), (), (1,), (0, 1, 2), (2, 3))


def test_a_large_join_of_many_tables_is_made_of_small_joins() -> None:
    """What is computed for 60 tables of 12 variables beyond the final join is little beside that."""
    rng = np.random.default_rng(4)
    scopes = [tuple(sorted(int(v) for v in rng.choice(26, 12, replace=False))) for _ in range(60)]
    step = device_step(lower(scopes, tuple(range(2, 26)), dict.fromkeys(range(26), 2), "float64", MIN_PLUS))
    large = sum(cells for cells in step.temporaries if cells >= 1 << 24)
    assert large <= 8 << 24
    assert len([cells for cells in step.temporaries if cells >= 1 << 24]) <= 8
    assert step.workspace_cells < sum(step.temporaries)


def test_bricks_take_whole_lines_of_axes_that_are_no_multiple_of_a_line() -> None:
    """A large table that is read once: 44 cells of 4 bytes side by side are taken together, not 4 of them."""
    sizes = dict(enumerate((36, 36, 44, 44, 44, 44)))
    scopes = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 5), (0, 1, 2, 3, 4, 5)]
    lowered = lower(scopes, (1, 2, 3, 4, 5), sizes, "int32", min_plus("int32"))
    brick = device_step(lowered).passes[-1]
    assert isinstance(brick, BrickPass)
    assert all(axis.strides[t] % 44 == 0 for axis in brick.brick.bricks for t in [brick.inputs.index(5)])


@pytest.mark.parametrize(("depth", "step"), [(8, 8), (9, 9), (12, 6), (27, 9), (32, 8), (36, 8), (44, 8), (1936, 8)])
def test_a_depth_is_cut_where_little_is_left_beyond_its_end(depth: int, step: int) -> None:
    assert step_depth(depth) == step


def test_large_tables_are_joined_in_bricks_and_not_written_in_between() -> None:
    """Fifteen tables over most of 31 variables: what does not go with the elimination is one table more, not three."""
    rng = np.random.default_rng(3)
    scopes = [tuple(sorted(int(v) for v in rng.choice(31, 27, replace=False))) for _ in range(15)]
    step = device_step(lower(scopes, tuple(range(1, 31)), dict.fromkeys(range(31), 2), "float64", MIN_PLUS))
    assert [type(each) for each in step.passes] == [BrickPass, BrickPass]


@pytest.mark.parametrize(("width", "tables"), [(8, 20), (10, 40)])
def test_joins_in_bricks_are_right(width: int, tables: int) -> None:
    rng = np.random.default_rng(3)
    scopes = [tuple(sorted(int(v) for v in rng.choice(13, width, replace=False))) for _ in range(tables)]
    lowered = lower(scopes, tuple(range(1, 13)), dict.fromkeys(range(13), 2), "float64", MIN_PLUS)
    with TilingPolicy.using(
        brick_least_cells=1 << 10,
        brick_join_least_cells=1 << 10,
        brick_least_output_cells=1 << 6,
        bucket_output_cells=1 << 6,
        streamed_join_cells=1 << 6,
        uses_buckets=False,
    ):
        step = check(lowered)
    joins = [each for each in step.passes[:-1] if isinstance(each, BrickPass)]
    assert joins
    assert all(len(each.inputs) > 4 for each in joins)


@pytest.mark.parametrize("output", [(), (3, 5)])
@pytest.mark.parametrize("size", [2, 3])
def test_large_joins_that_leave_next_to_nothing_are_made_in_bricks(output: tuple[int, ...], size: int) -> None:
    """What streams would read once a cell stays on the chip; partial sums are added up by a launch of their own."""
    rng = np.random.default_rng(5)
    count = 13 if size == 2 else 8
    scopes = [tuple(sorted(int(v) for v in rng.choice(count, count - 2, replace=False))) for _ in range(7)]
    lowered = lower(scopes, output, dict.fromkeys(range(count), size), "float64", MIN_PLUS)
    with TilingPolicy.using(
        brick_least_cells=1 << 10, brick_join_least_cells=1 << 10, brick_least_output_cells=1 << 6, uses_buckets=False
    ):
        kinds = [type(each) for each in check(lowered).passes]
    assert BrickPass in kinds
    assert kinds[-1] is not BrickPass


@pytest.mark.parametrize(("states", "gone"), [(2, 1), (2, 7), (3, 1), (5, 1), (7, 1), (11, 1)])
def test_axes_of_few_states_in_any_order_are_taken_in_bricks(states: int, gone: int) -> None:
    """Streams of single cells over axes that no table has in the output's order took up to 415 times their floor."""
    rng = np.random.default_rng(states)
    axes = math.ceil(28 / math.log2(states))
    sizes = dict.fromkeys(range(axes), states)
    for _ in range(8):
        output = tuple(map(int, rng.permutation(axes)[gone:]))
        scopes = [tuple(map(int, rng.permutation(axes)[: round(share * axes)])) for share in (0.8, 0.7, 0.6)]
        scopes[-1] += tuple(sorted(set(range(axes)).difference(*scopes)))
        passes = device_step(lower(scopes, output, sizes, "int32", min_plus("int32", 4))).passes
        assert any(isinstance(each, BrickPass) for each in passes)


def test_of_several_bricks_the_one_that_is_predicted_to_take_least_is_taken() -> None:
    family = STEP_FAMILIES["mixed, one has all axes"]
    better, whole = 0, 1 << 40  # and no part of the inputs is summed first
    for step in islice(drawn_steps(family, 28.0, 30.0, 1, [min_plus("int32", 4)], 40 << 30), 6):
        with TilingPolicy.using(inner_sum_least_cells=whole):
            compared = step_seconds(device_step.__wrapped__(step.lowered), step.lowered)
        with TilingPolicy.using(inner_sum_least_cells=whole, brick_compared_cells=whole):
            first = step_seconds(device_step.__wrapped__(step.lowered), step.lowered)
        assert compared <= first
        better += compared < 0.9 * first
    assert better >= 2


def step_seconds(step: DeviceStep, lowered: Lowered) -> float:
    """Predicted seconds of all passes, as they are compared."""
    return passes_seconds(step.passes, lowered.input_cells, step.temporaries, lowered.out_cells, lowered.semiring)


@pytest.mark.parametrize("gone", [6, 10])
def test_bricks_have_places_for_many_eliminated_axes_of_two_states(gone: int) -> None:
    """Its threads alone take eight."""
    rng = np.random.default_rng(gone)
    names = [int(v) for v in rng.permutation(30)]
    scopes = [tuple(int(v) for v in rng.permutation(30)[:16]) for _ in range(3)]
    missing = tuple(v for v in names if not any(v in scope for scope in scopes))
    held = tuple(names[gone:])
    with TilingPolicy.using(inner_sum_least_cells=1 << 40):
        lowered = lower([*scopes, missing], held, dict.fromkeys(names, 2), "int16", min_plus("int16", 4))
        step = device_step.__wrapped__(lowered)
    (brick,) = (each.brick for each in step.passes if isinstance(each, BrickPass))
    assert math.prod(brick.states) >= 4
