"""The numbers behind a network: function values as the entries of its leaf tables, per query.

Costs become non-negative integers above an exact offset, in the narrowest dtype that cannot overflow;
probabilities stay float64, as natural values for sums and as ``-ln p`` for the optimum; a count sees 0 and 1, or
powers of a root of unity where costs may add up to ``top``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ..errors import BudgetError, ModelError
from ..models.model import Model
from ..text import format_bytes, format_count, shorten
from .consistency import allowed
from .leaf_rows import Listed, values_at
from .preprocess import Leaf, Network

if TYPE_CHECKING:
    from ...tasks.sweeps.scaled import Scaled

# Costs above this are refused, so that a sum of two of them still fits int64.
COST_LIMIT = 1 << 61
_FORBIDDEN = np.int64(COST_LIMIT)
# A smaller table is made without asking the machine for its memory.
_LARGE_CELLS = 1 << 27

# Tables of so many cells are made together, up to so many cells.
_SMALL_CELLS, _BLOCK_CELLS = 1 << 8, 1 << 17
_LARGEST = int(np.iinfo(np.int64).max)

Array = NDArray[Any]
Cells = Sequence[int] | Listed
"""Where a leaf table is wanted: all cells, by the order of their axes, or some, each with its value in a flat array."""


@dataclass(frozen=True)
class CostScale:
    """How the costs of a network are stored.

    Parameters
    ----------
    offset : int
        Sum of the least costs of all functions, which are subtracted from them.
    bound : int
        No allowed total above the offset exceeds this.
    cap : int or None
        Stored costs of at least this are forbidden.
    """

    offset: int
    bound: int
    cap: int | None


def cost_scale(network: Network) -> CostScale:
    """Find the offset and the largest possible total of a cost network.

    Raises
    ------
    ModelError
        If totals could exceed 2**61, where int64 sums would no longer be safe.
    """
    return model_scale(network.model, [*network.constants, *(f for leaf in network.leaves for f in leaf.functions)])


def model_scale(model: Model, functions: Iterable[int]) -> CostScale:
    """Return the scale of costs where only some functions add up above the offset of all; see :func:`cost_scale`."""
    bound = sum(model.functions[f].highest(model.limits[f], model.lowest[f]) - model.lowest[f] for f in functions)
    offset = sum(model.lowest)
    cap = None
    if model.top is not None:
        cap = max(model.top - offset, 0)
        bound = min(bound, max(cap - 1, 0))
    if bound >= COST_LIMIT:
        raise ModelError(f"costs may add up to {bound:.3g}, more than 2**61; divide them by a common factor")
    return CostScale(offset, bound, cap)


def integer_dtype(bound: int, max_inputs: int) -> np.dtype[Any]:
    """Return the narrowest signed dtype in which sums of ``max_inputs`` entries, each at most the
    saturating infinity above ``bound``, cannot overflow.
    """
    for dtype in (np.int16, np.int32, np.int64):
        if np.iinfo(dtype).max // max_inputs > bound:
            return np.dtype(dtype)
    raise ModelError(f"costs may add up to {bound:.3g}, too large for steps of {max_inputs} inputs")


def cost_leaf(network: Network, leaf: Leaf, axes: Cells) -> Array:
    """Build one leaf table of costs, axes in the given order, int64; forbidden entries are ``COST_LIMIT``."""
    model = network.model

    def convert(f: int, values: Array) -> Array:
        return np.where(allowed(model, f, values), values - model.lowest[f], _FORBIDDEN)

    def add(total: Array, values: Array) -> None:
        np.add(total, values, out=total)
        np.minimum(total, _FORBIDDEN, out=total)

    return _combine(network, leaf, axes, np.zeros((), dtype=np.int64), convert, add)


def cost_block(network: Network, axes: Mapping[int, Sequence[int]]) -> tuple[Array, dict[int, slice]]:
    """Build small leaf tables as `cost_leaf` does, a function each, one after the other in one array, and say where.

    Hundreds of them take a third of the time that they take one by one. Leaves of several functions or none, and what
    is more than a few cells, are left out.

    Parameters
    ----------
    axes : mapping
        Of the leaves, by node.
    """
    model, dims = network.model, network.dims
    places: dict[int, slice] = {}
    values, functions, end = [np.zeros(0, np.int64)], [], 0
    for node, wanted in axes.items():
        made = network.leaves[node].functions
        cells = math.prod([dims[v] for v in wanted])
        if len(made) != 1 or cells > _SMALL_CELLS or end + cells > _BLOCK_CELLS:
            continue
        found = _aligned(network, made[0], tuple(wanted))
        if found.size == cells:
            values.append(found)
            functions.append(made[0])
            places[node] = slice(end, end := end + cells)
    sizes = [found.size for found in values[1:]]
    limits = np.repeat(np.array([max(model.limits[f], -_LARGEST) for f in functions], np.int64), sizes)
    lowest = np.repeat(np.array([model.lowest[f] for f in functions], np.int64), sizes)
    block = np.concatenate(values, axis=None)
    return np.where(block < limits, block - lowest, _FORBIDDEN), places


def energy_leaf(network: Network, leaf: Leaf, axes: Cells) -> Array:
    """Build one leaf table of ``-ln p``, float64; +inf where the probability is 0."""
    return _combine(network, leaf, axes, np.zeros(()), lambda _, v: energies(v), _add_into)


def energies(probabilities: Array) -> Array:
    """Return ``-ln p`` elementwise; +inf for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(0.0 - np.log(np.asarray(probabilities, dtype=np.float64)))


def probability_leaf(network: Network, leaf: Leaf, axes: Cells) -> Scaled:
    """Build one leaf table of probabilities, flat float64 with no value above 1, with bounds.

    Products that might underflow are taken as logarithms first, and stay such where they span too much.
    """
    scaled = _scaled()
    functions = network.model.functions
    low = high = below = above = 0.0
    for f in leaf.functions:
        least, most = functions[f].positive
        log_least, log_most = math.log(least), math.log(most)
        low, high = low + log_least, high + log_most
        below, above = below + min(log_least, 0.0), above + max(log_most, 0.0)
    if below < -scaled.LOOSE or above > scaled.LOOSE:
        logs = _combine(network, leaf, axes, np.zeros(()), lambda _, v: -energies(v), _add_into)
        table: Scaled = scaled.from_logs(logs.reshape(-1), 0.0, scaled.LOWEST)
        return table
    values = _combine(network, leaf, axes, np.ones(()), lambda _, v: v, _multiply_into)
    flat = values.reshape(-1)
    table = scaled.Scaled(flat, 0.0, low, high) if high <= 0.0 else scaled.measured(flat)
    return table


@cache
def _scaled() -> Any:
    """Tables of sums, which bounds on optima do without; asked for by every leaf, so imported once."""
    from ...tasks.sweeps import scaled

    return scaled


def indicator_leaf(network: Network, leaf: Leaf, axes: Cells) -> Array:
    """Build one leaf table of 0 (impossible) and 1 (possible), float64."""

    def convert(f: int, values: Array) -> Array:
        return allowed(network.model, f, values).astype(np.float64)

    return _combine(network, leaf, axes, np.ones(()), convert, _multiply_into)


def _add_into(total: Array, values: Array) -> None:
    np.add(total, values, out=total)


def _multiply_into(total: Array, values: Array) -> None:
    np.multiply(total, values, out=total)


def _combine(
    network: Network,
    leaf: Leaf,
    axes: Cells,
    one: Array,
    convert: Callable[[int, Array], Array],
    combine: Callable[[Array, Array], None],
) -> Array:
    """Combine the functions of a leaf on the states that are left, into a C-contiguous table."""
    dims = network.dims
    shape = [len(axes)] if isinstance(axes, Listed) else [dims[v] for v in axes]
    if (cells := math.prod(shape)) >= _LARGE_CELLS:
        _check_dense(network, leaf, cells)
    if len(leaf.functions) == 1:
        values = convert(leaf.functions[0], _aligned(network, leaf.functions[0], axes))
        if values.shape == tuple(shape):
            return np.array(values, dtype=one.dtype, order="C")
    total = np.full(shape, one)
    for f in leaf.functions:
        combine(total, convert(f, _aligned(network, f, axes)))
    return total


def _check_dense(network: Network, leaf: Leaf, cells: int) -> None:
    """Refuse a table that this machine cannot hold, whatever its functions list.

    Raises
    ------
    BudgetError
        If it has more entries than fit the free memory.
    """
    if 8 * cells <= (free := default_memory_bytes()):
        return
    model = network.model
    name = shorten(model.names[network.variables[leaf.scope[0]]])
    listed = sum(model.functions[f].values.size for f in leaf.functions)
    raise BudgetError(
        f"a function over {len(leaf.scope)} variables, {name!r} among them, lists {listed:,} values; as a table of all "
        f"{format_count(cells)} assignments it takes {format_bytes(8 * cells)}, allowed {format_bytes(free)}"
    )


def _aligned(network: Network, f: int, axes: Cells) -> Array:
    """Return a function's values on the states that are left, with the axes given; one cell along those it lacks."""
    if isinstance(axes, Listed):
        return _values_at(network, f, axes)
    scope, values = restricted(network, f)
    if scope != axes:
        values = values.transpose([scope.index(v) for v in axes if v in scope])
    return values if len(scope) == len(axes) else values.reshape([network.dims[v] if v in scope else 1 for v in axes])


def _values_at(network: Network, f: int, cells: Listed) -> Array:
    """Return a function's values at some cells."""
    if network.model.functions[f].rows is not None:
        return values_at(network, f, cells)
    scope, values = restricted(network, f)
    found: Array = values[tuple(cells.states[cells.axes.index(v)] for v in scope)]
    return np.broadcast_to(found, len(cells))


def restricted(network: Network, f: int) -> tuple[tuple[int, ...], Array]:
    """Return a function's dense values on the states that are left, and its scope in local variables."""
    function = network.model.functions[f]
    if function.rows is None and network.whole.issuperset(function.scope):
        return tuple([network.local[v] for v in function.scope]), function.values
    domains = [network.domains[v] for v in function.scope]
    scope = tuple(network.local[v] for v, d in zip(function.scope, domains, strict=True) if len(d) > 1)
    shape = [len(d) for d in domains if len(d) > 1]
    if function.rows is not None:
        return scope, _dense(network, f, shape)
    values = function.values
    for axis, domain in enumerate(domains):
        if len(domain) < values.shape[axis]:
            values = values.take(domain, axis=axis)
    return scope, values.reshape(shape)


def _dense(network: Network, f: int, shape: Sequence[int]) -> Array:
    """Return the values of a function that is stored by rows, on the states that are left."""
    function = network.model.functions[f]
    assert function.rows is not None
    values = function.values
    code: Any = 0
    inside: Any = None
    for v, states in zip(function.scope, function.rows.T, strict=True):
        place = network.places[v][states]
        if len(network.domains[v]) < network.model.dims[v]:
            inside = place >= 0 if inside is None else inside & (place >= 0)
        code = code * len(network.domains[v]) + place
    if inside is not None:
        code, values = code[inside], values[inside]
    dense = np.full(math.prod(shape), function.default, dtype=function.values.dtype)
    dense[code] = values
    return dense.reshape(shape)
