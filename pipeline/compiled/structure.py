"""The parts of a compiled model that evidence does not change: the network, the plan, and the places of findings.

Joints of variables that no table of a plan contains together are computed along the paths between them.

The posterior of a variable is computed by a tree of steps, and one step sums out each other variable. If this step and
all later steps keep the axis of another variable, the last table is the joint of both variables (Koller and Friedman
2009, section 10.3.3.2). Only the steps on the path between the variables change, and each gets one more axis. All
joints share the messages beside their paths. If the joints were targets of one plan, several variables would share a
clique, which has an axis for each of them.

>>> from bucketflow.pipeline.plans.planner import Planner
>>> from bucketflow.pipeline.plans.problem import Problem
>>> from bucketflow.pipeline.trees.tree import bucket_tree
>>> dims, scopes = (2, 3, 4, 5), ((0, 1), (1, 2), (2, 3))
>>> problem = Problem(dims, scopes, SUM_PRODUCT, 8, targets=((0,), (1,), (2,), (3,)))
>>> paths = JointPaths(Planner(problem).of(bucket_tree(dims, scopes, (0, 1, 2, 3))))
>>> found = paths.joint((0, 3))
>>> [step.axes for step in found.steps], found.axes
([(1, 0), (2, 0), (3, 0)], (3, 0))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.axes import REMEMBERED_SIZES, bits_of
from ...tasks.steps.caches import Memo, Remembered
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step, make_step
from ...tasks.sweeps.sweep import freed_tables
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
from ..trees.memory import Sizing, sweep_peak
from ..trees.tree import Target


class Joint(NamedTuple):
    """The steps of a joint over tables of a plan.

    Parameters
    ----------
    steps : tuple of Step
        The steps in execution order. The table of a step replaces the plan's table of the same number.
    table : int
        The last table.
    axes : tuple of int
        Variables of the last table. Variables of other trees of the forest, which are independent, are missing.
    read : tuple of int
        Tables of the plan that the steps read. Without steps, the last table.
    freed : tuple of tuple of int
        For each step, the tables that no later step needs.
    nbytes : int
        Peak bytes of the tables of the steps, and of their workspace.
    """

    steps: tuple[Step, ...]
    table: int
    axes: tuple[int, ...]
    read: tuple[int, ...]
    freed: tuple[tuple[int, ...], ...]
    nbytes: int

    @property
    def own(self) -> int:
        """The variable whose posterior the plan reads from the last table."""
        return self.axes[0]


class JointPaths:
    """The paths of one plan of both sweeps, which computes each table once and reads the posterior of each variable."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._sums, self._readers = plan, dict[int, int](), dict[int, int]()
        self._known = Memo[Joint](REMEMBERED_SIZES)
        # sets of steps by position: the steps that sum out a variable, that read a table, or that a table needs
        self._needed: dict[int, int] = {}
        for k, step in enumerate(plan.steps):
            needed = here = 1 << k
            for i in step.inputs:
                self._readers[i] = self._readers.get(i, 0) | here
                needed |= self._needed.get(i, 0)
            self._needed[step.node] = needed
            for v in {v for axes in step.input_axes for v in axes}.difference(step.axes):
                self._sums[v] = self._sums.get(v, 0) | here

    def joint(self, target: Target) -> Joint:
        """Return the steps for the joint of some variables, read at the variable with the most states."""
        found = self._known.get(target)
        if found is None:
            found = self._found(target)
            self._known.put(target, found, 1 + len(found.steps))
        return found

    def _found(self, target: Target) -> Joint:
        plan, dims = self._plan, self._plan.tree.dims
        own = max(target, key=dims.__getitem__)
        last = plan.results[(own,)]
        needed = self._needed[last]
        carried: dict[int, list[int]] = {}
        for v in target:
            summing = self._sums.get(v, 0) & needed
            while v != own and summing:
                (k,) = bits_of(summing)
                carried.setdefault(k, []).append(v)
                summing = self._readers.get(plan.steps[k].node, 0) & needed
        return self._steps(carried, last, own)

    def _steps(self, carried: dict[int, list[int]], last: int, own: int) -> Joint:
        """Add axes to the steps at some positions."""
        plan = self._plan
        made: dict[int, tuple[int, ...]] = {}
        steps: list[Step] = []
        for k in sorted(carried):
            step = plan.steps[k]
            inputs = tuple([made.get(i, axes) for i, axes in zip(step.inputs, step.input_axes, strict=True)])
            axes = made[step.node] = (*step.axes, *carried[k])
            steps.append(make_step(step.node, step.inputs, inputs, axes, plan.tree.dims, SUM_PRODUCT))
        read = dict.fromkeys([i for step in steps for i in step.inputs if i not in made]) or {last: None}
        freed = freed_tables(steps, (last,))
        nbytes = sweep_peak(steps, Sizing(plan.tree.dims, plan.itemsize, plan.threads), (), freed=freed) if steps else 0
        return Joint(tuple(steps), last, made.get(last, (own,)), tuple(read), freed, nbytes)


_PATHS: Final[Remembered[JointPaths]] = Remembered(4)


def paths_of(plan: Plan) -> JointPaths:
    """Return the paths of a plan, cached for all models that are compiled with this plan."""
    return _PATHS.of((plan,), (), lambda: JointPaths(plan))


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
