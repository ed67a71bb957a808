"""Small steps of sums of products as nested loops over strides, for compiled code to run. Pure: no values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

from ...steps.lowering import Quick
from ...steps.step import Step

# A larger step is shared by threads, if there is a kernel of its own for it.
_LOOPED_CELLS, _MOST_LOOPED_CELLS = 1 << 15, 1 << 20
_MOST_INPUTS = 64

MOST_PLACES: Final = 128
"""Inputs, output and axes of a nest together."""


class Nest(NamedTuple):
    """A join as nested loops.

    Parameters
    ----------
    code : tuple of int
        As :func:`.join_loops.join` reads it.
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
    most = _LOOPED_CELLS if lowered.loops or lowered.product else _MOST_LOOPED_CELLS
    if quick is None or lowered.cells > most or len(step.inputs) > _MOST_INPUTS:
        return False
    return not quick.pairs or sum(nest.swept for nest in nests(quick)) <= 2 * most


@lru_cache(maxsize=1 << 13)
def nests(quick: Quick) -> tuple[Nest, ...]:
    """Turn a step's subscripts into nested loops."""
    operands = list(range(len(quick.shapes)))
    found: list[Nest] = []
    sizes: dict[str, int] = {}
    last, _, _ = quick.subscripts.partition("->")
    # names of the axes of the inputs: those that are joined first are named there, the others at the end
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


def _nest(subscripts: str, operands: tuple[int, ...], sizes: Mapping[str, int]) -> Nest:
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
    return Nest(tuple(code), tuple(operands[i] for i in varying), code[2], prod(sizes[x] for x in (*out, *gone)))


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
