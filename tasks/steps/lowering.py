"""Lowering: from the scopes and sizes of a dense step to the loops that compute it. Pure: no values.

The step is ``out[o] = ⊕_x ⊗_i f_i[o_i, x]`` of bucket elimination (Fioretto et al. 2018 §6, Bistaffa et al.
2016): join the functions of a bucket and project its variables out, here without ever storing the join.

Two tables that share the variable to be summed out are a product of matrices, once they are large enough to gain by it;
a table and a vector are read once, row by row.

>>> from bucketflow.tasks.steps.semiring import SUM_PRODUCT
>>> for scopes, states in ([(0, 2), (2, 1)], 10), ([(0, 2), (2, 1)], 100), ([(0, 1, 2), (2,)], 100):
...     step = lower(scopes, (0, 1), dict.fromkeys(range(3), states), "float64", SUM_PRODUCT)
...     step.regime, step.cells, step.out_cells
('small', 1000, 100)
('matrix', 1000000, 10000)
('streaming', 1000000, 10000)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import products
from . import streaming as streaming_loops
from .axes import Axes, fused
from .light_dataclass import dataclass
from .products import Product, as_product
from .semiring import Semiring
from .streaming import Blocks, StreamLoops, as_loops, blocks_bytes, cut, merged_blocks

Regime = Literal["small", "streaming", "matrix"]

SMALL_CELLS: Final = 8192
"""Up to here NumPy broadcasting takes some tens of microseconds and importing a compiler is not worth it."""


class Quick(NamedTuple):
    """How ``einsum`` computes a small step of sums of products.

    Attributes
    ----------
    shapes
        Shapes of the inputs.
    subscripts
        The step, or what is left of it after `pairs`.
    pairs
        Positions of two tables that are taken out of the list and joined first; the result goes to its end.
    log_summed
        ln of the number of cells that are summed into one.
    """

    shapes: tuple[tuple[int, ...], ...]
    subscripts: str
    pairs: tuple[tuple[int, int, str], ...]
    log_summed: float


@dataclass(frozen=True, slots=True)
class Lowered:
    """A dense step ready to run on any tables of its scopes; picklable, and a pure function of sizes.

    Attributes
    ----------
    cells
        Cells of the join: the arithmetic of the step.
    out_cells
        Cells of the result.
    workspace_bytes
        Peak bytes of temporaries besides inputs and output, with one thread.
    thread_bytes
        The bytes that each further thread adds.
    regime
        ``small`` (NumPy), ``streaming`` (bound by bytes) or ``matrix`` (a product that reuses its data).
    blocks
        How NumPy runs it.
    merged
        How NumPy runs the operands of `loops`, where merging small inputs first takes less.
    quick
        For small steps of sums of products, a way with less ado.
    """

    semiring: Semiring
    axes: Axes
    regime: Regime
    cells: int
    out_cells: int
    input_cells: tuple[int, ...]
    workspace_bytes: int
    thread_bytes: int
    blocks: Blocks
    merged: Blocks | None = None
    loops: StreamLoops | None = None
    product: Product | None = None
    quick: Quick | None = None

    def __hash__(self) -> int:
        """Hash the sizes and the strides of two inputs: hashing the strides of many takes longer than a small step."""
        axes = self.axes
        return hash((axes.sizes, axes.out, axes.strides[0], axes.strides[-1], self.cells, self.input_cells))


def lower(
    inputs: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    sizes: Mapping[int, int] | Sequence[int],
    dtype: npt.DTypeLike,
    semiring: Semiring,
    quick: Callable[[Axes], tuple[Quick, int] | None] | None = None,
) -> Lowered:
    """Lower a step.

    Parameters
    ----------
    inputs
        For each table, its variables in the order of its axes; empty for a scalar.
    output
        The variables of the result in the order of its axes; all others are eliminated.
    sizes
        Domain size of each variable.
    dtype
        Dtype of all tables; must be the semiring's dtype.
    quick
        Returns the einsum of a step, and the bytes of its temporaries; None for a step without one.

    Raises
    ------
    ValueError
        If there is no input, a scope repeats a variable, the output has a variable that no input has, or the dtype is
        not the semiring's dtype.
    """
    if not inputs:
        raise ValueError("a step needs at least one input")
    if dtype != semiring.dtype and np.dtype(dtype).name != semiring.dtype:
        raise ValueError(f"tables of dtype {np.dtype(dtype).name} in a semiring over {semiring.dtype}")
    axes, (*input_cells, out_cells) = fused(inputs, output, sizes)
    cells = axes.cells
    blocks = cut(axes)
    product = loops = merged = None
    workspace, thread = blocks_bytes(blocks, semiring), 0
    if cells > SMALL_CELLS:
        product = as_product(axes, semiring)
        # a matrix product is faster than a loop nest wherever a step is one
        loops = None if product else as_loops(axes, semiring)
        merged = merged_blocks(loops) if loops else None
        kernel, thread = _kernel_bytes(axes, semiring, loops, merged, product)
        workspace = max(kernel, workspace)
    einsum = quick(axes) if quick else None
    return Lowered(
        semiring,
        axes,
        "small" if cells <= SMALL_CELLS else "matrix" if product else "streaming",
        cells,
        out_cells,
        tuple(input_cells),
        max(workspace, einsum[1]) if einsum else workspace,
        thread,
        blocks,
        merged,
        loops,
        product,
        einsum[0] if einsum else None,
    )


def _kernel_bytes(
    axes: Axes, semiring: Semiring, loops: StreamLoops | None, merged: Blocks | None, product: Product | None
) -> tuple[int, int]:
    """Bytes of the temporaries of the chosen kernel with one thread, and the bytes of each further thread."""
    itemsize = semiring.itemsize
    if product is not None:
        return products.workspace_bytes(axes, product, itemsize), products.thread_bytes(axes, product, itemsize)
    if loops is not None:
        bytes_once = streaming_loops.workspace_bytes(loops, merged, semiring)
        return bytes_once, streaming_loops.thread_bytes(loops, itemsize)
    return 0, 0
