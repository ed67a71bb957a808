"""Sparse tables of a query: the algebra that joins them, and leaf tables built only from listed rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from ...tasks.rows.algebra import PlainRows, Representation
from ...tasks.rows.keys import Keys
from ...tasks.rows.memory_account import MemoryAccount
from ...tasks.rows.scaled_rows import SumProductRows
from ...tasks.sweeps.scaled import SumProduct
from ..errors import BudgetError, format_bytes, format_count
from ..preprocessing.leaf_rows import listed_cells
from .arithmetic import Arithmetic

RowsAlgebra = PlainRows | SumProductRows


def rows_algebra(
    arithmetic: Arithmetic[Any], sizes: Sequence[int], compiled: bool, room: MemoryAccount, whole: Collection[int]
) -> RowsAlgebra:
    """Return the algebra of a query's tables by rows; tables in ``whole`` are read as arrays."""
    base = arithmetic.algebra(sizes, compiled)
    choice = Representation(arithmetic.semiring, tuple(sizes), room, frozenset(whole))
    return SumProductRows(choice, base) if isinstance(base, SumProduct) else PlainRows(choice, base)


def leaf_tables(
    arithmetic: Arithmetic[Any], algebra: RowsAlgebra, axes: Mapping[int, Sequence[int]], memory_bytes: int
) -> dict[int, Any]:
    """Build leaf tables by node, over all states; listed functions are never made dense.

    Raises
    ------
    BudgetError
        If one must be dense and does not fit.
    """
    algebra = algebra.resized(arithmetic.network.dims)
    return {node: _leaf_table(arithmetic, algebra, node, tuple(own), memory_bytes) for node, own in axes.items()}


def _leaf_table(
    arithmetic: Arithmetic[Any], algebra: RowsAlgebra, node: int, axes: tuple[int, ...], memory_bytes: int
) -> Any:
    network = arithmetic.network
    leaf, dims = network.leaves[node], tuple(network.dims[v] for v in axes)
    listed = listed_cells(network, leaf, axes)
    if listed is not None:
        values: Any = arithmetic.leaf(leaf, listed)
        return algebra.listed(keys := Keys(axes, dims), keys.packed(listed.states, len(listed)), values)
    if (needed := prod(dims) * arithmetic.semiring.itemsize) > memory_bytes:
        names = [network.model.names[network.variables[v]] for v in leaf.scope]
        raise BudgetError(
            f"the function over {', '.join(names[:3])}{' …' if len(names) > 3 else ''} allows assignments that it "
            "does not list: "
            f"its {format_count(prod(dims))} cells need {format_bytes(needed)}, allowed {format_bytes(memory_bytes)}"
        )
    table: Any = arithmetic.leaf(leaf, axes)
    return algebra.leaf(table, axes)
