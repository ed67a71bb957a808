"""Junction trees with a table for each clique, and the messages of one propagation, as the published layouts need them.

A propagation (Jensen, Lauritzen and Olesen 1990) sends a message from each clique to its parent, then back. A message
is a *reduction*, of the clique's table to the separator's, and a *scattering*: the other clique's entries times the
new separator's over the old one's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketflow.pipeline.compiled.compiled import Compiled
from bucketflow.pipeline.queries.arithmetic import ScaledPartition
from bucketflow.pipeline.trees.tree import Tree
from bucketflow.tasks.steps.axes import bits_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Message:
    """One message: the clique that is reduced, the one that is scattered into, and the separator, by their numbers."""

    source: int
    target: int
    separator: int


@dataclass(frozen=True)
class JunctionTree:
    """Maximal cliques as a forest; a separator has the number of the clique whose parent lies behind it.

    Parameters
    ----------
    dims : tuple of int
        States of each variable.
    cliques : tuple of tuple of int
        Variables of each clique, ascending; children stand before their parents.
    parents : tuple of int
        -1 for roots.
    homes : tuple of int
        The clique that holds each function.
    """

    dims: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]
    homes: tuple[int, ...]

    @cached_property
    def separators(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each separator, ascending; empty for roots, which have none."""
        shared = zip(self.cliques, self.parents, strict=True)
        return tuple(tuple(v for v in own if up >= 0 and v in self.cliques[up]) for own, up in shared)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Cliques below each clique."""
        found: list[list[int]] = [[] for _ in self.cliques]
        for clique, up in enumerate(self.parents):
            if up >= 0:
                found[up].append(clique)
        return tuple(map(tuple, found))

    def cells(self, variables: Sequence[int]) -> int:
        """Joint states of some variables."""
        return math.prod(self.dims[v] for v in variables)

    @cached_property
    def clique_cells(self) -> tuple[int, ...]:
        """Entries of each clique's table."""
        return tuple(map(self.cells, self.cliques))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Messages up, children first, then down; down they visit a clique's children in the other order."""
        up = [Message(kid, clique, kid) for clique in range(len(self.cliques)) for kid in self.children[clique]]
        return (*up, *(Message(m.target, m.source, m.separator) for m in reversed(up)))

    @cached_property
    def smallest(self) -> dict[int, int]:
        """For each variable the smallest clique that has it."""
        found: dict[int, int] = {}
        for clique in sorted(range(len(self.cliques)), key=lambda c: -self.clique_cells[c]):
            found.update(dict.fromkeys(self.cliques[clique], clique))
        return found


def junction_tree_of(tree: Tree) -> JunctionTree:
    """Return the maximal cliques that a contraction tree's joins are; a join within a neighbour's is part of it."""
    first = tree.n_leaves
    masks = dict(enumerate(tree.joined_masks, first))
    merged = {node: node for node in masks}

    def clique_of(node: int) -> int:
        while merged[node] != node:
            node = merged[node]
        return node

    for node, kids in enumerate(tree.children, first):
        for kid in (k for k in kids if k >= first):
            if (masks[node] | masks[kid]) in (masks[node], masks[kid]):
                masks[node] |= masks[kid]
                merged[kid] = node
    kept = [node for node in masks if merged[node] == node]
    numbers = {node: k for k, node in enumerate(kept)}

    def number(node: int) -> int:
        return numbers[clique_of(node)] if node >= 0 else -1

    parents = {}
    for node in masks:
        below, above = number(node), number(tree.parent[node])
        if below != above:
            parents[below] = above
    homes = tuple(number(tree.parent[leaf]) for leaf in range(first))
    cliques = tuple(tuple(bits_of(masks[node])) for node in kept)
    return JunctionTree(tree.dims, cliques, tuple(parents[k] for k in range(len(kept))), homes)


def junction_of(compiled: Compiled) -> JunctionTree:
    """Return the junction tree of a compiled model's plan."""
    assert compiled.plan is not None
    return junction_tree_of(compiled.plan.tree)


def clique_tables(compiled: Compiled, tree: JunctionTree, findings: Mapping[int, Array]) -> list[Array]:
    """Multiply functions and findings into the cliques; each table has an axis for each of its variables.

    Parameters
    ----------
    compiled : Compiled
        Whose preprocessed functions they are, scaled as it scales them.
    tree : JunctionTree
    findings : mapping of int to ndarray
        Likelihoods of the states that are left, by local variable.
    """
    plan = compiled.plan
    assert plan is not None
    leaves = ScaledPartition(compiled.skeleton.network).leaves(dict(enumerate(plan.layouts[: len(tree.homes)])))
    tables = [np.ones([tree.dims[v] for v in clique]) for clique in tree.cliques]
    for leaf, home in enumerate(tree.homes):
        axes = plan.layouts[leaf]
        values = np.exp(leaves[leaf].values) if leaves[leaf].logs else leaves[leaf].values
        tables[home] *= _spread(values.reshape([tree.dims[v] for v in axes]), axes, tree.cliques[home])
    for variable, likelihoods in findings.items():
        home = tree.smallest[variable]
        tables[home] *= _spread(likelihoods, (variable,), tree.cliques[home])
    return tables


def _spread(values: Array, axes: Sequence[int], clique: Sequence[int]) -> Array:
    """Give a table the axes of a clique, of length one where it has none."""
    ordered = values.transpose(sorted(range(len(axes)), key=lambda k: axes[k]))
    sizes = dict(zip(sorted(axes), ordered.shape, strict=True))
    return ordered.reshape([sizes.get(v, 1) for v in clique])


def belief(table: Array, clique: Sequence[int], variable: int) -> Array:
    """Return a variable's posterior, of a clique's table after the propagation."""
    at = clique.index(variable)
    found = table.sum(axis=tuple(k for k in range(table.ndim) if k != at))
    return np.asarray(found / found.sum())
