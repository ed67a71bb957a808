"""Limits of a proof, its callbacks, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ...tasks.steps.light_dataclass import dataclass
from ..cost_networks.cost_network import CostNetwork, States

if TYPE_CHECKING:
    from .provers.layer_files import Finished, RowFiles


@dataclass(frozen=True)
class Outcome:
    """The best assignment that was found and what was proved, of one :class:`~.cost_network.CostNetwork`.

    Parameters
    ----------
    lower : int
        No assignment has a smaller total.
    total : int or None
        Total of the best assignment, None where none was found. Proved optimal if it equals ``lower``.
    states : tuple of int or None
        That assignment, in the variables of the network that was solved.
    feasible : bool
        False if it was proved that no assignment below the cut-off exists.
    """

    lower: int
    total: int | None = None
    states: States | None = None
    feasible: bool = True

    @property
    def proved(self) -> bool:
        """Whether nothing is left to search."""
        return not self.feasible or (self.total is not None and self.total <= self.lower)


OnBounds = Callable[[int, int | None], None]
"""Called with a proved lower bound and the total of the best assignment so far."""


class PlannedElimination(Protocol):
    """A planned elimination of all cells of a network."""

    @property
    def seconds(self) -> float:
        """Predicted."""
        ...

    def run(self) -> Outcome | None:
        """Find the least total below the cut-off it was planned for; None if that was ended."""
        ...


PlanElimination = Callable[[CostNetwork, int | None], PlannedElimination | None]
"""Plans to sweep every cell, for totals below a cut-off; None if that does not fit."""


@dataclass(frozen=True)
class ProofLimits:
    """How far to go.

    Parameters
    ----------
    memory_bytes : int
        Of host memory, for all provers together.
    seed : int
        Of orders and of local searches.
    prune : bool
        Whether to make the network smaller first.
    eliminate : callable
        Plans the elimination of all cells.
    stop : callable
        Returns whether to end with the present bounds.
    on_bounds : callable
        Told a lower bound and the total of the best assignment, whenever one improved.
    on_states : callable
        Told every assignment whose total is the least so far. Totals in units may hide that it is forbidden.
    device_bytes : callable, optional
        Return the memory of a GPU that may be used, which starts it.
    threads : int
        Share large layers and joins.
    files : callable, optional
        Return where layers may be that exceed memory.
    finished : callable
        Return layers there that an earlier search finished, if any.
    on_prover : callable
        Told the name of each prover, or "preparation", when its turn begins.
    swept_cells : float
        Networks of at most this many cells, in the buckets of an order found at once, are swept as soon as they prove
        not easy.
    """

    memory_bytes: int
    seed: int = 0
    prune: bool = True
    eliminate: PlanElimination = lambda network, upper: None
    stop: Callable[[], bool] = bool
    on_bounds: OnBounds = lambda lower, total: None
    on_states: Callable[[States], None] = lambda states: None
    device_bytes: Callable[[], int] | None = None
    threads: int = 1
    files: Callable[[], RowFiles] | None = None
    finished: Callable[[], Finished | None] = lambda: None
    on_prover: Callable[[str], None] = lambda name: None
    swept_cells: float = 0.0
