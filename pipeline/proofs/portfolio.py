"""The portfolio of all provers: from a network to its optimum, by whichever prover gets there.

The size of a representation is unknown beforehand. Every prover is therefore tried for a while, then for twice as long,
with the bounds of the other provers; an assignment makes all of them faster. A sweep of all cells starts as soon as its
predicted time is less than the time spent. Before all provers take turns, the portfolio prepares the network and tries
the methods that solve easy networks.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Final

from ...tasks.compiler.compile_beside import await_any
from ...tasks.compiler.compile_limits import going_on_meanwhile
from ...tasks.compiler.working_time import working_seconds
from ...tasks.steps.light_dataclass import dataclass
from ..cost_networks.cost_network import CostNetwork
from ..cost_networks.preparation import WORK
from ..orders.depth_first import rearranged, sweep_cells
from ..orders.min_fill import min_fill_order
from ..orders.tree_search import TreeSearch
from ..trees.costs import tree_cost
from .incumbent import Incumbent
from .limits import Outcome, ProofLimits
from .prover_policy import LONG_TURN_SECONDS, SMALLER_RATIO, ProverPolicy
from .prover_registry import Registered, provers_in_use
from .team import LEAST_TURN_SECONDS, Pauses, Team, Turns

# CPU seconds of decision diagrams after the first of these searches that leaves an assignment; repeated while they
# close this fraction of the gap.
_DIAGRAM_GLANCE_SECONDS: Final = 0.1
_DIAGRAM_GLANCE_SHARE: Final = 0.1
# Only networks of at most this many cells are tried by diagrams so early, because the provers of larger ones would
# take as long to be set up. Such networks get a full preparation only where the last short one finds that it pays.
SMALL_CELLS: Final = 1 << 16
# A tree is searched for networks whose cells are at most this many times the cells that are swept soon.
_TREE_SAVING_RATIO: Final = 1 << 8
# Networks with at most this many bucket cells are swept before or after the first short run, if the searched tree
# promises a sweep no longer than a long time slice.
_EARLY_CELLS: Final = 2.0**36
# A sweep of at most this many predicted seconds is planned as others are.
_PLANNED_SWEEP_SECONDS: Final = 2.0
# A sweep that is planned runs if its plan takes at most this many seconds.
_SHORT_SWEEP_SECONDS: Final = 1.0


@dataclass
class Opening:
    """Prepares as far as that pays; an easy network is solved on the way there."""

    team: Team
    sought_cells: float = math.inf
    tree_seconds: float = math.inf

    def __post_init__(self) -> None:
        self.known, self.turns, self.preparing = self.team.incumbent, self.team.turns, self.team.preparing

    def steps(self) -> Pauses:
        """Prepare, search a little, sweep what is small, and let dolls and clusters begin."""
        policy = ProverPolicy.current()
        if self._go_on_stored():
            return
        settled = looked = False
        if self._glances and self.known.upper is not None and self._smallest(_EARLY_CELLS) is not None:
            # seconds in proportion to the first glance: much fewer than the search of a tree takes
            work, seconds = policy.glances[0]
            self.preparing.prepare(policy.first_preparation_work)
            self.glance_by_search(seconds * policy.first_preparation_work / work)
            if self.known.is_over():
                return
        # a sweep that is predicted to take longer than the first preparation comes after it
        self._sweep_searched(_EARLY_CELLS, policy.glances[0][1] if self._glances else LONG_TURN_SECONDS)
        for glance, (work, seconds) in enumerate(policy.glances):
            if self._glances:
                bounds, cells = (self.known.lower, self.known.upper), self.known.small.cells
                self.preparing.prepare(work)
                if not glance and self.tree_seconds <= LONG_TURN_SECONDS:
                    self._sweep_early()
                settled = self.known.small.cells <= SMALL_CELLS and not self.preparing.paid(*bounds, cells)
                if (yield from self._cut_by_clusters()):
                    return
                self.glance_by_search(seconds)
                self._sweep_soon()
                self._sweep_early()
                if not looked:
                    looked = self.known.upper is not None
                    yield from self._glance_by_dolls()
                    self._glance_by_diagrams()
            if self.known.is_over():
                return
        self._sweep_searched(math.inf, _PLANNED_SWEEP_SECONDS)
        if self._prunes and not self.known.is_over():
            # Russian dolls come before the full preparation, and take as long as all work so far; without an
            # assignment there is no gap that bounds could close
            share = 1.0 if self.known.upper is not None else 0.0
            yield from self.team.turn("dolls", max(policy.first_turn_seconds, share * self.known.spent))
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
        return (
            self.known.limits.prune and searches and self.known.small.cells <= ProverPolicy.current().glance_most_cells
        )

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
        policy = ProverPolicy.current()
        known = self.known
        # small clusters take as long as all work so far, and so do rows on the shifted costs; without an assignment
        # there is no gap that bounds could close
        share = 1.0 if known.upper is not None else 0.0
        seconds = max(policy.first_turn_seconds, share * known.spent)
        again = not known.is_over()
        while again:
            went = yield from self.team.turn("clusters", seconds)
            small = known.sharper is not None and known.sharper.small
            again = went and small and self.team.ends_soon("clusters", seconds) and not known.is_over()
        self._sweep_searched(math.inf, _PLANNED_SWEEP_SECONDS)
        if not known.is_over() and known.sharpened is not known.small:
            yield from self.team.go("rows", max(2 * policy.first_turn_seconds, share * known.spent))

    def _glance(self, name: str, seconds: float, order: tuple[int, ...], again: float = math.inf) -> None:
        """Let a prover try for a short while, in an order that takes none.

        Parameters
        ----------
        name : str
        seconds : float
        order : tuple of int
        again : float
            It goes on for as long once more while each time closes this part of the gap.
        """
        known = self.known
        known.order = order
        closed = math.inf
        while closed >= again and not known.is_over():
            lower, upper = known.lower, known.upper
            self.team.attempt(name, seconds)
            closed = known.closed_since(lower, upper)
        known.order = ()
        self._forget_glance(name)

    def _forget_glance(self, name: str) -> None:
        """Let a prover begin anew after a short time slice, which says nothing about longer ones."""
        self.team.forget(name)
        self.turns.hopeless.discard(name)
        self.turns.closed.clear()
        self.turns.debt_seconds.clear()

    def glance_by_search(self, seconds: float) -> None:
        """Search for a short while, the variables as they are numbered."""
        known = self.known
        if not known.is_over() and known.small.cells <= ProverPolicy.current().glance_most_cells:
            self._glance("search", seconds, tuple(range(len(known.small.dims))))

    def _glance_by_dolls(self) -> Pauses:
        """Let dolls try below a known assignment for as long as their layout takes.

        They go on if they would close half of the gap in as many seconds as were spent so far. Otherwise they begin
        anew later: no property of a network that is cheap to find says how fast their bound rises.
        """
        known, turns = self.known, self.turns
        if not self._prunes or known.is_over() or known.upper is None:
            return
        went = yield from self.team.turn("dolls", LEAST_TURN_SECONDS)
        if not went:
            return
        if layout_seconds := turns.debt_seconds.pop("dolls", 0.0):
            yield from self.team.turn("dolls", layout_seconds)
        if turns.nearly_done("dolls", known.spent):
            turns.debt_seconds.clear()
            yield from self.team.go("dolls", known.spent)
        self._forget_glance("dolls")

    def _glance_by_diagrams(self) -> None:
        """Let diagrams try below a known assignment, and go on for as long as that closes much of the gap."""
        known, small = self.known, self.known.small
        if known.alone or known.is_over() or known.upper is None or small.cells > SMALL_CELLS:
            return
        order = rearranged(small.dims, small.scopes, min_fill_order(small.dims, small.scopes, known.limits.seed))
        self._glance("diagram", _DIAGRAM_GLANCE_SECONDS, order, _DIAGRAM_GLANCE_SHARE)

    def _sweep_soon(self) -> None:
        """Sweep every cell where that is a matter of some tenths of a second, once what is easy has proved nothing."""
        if self._greedy_cells(self.known.small) <= self.known.limits.swept_cells:
            self._sweep(self.known.small, math.inf)

    def _sweep_early(self) -> None:
        """Sweep every cell if this takes less time than the next short run."""
        self._sweep_searched(_EARLY_CELLS, LONG_TURN_SECONDS)

    def _sweep_searched(self, most_cells: float, most_seconds: float) -> None:
        """Sweep every cell where a short search finds a tree with which that takes no more seconds.

        Preparation may join functions at a cost that exceeds its savings. The original network is swept if it is
        smaller. A tree is searched if an order found quickly has at most ``most_cells`` cells, and again once this
        number has decreased much.
        """
        known, smallest = self.known, self._smallest(most_cells)
        if smallest is None:
            return
        network, cells = smallest
        if SMALLER_RATIO * cells <= self.sought_cells:
            self.sought_cells = cells
            with known.timed("dense"):
                sought = TreeSearch(
                    network.dims, network.scopes, seconds=ProverPolicy.current().order_seconds, seed=known.limits.seed
                )
                self.tree_seconds = tree_cost(sought.cheapest()).seconds
        if self.tree_seconds <= most_seconds:
            self.tree_seconds = math.inf
            self._sweep(network, _SHORT_SWEEP_SECONDS)

    def _smallest(self, most_cells: float) -> tuple[CostNetwork, float] | None:
        """Return the network with fewer cells, prepared or original, and its cells; None for no tree search."""
        known = self.known
        both = (known.small,) if known.small is known.network else (known.network, known.small)
        cells = {self._greedy_cells(network): network for network in both}
        least = min(cells)
        if least > min(most_cells, _TREE_SAVING_RATIO * known.limits.swept_cells):
            return None
        return cells[least], least

    def _greedy_cells(self, network: CostNetwork) -> float:
        """Cells of the buckets of an order that is found at once; infinite where no sweep is welcome."""
        if (
            not self.team.is_member("dense")
            or self.known.alone
            or self.known.is_over()
            or not self.known.limits.swept_cells
        ):
            return math.inf
        return sweep_cells(network.dims, network.scopes, self.known.limits.seed)

    def _sweep(self, network: CostNetwork, seconds: float) -> None:
        """Sweep every cell of a network, prepared or as it was, if that is predicted to take at most ``seconds``."""
        known, outcome = self.known, None
        with known.timed("dense"), known.if_compiled("dense"):
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
            return False  # assignments needed now were pruned earlier
        known.small, known.order, known.finished = begun.network, begun.order, finished
        return True


@dataclass(frozen=True)
class HelpOffer:
    """The portfolio's next action.

    Parameters
    ----------
    prover : str
    seconds : float
        CPU seconds of its next turn.
    closing : float
        The part of the gap that the turn closes if it goes on like its last one, 0 where it had none.
    """

    prover: str
    seconds: float
    closing: float


class Portfolio:
    """The search for the least total of a network below a cut-off, by provers that take turns.

    It can be run for some seconds and go on later, as what it did so far stays.

    Parameters
    ----------
    network : CostNetwork
    upper : int or None
        Exclusive; None for no limit.
    method : str
        Only this prover after preparation, "auto" for all of them in turn.
    limits : ProofLimits
        Memory, time, and whom to tell.
    provers : iterable of Registered, optional
        Those that take turns; all, where none are given.

    Attributes
    ----------
    incumbent : Incumbent
        The present incumbent; its ``limits`` may be replaced.
    turns : Turns
        Results of the provers' turns.
    """

    def __init__(
        self,
        network: CostNetwork,
        upper: int | None,
        method: str,
        limits: ProofLimits,
        provers: Iterable[Registered] | None = None,
    ) -> None:
        alone = method != "auto"
        chosen = provers_in_use() if provers is None else provers
        members = {e.name: e for e in chosen if (e.name == method or not alone) and e.is_installed}
        self.method = method
        self.incumbent = Incumbent(network, upper, limits, alone)
        self.turns = Turns(members, alone)
        self.team = Team(self.incumbent, self.turns)
        self._steps: Iterator[None] = self._all()
        self._seconds = ProverPolicy.current().first_turn_seconds

    def run(self, seconds: float = math.inf) -> Outcome:
        """Let the provers take turns until one completes the proof, no prover can continue, or ``stop`` says so.

        Parameters
        ----------
        seconds : float
            CPU seconds of this process after which it returns, to go on where it was when it is run again. A planned
            elimination of all cells and the preparation are not interrupted by them.

        Returns
        -------
        Outcome
            The present outcome, in the states of the given network. If it is unproved and ``exhausted``, another run is
            useless; otherwise the next run continues.
        """
        self.team.until = working_seconds() + seconds
        with going_on_meanwhile():
            for _ in self._steps:
                return self.incumbent.outcome()
        # the run was stopped or exhausted: the next run starts with short turns again
        self._steps = self._rounds()
        return self.incumbent.outcome()

    def search_shortly(self, seconds: float) -> None:
        """Search the unprepared network for some CPU seconds, with the variables in the order of their numbers."""
        Opening(self.team).glance_by_search(seconds)

    def close(self) -> None:
        """End the processes of provers; another run starts them anew."""
        self.team.close()

    def learn(self, upper: int | None) -> None:
        """Search only below a total that was found elsewhere; forget an assignment that is not."""
        before = self.incumbent.upper
        if self.incumbent.cut(upper):
            self.team.preparing.prepare_again(before)

    def prepare(self, work: int = WORK) -> None:
        """Make the network smaller by touching at most ``work`` cells."""
        self.team.preparing.prepare(work)

    @property
    def exhausted(self) -> bool:
        """Whether the proof is complete, or no prover is worth trying."""
        return self.incumbent.done or not self.turns.left

    def offers(self) -> tuple[HelpOffer, ...]:
        """Return the turns of the next round, in their order, as far as is known by now."""
        return tuple(
            HelpOffer(name, share * self._seconds, self.turns.closing(name, share * self._seconds))
            for name, share in self._turns()
            if not self.exhausted
        )

    def _turns(self) -> list[tuple[str, float]]:
        """Return the provers of a round and their numbers of turns; provers that foresee their end come first."""
        return sorted(self.turns.shares(self._seconds), key=lambda turn: not self.team.foresees(turn[0]))

    def _all(self) -> Pauses:
        yield from Opening(self.team).steps()
        yield from self._rounds()

    def _rounds(self) -> Pauses:
        """Try the provers in turn, from short turns on; each goes on where it was."""
        known, self._seconds = self.incumbent, ProverPolicy.current().first_turn_seconds
        while not known.is_over():
            self._find_order()
            self.turns.suit(known.small.dims, known.upper is not None)
            for name, share in sorted(
                self.turns.shares(self._seconds), key=lambda turn: not self.team.foresees(turn[0])
            ):
                if known.is_over():
                    break
                self._find_order()
                before = known.upper
                yield from self.team.go(name, share * self._seconds)
                self._narrow(name)
                self.team.preparing.prepare_again(before)
            if known.is_over() or not self.turns.left:
                break
            if all(name in known.pending for name in self.turns.left):
                await_any(known.is_over)
                continue
            self._reorder()
            self._seconds = math.inf if known.alone else 2 * self._seconds

    def _find_order(self) -> None:
        """Begin with a network that preparation has changed."""
        if self.team.preparing.find_order():
            self.turns.suit(self.incumbent.small.dims, self.incumbent.upper is not None)

    def _narrow(self, name: str) -> None:
        """Leave out what a prover forbade, once it closes nothing more."""
        known = self.incumbent
        if known.done or name not in self.turns.hopeless or name not in self.team.provers:
            return
        network = self.team.provers[name].narrowed()
        if network is not None and known.limits.prune:
            known.small = network
            self.team.preparing.prepare()

    def _reorder(self) -> None:
        """Search for an order once more, if there is one; half as many cells are worth beginning anew.

        They are not worth a prover that follows the order and foresees its end.
        """
        known, provers = self.incumbent, self.team.provers.values()
        following = [prover for prover in provers if prover.follows_order]
        if not known.order or known.spent < self.team.preparing.order_from:
            return
        if any(prover.foresees_end(0.0) for prover in following):
            return
        if self.team.preparing.find_better_order():
            for prover in following:
                prover.forget()
            self.turns.hopeless.clear()
