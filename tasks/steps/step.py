"""One table operation as a value, and how it is lowered: those that look alike are lowered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import log
from typing import NamedTuple

from .lowering import Lowered, Quick, lower
from .pairwise import Join, pairwise
from .semiring import Semiring

# Up to here einsum is faster than NumPy broadcasting, and than compiled loops that have to be started.
_QUICK_CELLS = 1 << 17
# With three tables or more einsum has only its slow general loop: from here on they are joined two at a time,
# which is faster than NumPy broadcasting, but soon not than compiled loops.
_PAIRWISE_CELLS, _MOST_PAIRWISE_CELLS = 512, 1 << 20
# More tables than einsum takes at once, which has room for 32 in some versions of NumPy, are always joined.
_PAIRWISE_TABLES = 24
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Step(NamedTuple):
    """One table operation: combine ``inputs``, eliminate what the output lacks.

    Parameters
    ----------
    node : int
        The table that this step makes (a node of the tree).
    inputs : tuple of int
        The tables that it reads.
    input_axes, axes : tuples of int
        Variables of each input and of the output, in the order of their axes.
    lowered : Lowered
        The loops, fixed at planning time.
    """

    node: int
    inputs: tuple[int, ...]
    input_axes: tuple[tuple[int, ...], ...]
    axes: tuple[int, ...]
    lowered: Lowered


def make_step(
    node: int,
    inputs: tuple[int, ...],
    input_axes: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    sizes: Sequence[int],
    semiring: Semiring,
    *,
    keep: bool = True,
) -> Step:
    """Lower a step; those that differ only in the names of their variables are lowered once.

    Unless told to ``keep`` it, nothing of a step stays in memory that is done with such sizes once.
    """
    names: dict[int, int] = {}
    for scope in input_axes:
        for v in scope:
            if v not in names:
                names[v] = len(names)
    name, size = names.__getitem__, sizes.__getitem__
    renamed = tuple([tuple(map(name, scope)) for scope in input_axes])
    lowered = _lowered if keep else _lowered.__wrapped__
    return Step(
        node, inputs, input_axes, axes, lowered(renamed, tuple(map(name, axes)), tuple(map(size, names)), semiring)
    )


@lru_cache(maxsize=1 << 13)
def _lowered(
    input_axes: tuple[tuple[int, ...], ...], axes: tuple[int, ...], sizes: tuple[int, ...], semiring: Semiring
) -> Lowered:
    lowered = lower(input_axes, axes, dict(enumerate(sizes)), semiring.dtype, semiring)
    fused = lowered.axes
    most = _QUICK_CELLS if len(input_axes) < 3 else _MOST_PAIRWISE_CELLS
    if semiring.name != "sum_product" or lowered.cells > most or len(fused.sizes) > len(_LETTERS):
        return lowered
    orders = [_axis_order(strides) for strides in fused.strides]
    shapes = tuple([tuple([fused.sizes[a] for a in order]) for order in orders])
    terms = ["".join([_LETTERS[a] for a in order]) for order in orders]
    out = _LETTERS[fused.eliminated : len(fused.sizes)]
    pairs: tuple[Join, ...] = ()
    workspace = 0
    if lowered.cells >= _PAIRWISE_CELLS or len(terms) > _PAIRWISE_TABLES:
        pairs, terms, workspace = pairwise(terms, out, dict(zip(_LETTERS, fused.sizes, strict=False)))
    summed = log(lowered.cells / lowered.out_cells)
    quick = Quick(shapes, f"{','.join(terms)}->{out}", pairs, summed)
    workspace_bytes = max(workspace * semiring.itemsize, lowered.workspace_bytes)
    return replace(lowered, quick=quick, workspace_bytes=workspace_bytes)


def _axis_order(strides: Sequence[int]) -> list[int]:
    """Return the axes that a table has, the most significant first."""
    return sorted([axis for axis, stride in enumerate(strides) if stride], key=lambda axis: -strides[axis])
