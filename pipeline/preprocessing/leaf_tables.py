"""The leaf tables of a network: the values of its functions, converted for each query.

Costs become non-negative integers above an exact offset, in the narrowest dtype that cannot overflow. Probabilities
stay float64: the probability itself for sums, and ``-ln p`` for the optimum. A count has entries 0 and 1. If finite
costs may add up to ``top``, its entries are powers of a root of unity.

Isolated variables share no function with another variable. They are eliminated without a plan. The optimum fixes each
isolated variable to its best state, and the partition function multiplies the sums over their states into a constant.
In a plan, each isolated variable would be a step, and a tree has a bit set of all variables for each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import ordered_sum
from ..errors import BudgetError, ModelError, format_bytes, format_count, shorten
from ..models.model import Model
from .leaf_groups import Cells, LeafGroup, made_together, spread
from .leaf_rows import ListedCells, values_at
from .preprocess import Leaf, Network
from .preprocessing_policy import PreprocessingPolicy

if TYPE_CHECKING:
    from ...tasks.sweeps.table_packs import ScaledPack

# Costs above this are refused, so that a sum of two of them still fits int64.
COST_LIMIT = 1 << 61
_FORBIDDEN = np.int64(COST_LIMIT)
_NO_CUTS: Mapping[int, range] = {}

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
    greatest, lowest = model.greatest, model.lowest
    bound = sum([greatest[f] - lowest[f] for f in functions])
    offset = sum(model.lowest)
    cap = None
    if model.top is not None:
        cap = max(model.top - offset, 0)
        bound = min(bound, max(cap - 1, 0))
    if bound >= COST_LIMIT:
        raise ModelError(f"costs may add up to {bound:.3g}, more than 2**61; divide the costs by a common factor")
    return CostScale(offset, bound, cap)


def integer_dtype(bound: int, max_inputs: int) -> np.dtype[Any]:
    """Return the narrowest signed dtype in which sums of ``max_inputs`` entries, each at most the
    saturating infinity above ``bound``, cannot overflow.
    """
    for dtype in (np.int16, np.int32, np.int64):
        if np.iinfo(dtype).max // max_inputs > bound:
            return np.dtype(dtype)
    raise ModelError(f"costs may add up to {bound:.3g}, too large for steps of {max_inputs} inputs")


def _as_it_is(total: Array) -> Array:
    return total


def cost_leaves(network: Network, group: LeafGroup, finish: Callable[[Array], Array] = _as_it_is) -> Array:
    """Build leaf tables of costs, int64; forbidden entries are ``COST_LIMIT``.

    Parameters
    ----------
    network : Network
    group : LeafGroup
    finish : callable, optional
        Conversion of the sums, applied part by part to a large table.

    Returns
    -------
    ndarray
        Flat, one table after another.
    """
    allowed = network.model.allowed_costs

    def convert(functions: Any, values: Array, counts: Array | None) -> Array:
        ends = allowed[:, functions]
        lowest, limits = ends if counts is None else np.repeat(ends, counts, axis=1)
        return np.where(values < limits, values - lowest, _FORBIDDEN)

    def add(total: Array, values: Array) -> None:
        np.add(total, values, out=total)
        np.minimum(total, _FORBIDDEN, out=total)

    return _combine(network, group, _LeafMaking(np.zeros((), dtype=np.int64), convert, add, finish))


def cost_leaf(network: Network, leaf: Leaf, axes: Cells) -> Array:
    """Build one leaf table of costs, flat, axes in the given order; see :func:`cost_leaves`."""
    return cost_leaves(network, LeafGroup.alone(leaf, axes))


def energy_leaves(network: Network, group: LeafGroup) -> Array:
    """Build leaf tables of ``-ln p``, float64, flat, one after another; +inf where the probability is 0."""
    return _combine(network, group, _LeafMaking(np.zeros(()), lambda _, v, __: energies(v), _add_into))


def in_scopes(network: Network, build: Callable[[Network, LeafGroup], Array]) -> list[Array]:
    """Build all leaf tables of a network, each with the axes of its scope."""
    found = made_together(network, dict(enumerate(network.scopes)), lambda group: group.split(build(network, group)))
    dims = network.dims
    return [
        table.reshape([dims[v] for v in scope]) for scope, table in zip(network.scopes, found.values(), strict=True)
    ]


def energies(probabilities: Array) -> Array:
    """Return ``-ln p`` elementwise; +inf for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(0.0 - np.log(np.asarray(probabilities, dtype=np.float64)))


def probability_leaves(network: Network, group: LeafGroup) -> ScaledPack:
    """Build leaf tables of probabilities, flat float64 with no value above 1, with bounds.

    Products that might underflow are taken as logarithms first, and stay such where they span too much.
    """
    scaled, packs = _scaled()
    lows, highs, below, above = _log_bounds(network, group)
    loose = scaled.LOOSE
    if max(above) > loose or -min(below) > loose:
        if len(group.nodes) > 1:
            return _apart(network, group, [max(-b, a) > loose for b, a in zip(below, above, strict=True)])
        logs = _combine(network, group, _LeafMaking(np.zeros(()), lambda _, v, __: -energies(v), _add_into))
        alone: ScaledPack = packs.ScaledPack.of({group.nodes[0]: scaled.from_logs(logs, 0.0, scaled.LOWEST)})
        return alone
    values = _combine(network, group, _LeafMaking(np.ones(()), lambda _, v, __: v, _multiply_into))
    cells = (values.size,) if len(group.nodes) == 1 else tuple(group.cells.tolist())
    made: ScaledPack = packs.ScaledPack(group.nodes, cells, values, [0.0] * len(cells), lows, highs)
    if large := [k for k, high in enumerate(highs) if high > 0.0]:
        tables = made.tables()
        for k, table in zip(large, scaled.measured_each([tables[k].values for k in large]), strict=True):
            tables[k] = table
        made = packs.ScaledPack.of(dict(zip(group.nodes, tables, strict=True)))
    return made


def _apart(network: Network, group: LeafGroup, extreme: Sequence[bool]) -> ScaledPack:
    """Build leaf tables of probabilities, those whose products might underflow one by one."""
    near, found = [k for k, far in enumerate(extreme) if not far], {}
    if near:
        made = probability_leaves(network, group.some(near))
        found = dict(zip(made.nodes, made.tables(), strict=True))
    for k, node in enumerate(group.nodes):
        if extreme[k]:
            (found[node],) = probability_leaves(network, LeafGroup.alone(group.leaves[k], group.axes[k])).tables()
    pack: ScaledPack = _scaled()[1].ScaledPack.of({node: found[node] for node in group.nodes})
    return pack


def _log_bounds(network: Network, group: LeafGroup) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return ln-bounds of the entries of leaf tables, and of the products of some of their functions beside 1."""
    least, most = network.model.log_bounds[:, group.functions]
    if len(group.nodes) == 1:  # a sum for each function takes less than calls of NumPy
        low, high = least.tolist(), most.tolist()
        return (
            [ordered_sum(low)],
            [ordered_sum(high)],
            [ordered_sum([x for x in low if x < 0.0])],
            [ordered_sum([x for x in high if x > 0.0])],
        )
    leaves, count = np.concatenate([np.arange(head) for head in group.heads]), len(group.nodes)
    below, above = np.minimum(least, 0.0), np.maximum(most, 0.0)
    sums = [np.bincount(leaves, logs, count).tolist() for logs in (least, most, below, above)]
    return sums[0], sums[1], sums[2], sums[3]


@cache
def _scaled() -> tuple[Any, Any]:
    """Tables of sums, which bounds on optima do without; asked for by every leaf, so imported once."""
    from ...tasks.sweeps import scaled, table_packs

    return scaled, table_packs


def indicator_leaves(network: Network, group: LeafGroup) -> Array:
    """Build leaf tables of 0 (impossible) and 1 (possible), float64, flat, one after another."""
    possible = _LeafMaking(np.ones(()), lambda _, v, __: (v != 0).astype(np.float64), _multiply_into)
    return _combine(network, group, possible)


def _add_into(total: Array, values: Array) -> None:
    np.add(total, values, out=total)


def _multiply_into(total: Array, values: Array) -> None:
    np.multiply(total, values, out=total)


class _LeafMaking(NamedTuple):
    """How leaf tables are made of functions.

    Parameters
    ----------
    one : ndarray
        Value that fills tables without functions.
    convert : callable
        Called with some functions, their values, one after another, and how many each has; or with one, its values at
        the cells of a table, with axes, and None.
    combine : callable
        Combines the second array into the first one.
    finish : callable
        Conversion of combined values.
    """

    one: Array
    convert: Callable[[Any, Array, Array | None], Array]
    combine: Callable[[Array, Array], None]
    finish: Callable[[Array], Array] = _as_it_is


_Cuts = Mapping[int, range]
"""Local variables restricted to some of their remaining states, given by index."""


def _combine(network: Network, group: LeafGroup, making: _LeafMaking) -> Array:
    """Combine the functions of leaves on the states that are left, into tables that are flat, one after another."""
    if len(group.leaves) == 1:
        return _combine_one(network, group, making)
    found = spread(network, group)
    values = making.convert(found.functions, found.values, found.counts)
    total: Array = values[found.places[0]].astype(making.one.dtype, copy=False)
    for places in found.places[1:]:
        making.combine(total[: len(places)], values[places])
    return making.finish(total)


def _combine_one(network: Network, group: LeafGroup, making: _LeafMaking) -> Array:
    """Combine the functions of one leaf, which may be large: its parts are converted one after the other."""
    (leaf,), (axes,), dims = group.leaves, group.axes, network.dims
    shape = (len(axes),) if isinstance(axes, ListedCells) else tuple([dims[v] for v in axes])
    if (cells := math.prod(shape)) > PreprocessingPolicy.wide_cells:
        _check_dense(network, leaf, cells)
    # each part looks at all rows, so that it has no fewer cells
    rows = sum([len(f.rows) for f in map(network.model.functions.__getitem__, leaf.functions) if f.rows is not None])
    most = max(PreprocessingPolicy.current().group_cells, rows, 1)
    if isinstance(axes, ListedCells) or cells <= most:
        return making.finish(_combined(network, leaf, axes, shape, making))
    whole = np.empty(shape, making.finish(np.full(1, making.one)).dtype)

    def fill(part: Array, cuts: _Cuts) -> None:
        if part.size <= most:
            part[...] = making.finish(_combined(network, leaf, axes, part.shape, making, cuts)).reshape(part.shape)
            return
        axis = max(range(part.ndim), key=lambda axis: part.shape[axis])
        size, width = part.shape[axis], max(1, most * part.shape[axis] // part.size)
        before = cuts[axes[axis]].start if axes[axis] in cuts else 0
        for start in range(0, size, width):
            stop = min(start + width, size)
            inside = (*[slice(None)] * axis, slice(start, stop))
            fill(part[inside], {**cuts, axes[axis]: range(before + start, before + stop)})

    fill(whole, {})
    return whole.reshape(-1)


def _combined(
    network: Network, leaf: Leaf, axes: Cells, shape: tuple[int, ...], making: _LeafMaking, cuts: _Cuts = _NO_CUTS
) -> Array:
    """Combine the functions of a leaf, or of a part of it, flat."""
    one, convert, combine, _ = making
    total: Array | None = None
    for f in leaf.functions:
        values = convert([f], _aligned(network, f, axes, shape, cuts), None)
        if len(leaf.functions) == 1 and values.shape == shape:
            return np.array(values, dtype=one.dtype, order="C").reshape(-1)
        if total is None:
            total = np.empty(shape, one.dtype)
            total[...] = values
        else:
            combine(total, values)
    return (np.full(shape, one) if total is None else total).reshape(-1)


def _check_dense(network: Network, leaf: Leaf, cells: int) -> None:
    """Refuse a dense table that this machine cannot hold.

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


def _aligned(network: Network, f: int, axes: Cells, shape: tuple[int, ...], cuts: _Cuts) -> Array:
    """Return a function's values on the remaining states, with the given axes; length 1 along missing axes."""
    if isinstance(axes, ListedCells):
        return _values_at(network, f, axes)
    scope, values = restricted(network, f, cuts)
    if scope != axes:
        values = values.transpose([scope.index(v) for v in axes if v in scope])
    if len(scope) == len(axes):
        return values
    return values.reshape([size if v in scope else 1 for v, size in zip(axes, shape, strict=True)])


def _values_at(network: Network, f: int, cells: ListedCells) -> Array:
    """Return a function's values at some cells."""
    if network.model.functions[f].rows is not None:
        return values_at(network, f, cells)
    scope, values = restricted(network, f)
    found: Array = values[tuple(cells.states[cells.axes.index(v)] for v in scope)]
    return np.broadcast_to(found, len(cells))


def restricted(network: Network, f: int, cuts: _Cuts = _NO_CUTS) -> tuple[tuple[int, ...], Array]:
    """Return a function's dense values on the states that are left, or in cuts of them, and its local scope."""
    function, domains = network.model.functions[f], network.domains
    ranges = {network.variables[v]: part for v, part in cuts.items()}
    if function.rows is None and network.whole.issuperset(function.scope):
        values = function.values
        if ranges:
            parts = [ranges.get(v, range(size)) for v, size in zip(function.scope, values.shape, strict=True)]
            values = values[tuple([slice(part.start, part.stop) for part in parts])]
        return tuple([network.local[v] for v in function.scope]), values
    left = [v for v in function.scope if len(domains[v]) > 1]
    scope = tuple([network.local[v] for v in left])
    shape = [len(ranges.get(v, domains[v])) for v in left]
    if function.rows is not None:
        return scope, _dense(network, f, shape, ranges)
    values = function.values
    for axis, v in sorted(enumerate(function.scope), key=lambda place: place[1] not in ranges):  # small parts first
        domain = domains[v][ranges[v].start : ranges[v].stop] if v in ranges else domains[v]
        if len(domain) < values.shape[axis]:
            values = values.take(domain, axis=axis)
    return scope, values.reshape(shape)


def _dense(network: Network, f: int, shape: Sequence[int], ranges: _Cuts) -> Array:
    """Return the values of a function that is stored by rows, on the states that are left, or in ranges of them."""
    function = network.model.functions[f]
    assert function.rows is not None
    values = function.values
    code: Any = 0
    inside: Any = None
    for v, states in zip(function.scope, function.rows.T, strict=True):
        size = len(network.domains[v])
        part = ranges.get(v, range(size))
        place = network.places[v][states] - part.start
        if len(part) < network.model.dims[v]:
            fits = (place >= 0) & (place < len(part))
            inside = fits if inside is None else inside & fits
        code = code * len(part) + place
    if inside is not None:
        code, values = code[inside], values[inside]
    dense = np.full(math.prod(shape), function.default, dtype=function.values.dtype)
    dense[code] = values
    return dense.reshape(shape)


def without_isolated(network: Network) -> Network:
    """Eliminate the isolated variables of a network for an optimum or a partition function.

    Parameters
    ----------
    network : Network

    Returns
    -------
    Network
        The same network if it has fewer isolated variables than a plan handles easily.
    """
    # a leaf of one variable is contained in no other leaf
    isolated = [node for node, leaf in enumerate(network.leaves) if len(leaf.scope) == 1]
    if not network.feasible or len(isolated) < PreprocessingPolicy.current().isolated_variables:
        return network
    leaves = [network.leaves[node] for node in isolated]
    variables = [network.variables[leaf.scope[0]] for leaf in leaves]
    build = cost_leaves if network.model.kind == "cost" else energy_leaves
    tables = _by_size(network, isolated, build)
    removed = set(variables)
    remaining = tuple([v for v in network.variables if v not in removed])
    local = {v: i for i, v in enumerate(remaining)}
    kept = tuple(
        [
            Leaf(tuple([local[network.variables[u]] for u in leaf.scope]), leaf.functions)
            for leaf in network.leaves
            if len(leaf.scope) > 1
        ]
    )
    found = replace(network, variables=remaining, leaves=kept)
    if network.query == "partition":
        logs = [log for _, energies in tables for log in _log_sums(energies).tolist()]
        return replace(found, summed=math.fsum(logs), isolated=frozenset(variables))
    domains = [*network.domains]
    for places, energies in tables:
        for k, state in zip(places, energies.argmin(axis=1).tolist(), strict=True):
            domains[variables[k]] = domains[variables[k]][state : state + 1]
    functions = [f for leaf in leaves for f in leaf.functions]
    return replace(found, domains=tuple(domains), constants=(*network.constants, *functions))


def _by_size(
    network: Network, nodes: list[int], build: Callable[[Network, LeafGroup], Array]
) -> list[tuple[list[int], Array]]:
    """Build the tables of some leaves of one variable.

    Returns
    -------
    list of tuple
        For each number of states: positions among ``nodes``, and an array of shape (tables, states).
    """
    axes = {node: network.leaves[node].scope for node in nodes}
    tables = made_together(network, axes, lambda group: group.split(build(network, group)))
    places: dict[int, list[int]] = {}
    for k, node in enumerate(nodes):
        places.setdefault(len(tables[node]), []).append(k)
    return [(some, np.stack([tables[nodes[k]] for k in some])) for some in places.values()]


def _log_sums(energies: Array) -> Array:
    """Return the natural logarithm of the sum of ``exp(-energies)`` along the last axis."""
    least = energies.min(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(least - energies).sum(axis=1)) - least[:, 0])
