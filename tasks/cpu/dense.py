"""Run dense steps: combine tables and eliminate variables without storing the join."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiler.code_cache import COMPILING_CELLS
from ..compiler.compile_limits import compiled_or
from ..compiler.numba_parts import unknown_numba
from ..steps.lowering import Lowered, lower
from ..steps.semiring import Semiring
from .numpy_blocks import run_blocks, run_merged


def run(
    lowered: Lowered,
    tables: Sequence[NDArray[Any]],
    out: NDArray[Any] | None = None,
    threads: int = 1,
    *,
    compiled: bool = True,
) -> NDArray[Any]:
    """Run a lowered step; the result does not depend on `threads`.

    Parameters
    ----------
    lowered
        The step, from `lower`.
    tables : sequence of ndarray, C-contiguous
        One per input, of the semiring's dtype, flat or shaped. With CuPy arrays the step runs on their GPU.
    out : ndarray, C-contiguous, optional
        Receives the result; must not overlap an input.
    threads
        Number of threads that share the step (compiled kernels release the GIL).
    compiled
        Whether compiled kernels may be used; without them large steps are slower, and equal up to the
        rounding of floating-point sums.

    Returns
    -------
    ndarray
        `out`, or a new array of shape ``(out_cells,)``.

    Raises
    ------
    ValueError
        If the number, a size, a dtype or a memory layout of the tables does not match the step.
    """
    _check(lowered, tables)
    if not all(isinstance(table, np.ndarray) for table in tables):
        from ..gpu import launch as gpu

        return gpu.run(lowered, tables, out)  # type: ignore[no-any-return]
    if out is None:
        result = np.empty(lowered.out_cells, lowered.semiring.dtype)
    else:
        _check_table("the output", out, lowered.out_cells, lowered.semiring.dtype)
        result = out.reshape(-1)
    if lowered.regime != "small" and compiled and _have_compiler():
        # within a time limit NumPy sweeps small steps while loops are compiled
        if lowered.cells <= COMPILING_CELLS:
            compiled_or(lambda: _run_compiled(lowered, tables, result, threads), lambda: _run(lowered, tables, result))
        else:
            _run_compiled(lowered, tables, result, threads)
    else:
        _run(lowered, tables, result)
    return result if out is None else out


def _run_compiled(lowered: Lowered, tables: Sequence[NDArray[Any]], result: NDArray[Any], threads: int) -> None:
    """Run a step that is not small in the compiled loops that suit it."""
    if lowered.product is not None:
        from .product import run_product

        run_product(lowered.axes, lowered.product, lowered.semiring, tables, result, threads)
    elif lowered.loops is not None:
        from .stream_loops import run_loops

        run_loops(lowered.loops, lowered.semiring, tables, result, threads)
    else:
        _run(lowered, tables, result)


def _run(lowered: Lowered, tables: Sequence[NDArray[Any]], result: NDArray[Any]) -> None:
    """Run a step in NumPy."""
    if lowered.loops is not None and lowered.merged is not None:
        run_merged(lowered.loops, lowered.merged, lowered.semiring, tables, result)
    else:
        run_blocks(lowered.blocks, lowered.semiring, tables, result)


def contract(
    tables: Sequence[NDArray[Any]],
    inputs: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    sizes: Mapping[int, int],
    semiring: Semiring,
    out: NDArray[Any] | None = None,
    threads: int = 1,
) -> NDArray[Any]:
    """Lower and run a step at once; see `lower` and `run`."""
    return run(lower(inputs, output, sizes, semiring.dtype, semiring), tables, out, threads)


@cache
def _have_compiler() -> bool:
    """Whether there is a compiler whose vectors are known."""
    return importlib.util.find_spec("numba") is not None and not unknown_numba()


def _check(lowered: Lowered, tables: Sequence[NDArray[Any]]) -> None:
    if len(tables) != len(lowered.input_cells):
        raise ValueError(f"{len(tables)} tables for a step with {len(lowered.input_cells)} inputs")
    for i, (table, cells) in enumerate(zip(tables, lowered.input_cells, strict=True)):
        if table.size != cells or table.dtype != lowered.semiring.dtype or not table.flags.c_contiguous:
            _check_table(f"input {i}", table, cells, lowered.semiring.dtype)


def _check_table(what: str, table: NDArray[Any], cells: int, dtype: str) -> None:
    if table.size != cells:
        raise ValueError(f"{what} has {table.size} cells, the step expects {cells}")
    if table.dtype != dtype:
        raise ValueError(f"{what} is of dtype {table.dtype}, the semiring is over {dtype}")
    if not table.flags.c_contiguous:
        raise ValueError(f"{what} is not C-contiguous")
