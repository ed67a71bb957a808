"""Large steps of sums of products as stages that threads share: each reads what stages before it made. Pure: no values.

Small inputs are merged, loops stream over the largest one, and what they made is summed or turned where it has to be;
see ``tasks/steps/streaming.py``. A product of matrices is made by ranges of its batches or rows instead. Between
stages everything is in a work area of the step's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Final, NamedTuple

from ..steps.lowering import Lowered, Quick
from ..steps.policy import Policy
from ..steps.products import TILE_ROWS, Product, buffer_cells
from ..steps.products import cells as cells_of
from ..steps.step import MOST_PAIRWISE_CELLS, Step
from ..steps.streaming import StreamLoops


@dataclass(frozen=True)
class PropagationPolicy(Policy):
    """The numbers behind how threads share the steps of a propagation.

    Parameters
    ----------
    grain_cells : int
        Cells of a part of a shared step: with fewer, waking a thread costs more than the part.
    alone_cells : int
        One thread computes this number of cells before the other threads have started.
    turn_cells : int
        Threads return to the interpreter after this number of cells, so that it can be interrupted.
    """

    grain_cells: int = 1 << 15
    alone_cells: int = 1 << 17
    turn_cells: int = 1 << 27


# A part of a product has this multiple of ``grain_cells``, because a cell of a product takes less time.
_PRODUCT_GRAINS: Final = 8

# Small steps of sums of products as nested loops over strides, for compiled code to run. Pure: no values.

MOST_PLACES: Final = 128
"""Inputs, output and axes of a nest together; the inputs take at most half of the places."""


class StageNest(NamedTuple):
    """A join as nested loops.

    Parameters
    ----------
    code : tuple of int
        As :func:`.packed_loops.join` reads it.
    operands : tuple of int
        Positions among the inputs of the step, then among the results of its earlier nests.
    cells, swept : int
        Cells of the result, and of the loops.
    """

    code: tuple[int, ...]
    operands: tuple[int, ...]
    cells: int
    swept: int


def small_cells(steps: Sequence[Step]) -> int:
    """Return how many cells of temporaries a thread needs that runs small steps, the result among them."""
    made = [nests(step.lowered.quick) for step in steps if is_small(step)]
    result = max([each[-1].cells for each in made], default=0)
    return result + max([sum([nest.cells for nest in each[:-1]]) for each in made], default=0)


def is_small(step: Step) -> bool:
    """Return whether a step is run as nested loops."""
    lowered, quick = step.lowered, step.lowered.quick
    # threads share a step of several parts if compiled loops or a matrix product compute it
    shared = lowered.loops or lowered.product
    most = PropagationPolicy.current().grain_cells if shared else MOST_PAIRWISE_CELLS
    if quick is None or lowered.cells > most or len(step.inputs) > MOST_PLACES // 2:
        return False
    return not quick.pairs or sum(nest.swept for nest in nests(quick)) <= 2 * most


@lru_cache(maxsize=1 << 13)
def nests(quick: Quick) -> tuple[StageNest, ...]:
    """Turn a step's subscripts into nested loops."""
    operands = list(range(len(quick.shapes)))
    found: list[StageNest] = []
    sizes: dict[str, int] = {}
    last, _, _ = quick.subscripts.partition("->")
    # names of the axes of the inputs: the inputs that are joined first are named there, the others at the end
    terms = last.split(",")
    for i, j, joined in reversed(quick.pairs):
        terms.pop()
        left, right = joined.partition("->")[0].split(",")
        terms.insert(i, left)
        terms.insert(j, right)
    for term, shape in zip(terms, quick.shapes, strict=True):
        sizes.update(zip(term, shape, strict=True))
    for i, j, joined in quick.pairs:
        second = operands.pop(j)
        pair = (operands.pop(i), second)
        operands.append(len(quick.shapes) + len(found))
        found.append(_nest(joined, pair, sizes))
    found.append(_nest(quick.subscripts, tuple(operands), sizes))
    return tuple(found)


def _nest(subscripts: str, operands: tuple[int, ...], sizes: Mapping[str, int]) -> StageNest:
    left, _, out = subscripts.partition("->")
    terms = left.split(",")
    gone = [x for x in dict.fromkeys(left) if x != "," and x not in out]
    strides = [_strides(term, sizes) for term in terms]
    row = max([*out[-1:], *gone], key=lambda x: _row_worth(x, x in out, sizes, strides), default="")
    others = [x for x in (*out, *gone) if x != row]
    lane = max(others, key=sizes.__getitem__, default="")
    axes = [x for x in others if x != lane]
    varying = sorted(range(len(terms)), key=lambda i: row not in strides[i])
    code = [len(terms), len(axes), prod(sizes[x] for x in out)]
    code += [sizes.get(x, 1) for x in (row, lane, *axes)]
    for each in [*(strides[i] for i in varying), _strides(out, sizes)]:
        code += [each.get(x, 0) for x in (row, lane, *axes)]
    return StageNest(tuple(code), tuple(operands[i] for i in varying), code[2], prod(sizes[x] for x in (*out, *gone)))


def _row_worth(axis: str, kept: bool, sizes: Mapping[str, int], strides: Sequence[Mapping[str, int]]) -> float:
    """Rate an axis as the innermost loop: long, contiguous wherever it occurs, and of the output if in doubt."""
    contiguous = all(s.get(axis, 1) == 1 for s in strides)
    return min(sizes[axis], 64) * (1.0 if contiguous else 0.5) * (1.0 if kept else 0.9)


def _strides(term: str, sizes: Mapping[str, int]) -> dict[str, int]:
    strides: dict[str, int] = {}
    cells = 1
    for x in reversed(term):
        strides[x] = cells
        cells *= sizes[x]
    return strides


#: More parts than any step has.
MOST_PARTS: Final = 1 << 10


class LargeStep(NamedTuple):
    """How a large step is shared, and where its work area has what, in words of 8 bytes.

    Parameters
    ----------
    loops : Loops or None
    product : Product or None
        Where there are no loops.
    by_batch : bool
        Whether parts of a product are ranges of its batches, not of its rows.
    offset_cells : int
    code : tuple of int
        From which offsets are filled.
    parts : int
        Of the stages that merge and stream.
    out_parts : int
        Of those that go over the output.
    out_cells : int
    operands : int
        Words of a part's places in the operands.
    numbers : int
        Words of a part's numbers and gathered rows, or of its packed blocks.
    merges : tuple of int
        Where each merged table begins.
    offsets, parts_at, target, room : int
        The start of the offsets, of the words of parts, of the cells that are summed or turned later, and of a compared
        result.
    words : int
        All of them.
    """

    loops: StreamLoops | None
    product: Product | None
    by_batch: bool
    offset_cells: int
    code: tuple[int, ...]
    parts: int
    out_parts: int
    out_cells: int
    operands: int
    numbers: int
    merges: tuple[int, ...]
    offsets: int
    parts_at: int
    target: int
    room: int
    words: int

    @property
    def summed(self) -> int:
        """Cells that are summed into one after the loops."""
        return self.loops.summed if self.loops else 1

    @property
    def ordered(self) -> bool:
        """Whether what is streamed is no result yet."""
        return self.loops is not None and (self.loops.summed > 1 or self.loops.turn is not None)

    @property
    def merged_cells(self) -> int:
        """Cells of the tables that small inputs are merged into."""
        return sum([merge.axes.cells for merge in self.loops.merges]) if self.loops else 0


def is_streamed(step: Step) -> bool:
    """Return whether a step is run in stages."""
    lowered = step.lowered
    return (lowered.loops is not None or lowered.product is not None) and not is_small(step)


def large_step(step: Step, threads: int) -> LargeStep:
    """Return how some threads share a step that :func:`is_streamed`."""
    lowered, threads = step.lowered, min(threads, MOST_PARTS - 1)
    if lowered.product is not None:
        return _large_product(lowered, lowered.product, threads)
    assert lowered.loops is not None
    return _large_loops(lowered, lowered.loops, threads)


def _large_loops(lowered: Lowered, loops: StreamLoops, threads: int) -> LargeStep:
    outer = loops.cells(loops.outer_high) * loops.cells(loops.outer_low)
    parts = min(threads, outer, -(-lowered.cells // PropagationPolicy.current().grain_cells))
    depth = loops.cells(loops.depth_low)
    gathers = sum([operand.role == "gather" for operand in loops.operands])
    operands = (len(loops.operands) + 1) * (1 + depth)
    numbers = depth * (1 + gathers * loops.cells(loops.row))
    later = lowered.out_cells * loops.summed if loops.summed > 1 or loops.turn is not None else 0
    merges = [merge.axes.cells for merge in loops.merges]
    return _laid(lowered, loops, False, threads, parts, (operands, numbers), merges, later)


def _large_product(lowered: Lowered, product: Product, threads: int) -> LargeStep:
    """Cut into ranges of batches or, where those are few, of rows in whole tiles."""
    axes, policy = lowered.axes, PropagationPolicy.current()
    most = min(threads, -(-lowered.cells // (_PRODUCT_GRAINS * policy.grain_cells)))
    batches, rows = cells_of(axes, product.batch), cells_of(axes, product.rows)
    by_batch = batches >= most
    parts = most if by_batch else min(most, -(-rows // TILE_ROWS))
    packed = sum(buffer_cells(axes, product, lowered.semiring.itemsize))
    return _laid(lowered, product, by_batch, threads, parts, (0, packed))


def _laid(
    lowered: Lowered,
    kernel: StreamLoops | Product,
    by_batch: bool,
    threads: int,
    parts: int,
    buffers: tuple[int, int],
    merges: Sequence[int] = (),
    later: int = 0,
) -> LargeStep:
    """Lay out the work area: merged tables, offsets, buffers of the parts, cells that are summed later, and the room.

    Parameters
    ----------
    lowered : Lowered
    kernel : StreamLoops or Product
        The kernel that runs the step.
    by_batch : bool
        Whether parts of a product are ranges of batches, and not of rows.
    threads, parts : int
        Threads there are, and parts that the step is cut into.
    buffers : tuple of int
        Words for operands, and numbers, that each part needs.
    merges : sequence of int
        Cells of tables that are merged before.
    later : int
        Number of cells that are summed after the parts.

    Returns
    -------
    LargeStep
        Places are in numbers of 8 bytes from the beginning of the step's work area.
    """
    offsets, product = kernel.offsets, kernel if isinstance(kernel, Product) else None
    # The room for a compared result comes last, as it is counted in cells of the output and not in ``sizes``.
    sizes = [*merges, offsets.cells, parts * sum(buffers), later]
    *starts, offsets_at, parts_at, target, room = accumulate(sizes, initial=0)
    return LargeStep(
        loops=None if isinstance(kernel, Product) else kernel,
        product=product,
        by_batch=by_batch,
        offset_cells=offsets.cells,
        code=offsets.code,
        parts=parts,
        out_parts=min(threads, -(-lowered.out_cells // PropagationPolicy.current().grain_cells)),
        out_cells=lowered.out_cells,
        operands=buffers[0],
        numbers=buffers[1],
        merges=tuple(starts),
        offsets=offsets_at,
        parts_at=parts_at,
        target=target,
        room=room,
        words=room + lowered.out_cells,
    )


def spread_code(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return nested loops that multiply tables cell by cell, as :func:`.packed_loops.join` reads them.

    Parameters
    ----------
    sizes : sequence of int
        Of the axes of the result, in its order.
    strides : sequence of sequence of int
        The strides of each table, 0 along axes that it lacks.

    Returns
    -------
    code, operands : tuples of int
        The tables in the order of the loops.
    """
    axes = [len(sizes) - 1, len(sizes) - 2, *range(len(sizes) - 2)]
    operands = sorted(range(len(strides)), key=lambda i: not strides[i][-1]) if sizes else [*range(len(strides))]
    out = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]

    def of(values: Sequence[int], missing: int) -> list[int]:
        return [values[axis] if axis >= 0 else missing for axis in axes[: max(2, len(sizes))]]

    code = [len(strides), max(0, len(sizes) - 2), prod(sizes), *of(sizes, 1)]
    for each in (*[strides[i] for i in operands], out):
        code += of(each, 0)
    return tuple(code), tuple(operands)
