"""Results of a network's orders that do not depend on rates: its trees and forests, shared by all searches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..trees.costs import Rates
from ..trees.tree import Sizer, Tree, bucket_tree, merged_cliques, sizer_of
from .forests import Forest, FunctionGroups, forest_tree, group_units, merge_steps, pairwise_forest


class Starts:
    """Results of a network's orders that do not depend on rates; searches of one network share them."""

    def __init__(self, dims: Sequence[int], scopes: Sequence[Sequence[int]]) -> None:
        self.dims: tuple[int, ...] = tuple(dims)
        self.scopes: tuple[tuple[int, ...], ...] = tuple([tuple(scope) for scope in scopes])
        self.sizer: Sizer = sizer_of(self.dims)
        self._buckets: dict[tuple[int, ...], Tree] = {}
        self._cliques: dict[tuple[int, ...], Tree] = {}
        self._forests: dict[tuple[int, ...], Forest] = {}
        self._trees: dict[tuple[int, ...], Tree] = {}
        self._merged: dict[tuple[tuple[int, ...], Rates, int], Tree] = {}

    @cached_property
    def units(self) -> FunctionGroups:
        """Functions that go together."""
        return group_units(len(self.dims), self.scopes)

    def buckets(self, order: tuple[int, ...]) -> Tree:
        """Return the tree of an order's buckets."""
        if order not in self._buckets:
            self._buckets[order] = bucket_tree(self.dims, self.scopes, order)
        return self._buckets[order]

    def cliques(self, order: tuple[int, ...]) -> Tree:
        """Return the tree of an order's maximal cliques."""
        if order not in self._cliques:
            self._cliques[order] = merged_cliques(self.buckets(order))
        return self._cliques[order]

    def pairwise(self, order: tuple[int, ...]) -> Forest:
        """Return the pairwise forest of an order."""
        if order not in self._forests:
            self._forests[order] = pairwise_forest(self.units, self.sizer, len(self.dims), order)
        return self._forests[order]

    def pairwise_tree(self, order: tuple[int, ...]) -> Tree:
        """Return the tree of the pairwise forest of an order."""
        if order not in self._trees:
            self._trees[order] = forest_tree(self.pairwise(order), self.units, self.dims, self.scopes)
        return self._trees[order]

    def merged(self, order: tuple[int, ...], rates: Rates, itemsize: int) -> Tree:
        """Return the same with steps merged where that is cheaper by some rates."""
        key = order, rates, itemsize
        if key not in self._merged:
            self._merged[key] = merge_steps(self.pairwise_tree(order), self.sizer, rates, itemsize)
        return self._merged[key]
