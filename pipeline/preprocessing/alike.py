"""Leaf tables that look alike, which are made together: most tables are small, and what takes time is each operation.

Tables look alike that have the same sizes, and whose functions lie on them alike: along which axes, in which order,
on which of their states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.function import Function
from .leaf_rows import Listed
from .preprocess import Leaf, Network

Array = NDArray[Any]
Cells = Sequence[int] | Listed
"""Where a leaf table is wanted: all cells, by the order of their axes, or some, each with its value in a flat array."""

# Larger tables are made one by one, and so many cells of small ones together.
_SMALL_CELLS, _TOGETHER_CELLS = 1 << 10, 1 << 17

Look = tuple[bool, tuple[int, ...], tuple[int | None, ...]]
"""How a function lies on a table: whether it is given by rows; the axis of each of its variables, -1 where that is
fixed; and the numbers of domains of which some states are left, None of others."""


@dataclass(frozen=True)
class Alike:
    """Some leaf tables.

    Parameters
    ----------
    nodes : tuple of int
    leaves : tuple of Leaf
    axes : tuple of cells
        Where each is wanted.
    shape : tuple of int
        Of each of them.
    looks : tuple, optional
        How the functions of each leaf lie on its table; for several tables.
    """

    nodes: tuple[int, ...]
    leaves: tuple[Leaf, ...]
    axes: tuple[Cells, ...]
    shape: tuple[int, ...]
    looks: tuple[Look, ...] = ()

    @classmethod
    def alone(cls, network: Network, leaf: Leaf, axes: Cells, node: int = 0) -> Alike:
        """Return one table."""
        dims = network.dims
        shape = (len(axes),) if isinstance(axes, Listed) else tuple([dims[v] for v in axes])
        return cls((node,), (leaf,), (axes,), shape)

    def functions(self, place: int) -> list[int]:
        """Return the functions that are at one place in their leaves."""
        return [leaf.functions[place] for leaf in self.leaves]


def groups_alike(network: Network, axes: Mapping[int, tuple[int, ...]]) -> Iterator[Alike]:
    """Put the leaf tables of some nodes into groups; large ones are alone."""
    spots = _Looks(network)
    found: dict[tuple[tuple[int, ...], tuple[Look, ...]], list[int]] = {}
    dims, leaves = network.dims, network.leaves
    for node, wanted in axes.items():
        shape = tuple([dims[v] for v in wanted])
        looks = spots.of(leaves[node], wanted) if prod(shape) <= _SMALL_CELLS else None
        if looks is None:
            yield Alike.alone(network, leaves[node], wanted, node)
        else:
            found.setdefault((shape, looks), []).append(node)
    for (shape, looks), nodes in found.items():
        most = max(1, _TOGETHER_CELLS // prod(shape))
        for first in range(0, len(nodes), most):
            few = tuple(nodes[first : first + most])
            if len(few) == 1:
                yield Alike.alone(network, leaves[few[0]], axes[few[0]], few[0])
                continue
            yield Alike(few, tuple([leaves[n] for n in few]), tuple([axes[n] for n in few]), shape, looks)


def made_alike(
    network: Network, axes: Mapping[int, tuple[int, ...]], build: Callable[[Alike], Iterable[Any]]
) -> dict[int, Any]:
    """Build the leaf tables of some nodes, by node; ``build`` makes those of a group, in their order."""
    groups = groups_alike(network, axes)
    found = {node: table for group in groups for node, table in zip(group.nodes, build(group), strict=True)}
    return {node: found[node] for node in axes}


class _Looks:
    """How functions lie on tables."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._numbers: dict[tuple[int, bytes], int] = {}
        self._domains: dict[int, int | None] = {}

    def of(self, leaf: Leaf, axes: Sequence[int]) -> tuple[Look, ...] | None:
        """Return how the functions of a leaf lie on its table; None if one has rows of which some are not left."""
        network = self._network
        variables, functions, whole = network.variables, network.model.functions, network.whole
        axis = {variables[v]: i for i, v in enumerate(axes)}
        looks = []
        for f in leaf.functions:
            function = functions[f]
            scope, by_rows = function.scope, function.rows is not None
            parts: tuple[int | None, ...] = ()
            if not whole.issuperset(scope):
                if by_rows:
                    return None
                parts = tuple([self._part(v) for v in scope])
            looks.append((by_rows, tuple([axis.get(v, -1) for v in scope]), parts))
        return tuple(looks)

    def _part(self, variable: int) -> int | None:
        """Return the number of a domain of which some states are left; None if all are, or one."""
        if variable not in self._domains:
            domain, dim = self._network.domains[variable], self._network.model.dims[variable]
            key = dim, domain.tobytes()
            part = 1 < len(domain) < dim
            self._domains[variable] = self._numbers.setdefault(key, len(self._numbers)) if part else None
        return self._domains[variable]


def stacked(network: Network, group: Alike, place: int) -> Array:
    """Return the values of the functions at one place of some leaves, on the states that are left.

    Returns
    -------
    ndarray, shape (tables, …)
        With the axes of the tables, one cell along those that the functions lack.
    """
    model, (by_rows, axes, _) = network.model, group.looks[place]
    functions = [model.functions[f] for f in group.functions(place)]
    held = [spot for spot in axes if spot >= 0]
    values = _from_rows(functions, [group.shape[spot] for spot in axes]) if by_rows else _left(network, functions, axes)
    values = values.transpose([0, *[1 + i for i in sorted(range(len(held)), key=held.__getitem__)]])
    return values.reshape([len(functions), *[n if i in held else 1 for i, n in enumerate(group.shape)]])


def _left(network: Network, functions: Sequence[Function], axes: Sequence[int]) -> Array:
    """Return the values of dense functions on the states that are left, those of variables that are fixed left out."""
    parts = [function.values for function in functions]
    if min(axes, default=0) < 0:
        for k, function in enumerate(functions):
            pairs = zip(axes, function.scope, strict=True)
            parts[k] = parts[k][tuple([slice(None) if i >= 0 else network.domains[v][0] for i, v in pairs])]
    values = np.concatenate([part.reshape(-1) for part in parts]).reshape(len(parts), *parts[0].shape)
    domains = [network.domains[v] for v, spot in zip(functions[0].scope, axes, strict=True) if spot >= 0]
    for axis, domain in enumerate(domains, 1):
        if len(domain) < values.shape[axis]:
            values = values.take(domain, axis=axis)
    return values


def _from_rows(functions: Sequence[Function], shape: Sequence[int]) -> Array:
    """Return the values of functions by rows, all of whose states are left, at every assignment."""
    defaults = np.array([function.default for function in functions], functions[0].values.dtype)
    values = np.repeat(defaults, prod(shape))
    rows = np.concatenate([function.rows for function in functions if function.rows is not None])
    counts = [len(function.values) for function in functions]
    code = np.repeat(np.arange(len(functions)), counts)
    for axis, size in enumerate(shape):
        code = code * size + rows[:, axis]
    values[code] = np.concatenate([function.values for function in functions])
    return values.reshape(len(functions), *shape)
