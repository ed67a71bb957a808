"""Plans for GPUs: workspace of a step's passes on the device, and tables larger than the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import tee
from math import ceil
from typing import Final

from ...tasks.steps.number_limits import ordered_sum
from ..errors import BudgetError
from ..models.query import Fit
from ..orders.effort import FUNCTION_SECONDS, LEAST_ON_DEVICE, PlanningBudget
from ..orders.forests import Starts
from ..plans.lower_bounds import Outline, first_plan, least_bytes
from ..plans.plan import Plan, with_rates
from ..plans.planner import Planner
from ..plans.worker_parts import (
    TASK_SECONDS,
    both_ways_in_parts,
    in_parts,
    run_seconds,
    seconds_on_devices,
    slices_per_task,
)
from ..trees.costs import GPU_RATES, Rates, gpu_rates, lowered_seconds, tree_cost
from ..trees.memory import parts_below
from ..trees.tree import Tree
from .budget_policy import DISK_RATE, BudgetPolicy
from .fit import Prices, cheapest, check_disk
from .sliced_plans import sliced_plan
from .spill import plan_spill

# Slices on a device are searched longer by this fraction of the time of repeated work, between the two numbers of
# nominal seconds.
_REPEATED_SEARCH_MOST: Final = 3.0

SLOTS: Final = 3
"""Boxes at a time: one receives its inputs, one computes, one sends its output."""

LINK_BYTES_PER_SECOND: Final = 50e9
"""Between page-locked host memory and a device, in each direction."""

# Seconds of a search by the rates of a host, or by all of a device, at most.
_HOST_SEARCH = 0.15
# A tree this many times worse needs no plan; a tree that does not fit takes about the second factor longer in slices.
_WORSE, _SLICED = 2.0, 1.5


@dataclass(frozen=True)
class HostBudget:
    """Resources of the host for tables that leave the device.

    Parameters
    ----------
    host_bytes : int
        Budget for the host's memory.
    files : bool
        Whether the tables have to be files, for others to see.
    disk_bytes : int
        Budget for tables on disk.
    disk_rate : callable
        Measures the disk, in bytes per second; only called if files are considered.
    link_rate : float
        Bytes per second between host and device.
    """

    host_bytes: int
    files: bool
    disk_bytes: int
    disk_rate: Callable[[], float]
    link_rate: float = LINK_BYTES_PER_SECOND

    def holds(self, plan: Plan) -> bool:
        """Whether all tables of a plan that spills, and those on their way, stay in the host's memory."""
        spill = plan.spill
        assert spill is not None
        written = (sum(spill.moved_bytes(s, table) for table in s.outputs) for s in spill.stages)
        on_their_way = SLOTS * max(written, default=0)
        return (
            not self.files and spill.disk_bytes + on_their_way + plan.model_bytes + plan.leaf_bytes <= self.host_bytes
        )


def fitted_for_device(
    planner: Planner, fit: Fit, around: HostBudget, devices: int = 1, begun: float = 0.0, *, parts: bool = True
) -> Prices:
    """Plan a query for the memory of one device: whole, in slices, or in boxes; see :func:`.fit.fitted`.

    The tree is searched for with nominal rates, and is a function of the seed. The planner's device rates, possibly
    measured, choose between the methods. The search also uses the host's rates and the full device model for a while,
    and takes the tree with the least predicted device time. The search ends early if the device would finish almost
    immediately. A plan for several devices first spends ``begun`` seconds. With ``parts``, workers with devices may
    also take parts of a tree each.

    Raises
    ------
    BudgetError
        If no allowed way fits.
    """
    given = planner.memory_bytes
    planner = planner.with_options(device=True, memory_bytes=_placed_bytes(given))
    planner = replace(planner, effort=PlanningBudget(planner.options.order_seconds or 0.0, least=LEAST_ON_DEVICE))

    def spilled(planner: Planner, whole: Plan) -> Plan:
        return _spilled(planner.with_options(memory_bytes=given), whole, around)

    plans, again = tee(_whole_plans(planner))
    found = cheapest(planner, plans, fit, spilled)
    if found.chosen.spill is not None:
        return found
    whole, _ = first_plan(again)
    return spread(planner, _repeating_less(planner, found, whole), devices, begun, parts)


def _repeating_less(planner: Planner, prices: Prices, whole: Plan) -> Prices:
    """Search longer for slices if the slices found so far repeat much work.

    The search may take a part of the time of the repeated work on one device. With several devices it is as long, so
    that more devices never get worse slices.
    """
    policy, best = BudgetPolicy.current(), prices.chosen
    seconds = policy.repeated_search * (best.seconds - whole.seconds)
    if best.slices == 1 or seconds < policy.repeated_search_least:
        return prices
    effort = PlanningBudget(min(seconds, _REPEATED_SEARCH_MOST))
    try:
        plan = sliced_plan(replace(planner, effort=effort), [whole])
    except BudgetError:
        return prices
    return replace(prices, chosen=plan, slices=plan) if plan.seconds < best.seconds else prices


def _placed_bytes(memory_bytes: int) -> int:
    """Return the part of a budget that tables may use; the rest allows for gaps between them."""
    return memory_bytes - memory_bytes // 32


def _whole_plans(planner: Planner) -> Iterator[Plan | Outline]:
    """Yield plans without slices, the cheapest first, from trees by simple device rates, by full device rates, and by
    host rates.
    """
    problem, options, rates, effort = planner.problem, planner.options, planner.rates, planner.effort
    few = replace(planner, rates=GPU_RATES)
    if options.children is not None or options.order != "auto" or options.order_seconds is not None:
        for plan in few.plans():
            yield with_rates(plan, rates) if isinstance(plan, Plan) else planner.outline(plan.tree)
        return
    starts = Starts(problem.dims, problem.scopes)
    trees = few.trees(starts=starts)
    first = next(trees)
    found = [(tree_cost(first, rates, problem.itemsize).seconds, first)]
    # of a network that starts are made for already
    further = _HOST_SEARCH + FUNCTION_SECONDS / 2 * len(problem.scopes)
    for by in (Rates(), gpu_rates(problem.semiring)) if options.tree == "refined" else (Rates(),):
        if not effort.allows(further, found[0][0]):
            break
        tree = next(replace(planner, rates=by).trees(longest=_HOST_SEARCH, starts=starts))
        found.append((tree_cost(tree, rates, problem.itemsize).seconds, tree))
    yield from cheapest_first(planner, found)
    for tree in trees:
        yield planner.plan_or_outline(tree)


def cheapest_first(planner: Planner, trees: Sequence[tuple[float, Tree]]) -> Iterator[Plan | Outline]:
    """Plan trees when they are asked for, those first that are predicted to be done first; the very first is a plan.

    A tree that does not fit counts as slower by a factor, which may not be known before it is planned. Trees far slower
    than the first are omitted.

    Parameters
    ----------
    trees : sequence of (float, Tree)
        With predicted seconds.
    """
    waiting: list[tuple[float, int]] = []
    for i, (seconds, tree) in enumerate(trees):
        if i == 0 or seconds < _WORSE * trees[0][0]:
            large = least_bytes(planner.problem, tree) > planner.memory_bytes
            heappush(waiting, (seconds * (_SLICED if large else 1.0), i))
    unfit: dict[int, Plan | Outline] = {}
    first = True
    while waiting:
        when, i = heappop(waiting)
        seconds, tree = trees[i]
        plan = unfit.get(i) or planner.plan_or_outline(tree, first=first)
        if when == seconds and not (isinstance(plan, Plan) and plan.fits(planner.memory_bytes)):
            unfit[i] = plan
            heappush(waiting, (_SLICED * when, i))
            continue
        first = False
        yield plan


def fitted_propagation_for_device(
    planner: Planner,
    fit: Fit,
    around: Callable[[], HostBudget],
    devices: int = 1,
    begun: float = 0.0,
    *,
    parts: bool = True,
) -> Prices:
    """Plan a propagation for the memory of one device.

    All messages of a slice are one launch. Slices are therefore preferred, and boxes are used only if even slices do
    not fit or boxes were requested. A plan that fits one of several devices is also cut into slices if they are
    predicted to end sooner than its parts. Both first spend ``begun`` seconds.

    Raises
    ------
    BudgetError
        If no allowed way fits.
    """
    whole = planner.whole()
    planner = replace(planner, effort=PlanningBudget(planner.options.order_seconds or 0.0))

    def spilled(planner: Planner, whole: Plan) -> Plan:
        return _spilled(planner, whole, around())

    if fit != "auto":
        return cheapest(planner, iter([whole]), fit, spilled if fit == "spill" else None)
    try:
        return spread_propagation(planner, cheapest(planner, iter([whole]), "slice", None), devices, begun, parts)
    except BudgetError as refusal:
        try:
            return Prices(spilled(replace(planner, effort=PlanningBudget()), whole))
        except BudgetError:
            raise refusal from None


def spread(planner: Planner, prices: Prices, devices: int, begun: float = 0.0, parts: bool = True) -> Prices:
    """Cut a plan that fits into slices, or into more of them, where that keeps several devices busier.

    A slice fixes variables of the large steps, and is therefore a box of each of them. Steps without fixed variables
    are swept once by each task. Without ``parts``, threads of one process use the devices, which compute after
    ``begun`` seconds.
    """
    best = prices.chosen
    if devices == 1 or best.seconds < BudgetPolicy.current().spread_seconds:
        return prices

    def seconds(plan: Plan) -> float:
        if parts:
            return spread_seconds(planner, plan, devices)
        again = plan.cost.seconds if planner.options.decode and plan.slices > 1 else 0.0
        return seconds_on_devices(plan, devices, begun) + again

    return replace(prices, chosen=_cut_for_devices(planner, best, devices, seconds))


def _cut_for_devices(planner: Planner, plan: Plan, devices: int, seconds: Callable[[Plan], float]) -> Plan:
    """Fix one variable after the other, and return the plan with the fewest predicted seconds."""
    best, most = plan, BudgetPolicy.current().device_slices * devices
    while plan.slices < most and (variable := _cheapest_cut(plan, planner.rates)) is not None:
        plan = planner.conditioned(plan, frozenset({*plan.sliced, variable}))
        if plan.peak_bytes <= planner.memory_bytes and seconds(plan) < seconds(best):
            best = plan
    return best


def spread_propagation(planner: Planner, prices: Prices, devices: int, begun: float, parts: bool = True) -> Prices:
    """Cut a propagation that fits one device into slices if these are faster on all devices than it, or its parts."""
    best = prices.chosen
    if devices == 1 or best.slices > 1 or run_seconds(best) < BudgetPolicy.current().spread_seconds:
        return prices

    def seconds(plan: Plan) -> float:
        return propagation_seconds(planner, plan, devices if parts or plan.slices > 1 else 1, begun)

    return replace(prices, chosen=_cut_for_devices(planner, best, devices, seconds))


def propagation_seconds(planner: Planner, plan: Plan, devices: int, begun: float) -> float:
    """Predict a propagation on several devices: rounds of groups of its slices, or its parts, or all of it on one."""
    seconds = run_seconds(plan)
    if plan.slices > 1:
        size = slices_per_task(plan, devices, TASK_SECONDS)
        rounds = ceil(ceil(plan.slices / size) / devices)
        return begun + seconds * min(rounds * size / plan.slices, 1.0)
    parts = both_ways_in_parts(plan, devices, TASK_SECONDS, planner.rates, planner.memory_bytes).parts
    return seconds if parts is None else min(seconds, begun + parts.seconds)


def _cheapest_cut(plan: Plan, rates: Rates) -> int | None:
    """Choose the variable of the largest step that repeats the least work when conditioned on."""
    tree = plan.tree
    largest = max(plan.up, key=lambda s: s.lowered.cells)
    joined = tree.joined[largest.node - tree.n_leaves]
    choices = [v for v in joined if tree.dims[v] > 1 and (v in tree.last or not tree.last)]
    return min(choices, key=lambda v: tree_cost(tree, rates, plan.itemsize, {v}).seconds * tree.dims[v], default=None)


def spread_seconds(planner: Planner, plan: Plan, devices: int) -> float:
    """Predict a plan on several devices: rounds of slices and, for an assignment, one more, or its parts."""
    if plan.slices > 1:
        once, again = plan.shared_seconds if plan.variant_from else 0.0, int(planner.options.decode)
        return (1 + again) * once + (plan.cost.seconds - once) * (-(-plan.slices // devices) + again)
    parts = in_parts(plan, devices, TASK_SECONDS, planner.rates, planner.memory_bytes)
    waiting = parts_below(parts.tree, parts.up, parts.cuts)
    done: dict[int, float] = {}
    free = [0.0] * devices
    while waiting:
        first = heappop(free)
        begin, head = min(
            (max([first, *(done[i] for s in steps for i in s.inputs if i in done)]), head)
            for head, steps in waiting.items()
            if not any(i in waiting for s in steps for i in s.inputs)
        )
        done[head] = begin + ordered_sum(lowered_seconds(s, planner.rates, plan.itemsize) for s in waiting.pop(head))
        heappush(free, done[head])
    return max(done.values())


def _spilled(planner: Planner, whole: Plan, around: HostBudget) -> Plan:
    """Cut a plan into boxes whose tables stay in host memory or, if those are too large for it, on disk.

    Data that passes through host memory to files never exceeds the memory of the boxes on the device.
    """
    if not around.files:
        plan = _boxed(planner, whole, around.link_rate, LINK_BYTES_PER_SECOND)
        if around.holds(plan):
            return _all_slots(plan, resident=True)
    memory_bytes = min(planner.memory_bytes, around.host_bytes)
    rate = min(around.disk_rate(), around.link_rate)
    plan = _boxed(planner.with_options(memory_bytes=memory_bytes), whole, rate, DISK_RATE)
    assert plan.spill is not None
    resident = around.holds(plan)
    if not resident:
        check_disk(plan.spill.disk_bytes, around.disk_bytes)
    return _all_slots(plan, resident)


def _all_slots(plan: Plan, resident: bool) -> Plan:
    """Note where the tables are, and the peak of all boxes that are on the device together."""
    assert plan.spill is not None
    return replace(plan, peak_bytes=SLOTS * plan.peak_bytes, spill=replace(plan.spill, resident=resident))


def _boxed(planner: Planner, whole: Plan, rate: float, nominal: float) -> Plan:
    """Cut a plan into boxes so that several boxes fit on the device together."""
    planner = planner.with_options(memory_bytes=planner.memory_bytes // SLOTS, threads=1)
    return plan_spill(planner, whole, rate, nominal)


def boxes_at_a_time(plan: Plan, device_bytes: int) -> int:
    """Return the number of boxes that fit on a device together, also for a plan made for other memory."""
    assert plan.spill is not None
    return max(1, min(SLOTS, device_bytes // max(plan.spill.peak_bytes, 1)))
