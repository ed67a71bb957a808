"""The parts of a compiled model that evidence does not change: the network, the plan, and the places of findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..answering.prepared import Prepared, cheapest_way, planner_of, problem_of
from ..answering.question import Names, Question, asked_of
from ..errors import BudgetError, ModelError, format_bytes
from ..machine.resources import Resources
from ..models.model import Model, checked_model
from ..options import Options
from ..plans.plan import Plan
from ..plans.planner import Planner
from ..plans.problem import UNLIMITED_BYTES
from ..preprocessing.preprocess import Network, fixed_value
from ..queries.arithmetic import ScaledPartition
from ..queries.beliefs import BeliefRequest, local_part, local_targets
from ..trees.tree import Target
from .joint_paths import paths_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Skeleton:
    """The parts of a compiled model that evidence does not change.

    Parameters
    ----------
    model : Model
    network : Network
        Without any evidence.
    plan : Plan or None
    asked : BeliefRequest
        Every variable, and the joints that the user requested.
    planned : BeliefRequest
        ``asked`` without the pairs that are computed along paths of the tree.
    fixed : float or None
        Natural logarithm of the functions without variables; None if the model allows no assignment.
    planner : Planner or None
        The planner that made the plan; None if the plan comes from a file.
    """

    model: Model
    network: Network
    plan: Plan | None
    asked: BeliefRequest
    planned: BeliefRequest
    fixed: float | None
    planner: Planner | None = None

    @cached_property
    def targets(self) -> list[Target]:
        """Return the targets to read from the tables for everything compiled in."""
        return local_targets(self.network, self.asked)

    @cached_property
    def hosts(self) -> dict[int, int]:
        """For each local variable, the smallest leaf that contains it; this leaf takes its evidence."""
        network = self.network
        cells = [math.prod(network.dims[v] for v in scope) for scope in network.scopes]
        hosts: dict[int, int] = {}
        for leaf in sorted(range(len(cells)), key=lambda i: -cells[i]):
            hosts.update(dict.fromkeys(network.scopes[leaf], leaf))
        return hosts


def skeleton_of(model: Model, joint: Iterable[Names], families: bool, options: Options) -> Skeleton:
    """Reduce and plan a model without evidence."""
    if checked_model(model).kind == "cost":
        raise ModelError("a cost network has no marginal probabilities; only other models can be compiled")
    asked = asked_of(model, "all", joint, families)
    planned = asked if options.gpus is not None else without_far_pairs(model, asked)
    found = _planned(model, asked, planned, options)
    memory_bytes = Resources(options).memory_bytes
    if not far_pairs_fit(found, memory_bytes):
        found = _planned(model, asked, asked, options)
    if found.plan is not None:
        check_memory(found.plan, memory_bytes)
    return found


def _planned(model: Model, asked: BeliefRequest, planned: BeliefRequest, options: Options) -> Skeleton:
    """Reduce a model, and plan the posteriors in ``planned``."""
    question = Question(model, "marginals", asked=planned)
    network = question.chained.reduced[0]
    plan = planner = None
    if network.leaves:
        prepared = _prepared(question, options)
        plan, planner = cheapest_way(prepared).chosen, planner_of(prepared, UNLIMITED_BYTES)
    return Skeleton(model, network, plan, asked, planned, fixed_value(network), planner)


def far_pairs_fit(skeleton: Skeleton, memory_bytes: int) -> bool:
    """Return whether memory suffices for the messages and for the joints that no table of the plan contains."""
    plan = skeleton.plan
    if plan is None:
        return True
    far = [target for target in skeleton.targets if target not in plan.results]
    if not far:
        return True
    paths, free = paths_of(plan), memory_bytes - plan.kept_bytes
    return all(paths.joint(target).nbytes <= free for target in far)


def without_far_pairs(model: Model, asked: BeliefRequest) -> BeliefRequest:
    """Leave out the pairs of variables that no function contains together.

    A plan with all these pairs would have large cliques, because several pairs enlarge the same clique.
    """
    far = {leaf.scope for leaf in network_of(model, asked).leaves if not leaf.functions}
    if not far:
        return asked
    network = network_of(model, replace(asked, joints=()))
    near = [j for j in asked.joints if len(j) > 2 or local_part(network, j) not in far]
    return replace(asked, joints=tuple(near))


def _prepared(question: Question, options: Options) -> Prepared:
    """Return a question of posteriors, to be planned for any memory."""
    network, targets = question.chained.reduced
    assert targets is not None
    arithmetic, free = ScaledPartition(network), Resources(replace(options, memory=1 << 62, fit="auto"))
    return Prepared(question, free, network, arithmetic, problem_of(network, arithmetic, targets))


def fresh_question(model: Model, findings: Mapping[int, Array], asked: BeliefRequest) -> Question:
    """Return the question that asks an uncompiled model the same, with states of certain findings observed."""
    hard = {v: int(f.argmax()) for v, f in findings.items() if np.count_nonzero(f) == 1 and f.max() == 1.0}
    return Question(model, "marginals", hard, {v: f for v, f in findings.items() if v not in hard}, asked)


def fresh_plan(question: Question, options: Options) -> Plan | None:
    """Return the plan of an uncompiled question; None if it has nothing to eliminate."""
    return cheapest_way(_prepared(question, options)).chosen if question.chained.reduced[0].leaves else None


def network_of(model: Model, asked: BeliefRequest) -> Network:
    """Return the network of a model without evidence that serves all answers."""
    question = Question(model, "marginals", asked=asked)
    return question.chained.reduced[0]


def check_memory(plan: Plan, memory_bytes: int) -> None:
    """Refuse to keep all messages where they do not fit.

    Raises
    ------
    BudgetError
    """
    if plan.kept_bytes > memory_bytes:
        raise BudgetError(
            f"keeping all messages needs {format_bytes(plan.kept_bytes)}, allowed {format_bytes(memory_bytes)}; "
            "ask for marginals without compiling, or a larger --memory"
        )
