"""The numbers behind a network: function values as the entries of its leaf tables, per query.

Costs become non-negative integers above an exact offset, in the narrowest dtype that cannot overflow;
probabilities stay float64, as natural values for sums and as ``-ln p`` for the optimum; a count sees 0 and 1, or
powers of a root of unity where costs may add up to ``top``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ..errors import BudgetError, ModelError
from ..models.model import Model
from ..text import format_bytes, format_count, shorten
from .alike import Alike, Cells, made_alike, stacked
from .leaf_rows import Listed, values_at
from .preprocess import Leaf, Network

if TYPE_CHECKING:
    from ...tasks.sweeps.scaled import Scaled

# Costs above this are refused, so that a sum of two of them still fits int64.
COST_LIMIT = 1 << 61
_FORBIDDEN = np.int64(COST_LIMIT)
# A smaller table is made without asking the machine for its memory.
_LARGE_CELLS = 1 << 27

_LARGEST = int(np.iinfo(np.int64).max)

Array = NDArray[Any]


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


def cost_leaves(network: Network, group: Alike) -> Array:
    """Build leaf tables of costs, int64; forbidden entries are ``COST_LIMIT``.

    Returns
    -------
    ndarray, shape (tables, …)
    """
    model = network.model

    def convert(functions: Sequence[int], values: Array) -> Array:
        # no cost is below the least that is allowed, which keeps to 64 bits
        limits = _column([max(model.limits[f], -_LARGEST) for f in functions], values)
        lowest = _column([model.lowest[f] for f in functions], values)
        return np.where(values < limits, values - lowest, _FORBIDDEN)

    def add(total: Array, values: Array) -> None:
        np.add(total, values, out=total)
        np.minimum(total, _FORBIDDEN, out=total)

    return _combine(network, group, np.zeros((), dtype=np.int64), convert, add)


def cost_leaf(network: Network, leaf: Leaf, axes: Cells) -> Array:
    """Build one leaf table of costs, axes in the given order; see :func:`cost_leaves`."""
    table: Array = cost_leaves(network, Alike.alone(network, leaf, axes))[0]
    return table


def energy_leaves(network: Network, group: Alike) -> Array:
    """Build leaf tables of ``-ln p``, float64, the first axis that of tables; +inf where the probability is 0."""
    return _combine(network, group, np.zeros(()), lambda _, v: energies(v), _add_into)


def in_scopes(network: Network, build: Callable[[Network, Alike], Array]) -> list[Array]:
    """Build all leaf tables of a network, each with the axes of its scope."""
    found = made_alike(network, dict(enumerate(network.scopes)), lambda group: build(network, group))
    return list(found.values())


def energies(probabilities: Array) -> Array:
    """Return ``-ln p`` elementwise; +inf for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(0.0 - np.log(np.asarray(probabilities, dtype=np.float64)))


def probability_leaves(network: Network, group: Alike) -> list[Scaled]:
    """Build leaf tables of probabilities, flat float64 with no value above 1, with bounds.

    Products that might underflow are taken as logarithms first, and stay such where they span too much.
    """
    scaled = _scaled()
    bounds = [_log_bounds(network, leaf) for leaf in group.leaves]
    if any(max(-below, above) > scaled.LOOSE for _, _, below, above in bounds):
        if len(bounds) > 1:
            alone = (Alike.alone(network, leaf, axes) for leaf, axes in zip(group.leaves, group.axes, strict=True))
            return [table for one in alone for table in probability_leaves(network, one)]
        logs = _combine(network, group, np.zeros(()), lambda _, v: -energies(v), _add_into)
        return [scaled.from_logs(logs.reshape(-1), 0.0, scaled.LOWEST)]
    values = _combine(network, group, np.ones(()), lambda _, v: v, _multiply_into).reshape(len(bounds), -1)
    return [
        scaled.Scaled(flat, 0.0, low, high) if high <= 0.0 else scaled.measured(flat)
        for flat, (low, high, _, _) in zip(values, bounds, strict=True)
    ]


def _log_bounds(network: Network, leaf: Leaf) -> tuple[float, float, float, float]:
    """Return ln-bounds of the entries of a leaf table, and of the products of some of its functions beside 1."""
    low = high = below = above = 0.0
    for f in leaf.functions:
        least, most = network.model.functions[f].positive
        log_least, log_most = math.log(least), math.log(most)
        low, high = low + log_least, high + log_most
        below, above = below + min(log_least, 0.0), above + max(log_most, 0.0)
    return low, high, below, above


@cache
def _scaled() -> Any:
    """Tables of sums, which bounds on optima do without; asked for by every leaf, so imported once."""
    from ...tasks.sweeps import scaled

    return scaled


def indicator_leaves(network: Network, group: Alike) -> Array:
    """Build leaf tables of 0 (impossible) and 1 (possible), float64, the first axis that of tables."""
    return _combine(network, group, np.ones(()), lambda _, v: (v != 0).astype(np.float64), _multiply_into)


def _add_into(total: Array, values: Array) -> None:
    np.add(total, values, out=total)


def _multiply_into(total: Array, values: Array) -> None:
    np.multiply(total, values, out=total)


def _combine(
    network: Network,
    group: Alike,
    one: Array,
    convert: Callable[[Sequence[int], Array], Array],
    combine: Callable[[Array, Array], None],
) -> Array:
    """Combine the functions of leaves on the states that are left, into C-contiguous tables; their axis comes first."""
    if (cells := math.prod(group.shape)) >= _LARGE_CELLS:
        _check_dense(network, group.leaves[0], cells)
    shape = (len(group.leaves), *group.shape)
    count = len(group.leaves[0].functions)
    total: Array | None = None
    for place in range(count):
        values = convert(group.functions(place), _values(network, group, place))
        if count == 1 and values.shape == shape:
            return np.array(values, dtype=one.dtype, order="C")
        total = np.full(shape, one) if total is None else total
        combine(total, values)
    return np.full(shape, one) if total is None else total


def _values(network: Network, group: Alike, place: int) -> Array:
    """Return the values of the functions at one place of some leaves, where they are wanted; the tables' axis first."""
    if group.looks:
        return stacked(network, group, place)
    return _aligned(network, group.leaves[0].functions[place], group.axes[0])[np.newaxis]


def _column(numbers: Sequence[int], values: Array) -> Array:
    """Return a number for each table, to be compared with its values."""
    return np.array(numbers, np.int64).reshape(-1, *[1] * (values.ndim - 1))


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
