"""Passes of eliminations and joins on a GPU: buckets, bricks or streams, and the joins before them. Pure: no values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...steps.axes import Sizes
from ...steps.lowering import Lowered
from .brick_cells import BrickShape
from .brick_joins import brick_groups, brick_of, brick_order, brick_ways, worth_a_copy
from .brick_layout import MAX_PLACES, with_partial
from .brick_shapes import brick_shapes
from .buckets import ENTRIES, TABLES, BucketJoin, Table, bucket_tiles, joint, one_launch
from .pass_axes import (
    FEW_INPUTS,
    MAX_INPUTS,
    axis_masks,
    fused,
    in_partial_sums,
    join_cells,
    join_groups,
    output_order,
    partial_axes,
    partial_sums,
    small_groups,
)
from .pass_prices import passes_seconds
from .passes import BrickPass, BucketPass, JoinPass, Pass, ReorderPass, RowsPass, StreamPass
from .reorders import reorder_tiles
from .streams import Axis, stream_tiles
from .tiling_policy import BRICK_JOIN_LOADS, TilingPolicy

# A join of more cells is computed in blocks, if a launch of buckets exists for it. The second number is for joins
# before a large step; runs of small steps were slower with it.
_CELLWISE_JOIN_CELLS: Final = 1 << 14
_CELLWISE_JOIN_CELLS_OF_LARGE: Final = 1 << 18
# Cells of a step that is large.
_CELLWISE_LARGE_CELLS: Final = 1 << 26
# A step of few inputs is joined in shared memory where each value is read at least this often, over at least as
# many eliminated states.
_BUCKET_LEAST_READS: Final = 8
# A bucket is crowded where a block reads more values than this share of the cells of its join; half of it for few
# inputs.
_CROWDED_SHARE: Final = 0.5
# Streaming is faster than a crowded bucket from this many cells of the join and of the output on.
_CROWDED_CELLS: Final = 1 << 22, 1 << 14
# Share of the strides of a bucket launch that inputs may take: cutting axes adds some.
_BUCKET_STRIDE_SHARE: Final = 0.8
# Smaller tables are copied by a stream.
_REORDER_LEAST_CELLS: Final = 1 << 22
# Cells of a join in each partial sum of bricks, about: adding up sums of this length takes little time.
_BRICK_SUMMED_CELLS: Final = 1 << 4
# Bricks are tried instead of a stream that is predicted to take longer.
_STREAM_POOR_SECONDS: Final = 1e-4

# Axes of a brick: those of places, columns and rows; only where that is too many places for the kernel are fewer tried.
_MOST_PARTS: Final = MAX_PLACES + 8
# Bricks that are compared at most.
_COMPARED: Final = 16
# Shares of the shared memory that the large inputs of a brick may take, in the order in which they are tried or
# compared: smaller bricks leave room for more blocks on a multiprocessor.
_BRICK_SHARES: Final = (0.75, 0.45, 0.3, 0.2, 0.1)

Priced = tuple[float, list[Pass], list[int]]
"""Seconds of some passes, these, and the cells of their temporaries."""


class PassBuilder:
    """Collects passes and temporaries."""

    def __init__(self, lowered: Lowered) -> None:
        self.semiring = lowered.semiring
        self.itemsize = lowered.semiring.itemsize
        self.inputs = len(lowered.input_cells)
        self.cells = lowered.input_cells
        self.out_cells = lowered.out_cells
        self.output = -1
        self.passes: list[Pass] = []
        self.temporaries: list[int] = []
        self.brick_least = TilingPolicy.current().brick_least_cells

    def temporary(self, cells: int) -> int:
        """Number a new temporary."""
        self.temporaries.append(cells)
        return self.inputs + len(self.temporaries) - 1

    def table_cells(self, number: int) -> int:
        """Return the cells of a table by its number."""
        return self.out_cells if number < 0 else [*self.cells, *self.temporaries][number]

    def priced(self, way: Callable[[], bool]) -> Priced | None:
        """Return the passes and the price of a way to compute something, without adding them; None if it fails."""
        passes, temporaries = len(self.passes), len(self.temporaries)
        if not way():
            return None
        added, tables = self.passes[passes:], self.temporaries[temporaries:]
        price = passes_seconds(added, self.cells, self.temporaries, self.out_cells, self.semiring)
        del self.passes[passes:], self.temporaries[temporaries:]
        return price, added, tables

    def add(self, found: Priced) -> None:
        """Add the passes of a way that was priced when as many were there."""
        self.passes += found[1]
        self.temporaries += found[2]

    def eliminate(self, axes: list[Axis], inputs: list[int]) -> bool:
        """Add the passes of a step that is not a product, or of the remainder of a product; there is always a way."""
        if self.bricks(axes, inputs) or self.bucket(axes, inputs):
            return True
        if len(inputs) > FEW_INPUTS:
            axes, inputs = self.merged(axes, inputs)
            if self.bricks(axes, inputs):
                return True
        stream = self.priced(partial(self.stream, axes, inputs))
        assert stream is not None
        policy = TilingPolicy.current()
        bricks = None
        if stream[0] > _STREAM_POOR_SECONDS:
            bricks = self.priced(partial(self.bricks, axes, inputs, policy.brick_join_least_cells, sums=True))
        self.add(bricks if bricks is not None and bricks[0] < stream[0] else stream)
        return True

    def bricks(self, axes: Sequence[Axis], inputs: Sequence[int], least: int = 0, *, sums: bool = False) -> bool:
        """Add a launch of bricks, and the joins before it; return whether that is worth it.

        ``least``: cells of the join from which it is, if other than usual. ``sums``: whether few inputs of a small
        output may be taken in partial sums too.
        """
        policy = TilingPolicy.current()
        axes = fused(axes)
        cells, out_cells = math.prod(a.size for a in axes), math.prod(a.size for a in axes if a.out)
        least = least or self.brick_least
        enough = least * (1 if len(inputs) > FEW_INPUTS else 4)
        if len(inputs) < 2 or cells < enough:
            return False
        if out_cells < policy.brick_least_output_cells:
            several = sums or len(inputs) > FEW_INPUTS
            return several and self.bricks_of_sums(axes, inputs, cells // out_cells, out_cells, least)
        compared = 1 if cells < policy.brick_compared_cells else _COMPARED
        return any(
            self.cheapest_bricks(axes, inputs, out_cells, parts, compared) for parts in (_MOST_PARTS, MAX_PLACES)
        )

    def cheapest_bricks(
        self, axes: Sequence[Axis], inputs: Sequence[int], out_cells: int, parts: int, compared: int
    ) -> bool:
        """Add the bricks with the least predicted time, together with the joins before them.

        Parameters
        ----------
        axes : sequence of Axis
            Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
        inputs : sequence of int
            Numbers of the input tables.
        out_cells : int
        parts : int
            Most axes of which a brick has more than one cell.
        compared : int
            Number of candidates to price.

        Returns
        -------
        bool
            Whether bricks were added.
        """
        if len(inputs) > MAX_INPUTS and compared > 1:
            ways = brick_ways(axes, self.itemsize, _BRICK_SHARES, parts)
            return any(self.bricks_in(axes, inputs, out_cells, way.shape, way.groups) for way in ways)
        found = list[Priced]()
        for shape in brick_shapes(axes, self.itemsize, _BRICK_SHARES, parts):
            groups = brick_groups(axes, shape, MAX_INPUTS, BRICK_JOIN_LOADS[0])
            if groups is None:
                continue
            way = partial(self.bricks_in, axes, inputs, out_cells, shape, groups)
            # without a comparison the first shape that fits is taken, and no price is computed
            if compared == 1:
                if way():
                    return True
                continue
            priced = self.priced(way)
            if priced is not None:
                found.append(priced)
            if len(found) == compared:
                break
        if found:
            self.add(min(found, key=lambda each: each[0]))
        return bool(found)

    def bricks_of_sums(
        self, axes: Sequence[Axis], inputs: Sequence[int], depth: int, out_cells: int, least: int
    ) -> bool:
        """Add bricks that leave many partial sums of each cell, and what adds these up."""
        policy = TilingPolicy.current()
        ours, sums = in_partial_sums(
            axes, partial_sums(axes, len(inputs), depth // _BRICK_SUMMED_CELLS), sums_last=True
        )
        if sums * out_cells < policy.brick_least_output_cells:
            return False
        output, self.output = self.output, self.temporary(sums * out_cells)
        table, found = self.output, self.bricks(ours, inputs, least)
        self.output = output
        if found:
            self.eliminate([Axis(sums, (1,), 0), *([Axis(out_cells, (sums,), 1)] if out_cells > 1 else [])], [table])
        else:
            del self.temporaries[table - self.inputs :]
        return found

    def bricks_in(
        self,
        axes: Sequence[Axis],
        inputs: Sequence[int],
        out_cells: int,
        shape: BrickShape,
        groups: Sequence[Sequence[int]],
    ) -> bool:
        """Try to add bricks of a shape, with joins of groups of inputs before them.

        Parameters
        ----------
        axes : sequence of Axis
            Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
        inputs : sequence of int
            Numbers of the input tables.
        out_cells : int
        shape : BrickShape
        groups : sequence of sequence of int
            Inputs that are joined before.

        Returns
        -------
        bool
            Whether the kernel has room for these bricks; if not, nothing is added.
        """
        axes, copies = with_partial(axes, shape, out_cells)
        passes, temporaries = len(self.passes), len(self.temporaries)
        order = brick_order(axes, shape)
        tables = self.joined(axes, [[(inputs[t], [a.strides[t] for a in axes]) for t in g] for g in groups], order)
        for k, group in enumerate(groups):
            if len(group) == 1 and worth_a_copy(axes, shape, group[0], self.itemsize):
                tables[k] = self.streamed(axes, [tables[k]], order)
        columns = zip(*(strides for _, strides in tables), strict=True)
        axes = [Axis(axis.size, column, axis.out) for axis, column in zip(axes, columns, strict=True)]
        made = brick_of(axes, shape, self.itemsize)
        if made is None:
            del self.passes[passes:], self.temporaries[temporaries:]
            return False
        brick, by_kind = made
        output = self.temporary(copies * out_cells) if copies > 1 else self.output
        self.passes.append(BrickPass(tuple(tables[t][0] for t in by_kind), output, brick))
        # partial sums of several bricks are added at the end
        if copies > 1:
            self.eliminate([Axis(copies, (out_cells,), 0), Axis(out_cells, (1,), 1)], [output])
        return True

    def merged(self, axes: list[Axis], inputs: list[int]) -> tuple[list[Axis], list[int]]:
        """Join inputs in groups until one pass takes them; return the axes with the strides of the remaining inputs."""
        return self.grouped(axes, inputs, join_groups(axes, len(inputs)), output_order(axes))

    def joined(
        self, axes: Sequence[Axis], groups: Sequence[list[Table]], order: Sequence[int] | None = None
    ) -> list[Table]:
        """Join each group of tables into one, in an order of axes if given; small joins share launches.

        Parameters
        ----------
        axes : sequence of Axis
            Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
        groups : sequence of list of (int, strides)
            The tables of each group.
        order : sequence of int, optional
            Order of the axes of the joined tables.

        Returns
        -------
        list of (int, strides)
            One table for each group.
        """
        policy = TilingPolicy.current()
        found: list[Table] = []
        small: list[BucketJoin] = []
        large = math.prod(a.size for a in axes) >= _CELLWISE_LARGE_CELLS
        cellwise = _CELLWISE_JOIN_CELLS_OF_LARGE if large else _CELLWISE_JOIN_CELLS
        for group in groups:
            if len(group) == 1:
                found.append(group[0])
                continue
            group = self.reduced(axes, group, order)
            table = self.join_in_bricks(axes, group, order) if len(group) <= MAX_INPUTS else None
            if table is not None:
                found.append(table)
                continue
            ours, strides = joint(axes, group, order)
            cells = math.prod(a.size for a in ours)
            bucket = bucket_tiles(ours, len(group), self.itemsize) if cells > cellwise else None
            join = BucketJoin(tuple(number for number, _ in group), self.inputs + len(self.temporaries), ours)
            if bucket is None and (cells > policy.streamed_join_cells or not one_launch([join])):
                found.append(self.streamed(axes, group, order))
                continue
            found.append((self.temporary(cells), strides))
            if bucket is not None:
                self.passes.append(BucketPass(join.inputs, join.output, bucket))
            # a launch costs more than a small join, so small joins share one
            elif one_launch([*small, join]):
                small.append(join)
            else:
                self.passes.append(JoinPass(tuple(small)))
                small = [join]
        if small:
            self.passes.append(JoinPass(tuple(small)))
        return found

    def reduced(self, axes: Sequence[Axis], group: list[Table], order: Sequence[int] | None) -> list[Table]:
        """Join first the tables with joins that are small beside the join of all, until one launch takes the rest."""
        small = small_groups([axis.size for axis in axes], [strides for _, strides in group])
        if len(small) < len(group):
            group = self.joined(axes, [[group[t] for t in members] for members in small], order)
        if len(group) > TABLES:
            group = self.joined(axes, [group[i : i + TABLES] for i in range(0, len(group), TABLES)], order)
        return group

    def streamed(self, axes: Sequence[Axis], members: list[Table], order: Sequence[int] | None = None) -> Table:
        """Join large tables, in bricks or a few at a time; or copy one into an order of axes."""
        table, left = self.join_some(axes, members, order)
        return self.streamed(axes, [table, *left], order) if left else table

    def join_some(
        self, axes: Sequence[Axis], members: list[Table], order: Sequence[int] | None
    ) -> tuple[Table, list[Table]]:
        """Join the first tables, as many as one launch takes; return the result, and what is left."""
        for count in range(min(len(members), MAX_INPUTS), FEW_INPUTS, -1):
            table = self.join_in_bricks(axes, members[:count], order)
            if table is not None:
                return table, members[count:]
        return self.join_in_stream(axes, members[:FEW_INPUTS], order), members[FEW_INPUTS:]

    def join_in_stream(self, axes: Sequence[Axis], few: list[Table], order: Sequence[int] | None) -> Table:
        """Add a launch that streams over a few tables."""
        ours, strides = joint(axes, few, order)
        cells = math.prod([a.size for a in ours])
        table, numbers = self.temporary(cells), tuple([number for number, _ in few])
        large = len(few) == 1 and cells >= _REORDER_LEAST_CELLS
        reorder = reorder_tiles(ours, self.itemsize) if large else None
        self.passes.append(
            ReorderPass(numbers, table, reorder)
            if reorder is not None
            else StreamPass(numbers, table, stream_tiles(ours, len(few), self.itemsize))
        )
        return table, strides

    def join_in_bricks(self, axes: Sequence[Axis], several: list[Table], order: Sequence[int] | None) -> Table | None:
        """Add a launch of bricks that joins tables; intermediate results stay on the chip, unlike with streams."""
        ours, strides = joint(axes, several, order)
        table = self.temporary(math.prod(a.size for a in ours))
        output, self.output = self.output, table
        least = TilingPolicy.current().brick_join_least_cells
        found = self.bricks(ours, [number for number, _ in several], least)
        self.output = output
        if found:
            return table, strides
        del self.temporaries[table - self.inputs :]
        return None

    def bucket(self, axes: list[Axis], inputs: list[int]) -> bool:
        """Add one launch that joins and eliminates, if it is worth it, and one launch that adds up its partial sums."""
        policy = TilingPolicy.current()
        cells, out_cells = math.prod(a.size for a in axes), math.prod(a.size for a in axes if a.out)
        few = len(inputs) <= FEW_INPUTS
        if out_cells > policy.bucket_output_cells or (few and not self.reused(axes, inputs)):
            return False
        passes, temporaries = len(self.passes), len(self.temporaries)
        axes, inputs = self.packed(axes, inputs)
        bucket = bucket_tiles(axes, len(inputs), self.itemsize)
        crowded = bucket is None or bucket.share > (_CROWDED_SHARE / 2 if few else _CROWDED_SHARE)
        large = cells >= _CROWDED_CELLS[0] and out_cells >= _CROWDED_CELLS[1]
        if bucket is None or (crowded and large):
            del self.passes[passes:], self.temporaries[temporaries:]
            return False
        table = self.output if bucket.parts == 1 else self.temporary(bucket.parts * out_cells)
        self.passes.append(BucketPass(tuple(inputs), table, bucket))
        if bucket.parts > 1:
            self.passes.append(RowsPass((table,), self.output, out_cells, bucket.parts))
        return True

    def reused(self, axes: Sequence[Axis], inputs: Sequence[int]) -> bool:
        """Whether few inputs are worth shared memory: read many times over, or so small that launches count."""
        policy = TilingPolicy.current()
        cells, depth = math.prod(a.size for a in axes), math.prod(a.size for a in axes if not a.out)
        tables = range(len(inputs))
        if depth >= _BUCKET_LEAST_READS and sum(join_cells(axes, [t]) for t in tables) * _BUCKET_LEAST_READS <= cells:
            return True
        return cells < policy.bucket_output_cells and bool(partial_axes(axes, len(inputs))[0])

    def packed(self, axes: list[Axis], inputs: list[int]) -> tuple[list[Axis], list[int]]:
        """Join the small inputs that enlarge the join least, until one launch takes the remaining inputs."""
        entries = [sum(a.strides[t] > 0 for a in axes) for t in range(len(inputs))]
        if len(inputs) <= TABLES and sum(entries) <= _BUCKET_STRIDE_SHARE * ENTRIES:
            return axes, inputs
        masks, cells = axis_masks(axes, len(inputs)), Sizes([axis.size for axis in axes]).__getitem__
        left = sorted(range(len(inputs)), key=lambda t: cells(masks[t]))
        members = [left.pop(0)]
        joined, over = (
            masks[members[0]],
            sum(entries[t] for t in left) - (_BUCKET_STRIDE_SHARE * ENTRIES - len(axes)),
        )
        while len(left) > 1 and (len(left) >= TABLES or over > 0):
            member = min(left, key=lambda t: cells(joined | masks[t]))
            left.remove(member)
            members.append(member)
            joined |= masks[member]
            over -= entries[member]
        return self.grouped(axes, inputs, [*([t] for t in left), members])

    def grouped(
        self,
        axes: Sequence[Axis],
        inputs: Sequence[int],
        groups: Sequence[Sequence[int]],
        order: Sequence[int] | None = None,
    ) -> tuple[list[Axis], list[int]]:
        """Join groups of inputs; return the axes with the strides of the results, and the numbers of these."""
        members = [[(inputs[t], [a.strides[t] for a in axes]) for t in group] for group in groups]
        tables = self.joined(axes, members, order)
        columns = zip(*(strides for _, strides in tables), strict=True)
        merged = [Axis(axis.size, column, axis.out) for axis, column in zip(axes, columns, strict=True)]
        return merged, [number for number, _ in tables]

    def stream(self, axes: list[Axis], inputs: Sequence[int]) -> bool:
        """Add streaming passes; partial sums first where the output alone would leave the device idle."""
        axes = fused(axes)
        parts, rows_last = partial_axes(axes, len(inputs))
        if not parts:
            self.passes.append(StreamPass(tuple(inputs), self.output, stream_tiles(axes, len(inputs), self.itemsize)))
            return True
        kept_cells = math.prod(a.size for a in axes if a.out)
        ours, summed_cells = in_partial_sums(axes, parts, sums_last=rows_last)
        table = self.temporary(kept_cells * summed_cells)
        self.passes.append(StreamPass(tuple(inputs), table, stream_tiles(fused(ours), len(inputs), self.itemsize)))
        if rows_last:
            self.passes.append(RowsPass((table,), self.output, kept_cells, summed_cells))
        else:
            again = [Axis(summed_cells, (kept_cells,), 0), *([Axis(kept_cells, (1,), 1)] if kept_cells > 1 else [])]
            self.eliminate(again, [table])
        return True
