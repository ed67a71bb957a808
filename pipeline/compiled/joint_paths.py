"""Joints of variables that no table of a plan contains together, computed along the paths between them. Pure.

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

from typing import Final, NamedTuple

from ...tasks.steps.axes import REMEMBERED_SIZES, bits_of
from ...tasks.steps.caches import Memo, Remembered
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step, make_step
from ...tasks.sweeps.sweep import freed_tables
from ..plans.plan import Plan
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
