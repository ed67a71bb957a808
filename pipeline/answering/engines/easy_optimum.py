"""Easy optima: a short depth-first search (EDAC) proves them before the network is reduced, priced or planned.

Reducing, pricing and preparing a small network takes longer than an easy search. A process searches only after it has
loaded the compiler, because loading takes longer than a small sweep. Networks with a quick sweep are swept, so that
their answers report a plan.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ....tasks.compiler.code_cache import Patience
from ....tasks.compiler.working_time import working_seconds
from ....tasks.steps.number_limits import CELL_BYTES
from ...models.model import Model
from ...options import ProofOptions
from ...orders.depth_first import sweep_cells
from ...preprocessing.preprocess import Network, fixed_value, unreduced
from ...results.proof import Tried
from ...results.result import Result
from ...trees.costs import Rates
from .engine_options import given_options

if TYPE_CHECKING:
    from .request import QueryRequest

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
    from ...proofs.team import LEAST_TURN_SECONDS
    from ..optimum import Task

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
    from ...proofs.portfolio import SMALL_CELLS
    from ...proofs.prover_registry import may_be_easy, provers_in_use

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
