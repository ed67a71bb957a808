"""The best assignments in order: the public function."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import islice, product
from typing import Any, Unpack

from ..answering.prepared import Prepared
from ..answering.question import Evidence, question_of
from ..assignments.kept_sweep import kept_notes, kept_options, opened_sweep, prepare_kept
from ..assignments.ranking import KeptCosts, KeptEnergies, Ranking
from ..compiling import counts_compiling
from ..errors import ModelError, checks_keywords
from ..formats.read import GivenModel, given_model
from ..machine.resources import Resources
from ..models.checks import integer
from ..models.model import FORBIDDEN, Model
from ..options import Keywords, Options
from ..preprocessing.preprocess import Network, fixed_value, full_states
from ..queries.arithmetic import CostOptimum, optimum_arithmetic
from ..results.asked import AskedOf
from ..results.best_assignments import BestAssignments, RankedAssignment
from ..results.result import Result

# Two logarithms of the same probability, summed in another order, differ by less, relative to their size.
_ROUNDING = 1e-10
# Counting takes a part of the memory: a sum of costs and one of counts for each cell, with what is joined to them. Of
# few cells that is nothing beside what runs.
_COUNTED_BYTES, _FEWEST_COUNTED, _MOST_COUNTED = 64, 1 << 12, 1 << 22


@checks_keywords
@counts_compiling
def best(
    model: GivenModel,
    m: int | None = None,
    *,
    within: float | int | str | Decimal | None = None,
    count: bool = False,
    evidence: Evidence = None,
    **options: Unpack[Keywords],
) -> BestAssignments:
    """Yield the best assignments of a model in order, ties included, each once, found when it is asked for.

    One sweep, as for the optimum, whose tables are kept: they say exactly what the best completion of each partial
    assignment is worth, so that best-first search makes no step in vain (Flerova, Marinescu and Dechter 2016). Costs
    are exact, and every assignment is evaluated on the model.

    Parameters
    ----------
    model : Model, path or name of an example
    m : int, optional
        How many, at most; all that there are without it.
    within : number, optional
        Only those whose cost, or log10 of whose probability, differs from the optimum by no more; 0 for all optima.
        Probabilities that differ by rounding alone count as equal.
    count : bool
        Whether the number of optima is wanted first, exactly: of costs, where their tables are small enough.
    evidence : mapping, path or None
        As in :func:`bucketflow.solve`.
    **options
        ``memory``, ``order``, ``order_time``, ``tree``, ``seed``, ``threads``, ``workers``, ``scheduler``, ``client``,
        ``fit``, ``disk``, ``representation``, ``gpus`` and ``gpu_memory`` as in :func:`bucketflow.solve`; workers sweep
        slices and boxes, a GPU sweeps, and assignments are read in this process.

    Returns
    -------
    BestAssignments
        An iterator of :class:`~.best_assignments.RankedAssignment`; with ``optimal_count``, ``plan`` and ``seconds``.
        It yields nothing where no assignment is possible.

    Raises
    ------
    ModelError
        If the evidence, ``m`` or ``within`` does not fit.
    BudgetError
        If the tables of the sweep do not fit ``memory``, even in slices or on disk.
    """
    start = time.perf_counter()
    most = None if m is None else integer(m, "m", 0)
    model = given_model(model, options.get("memory"))
    question = question_of(model, "optimum", evidence).chained
    network = question.reduced[0]
    told = AskedOf.of(question.model, question.hard, question.soft)
    listing = _Listing(question.model, network, within, most)
    if listing.fixed is None:
        return BestAssignments(iter(()), 0 if count else None, None, {}, model.notes, told)
    asked = kept_options(Options(**options), "the best assignments")
    prepared = prepare_kept(question, network, listing.arithmetic, asked)
    planned = time.perf_counter()
    counted, found = listing.found(prepared, count)
    seconds = {"plan": planned - start, "run": time.perf_counter() - planned}
    uncounted = count and counted is None
    notes = (*model.notes, *kept_notes(prepared, asked))
    notes = (*notes, *(("the optima are not counted: that takes costs, and small tables",) if uncounted else ()))
    return BestAssignments(found, counted, prepared.plan, seconds, notes, told)


def _until_read(held: ExitStack, found: Iterator[Any]) -> Iterator[Any]:
    """Yield what is found, and let go of what it is read from when nothing more is asked for."""
    with held:
        yield from found


@dataclass(frozen=True)
class _Listing:
    """What is listed of a network.

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
        """Least costs or energies, whose tables stay."""
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
            rounding = _ROUNDING * max(1.0, abs(least), abs(self.fixed))
            return least + float(str(self.within)) * math.log(10) + rounding
        cap = arithmetic.scale.cap
        allowed = math.inf if cap is None else cap - 1 - int(self.fixed)
        if self.within is None:
            return allowed
        more = min(Decimal(str(self.within)), Decimal(FORBIDDEN)).scaleb(self.model.decimals)
        return min(allowed, least + math.floor(more))

    def found(self, prepared: Prepared, count: bool) -> tuple[int | None, Iterator[RankedAssignment]]:
        """Sweep; return the number of optima, if it is wanted and counted, and the assignments in order."""
        if prepared.plan is None:
            ranking, ranked = None, iter([(0, dict[int, int]())])
        else:
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
        counted: int | None = 1
        if ranking is not None and count:
            cells = Resources(prepared.resources.asked).host_bytes // _COUNTED_BYTES
            counted = ranking.optimal_count(min(max(cells, _FEWEST_COUNTED), _MOST_COUNTED))
        if counted is not None:
            counted *= self.network.free_states
        return (counted if count else None), islice(self._shown(ranked), self.most)

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
                yield self._ranked(rank, result)

    @staticmethod
    def _ranked(rank: int, result: Result) -> RankedAssignment:
        assert result.assignment is not None
        return RankedAssignment(rank, result.value, result.log10, result.assignment)
