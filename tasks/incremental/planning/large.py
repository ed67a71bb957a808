"""Large steps of sums of products as stages that threads share: each reads what stages before it made. Pure: no values.

Small inputs are merged, loops stream over the largest one, and what they made is summed or turned where it has to be;
see ``tasks/steps/loops/streaming.py``. Between stages everything is in a work area of the step's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Final, NamedTuple

from ...steps.loops.streaming import Loops
from ...steps.step import Step
from .nests import is_small

#: A thread is worth waking for so many cells.
GRAIN: Final = 1 << 15

#: More parts than any step has.
MOST_PARTS: Final = 1 << 10


class LargeStep(NamedTuple):
    """How a large step is shared, and where its work area has what, in words of 8 bytes.

    Parameters
    ----------
    loops : Loops
    parts : int
        Of the stages that merge and stream.
    out_parts : int
        Of those that go over the output.
    out_cells : int
    operands : int
        Words of a part's places in the operands.
    numbers : int
        Words of a part's numbers and gathered rows.
    merges : tuple of int
        Where each merged table begins.
    offsets, parts_at, target, room : int
        Where offsets, the words of parts, what is summed or turned later, and a result that is compared begin.
    words : int
        All of them.
    """

    loops: Loops
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
    def ordered(self) -> bool:
        """Whether what is streamed is no result yet."""
        return self.loops.summed > 1 or self.loops.turn is not None


def is_streamed(step: Step) -> bool:
    """Return whether a step is run in stages."""
    return step.lowered.loops is not None and not is_small(step)


def large_step(step: Step, threads: int) -> LargeStep:
    """Return how some threads share a step that :func:`is_streamed`."""
    loops, lowered = step.lowered.loops, step.lowered
    assert loops is not None
    threads = min(threads, MOST_PARTS - 1)
    outer = loops.cells(loops.outer_high) * loops.cells(loops.outer_low)
    parts = min(threads, outer, -(-lowered.cells // GRAIN))
    out_parts = min(threads, -(-lowered.out_cells // GRAIN))
    depth = loops.cells(loops.depth_low)
    gathers = sum([operand.role == "gather" for operand in loops.operands])
    operands = (len(loops.operands) + 1) * (1 + depth)
    numbers = depth * (1 + gathers * loops.cells(loops.row))
    later = lowered.out_cells * loops.summed if loops.summed > 1 or loops.turn is not None else 0
    sizes = [*[merge.axes.cells for merge in loops.merges], loops.offsets.cells, parts * (operands + numbers), later]
    *merges, offsets, parts_at, target, room = accumulate(sizes, initial=0)
    words = room + lowered.out_cells
    places = (tuple(merges), offsets, parts_at, target, room, words)
    return LargeStep(loops, parts, out_parts, lowered.out_cells, operands, numbers, *places)


def spread_code(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return nested loops that multiply tables cell by cell, as :func:`.join_loops.join` reads them.

    Parameters
    ----------
    sizes : sequence of int
        Of the axes of the result, in its order.
    strides : sequence of sequence of int
        Of each table, 0 along axes that it lacks.

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
