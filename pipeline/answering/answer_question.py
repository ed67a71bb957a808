"""Answer a question: open its run directory, walk the engines of its strategy, and complete the answer with notes.

A short depth-first search (EDAC) proves easy optima before the network is reduced, priced or planned: these steps take
longer than an easy search. A process searches only after it has loaded the compiler, because loading takes longer than
a small sweep. Networks with a quick sweep are swept, so that their answers report a plan.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from ...tasks.compiler.code_cache import Patience
from ...tasks.compiler.compile_limits import compiled_until
from ...tasks.compiler.working_time import working_seconds
from ...tasks.steps.number_limits import CELL_BYTES
from ..compiling import counts_compiling
from ..errors import BudgetError, listed
from ..models.model import Model
from ..options import Options, ProofOptions
from ..orders.depth_first import sweep_cells
from ..preprocessing.preprocess import Network, fixed_value, unreduced
from ..results.proof import Tried
from ..results.result import Result
from ..runs.pools import not_sent
from ..trees.costs import Rates
from .cut_offs import within
from .engines.engine_options import (
    DEVICES,
    GANAK,
    PLANNING,
    SWEEP,
    EnginePrice,
    Estimate,
    Strategy,
    given_options,
    strategy_of,
)
from .engines.engine_registry import EnginesOf
from .engines.request import QueryRequest
from .engines.strategy_policy import POLICY, StrategyPolicy
from .engines.walk import walk
from .prepared import Prepared
from .question import Question
from .run_folder import RunFolder, run_folder
from .running import Answer, Progress

_LOOPS: Final = ("explore", "take_open", "begin_at")
_PATIENCE: Final = Patience("tasks.search.branch_and_bound", _LOOPS[0])
# Number of short searches that failed to prove the optimum of a model. The first attempts may fail because each of them
# loads one of the loops. After these attempts the search would fail again. A model that is too large, or that has a
# quick sweep, counts as failed and is not examined again.
_failures: WeakKeyDictionary[Model, int] = WeakKeyDictionary()


def easy_optimum(request: QueryRequest) -> Result | None:
    """Return the optimum of a question if a short search of the whole model proves it, else None.

    Parameters
    ----------
    request : QueryRequest
    """
    # once the compiler is loaded, loading one more loop takes little
    if request.question.query != "optimum" or "numba" not in sys.modules:
        return None
    start = working_seconds()
    network = _easy_network(request)
    if network is None:
        return None
    from ..proofs.team import LEAST_TURN_SECONDS
    from .optimum import Task

    if not _PATIENCE.ends(LEAST_TURN_SECONDS, math.inf):
        return None
    question, effort = request.question, request.effort
    task = Task.of(question, request.options, effort, request.started, None, request.policy, network)
    found = task.search_shortly(LEAST_TURN_SECONDS)
    if found is None:
        _failures[question.model] = _failures.get(question.model, 0) + 1
        return None
    return replace(found, tried=(Tried("bounds", round(working_seconds() - start, 6), "answered"),))


def _easy_network(request: QueryRequest) -> Network | None:
    """Return the unreduced network of a question if a short search may prove its optimum, else None."""
    from ..proofs.portfolio import SMALL_CELLS
    from ..proofs.prover_registry import may_be_easy, provers_in_use

    question, policy = request.question, request.policy
    model, most_cells = question.model, 2 * SMALL_CELLS  # reducing often halves the cells
    searches = any(prover.name == "search" for prover in provers_in_use())
    if question.outer is not None or not (searches and _is_plain(request) and may_be_easy(model.dims)):
        return None
    if _failures.get(model, 0) >= len(_LOOPS):
        return None
    if model.nbytes <= most_cells * CELL_BYTES:
        network = unreduced(question.weighted, "optimum", question.hard)
        if network.leaves and network.cells <= most_cells and fixed_value(network) is not None:
            cells = sweep_cells(network.dims, network.scopes, request.options.seed)
            seconds = cells / policy.saved_by_trees / Rates().cells_per_second
            if seconds > policy.quick_seconds["optimum"]:
                return network
    if not question.hard:  # a question with evidence says little about the model without evidence
        _failures[model] = len(_LOOPS)
    return None


def _is_plain(request: QueryRequest) -> bool:
    """Return whether no option limits memory, chooses a method, stores a run, or reports progress."""
    options = request.options
    chosen = options.memory, options.folder, options.keep_tables, request.progress
    automatic = options.representation == options.tasks == "auto" and request.effort == ProofOptions()
    return automatic and not any(chosen) and not given_options(options, request.effort)


_LOG = logging.getLogger(__name__)


@counts_compiling
def solved(
    question: Question,
    options: Options,
    effort: ProofOptions | None = None,
    progress: Progress | None = None,
    policy: StrategyPolicy = POLICY,
) -> Answer:
    """Answer a question by its strategy; bounds on an optimum can be watched.

    Raises
    ------
    BudgetError
        If no engine fits in memory, or if no sweep fits and no engine answers within a minute.
    """
    effort = effort or ProofOptions()
    effort.refuse_for(question.query)
    # nothing is compiled that would not be ready in the time that is given
    with nullcontext() if effort.time is None else compiled_until(effort.time):
        return question.told(_solved(question, options, effort, progress, policy))


def _solved(
    question: Question,
    options: Options,
    effort: ProofOptions,
    progress: Progress | None,
    policy: StrategyPolicy,
) -> Answer:
    """Answer a question by the engines of its strategy, and store the answer in the run directory if there is one.

    Parameters
    ----------
    question : Question
    options : Options
    effort : ProofOptions
        Method, time and gap.
    progress : callable or None
        Receives swept cells, and bounds on an optimum.
    policy : StrategyPolicy
        Time slices of the engines.
    """
    with run_folder(question, options.folder) as folder:
        again = options.keep_tables is None and folder is not None and folder.stored_plan is None
        if again and folder is not None and (before := folder.answered()) is not None:
            return within(before, question.model, effort)
        patient = effort.method != "dense"
        ask = partial(solved, policy=policy)
        request = QueryRequest(question, options, effort, progress, folder, policy, ask, patient=patient)
        if (easy := easy_optimum(request)) is not None:
            return easy
        engines = EnginesOf(request)
        strategy = strategy_for(request, engines)
        _LOG.info("strategy:\n%s", strategy)
        try:
            found = walk(strategy, engines, request)
        except BudgetError:
            if folder is not None and request.engine_limits.about_sweeps:
                folder.keep_question(options, effort)  # to be asked the same again
            raise
        _keep(found, folder, engines)
        found = replace(found, notes=(*found.notes, *_effects(found, request, engines, strategy)))
        found = _told_of_workers(found, request, engines)
    if not isinstance(found, Result):
        return found
    if found.proof is not None:
        _LOG.info(found.proof.reason)
    return within(found, question.model, effort)


def _told_of_workers(found: Answer, request: QueryRequest, engines: EnginesOf) -> Answer:
    """Add the tasks sent to the requested cluster, or the reason why none were sent, to an answer."""
    if found.dask is None and not (request.options.remote or request.options.workers):
        return found
    if found.dask is None:
        way = engines.kinds[found.tried[-1].engine].way if found.tried else "the run directory already held the answer"
        found = replace(found, dask=not_sent(request.options, way))
    if found.dask is not None:
        _LOG.info("dask: %s", found.dask.text)
    return found


def valued(
    question: Question,
    options: Options,
    effort: ProofOptions,
    progress: Progress | None = None,
    policy: StrategyPolicy = POLICY,
) -> Result:
    """Answer a question about one value; see :func:`solved`."""
    found = solved(question, options, effort, progress, policy)
    assert isinstance(found, Result)
    return found


def _effects(found: Answer, request: QueryRequest, engines: EnginesOf, strategy: Strategy) -> tuple[str, ...]:
    """Return a note about the options that had no effect on what answered, where anything was left to be done."""
    given = given_options(request.options, request.effort)
    if not (given and found.tried) or request.is_trivial:
        return ()
    kind = engines.kinds[found.tried[-1].engine]
    proof = found.proof if isinstance(found, Result) else None
    swept = proof is not None and proof.method == "dense"  # by the portfolio itself
    raced = any(offer.price.device == "gpu" for offer in strategy.offers)
    heeded = kind.heeds | (PLANNING | DEVICES if swept else DEVICES if raced else frozenset())
    if not raced and found.plan is not None and not found.plan.device:
        heeded -= DEVICES
    unused = [name for name in given if name not in heeded]
    if not unused:
        return ()
    is_open = isinstance(found, Result) and found.status == "bounded"
    way = engines.sweep.why_host or ("the bounds did not meet, and no sweep was run" if is_open else kind.way)
    return (f"{listed(unused)} had no effect: {way}",)


def _keep(found: Answer, folder: RunFolder | None, engines: EnginesOf) -> None:
    """Keep the answer of an engine that keeps none itself."""
    if folder is None or not isinstance(found, Result) or not found.tried:
        return
    if found.tried[-1].engine in ("search", GANAK, "diagrams") or not engines.sweep.in_folder:
        folder.write(found, final=True)


def strategy_for(request: QueryRequest, engines: EnginesOf) -> Strategy:
    """Return the strategy for a question: the engines and their turns."""
    estimates: dict[str, Callable[[], Estimate]] = {name: partial(_bid, engines, name) for name in engines.kinds}
    return strategy_of(request.question.query, request.engine_limits, estimates, request.policy)


def _bid(engines: EnginesOf, name: str) -> Estimate:
    return engines[name].estimate()


def strategy_before(question: Question, options: Options, effort: ProofOptions) -> Strategy:
    """Return the strategy of a question before anything is planned or computed."""
    request = QueryRequest(question, options, effort)
    return strategy_for(request, EnginesOf(request))


def with_planned_sweep(strategy: Strategy, question: Question, options: Options, prepared: Prepared) -> Strategy:
    """Return the strategy with the sweep's price taken from its plan."""
    engines = EnginesOf(QueryRequest(question, options))
    engines.sweep.prepared = prepared
    price = engines.sweep.better_price("planned")
    assert isinstance(price, EnginePrice)
    return strategy.repriced(SWEEP, price)


def is_searched(strategy: Strategy) -> bool:
    """Whether a search of clauses may answer, and no tree makes a sweep as short as the time slices of the search."""
    longest = POLICY.most_saved * POLICY.patience_seconds
    return unplanned_seconds(strategy) > longest and not {"search", "circuit"}.isdisjoint(strategy.engines)


def unplanned_seconds(strategy: Strategy) -> float:
    """Return the predicted seconds of the sweep of a strategy; infinite if no sweep is possible."""
    sweep = next((offer.price for offer in strategy.offers if offer.engine == SWEEP), None)
    return math.inf if sweep is None else sweep.seconds if sweep.known else 0.0


def is_bounded(question: Question, options: Options, effort: ProofOptions) -> bool:
    """Whether a question is answered by bounds on an optimum, in one process."""
    if question.query != "optimum":
        return False
    request = QueryRequest(question, options, effort)
    return strategy_for(request, EnginesOf(request)).is_bounded
