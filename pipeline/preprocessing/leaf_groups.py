"""Leaf tables that are made together: most tables are small, and what takes time is each operation.

The tables of a group are one array, and so are the values of their functions. Where each cell of a table finds the
value of a function is computed for all of them at once, axis by axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.light_dataclass import dataclass
from ..models.function import FEW, Function, joined, runs
from ..models.model import Model
from .leaf_rows import ListedCells
from .preprocess import Leaf, Network
from .preprocessing_policy import PreprocessingPolicy

# Maximum cells of a function whose table is built together with other tables. Larger tables gain nothing from a group,
# and their additional arrays take time.
_GROUP_SMALL_CELLS: Final = 1 << 10

Array = NDArray[Any]
Cells = Sequence[int] | ListedCells
"""Where a leaf table is wanted: all cells, by the order of their axes, or some, each with its value in a flat array."""

# Markers for an axis that a table does not have, and for the axis of a fixed variable.
_NO_AXIS, _FIXED = -1, -2
_NONE = np.zeros(0, np.intp)


@dataclass(frozen=True, eq=False)
class LeafGroup:
    """One leaf table, or a group of small tables, ordered by decreasing number of functions, then by increasing cells.

    Parameters
    ----------
    nodes : tuple of int
    leaves : tuple of Leaf
    axes : tuple of cells
        The axes in which each table is wanted.
    cells : ndarray of int
        Cells of each table of a group.
    variables : ndarray of int, shape (tables, axes)
        The axes of each table of a group, right-aligned; ``_NO_AXIS`` in the other columns.
    counts : ndarray of int
        Functions of each table of a group.
    """

    nodes: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    axes: tuple[Cells, ...]
    cells: Array
    variables: Array
    counts: Array

    @classmethod
    def alone(cls, leaf: Leaf, axes: Cells, node: int = 0) -> LeafGroup:
        """Return one table."""
        return cls((node,), (leaf,), (axes,), _NONE, _NONE, _NONE)

    @cached_property
    def heads(self) -> list[int]:
        """For each place in a leaf how many tables, the first ones, have a function there."""
        if len(self.leaves) == 1:
            return [1] * len(self.leaves[0].functions)
        found: list[int] = np.searchsorted(-self.counts, -np.arange(self.counts[0])).tolist()
        return found

    @cached_property
    def functions(self) -> list[int]:
        """The functions of the leaves: all first functions, then all second functions, and so on."""
        return [leaf.functions[place] for place, head in enumerate(self.heads) for leaf in self.leaves[:head]]

    def some(self, places: Sequence[int]) -> LeafGroup:
        """Return several of the tables, in this order."""
        return LeafGroup(
            tuple([self.nodes[k] for k in places]),
            tuple([self.leaves[k] for k in places]),
            tuple([self.axes[k] for k in places]),
            self.cells[places],
            self.variables[places],
            self.counts[places],
        )

    def split(self, values: Array) -> list[Array]:
        """Return each table of an array of all, flat."""
        if len(self.leaves) == 1:
            return [values]
        found: list[Array] = []
        start = 0
        for cells, tables in groupby(self.cells.tolist()):
            end = start + cells * len([*tables])
            found.extend(values[start:end].reshape(-1, cells))
            start = end
        return found


def groups(network: Network, axes: Mapping[int, tuple[int, ...]]) -> Iterator[LeafGroup]:
    """Put the leaf tables of some nodes into groups; large ones are alone.

    Parameters
    ----------
    axes : mapping of int to tuple of int
        Order of the axes of each leaf table, by node.

    Yields
    ------
    LeafGroup
        Tables that are made together, of no more cells and functions than a group holds; each node is in one.
    """
    policy = PreprocessingPolicy.current()
    known = network.leaves
    if len(axes) < FEW:
        yield from (LeafGroup.alone(known[node], own, node) for node, own in axes.items())
        return
    nodes, wanted = [*axes], [*axes.values()]
    leaves = [known[node] for node in nodes]
    held = [leaf.functions for leaf in leaves]
    counts = _lengths(held)
    functions = np.fromiter(chain.from_iterable(held), np.intp, counts.sum())
    values, owners = network.model.scopes.cells(functions), np.repeat(np.arange(len(nodes)), counts)
    alone = counts == 0
    alone[owners[values > _GROUP_SMALL_CELLS]] = True
    # each other table has no more cells than one of its functions, which has all its variables
    small = np.flatnonzero(~alone)
    variables = _table([wanted[k] for k in small.tolist()])
    cells = _sizes(network, variables).prod(axis=1)
    work = cells * counts[small] + np.bincount(owners, values, len(nodes))[small]
    alone[small[work > policy.group_cells]] = True
    order = np.lexsort((cells, -counts[small]))
    for some in runs(order[work[order] <= policy.group_cells], work, max(1, policy.group_cells)):
        if len(some) == 1:
            alone[small[some]] = True
        else:
            which = itemgetter(*small[some].tolist())
            yield LeafGroup(
                which(nodes), which(leaves), which(wanted), cells[some], variables[some], counts[small[some]]
            )
    for k in np.flatnonzero(alone).tolist():
        yield LeafGroup.alone(leaves[k], wanted[k], nodes[k])


def made_together(
    network: Network, axes: Mapping[int, tuple[int, ...]], build: Callable[[LeafGroup], Iterable[Any]]
) -> dict[int, Any]:
    """Build the leaf tables of some nodes, by node; ``build`` returns the tables of a group in order."""
    found = {
        node: table for group in groups(network, axes) for node, table in zip(group.nodes, build(group), strict=True)
    }
    return {node: found[node] for node in axes}


@dataclass(frozen=True, eq=False)
class Spread:
    """The values of a group's functions.

    Parameters
    ----------
    functions : ndarray of int
    values : ndarray
        Of one function after another, at all its states.
    counts : ndarray of int
        How many values each has.
    places : list of ndarray
        For each place in a leaf, where among the values those stand that the cells of tables have; of the first tables,
        which have a function there.
    """

    functions: Array
    values: Array
    counts: Array
    places: list[Array]


def spread(network: Network, group: LeafGroup) -> Spread:
    """Return the values of the functions of a group's tables."""
    model, left, scopes = network.model, network.left, network.model.scopes
    numbers = np.array(group.functions, np.intp)
    order = np.argsort(scopes.by_rows[numbers], kind="stable")
    functions, first = numbers[order], np.empty_like(numbers)
    counts = scopes.cells(functions).astype(np.intp)
    first[order] = counts.cumsum() - counts
    entries, owners = scopes.entries(numbers)
    variables, steps = scopes.variables[entries], scopes.steps[entries].astype(np.intp)
    local = left.local[variables]
    fixed = local < 0
    local[fixed] = _FIXED
    # variables of one state are no axes
    at = steps[fixed] * left.states[left.starts[variables[fixed]]]
    first += np.bincount(owners[fixed], at, len(numbers)).astype(np.intp)
    tables = np.concatenate([np.arange(head) for head in group.heads])
    axes = group.variables[tables]
    entry, axis = np.divmod(np.flatnonzero(axes[owners] == local[:, np.newaxis]), axes.shape[1])
    along = np.zeros_like(axes)
    along[owners[entry], axis] = steps[entry]
    ends = np.cumsum([group.cells[:head].sum() for head in group.heads])
    return Spread(
        functions, _values(model, functions, counts), counts, np.split(_cells(network, first, axes, along), ends[:-1])
    )


def _table(rows: Sequence[Sequence[int]]) -> Array:
    """Return rows as a table, their ends in its last column; ``_NO_AXIS`` where it has more columns."""
    lengths = _lengths(rows)
    table = np.full((len(rows), lengths.max(initial=0)), _NO_AXIS, np.intp)
    filled = np.arange(table.shape[1]) >= table.shape[1] - lengths[:, np.newaxis]
    table[filled] = np.fromiter(chain.from_iterable(rows), np.intp, lengths.sum())
    return table


def _lengths(rows: Sequence[Sequence[int]]) -> Array:
    return np.fromiter(map(len, rows), np.intp, len(rows))


def _sizes(network: Network, axes: Array) -> Array:
    """Return the number of states of each of some axes, 1 for ``_NO_AXIS``."""
    left = network.left
    return np.where(axes == _NO_AXIS, 1, left.counts[left.variables[axes]])


def _cells(network: Network, first: Array, axes: Array, along: Array) -> Array:
    """Return where the values are of all cells of some tables.

    Parameters
    ----------
    first : ndarray of int, shape (tables,)
        Where the first state of all axes is.
    axes : ndarray of int, shape (tables, axes)
    along : ndarray of int, shape (tables, axes)
        How far neighbouring states of each axis are apart.
    """
    left, dims = network.left, network.model.scopes.dims
    sizes, variables = _sizes(network, axes), left.variables[axes]
    starts = left.starts[variables] if (left.counts[variables] < dims[variables]).any() else None
    found, table = first, np.arange(len(first))
    for axis in range(axes.shape[1]):
        counts, steps = sizes[:, axis][table], along[:, axis][table]
        if starts is None and (count := int(counts[0])) == counts.max() == counts.min():
            found = (found[:, np.newaxis] + steps[:, np.newaxis] * np.arange(count)).reshape(-1)
        else:
            ends = counts.cumsum()
            states = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
            if starts is not None:
                states = left.states[states + np.repeat(starts[:, axis][table], counts)]
            found = np.repeat(found, counts) + states * np.repeat(steps, counts)
        if axis + 1 < axes.shape[1]:
            table = np.repeat(table, counts)
    return found


def _values(model: Model, numbers: Array, counts: Array) -> Array:
    """Return the values of functions at all states, one function after another, with functions stored as rows last."""
    some: Sequence[Function] = itemgetter(*numbers.tolist())(model.functions)
    dense = len(some) - int(np.count_nonzero(model.scopes.by_rows[numbers]))
    parts = [joined([function.values for function in some[:dense]])] if dense else []
    if dense == len(some):
        return parts[0]
    defaults = np.array([function.default for function in some[dense:]], some[0].values.dtype)
    values, first = np.concatenate([*parts, np.repeat(defaults, counts[dense:])]), counts.cumsum() - counts
    by_arity: dict[int, list[int]] = {}
    for k in range(dense, len(some)):
        by_arity.setdefault(len(some[k].scope), []).append(k)
    for arity, those in by_arity.items():
        listed: list[Any] = [some[k].rows for k in those]
        rows, lengths = np.concatenate(listed, dtype=np.intp, casting="unsafe"), [len(each) for each in listed]
        steps = model.scopes.steps[model.scopes.starts[numbers[those], np.newaxis] + np.arange(arity)]
        places = np.repeat(first[those], lengths) + (rows * np.repeat(steps, lengths, axis=0)).sum(axis=1)
        values[places] = np.concatenate([some[k].values for k in those])
    return values
