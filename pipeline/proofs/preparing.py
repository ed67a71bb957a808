"""How the network of an incumbent is made smaller, again after better assignments, and how it is ordered."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..cost_networks.cost_network import CostNetwork
from ..cost_networks.preparation import WORK, PreparedNetwork, prepare
from ..orders.depth_first import depth_first_order
from .incumbent import Incumbent
from .prover_policy import ProverPolicy


@dataclass
class Preparing:
    """Makes the network of an incumbent smaller and orders it.

    Parameters
    ----------
    incumbent : Incumbent
    renewed : callable
        Called when another network stands for the one before.

    Attributes
    ----------
    again_from, order_from : float
        Preparing again, and another order, are not tried before so many seconds were spent.
    """

    incumbent: Incumbent
    renewed: Callable[[], None]
    again_from: float = 0.0
    order_from: float = 0.0

    def prepare(self, work: int = WORK) -> None:
        """Make the network smaller, or only fold what it must not have."""
        known = self.incumbent
        if not known.limits.prune:
            self._settle_trivial()
            return
        with known.timed("preparation"), known.if_compiled("preparation"):
            prepared = prepare(known.small, known.upper, work=work, stop=known.limits.stop)
            known.reports.append(prepared.report)
            self._take(prepared)
        if not known.done:
            self._settle_trivial()

    def _take(self, prepared: PreparedNetwork) -> None:
        known = self.incumbent
        if prepared.total is not None and prepared.states is not None:
            known.offer(prepared.states)
        if not prepared.feasible:
            known.finish("preparation")
            return
        known.raise_lower(prepared.lower)
        if known.order and not self._simpler(prepared.network):
            return
        known.small = prepared.network
        known.order, known.nearby = (), None
        self.renewed()

    def _simpler(self, network: CostNetwork) -> bool:
        """Whether a network that stands for the present one is worth beginning anew with it."""
        policy = ProverPolicy.current()
        known = self.incumbent
        rose = network.constant - known.small.constant
        left = math.inf if known.upper is None else known.upper - known.small.constant
        return (
            network.cells < (1 - policy.cut_off_share) * known.small.cells
            or rose > policy.cut_off_share * left
            or not network.tables
        )

    def _settle_trivial(self) -> None:
        """A network without functions costs its constant, whatever its states."""
        known = self.incumbent
        if known.small.tables:
            return
        known.improve(known.small.restored((0,) * len(known.small.dims)))
        known.finish("preparation")

    def paid(self, lower: int, upper: int | None, cells: int) -> bool:
        """Whether a preparation closed or removed enough for another, with more work, to be of use."""
        removed = 1 - self.incumbent.small.cells / max(cells, 1)
        return (
            upper is None
            or self.incumbent.closed_since(lower, upper) + removed >= ProverPolicy.current().preparation_share
        )

    def prepare_again(self, before: int | None) -> None:
        """Use a better assignment, where the cut-off was ``before``, to remove more."""
        policy = ProverPolicy.current()
        known = self.incumbent
        if known.done or not known.limits.prune or known.upper is None or known.upper == before:
            return
        if before is not None and before - known.upper < policy.cut_off_share * (before - known.lower):
            return
        if known.spent < self.again_from:
            return
        network = known.small
        self.prepare(int(min(WORK, policy.preparation_cells_per_second * known.spent)))
        if known.small is network:
            self.again_from = 2 * known.spent

    def find_order(self) -> bool:
        """Order a network that preparation has changed; return whether it was."""
        known = self.incumbent
        if known.order:
            return False
        with known.timed("preparation"):
            known.order = self._searched_order(known.sharpened)
        return True

    def find_better_order(self) -> bool:
        """Search for an order once more; take it, and return so, if its buckets have half as many cells."""
        known = self.incumbent
        with known.timed("preparation"):
            order = self._searched_order(known.small)
            better = 2 * known.cells(order) <= known.cells(known.order)
            if better:
                known.order = order
        return better

    def _searched_order(self, network: CostNetwork) -> tuple[int, ...]:
        """An order that is searched for the longer, the more time was spent."""
        policy = ProverPolicy.current()
        known = self.incumbent
        start = known.spent
        seconds = max(policy.order_seconds, policy.order_share * start)
        order = depth_first_order(network.dims, network.scopes, seconds=seconds, seed=known.limits.seed)
        # large networks take longer for one order than they are given
        self.order_from = known.spent + (known.spent - start) / policy.order_share
        return order
