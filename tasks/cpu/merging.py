"""Streaming steps with NumPy: small inputs are merged before the loops, as for compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.loops.blocks import Blocks, cut
from ..steps.loops.streaming import Loops
from ..steps.semiring import Semiring
from .broadcast import reduce, run_blocks

Array = NDArray[Any]


def run_merged(loops: Loops, blocks: Blocks, semiring: Semiring, inputs: Sequence[Array], out: Array) -> None:
    """Run a streaming step block by block over what is left once small inputs are merged.

    Parameters
    ----------
    blocks : Blocks
        Of the operands of the loops.
    inputs : sequence of ndarray, C-contiguous
    out : ndarray, shape (cells,)
    """
    run_nest(loops, semiring, inputs, out, lambda tables, target: run_blocks(blocks, semiring, tables, target))


def run_nest(
    loops: Loops,
    semiring: Semiring,
    inputs: Sequence[Array],
    out: Array,
    nest: Callable[[Sequence[Array], Array], None],
) -> None:
    """Merge small inputs, give ``nest`` the operands' tables and its output, sum the row that it kept, turn it."""
    tables = list(inputs)
    for merge in loops.merges:
        merged = np.empty(merge.axes.cells, semiring.dtype)
        run_blocks(cut(merge.axes), semiring, [inputs[i] for i in merge.inputs], merged)
        tables.append(merged)
    whole = loops.summed == 1 and loops.turn is None
    target = out if whole else np.empty(out.size * loops.summed, semiring.dtype)
    nest([tables[operand.table] for operand in loops.operands], target)
    if loops.summed > 1:
        reduce(semiring, target.reshape(out.size, loops.summed).T, (0,), out)
    elif loops.turn is not None:
        turned = target.reshape(loops.turn.sizes).transpose(loops.turn.order)
        out.reshape(turned.shape)[...] = turned
