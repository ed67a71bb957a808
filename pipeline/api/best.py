"""The best assignments in order: the public function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import islice, product
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...tasks.steps.light_dataclass import dataclass
from ..answering.answer_question import valued
from ..answering.engines.engine_options import EnginePrice
from ..answering.engines.request import QueryRequest
from ..answering.engines.sweep_engine import SweepEngine
from ..answering.prepared import Prepared
from ..answering.question import Evidence, Question, question_of, spare_bytes
from ..assignments.kept_sweep import kept_notes, kept_options, opened_sweep, prepare_kept
from ..assignments.ranking import DiverseAssignments, KeptCosts, KeptEnergies, Ranking, RankingPolicy
from ..assignments.searched_ranking import SearchedRanking
from ..compiling import counts_compiling
from ..errors import BudgetError, DeadlineError, ModelError, checks_keywords, public
from ..formats.read import GivenModel
from ..machine.resources import Resources
from ..models.checks import integer
from ..models.model import FORBIDDEN, Model
from ..options import Keywords, Options, ProofOptions, checked_flag, checked_number
from ..orders.depth_first import sweep_cells
from ..orders.min_fill import min_fill_order
from ..preprocessing.preprocess import Network, fixed_value, full_states, local_places
from ..queries.arithmetic import LOG_TOLERANCE, CostOptimum, optimum_arithmetic
from ..results.best_assignments import BestAssignments, RankedAssignment
from ..results.proof import AskedOf
from ..results.result import Result
from .progress import read_given

if TYPE_CHECKING:
    from ..plans.plan import Plan

# Optima that a search counts: it meets each of them.
_RANKING_MOST_COUNTED: Final = 1 << 16
# Counting uses a part of the memory: each cell has a sum of costs, a number of optima, and the inputs joined to them.
# If there are few cells, this memory is negligible.
_COUNTED_BYTES, _FEWEST_COUNTED, _MOST_COUNTED = 64, 1 << 12, 1 << 22


@public
@checks_keywords
@counts_compiling
def best(
    model: GivenModel,
    m: int | None = None,
    *,
    within: float | int | str | Decimal | None = None,
    count_optimal: bool = False,
    diverse: int | None = None,
    evidence: Evidence = None,
    time: float | None = None,
    **options: Unpack[Keywords],
) -> BestAssignments:
    """Return an iterator over the best assignments of a model, best first, ties included, each assignment once.

    Each assignment is computed when the iterator is asked for it.

    The usual method is one sweep, as for the optimum, with its tables stored. The tables give the exact value of the
    best completion of every partial assignment. Best-first search therefore takes no unnecessary step (Flerova,
    Marinescu and Dechter 2016). If the sweep would take long or does not fit in memory, the optimum is proved as in
    :func:`bucketflow.solve`. A search pruned by the value of the last requested assignment then lists the rest. Costs
    are exact, and every assignment is evaluated on the model.

    Parameters
    ----------
    model : Model, path or name of an example
    m : int, optional
        Maximum number of assignments; all possible assignments by default.
    within : number, optional
        List only assignments whose cost, or log10 of the probability, differs from the optimum by at most ``within``; 0
        lists all optima. Probabilities that differ only by rounding count as equal.
    count_optimal : bool
        Whether to count the optima exactly before listing them. Optimal costs are counted if the tables of counts are
        small enough.
    diverse : int, optional
        Minimum number of variables in which any two assignments differ. The list starts with the best assignment. Each
        next assignment is the best one that differs enough from all assignments before it.
    evidence : mapping, path or None
        As in :func:`bucketflow.solve`.
    time : float, optional
        Wall seconds. After this time only proved assignments are listed, and ``unproved`` gives the reason.
    **options
        ``memory``, ``order``, ``order_time``, ``tree``, ``seed``, ``threads``, ``workers``, ``scheduler``, ``client``,
        ``fit``, ``disk``, ``representation``, ``gpus`` and ``gpu_memory`` as in :func:`bucketflow.solve`. Workers sweep
        slices and boxes, and a GPU sweeps. This process reads the assignments from the tables.

    Returns
    -------
    BestAssignments
        An iterator of :class:`~.best_assignments.RankedAssignment`, with ``optimal_count``, ``plan`` and ``seconds``.
        The iterator is empty if no assignment is possible. If it ends early, ``unproved`` gives the reason.

    Raises
    ------
    ModelError
        If the evidence, ``m``, ``within`` or ``diverse`` is not valid for the model.
    BudgetError
        If the tables of the sweep do not fit ``memory``, even in slices or on disk, and without ``time`` no search ends
        within a minute.

    Examples
    --------
    >>> import bucketflow
    >>> ranked = bucketflow.best("satellite", 3, count_optimal=True)
    >>> [each.value for each in ranked], ranked.optimal_count
    ([49, 49, 49], 144)
    """
    start = perf_counter()
    asked = kept_options(Options(**options), "the best assignments")
    seconds_given = checked_number("time", time, "seconds")
    most = None if m is None else integer(m, "m", 0)
    count = checked_flag("count_optimal", count_optimal)
    least = None if diverse is None else integer(diverse, "diverse", 1)
    if least and count:
        raise ModelError("count_optimal counts all optima, but diverse omits some of them: give only one of the two")
    try:
        model = read_given(model, options.get("memory"), None, seconds_given)
    except DeadlineError as error:
        why = str(error)
        return BestAssignments(iter(()), None, None, {"read": perf_counter() - start}, unproved=lambda: why)
    # isolated variables multiply the optima, so the list needs their states
    whole = replace(question_of(model, "optimum", evidence), keeps_isolated=True)
    question = whole.chained
    network = question.reduced[0]
    told = AskedOf.of(question.model, question.hard, question.soft)
    listing = _Listing(question.model, network, within, most)
    if listing.fixed is None:
        return BestAssignments(iter(()), 0 if count else None, None, {}, model.notes, told)
    listed = _Ways(whole, question, listing, asked, seconds_given, start)
    return listed.found(count, told) if least is None else listed.diverse(least, told)


def _until_read(held: ExitStack, found: Iterator[Any]) -> Iterator[Any]:
    """Yield the results, and release their source as soon as no more results are requested."""
    with held:
        yield from found


@dataclass(frozen=True)
class _Ways:
    """How a list is made: from the tables of a sweep where that is quick, else by a proof and a search.

    Parameters
    ----------
    whole, question : Question
        As it was asked, and for tables.
    listing : _Listing
    options : Options
    time : float or None
        Wall seconds that were given.
    start : float
        When it was asked.
    """

    whole: Question
    question: Question
    listing: _Listing
    options: Options
    time: float | None
    start: float

    def found(self, count: bool, told: AskedOf) -> BestAssignments:
        """Return the assignments in order."""
        prepared, why = self._sweep()
        if prepared is None or why:
            return self._searched(prepared, why, count, told)
        return self._kept(prepared, count, told)

    def diverse(self, least: int, told: AskedOf) -> BestAssignments:
        """Return the best assignments under a minimum distance between any two of them.

        Parameters
        ----------
        least : int
            Minimum number of variables in which any two assignments differ.
        told : AskedOf
            Model and evidence that the answer repeats.
        """
        prepared, why = self._sweep()
        planned, model = perf_counter(), self.whole.model
        ranked: Iterator[RankedAssignment] | None = None
        if prepared is not None and not why:
            ranked = replace(self.listing, most=None).kept(prepared, False)[1]
        unproved: list[str] = []

        def solve(constrained: Model) -> RankedAssignment | None:
            effort = ProofOptions(time=None if self.time is None else self._left)
            result = valued(replace(self.whole, model=constrained), self.options, effort)
            if result.status == "bounded":
                unproved.append("the time ended before the next assignment was proved")
                return None
            return None if result.assignment is None else self.listing.ranked(0, result)

        # the distance constraint becomes a chain of counters along an order, which keeps the width small
        order = min_fill_order(model.dims, [function.scope for function in model.functions], self.options.seed)
        own = [v for v in order if v < len(model.own_names)]
        distinct = DiverseAssignments(model, least, own, Resources(self.options).host_bytes, solve)

        def proved() -> Iterator[RankedAssignment]:
            try:
                yield from distinct.listed(ranked)
            except BudgetError as refused:
                if self.time is None:
                    raise BudgetError(f"{refused}; --time lists the assignments proved within it") from None
                unproved.append(f"the next assignment was not proved: {refused}")

        found = islice(self.listing.near(proved()), self.listing.most)
        return self._answer(
            *(found, None, False, planned, told, ()),
            plan=None if prepared is None or ranked is None else prepared.plan,
            unproved=lambda: unproved[0] if unproved else None,
        )

    def _sweep(self) -> tuple[Prepared | None, str]:
        """Return a sweep, where one is planned, and why it is not the way; nothing where it is.

        Raises
        ------
        BudgetError
            If none fits, and nothing else may be tried.
        """
        if self._is_long:
            return None, "a sweep would take long"
        try:
            prepared = self._planned()
        except BudgetError as refused:
            if not self._may_search:
                raise
            return None, str(refused)
        seconds = 0.0 if prepared.plan is None else prepared.plan.predicted_seconds
        quick = seconds <= RankingPolicy.current().swept_seconds or not self._may_search
        return prepared, "" if quick else f"a sweep is predicted to take {seconds:.3g} s"

    @property
    def _may_search(self) -> bool:
        """Whether nothing was asked that is of tables alone."""
        return self.options.fit == "auto" and self.options.representation == "auto"

    @property
    def _is_long(self) -> bool:
        """Whether a sweep would take so long that a search is tried before it is planned."""
        return self._may_search and self._price.seconds > RankingPolicy.current().swept_seconds

    @cached_property
    def _price(self) -> EnginePrice:
        """Return the predicted cost of a sweep, after a short search for a tree if this search may make the sweep
        short.
        """
        policy, network = RankingPolicy.current(), self.listing.network
        cells = sweep_cells(network.dims, network.scopes, self.options.seed) if network.leaves else 0.0
        if cells <= policy.swept_cells:
            return EnginePrice(0.0, certainty="rough")
        sweep = SweepEngine(QueryRequest(self.question, self.options))
        found = sweep.estimate() if cells > policy.hopeless_cells else sweep.better_price("searched")
        assert isinstance(found, EnginePrice)
        return found

    def _planned(self) -> Prepared:
        """Plan a sweep.

        Raises
        ------
        BudgetError
            If none fits.
        """
        return prepare_kept(self.question, self.listing.network, self.listing.arithmetic, self.options)

    def _kept(self, prepared: Prepared, count: bool, told: AskedOf) -> BestAssignments:
        """Return them from the tables of a sweep."""
        planned = perf_counter()
        counted, found = self.listing.kept(prepared, count)
        notes = kept_notes(prepared, self.options)
        return self._answer(found, counted, count, planned, told, notes, plan=prepared.plan)

    def _searched(self, prepared: Prepared | None, why: str, count: bool, told: AskedOf) -> BestAssignments:
        """Prove the optimum, list by a search, and sweep if the search takes longer than the sweep would.

        Parameters
        ----------
        prepared : Prepared or None
            A planned sweep that takes over if the search takes longer.
        why : str
            Why the sweep is not the first choice.
        count : bool
            Whether the optima are counted.
        told : AskedOf
            Model and evidence that the answer repeats.
        """
        planned, policy, listing = perf_counter(), RankingPolicy.current(), self.listing
        result = valued(self.whole, self.options, ProofOptions(time=None if self.time is None else self._left))
        if result.status == "bounded":
            known = "" if result.proof is None else f": between {result.proof.lower} and {result.proof.upper}"
            open_ = f"the time ended before the optimum was proved{known}"
            return self._answer(iter(()), None, count, planned, told, (), unproved=lambda: open_)
        if result.assignment is None:
            return self._answer(iter(()), 0 if count else None, count, planned, told, ())
        # the search may take as long as the alternative: the planned sweep, or a multiple of the optimum
        seconds = max(policy.patience_seconds, policy.optimum_times * (perf_counter() - planned))
        if prepared is not None and prepared.plan is not None:
            seconds = prepared.plan.predicted_seconds
        elif self._is_long and 0 < self._price.nbytes <= spare_bytes(self.question, self.options):
            seconds = min(seconds, self._price.seconds)
        local, memory = listing.local(result.assignment), Resources(self.options).host_bytes
        ranking = SearchedRanking(
            *(listing.arithmetic, listing.fixed, local, listing.most, memory),
            min(seconds, self._left),
            self.options.seed,
        )
        unproved: list[str] = []

        def otherwise() -> Prepared | None:
            known = (
                ""
                if ranking.next_known is None
                else (f", an assignment of {listing.shown_worth(ranking.next_known)} is known")
            )
            bound = listing.shown_worth(ranking.open_from)
            told = f"{ranking.why_open}: no other assignment is better than {bound}{known}"
            try:
                sweep = prepared or self._planned()
                if sweep.plan is None or sweep.plan.predicted_seconds <= self._left:
                    return sweep
            except BudgetError as refused:
                if self.time is None:
                    raise BudgetError(
                        f"{refused}; of a search {told}; --time lists the assignments proved within it"
                    ) from None
            unproved.append(told)
            return None

        counted, found = listing.searched(ranking, count, otherwise)
        notes = (f"{why}: the optimum was proved without stored tables, and a search listed the other assignments",)
        return self._answer(
            found, counted, count, planned, told, notes, unproved=lambda: unproved[0] if unproved else None
        )

    @property
    def _left(self) -> float:
        """Seconds that are left."""
        return math.inf if self.time is None else max(self.time - (perf_counter() - self.start), 0.0)

    def _answer(
        self,
        found: Iterator[RankedAssignment],
        counted: int | None,
        count: bool,
        planned: float,
        told: AskedOf,
        notes: tuple[str, ...],
        plan: Plan | None = None,
        unproved: Callable[[], str | None] = lambda: None,
    ) -> BestAssignments:
        seconds = {"plan": planned - self.start, "run": perf_counter() - planned}
        notes = (*self.whole.model.notes, *notes)
        if count and counted is None:
            notes = (
                *notes,
                "the optima are not counted: counting needs a cost network, and either small tables or few optima",
            )
        return BestAssignments(found, counted, plan, seconds, notes, told, unproved)


@dataclass(frozen=True)
class _Listing:
    """The network, and the limits on the assignments to list.

    Parameters
    ----------
    model : Model, path or name of an example
    network : Network
    within : number, optional
    most : int, optional
    """

    model: Model
    network: Network
    within: Any
    most: int | None

    def __post_init__(self) -> None:
        if self.within is not None:
            try:
                more = Decimal(str(self.within))
                fits = more.is_finite() and more >= 0
            except InvalidOperation:
                fits = False
            if not fits:
                raise ModelError(f"within is {self.within!r}; it must be a number, 0 or more")

    @cached_property
    def fixed(self) -> Any:
        """The value of the functions that are settled; None if nothing is possible."""
        return fixed_value(self.network)

    @cached_property
    def arithmetic(self) -> KeptCosts | KeptEnergies:
        """Arithmetic of minimal costs or energies that stores its tables."""
        base = optimum_arithmetic(self.network)
        if isinstance(base, CostOptimum):
            return KeptCosts(base.network, base.scale, base.semiring)
        return KeptEnergies(base.network, base.semiring)

    def limit(self, least: Any) -> Any:
        """Return the most that what is swept may be worth, given the least."""
        arithmetic = self.arithmetic
        if isinstance(arithmetic, KeptEnergies):
            if self.within is None:
                return math.inf
            rounding = LOG_TOLERANCE * max(1.0, abs(least), abs(self.fixed))
            return least + float(str(self.within)) * math.log(10) + rounding
        cap = arithmetic.scale.cap
        allowed = math.inf if cap is None else cap - 1 - int(self.fixed)
        if self.within is None:
            return allowed
        more = min(Decimal(str(self.within)), Decimal(FORBIDDEN)).scaleb(self.model.decimals)
        return min(allowed, least + math.floor(more))

    def kept(self, prepared: Prepared, count: bool) -> tuple[int | None, Iterator[RankedAssignment]]:
        """Sweep; return the number of optima, if it is wanted and counted, and the assignments in order."""
        counted, ranked = self._swept(prepared, count)
        return counted, islice(self._shown(ranked), self.most)

    def searched(
        self, ranking: SearchedRanking, count: bool, otherwise: Callable[[], Prepared | None]
    ) -> tuple[int | None, Iterator[RankedAssignment]]:
        """Search; the same.

        Parameters
        ----------
        otherwise : callable
            Returns a sweep that continues where the unfinished search stopped, or None if no time remains.
        """
        limit = self.limit(ranking.best)
        if ranking.best > limit:
            return (0 if count else None), iter(())
        counted = ranking.optimal_count(_RANKING_MOST_COUNTED) if count else None
        if counted is not None:
            counted *= self.network.free_states

        def ranked() -> Iterator[tuple[Any, Any]]:
            before = set[tuple[int, ...]]()
            for worth, states in ranking.ranked(limit):
                before.add(tuple(states[v] for v in range(len(states))))
                yield worth, states
            sweep = otherwise() if ranking.why_open else None
            for worth, states in iter(()) if sweep is None else self._swept(sweep, False)[1]:
                if tuple(states[v] for v in range(len(states))) not in before:
                    yield worth, states

        return counted, islice(self._shown(ranked()), self.most)

    def _swept(self, prepared: Prepared, count: bool) -> tuple[int | None, Iterator[tuple[Any, Any]]]:
        """Sweep; return the number of optima, if it is wanted and counted, and worth and local states in order."""
        if prepared.plan is None:
            return (self.network.free_states if count else None), iter([(0, dict[int, int]())])
        held = ExitStack()
        with ExitStack() as stack:
            sweep = stack.enter_context(opened_sweep(prepared))
            ranking = Ranking(sweep, self.most)
            least = ranking.best
            if sweep.boxes is not None or sweep.rows is not None:
                held = stack.pop_all()  # tables on disk stay while they are read
        if least is None or least > self.limit(least):
            held.close()
            return (0 if count else None), iter(())
        ranked = _until_read(held, ranking.ranked(self.limit(least)))
        if not count:
            return None, ranked
        cells = Resources(prepared.resources.asked).host_bytes // _COUNTED_BYTES
        counted = ranking.optimal_count(min(max(cells, _FEWEST_COUNTED), _MOST_COUNTED))
        return (None if counted is None else counted * self.network.free_states), ranked

    def shown_worth(self, worth: Any) -> Any:
        """Return a cost of the model, or log10 of a probability."""
        arithmetic = self.arithmetic
        if isinstance(arithmetic, KeptEnergies):
            return (float(self.fixed) - worth) / math.log(10)
        return self.network.model.objective(int(worth) + int(self.fixed) + arithmetic.scale.offset)

    def local(self, assignment: Mapping[str, Any]) -> tuple[int, ...]:
        """Return an assignment of the model as places among the states that are left."""
        model = self.model
        states = model.completed([model.state_index(v, assignment[name]) for v, name in enumerate(model.own_names)])
        assert states is not None
        return local_places(self.network, states)

    def _shown(self, ranked: Iterator[tuple[Any, Any]]) -> Iterator[RankedAssignment]:
        """Turn local states into assignments, with all states of free variables, each evaluated on the model."""
        network, seen, rank = self.network, set[tuple[Any, ...]](), 0
        domains = [network.domains[v].tolist() for v in network.free]
        for total, local in ranked:
            states = full_states(network, local)
            for chosen in product(*domains):
                for v, state in zip(network.free, chosen, strict=True):
                    states[v] = state
                result = self.arithmetic.checked(states, self.fixed, total)
                if self.model.hidden:
                    own = tuple(states[: len(self.model.own_names)])
                    if own in seen:
                        continue
                    seen.add(own)
                rank += 1
                yield self.ranked(rank, result)

    def near(self, found: Iterable[RankedAssignment]) -> Iterator[RankedAssignment]:
        """Yield the first assignment, and others as long as they are worth no more less than is allowed."""
        first: RankedAssignment | None = None
        for each in found:
            first = first or each
            if not self._is_near(first, each):
                return
            yield each

    def _is_near(self, first: RankedAssignment, other: RankedAssignment) -> bool:
        if self.within is None:
            return True
        if first.value is not None and other.value is not None:
            return abs(Decimal(other.value) - Decimal(first.value)) <= Decimal(str(self.within))
        assert first.log10 is not None
        assert other.log10 is not None
        rounding = LOG_TOLERANCE * max(1.0, abs(first.log10))
        return first.log10 - other.log10 <= float(str(self.within)) + rounding

    @staticmethod
    def ranked(rank: int, result: Result) -> RankedAssignment:
        assert result.assignment is not None
        return RankedAssignment(rank, result.value, result.log10, result.assignment)
