"""Lowering of dense steps for a GPU: which cells a block of threads computes, and in which passes. Pure: no values.

A step becomes a few *passes*, each one launch: a matrix-like step becomes one product; small inputs of an
elimination are joined by the blocks that sum over their join, in partial sums where there are few outputs; a large
join is cut into bricks; other inputs beyond four are joined first (the thread mapping of Fioretto et al. 2018 §6;
Bistaffa et al. 2016 §V). By the distributive law, `inner_sums` eliminates some axes before the other inputs are
multiplied in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations
from typing import Final

from ...steps.axes import Axes, Sizes
from ...steps.light_dataclass import dataclass
from ...steps.lowering import Lowered
from ...steps.products import Product, as_product
from ...steps.semiring import Semiring
from .pass_axes import as_axes, axis_masks, fused, ordered, row_major
from .pass_builder import PassBuilder
from .pass_prices import pass_seconds, passes_seconds
from .passes import DeviceStep, ProductPass, ReorderPass, device_step_of
from .product_tiles import least_product_seconds
from .reorders import Reorder, reorder_tiles
from .streams import Axis, divisor
from .tiling_policy import NOMINAL, TilingPolicy

# Rows, columns and depth from which a matrix-like step is computed as a product in tiles.
_PRODUCT_LEAST_SIZES: Final = (16, 16, 12)
# Rows, columns and depth from which matrix units compute a matrix-like step as a product in tiles.
_MATRIX_LEAST_SIZES: Final = (8, 16, 8)
# Rows, and columns, of a tile of a product, about; a piece of a product has at least as many eliminated states.
_PRODUCT_TILE_CELLS: Final = 64
# Tiles that keep the device busy. If a product has less than a quarter of them, its depth is cut into pieces.
_PRODUCT_BUSY_TILES: Final = 4 * NOMINAL.processors


@lru_cache(maxsize=4096)
def device_step(lowered: Lowered) -> DeviceStep:
    """Lower a step for the device."""
    builder = _StepBuilder(lowered)
    axes = as_axes(lowered.axes)
    inputs = list(range(len(lowered.input_cells)))
    product = lowered.product
    if product is not None and _worth_tiles(axes, product, lowered.semiring):
        builder.product_or_bricks(axes, product, inputs)
    else:
        builder.contract(axes, inputs)
    passes = builder.passes
    if len(passes) > 2:  # the order of two passes is known without their seconds
        cells = [*lowered.input_cells, *builder.temporaries, lowered.out_cells]
        seconds = [pass_seconds(each, cells, lowered.semiring) for each in passes]
    else:
        seconds = [1.0] * len(passes)
    return device_step_of(len(inputs), passes, builder.temporaries, seconds)


@lru_cache(maxsize=4096)
def launched_seconds(lowered: Lowered) -> float:
    """Predict the seconds of a step's launches: within a factor of two for nearly all steps.

    The prediction is the sum of the passes. It expects no gain from passes that run concurrently in a graph, because
    they share the device.
    """
    step = device_step(lowered)
    return passes_seconds(step.passes, lowered.input_cells, step.temporaries, lowered.out_cells, lowered.semiring)


def _worth_tiles(axes: Sequence[Axis], product: Product, semiring: Semiring) -> bool:
    """Whether a matrix-like step is large enough for tiles: matrix units take small ones, written along columns."""
    sizes = [math.prod(axes[i].size for i in group) for group in (product.rows, product.columns, product.depth)]
    if all(size >= least for size, least in zip(sizes, _PRODUCT_LEAST_SIZES, strict=True)):
        return True
    in_columns = any(axes[i].out == 1 for i in (*product.rows, *product.columns))
    matrix_units = semiring.name == "sum_product" and semiring.dtype == "float64"
    return matrix_units and in_columns and all(n >= least for n, least in zip(sizes, _MATRIX_LEAST_SIZES, strict=True))


@dataclass(frozen=True)
class TableOrder:
    """Another order of a table: strides along all axes of the step, its cells, and the copy to it or from it."""

    strides: list[int]
    cells: int
    reorder: Reorder


Orders = dict[int, TableOrder]
"""Other orders of left (0), right (1) and output (2)."""


class _StepBuilder(PassBuilder):
    """Collects the passes of a whole step: products, and sums inside of it."""

    def contract(self, axes: list[Axis], inputs: list[int]) -> bool:
        """Add the passes of a step: of all inputs at once, or with a part of it summed first if that takes less."""
        policy = TilingPolicy.current()
        if math.prod([a.size for a in axes]) < policy.inner_sum_least_cells:
            return self.eliminate(axes, inputs)
        inner = inner_sums(axes, len(inputs))
        if not inner:
            return self.eliminate(axes, inputs)
        plain = self.priced(partial(self.eliminate, axes, inputs))
        ways = [self.priced(partial(self.nested, axes, inputs, each)) for each in inner]
        found = min([way for way in ways if way], key=lambda each: each[0])
        self.add(plain if plain and found[0] > plain[0] * policy.inner_sum_price else found)
        return True

    def nested(self, axes: list[Axis], inputs: list[int], inner: InnerSum) -> bool:
        """Add the passes of a sum inside a step, and the passes of the remaining step."""
        held = [axes[i] for i in inner.held]
        places = dict(zip(inner.held, row_major(held), strict=True))
        ours = [
            Axis(axes[i].size, tuple([axes[i].strides[t] for t in inner.members]), places.get(i, 0))
            for i in (*inner.gone, *inner.held)
        ]
        output, self.output = self.output, self.temporary(math.prod([a.size for a in held]))
        least, self.brick_least = self.brick_least, TilingPolicy.current().brick_join_least_cells
        self.part(fused(ours), [inputs[t] for t in inner.members])
        table, self.output = self.output, output
        others = [t for t in range(len(inputs)) if t not in inner.members]
        left = [
            Axis(a.size, (*[a.strides[t] for t in others], places.get(i, 0)), a.out)
            for i, a in enumerate(axes)
            if i not in inner.gone
        ]
        self.contract(fused(left), [*(inputs[t] for t in others), table])
        self.brick_least = least
        return True

    def part(self, axes: list[Axis], inputs: list[int]) -> None:
        """Add the passes of a sum inside of a step: a product where it is one."""
        strides = tuple(zip(*[a.strides for a in axes], strict=True))
        ours = Axes(tuple([a.size for a in axes]), strides, tuple([a.out for a in axes]))
        product = as_product(ours, self.semiring)
        if product is not None and _worth_tiles(axes, product, self.semiring):
            self.product_or_bricks(axes, product, inputs)
        else:
            self.contract(axes, inputs)

    def product_or_bricks(self, axes: list[Axis], product: Product, inputs: list[int]) -> None:
        """Add a product, or what else is predicted to take less where a product takes much more than its floor."""
        policy = TilingPolicy.current()
        found = self.priced(partial(self.product, axes, product, inputs))
        assert found is not None
        cells = math.prod([a.size for a in axes])
        moved = sum([self.table_cells(t) for t in (*inputs, self.output)])
        least = policy.product_poor_ratio * least_product_seconds(cells, moved, self.semiring)
        other = self.priced(partial(self.contract, axes, inputs)) if found[0] > least else None
        if other is not None and other[0] < policy.product_reorder_share * found[0]:
            found = other
        self.add(found)

    def product(self, axes: list[Axis], product: Product, inputs: Sequence[int]) -> bool:
        """Add a product of two factors, each joined first where it has several inputs, in other orders if that pays."""
        policy = TilingPolicy.current()
        columns = {number: [a.strides[t] for a in axes] for t, number in enumerate(inputs)}
        left, right = (
            self.factor(axes, columns, [inputs[t] for t in factor]) for factor in (product.left, product.right)
        )
        strides = [columns[left], columns[right], [a.out for a in axes]]
        cells = math.prod([a.size for a in axes])
        orders = self.other_orders(axes, product, strides) if cells >= policy.product_searched_cells else [{}]
        found = [
            self.priced(partial(self.ordered_product, axes, product, (left, right), strides, each)) for each in orders
        ]
        plain, *others = [way for way in found if way is not None]
        best = min(others, key=lambda each: each[0], default=plain)
        self.add(best if best[0] < policy.product_reorder_share * plain[0] else plain)
        return True

    def other_orders(self, axes: Sequence[Axis], product: Product, strides: Sequence[Sequence[int]]) -> list[Orders]:
        """Say which of left, right and output may be copied in another order, none of them at first; 2 is the output.

        Those whose neighbours are of different batches, where the copies are small beside the step's tables.
        """
        policy, found = TilingPolicy.current(), dict[int, TableOrder]()
        for t, (lines, own) in enumerate(zip((product.rows, product.columns, ()), strides, strict=True)):
            there = [i for i, stride in enumerate(own) if stride]
            if min(there, key=own.__getitem__) not in product.batch:
                continue
            inner = (product.rows, product.columns) if t == 2 else (product.depth, lines)
            order = [i for group in (product.batch, *inner) for i in sorted(group, key=lambda i: -axes[i].out)]
            new = dict(zip(order, row_major([axes[i] for i in order]), strict=True))
            ways = [(new[i], axes[i].out) if t == 2 else (own[i], new[i]) for i in order]
            copy = [Axis(axes[i].size, (one,), other) for i, (one, other) in zip(order, ways, strict=True)]
            reorder = reorder_tiles(copy, self.itemsize)
            if reorder is not None:
                found[t] = TableOrder(
                    [new.get(i, 0) for i in range(len(axes))], math.prod([a.size for a in copy]), reorder
                )
        most = (sum(self.cells) + self.out_cells) / policy.product_reorder_ratio
        subsets = [dict(some) for n in range(len(found) + 1) for some in combinations(found.items(), n)]
        return [some for some in subsets if sum([each.cells for each in some.values()]) <= most]

    def ordered_product(
        self,
        axes: Sequence[Axis],
        product: Product,
        factors: tuple[int, int],
        strides: Sequence[Sequence[int]],
        orders: Orders,
    ) -> bool:
        """Add a product, with copies of its factors and of its output in other axis orders.

        Parameters
        ----------
        axes : sequence of Axis
        product : Product
            Groups of axes: batch, rows, columns, depth.
        factors : (int, int)
            Numbers of the two factors.
        strides : sequence of sequence of int
            Strides of both factors and the output, by axis.
        orders : mapping of int to Order
            New axis order of a factor (0, 1) or of the output (2).

        Returns
        -------
        bool
            True: the passes were added.
        """
        tables, strides, output = list(factors), list(strides), self.output
        for t, order in orders.items():
            strides[t], table = order.strides, self.temporary(order.cells)
            if t < 2:
                self.passes.append(ReorderPass((tables[t],), table, order.reorder))
                tables[t] = table
            else:
                self.output = table
        groups = tuple(
            ordered([Axis(axes[i].size, (strides[0][i], strides[1][i]), strides[2][i]) for i in group], key)
            for group, key in ((product.batch, 0), (product.rows, 0), (product.columns, 2), (product.depth, 0))
        )
        self.multiply((tables[0], tables[1]), groups)
        table, self.output = self.output, output
        # the product writes a temporary table, which is copied into the order of the output
        if 2 in orders:
            self.passes.append(ReorderPass((table,), output, orders[2].reorder))
        return True

    def factor(self, axes: Sequence[Axis], columns: dict[int, list[int]], members: Sequence[int]) -> int:
        """Multiply small inputs into a large one, all at once; the result has its layout."""
        base = members[0]
        if len(members) == 1:
            return base
        strides = columns[base]
        held = sorted((i for i, stride in enumerate(strides) if stride), key=lambda i: -strides[i])
        ours = [Axis(axes[i].size, tuple(columns[t][i] for t in members), strides[i]) for i in held]
        output, self.output = self.output, self.temporary(math.prod(a.size for a in ours))
        self.eliminate(fused(ours), list(members))
        table, self.output = self.output, output
        columns[table] = strides
        return table

    def multiply(self, factors: tuple[int, int], groups: tuple[tuple[Axis, ...], ...]) -> None:
        """Add the product itself; with few tiles and much depth, in partial products that are summed after."""
        batch, rows, columns, depth = groups
        count, tall, wide, deep = (math.prod(a.size for a in group) for group in groups)
        tiles = count * -(-tall // _PRODUCT_TILE_CELLS) * -(-wide // _PRODUCT_TILE_CELLS)
        cells = count * tall * wide
        wanted = (
            min(_PRODUCT_BUSY_TILES // tiles, deep // _PRODUCT_TILE_CELLS) if tiles < _PRODUCT_BUSY_TILES // 4 else 1
        )
        cut, inner = _pieces(depth, wanted, cells)
        pieces = math.prod(a.size for a in cut)
        if pieces == 1:
            self.passes.append(ProductPass(factors, self.output, (batch, rows, columns, depth)))
            return
        table = self.temporary(pieces * cells)
        self.passes.append(ProductPass(factors, table, ((*cut, *batch), rows, columns, inner)))
        self.eliminate([Axis(pieces, (cells,), 0), Axis(cells, (1,), 1)], [table])


def _pieces(depth: Sequence[Axis], wanted: int, cells: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Cut the depth into at most ``wanted`` pieces; return their axes, ``cells`` apart in the output, and the rest."""
    cut: list[Axis] = []
    inner: list[Axis] = []
    for axis in depth:
        pieces = divisor(axis.size, max(1, wanted))
        wanted //= pieces
        part = axis.size // pieces
        if pieces > 1:
            cut.append(Axis(pieces, tuple(s * part for s in axis.strides), 0))
        if part > 1 or (axis is depth[-1] and not inner):
            inner.append(Axis(part, axis.strides, 0))
    outs = row_major(cut)
    return tuple(replace(a, out=out * cells) for a, out in zip(cut, outs, strict=True)), tuple(inner)


# The work of writing and reading the table of an inner sum, for each of its cells, in cells of a step.
_INNER_SUM_CELL: Final = 16.0


@dataclass(frozen=True, slots=True)
class InnerSum:
    """A sum inside of a step.

    Attributes
    ----------
    members : tuple of int
        Inputs that it multiplies: all that have one of its eliminated axes.
    gone : tuple of int
        Axes that it eliminates.
    held : tuple of int
        Axes of the result of the inner sum, outermost first: the axes that the step eliminates come first.
    """

    members: tuple[int, ...]
    gone: tuple[int, ...]
    held: tuple[int, ...]


def inner_sums(axes: Sequence[Axis], inputs: int) -> list[InnerSum]:
    """Find sums that may be made first, each a table of its own.

    At most three: the sum that leaves the fewest cells; the best sum over a single axis; and the sum over all
    eliminated axes. Also a sum that leaves no fewer cells than the step may pay, because it may be a product. A table
    counts as additional cells, because it is written and read again.

    Parameters
    ----------
    axes : sequence of Axis
        Sizes, strides in each input in cells, and the stride in the output (0: eliminated).
    inputs : int
    """
    policy = TilingPolicy.current()
    masks, cells = axis_masks(axes, inputs), Sizes([axis.size for axis in axes]).__getitem__
    tables = sum([cells(mask) for mask in masks]) + cells(sum([1 << i for i, axis in enumerate(axes) if axis.out]))

    def priced(gone: frozenset[int]) -> tuple[float, int]:
        """Cells of the sum over some axes, of its table and of the remaining step; axes of the table."""
        dropped = sum([1 << i for i in gone])
        union = _union([mask for mask in masks if mask & dropped])
        table = union & ~dropped
        left = _union([table, *(mask for mask in masks if not mask & dropped)])
        return cells(union) + cells(left) + _INNER_SUM_CELL * cells(table), table

    whole = frozenset([i for i, axis in enumerate(axes) if not axis.out])
    found = list[tuple[float, InnerSum]]()
    for gone in _candidates(whole, lambda some: priced(some)[0]):
        dropped = sum([1 << i for i in gone])
        members = tuple([t for t in range(inputs) if masks[t] & dropped])
        price, table = priced(gone)
        # a sum over all inputs is the step itself, and a large table costs more than it saves
        if len(members) == inputs or cells(table) * policy.inner_sum_ratio > tables:
            continue
        held = sorted([i for i in range(len(axes)) if table >> i & 1], key=lambda i: (axes[i].out > 0, -axes[i].out))
        found.append((price, InnerSum(members, tuple(sorted(gone)), tuple(held))))
    if not found:
        return []
    found.sort(key=lambda each: each[0])
    sums = [each for _, each in found]
    single = [each for each in sums if len(each.gone) == 1][:1]
    every = [each for each in sums if len(each.gone) == len(whole)]
    return list(dict.fromkeys([sums[0], *single, *every]))


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _candidates(gone: frozenset[int], price: Callable[[frozenset[int]], float]) -> list[frozenset[int]]:
    """Sets of eliminated axes: each axis alone, then extended by the axis that lowers the price most, and all axes."""
    found = dict[frozenset[int], None]()
    for axis in sorted(gone):
        some, rated = frozenset([axis]), price(frozenset([axis]))
        while some not in found:
            found[some] = None
            more = min(((price(some | {other}), other) for other in gone - some), default=None)
            if more is None or more[0] >= rated:
                break
            rated, some = more[0], some | {more[1]}
    return list(found | {gone: None}) if gone else []
