"""What comes before all provers have their turns: preparation, with what solves an easy network on the way there."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

from ..cost_networks.cost_network import CostNetwork
from ..orders.depth_first import bucket_cells
from ..orders.min_fill import min_fill_order
from ..orders.tree_search import TreeSearch
from ..trees.costs import tree_cost
from .team import Pauses, Team
from .turns import FIRST_SECONDS

#: Cells that the first preparations touch, and CPU seconds of the short search after each: easy networks need no more.
GLANCES = ((30_000_000, 0.1), (100_000_000, 0.15))
#: Networks of more cells are not laid out for a short search.
_GLANCE_CELLS = 1 << 19
#: Of networks of so few cells the last of them leaves only that to the full preparation which it finds to pay itself.
_SETTLED_CELLS = 1 << 16
#: Of networks of at most so many times the cells that are swept soon a tree is searched for so many CPU seconds; one
#: that is predicted to take at most so many is planned as others are, and swept if the plan takes at most half.
_SAVED_BY_TREES, _SHORT_SEARCH, _HOPED_SWEEP, _SHORT_SWEEP = 1 << 8, 0.1, 2.0, 1.0
#: Russian dolls come before the full preparation, for this share of the time spent.
_DOLLS_SHARE = 0.5
#: Small clusters come first, for this share of the time spent, and rows have as much of what these left.
_CLUSTERS_SHARE = 1.0
#: Rows need so long where they look for an order first.
_ORDERED_SECONDS = 2 * FIRST_SECONDS


@dataclass
class Opening:
    """Prepares as far as that pays; an easy network is solved on the way there."""

    team: Team
    tree_sought: bool = False

    def __post_init__(self) -> None:
        self.known, self.turns, self.preparing = self.team.incumbent, self.team.turns, self.team.preparing

    def steps(self) -> Pauses:
        """Prepare, search a little, sweep what is small, and let dolls and clusters begin."""
        if self._go_on_stored():
            return
        settled = False
        for work, seconds in GLANCES:
            if self._glances:
                bounds, cells = (self.known.lower, self.known.upper), self.known.small.cells
                self.preparing.prepare(work)
                settled = self.known.small.cells <= _SETTLED_CELLS and not self.preparing.paid(*bounds, cells)
                if (yield from self._cut_by_clusters()):
                    return
                self._glance(seconds)
                self._sweep_soon()
            if self.known.is_over():
                return
        self.turns.debt_seconds["search"] = self.known.tried.get("search", 0.0)
        self._sweep_searched()
        if self._prunes and not self.known.is_over():
            yield from self.team.turn("dolls", max(FIRST_SECONDS, _DOLLS_SHARE * self.known.spent))
        if not (settled or self.known.is_over()):
            self.preparing.prepare()
        if self._prunes:
            yield from self._begin_with_clusters()

    @property
    def _prunes(self) -> bool:
        return not self.known.alone and self.known.limits.prune

    @property
    def _glances(self) -> bool:
        searches = not self.known.alone or self.team.is_member("search")
        return self.known.limits.prune and searches and self.known.small.cells <= _GLANCE_CELLS

    def _cut_by_clusters(self) -> Generator[None, None, bool]:
        """Let clusters come before anything else in a mesh where something is known; return whether that was of use."""
        from .provers.clusters import is_mesh

        known = self.known
        if not (known.alone or known.is_over() or known.upper is None) and is_mesh(known.small):
            self._sweep_soon()
            yield from self._begin_with_clusters()
        return known.is_over() or known.sharpened is not known.small

    def _begin_with_clusters(self) -> Pauses:
        """Shift costs between small clusters, and search by rows what that did not solve."""
        known = self.known
        seconds = max(FIRST_SECONDS, _CLUSTERS_SHARE * known.spent)
        again = not known.is_over()
        while again:
            went = yield from self.team.turn("clusters", seconds)
            small = known.sharper is not None and known.sharper.small
            again = went and small and self.team.ends_soon("clusters", seconds) and not known.is_over()
        self._sweep_searched()
        if not known.is_over() and known.sharpened is not known.small:
            yield from self.team.go("rows", max(_ORDERED_SECONDS, _CLUSTERS_SHARE * known.spent))

    def _glance(self, seconds: float) -> None:
        """Search for a short while, with an order that takes none."""
        known = self.known
        if known.is_over() or known.small.cells > _GLANCE_CELLS:
            return
        known.order = tuple(range(len(known.small.dims)))
        self.team.attempt("search", seconds)
        known.order = ()
        self.team.forget("search")
        self.turns.closed.clear()
        self.turns.debt_seconds.clear()

    def _sweep_soon(self) -> None:
        """Sweep every cell where that is a matter of some tenths of a second, once what is easy has proved nothing."""
        if self._greedy_cells(self.known.small) <= self.known.limits.swept_cells:
            self._sweep(self.known.small, math.inf)

    def _sweep_searched(self) -> None:
        """Sweep every cell where a short search finds a tree with which that is a matter of some tenths of a second.

        What preparation joins may take more than it saves: the network is swept as it was, where that is smaller.
        """
        known = self.known
        network = min((known.small, known.network), key=self._greedy_cells)
        if self.tree_sought or self._greedy_cells(network) > _SAVED_BY_TREES * known.limits.swept_cells:
            return
        self.tree_sought = True
        with known.timed("dense"):
            tree = TreeSearch(network.dims, network.scopes, seconds=_SHORT_SEARCH, seed=known.limits.seed).cheapest()
        if tree_cost(tree).seconds <= _HOPED_SWEEP:
            self._sweep(network, _SHORT_SWEEP)

    def _greedy_cells(self, network: CostNetwork) -> float:
        """Cells of the buckets of an order that is found at once; infinite where no sweep is welcome."""
        if (
            not self.team.is_member("dense")
            or self.known.alone
            or self.known.is_over()
            or not self.known.limits.swept_cells
        ):
            return math.inf
        order = min_fill_order(network.dims, network.scopes, self.known.limits.seed)
        return bucket_cells(network.dims, network.scopes, order)

    def _sweep(self, network: CostNetwork, seconds: float) -> None:
        """Sweep every cell of a network, prepared or as it was, if that is predicted to take at most so long."""
        known = self.known
        with known.timed("dense"):
            planned = known.limits.eliminate(network, known.upper)
            outcome = planned.run() if planned is not None and planned.seconds <= seconds else None
        if outcome is None:
            return
        if network is not known.small and outcome.states is not None:
            known.improve(outcome.states)
            outcome = replace(outcome, states=None)
        known.take_outcome(outcome, "dense")

    def _go_on_stored(self) -> bool:
        """Begin with the layers that an earlier search finished, and with the network that they are of."""
        known = self.known
        finished = known.limits.finished() if self.team.is_member("rows") else None
        if finished is None:
            return False
        begun = finished.beginning
        for states in (begun.best, finished.best):
            if states is not None:
                known.improve(states)
        if (math.inf if known.upper is None else known.upper) > finished.upper:
            return False  # what may interest now was left out
        known.small, known.order, known.finished = begun.network, begun.order, finished
        return True
