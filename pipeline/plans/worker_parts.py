"""Spreading a plan over workers: groups of slices, or parts of the tree that are worth a task each. Pure.

A part collects when those below it have, and distributes when those above it have: messages of one level run
at the same time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...tasks.steps.number_limits import ordered_sum
from ..trees.costs import Rates, lowered_seconds
from ..trees.memory import Sizing, partition, parts_below, table_bytes
from .plan import Plan, with_rates
from .prediction import CORES_OF_A_DEVICE
from .problem import PlanningPolicy
from .recompute import recomputing_peak
from .stages import Parts, Task
from .two_way_steps import Numbering

# A part should take at least this fraction of each worker's equal share of the work.
_PART_SHARE: Final = 0.25
# Chains of parts that save less than this share of the time are not worth sending.
_LEAST_GAIN: Final = 0.2
# Tasks that slices of beliefs are divided into for devices, however many there are.
_DEVICE_TASKS: Final = 64

SENT_SECONDS = 2e-3
"""Seconds that Dask takes for a task: its submission by the client, the scheduler and the worker."""
TASK_SECONDS = 100 * SENT_SECONDS
"""A Dask task should run for at least this long."""


def for_workers(plan: Plan, width: int, seconds: float, rates: Rates, memory_bytes: int) -> Plan:
    """Divide a plan in memory among ``width`` workers, into tasks of at least ``seconds``, where that pays and fits."""
    if plan.way == "disk":
        return plan
    if plan.slices > 1:
        size = slices_per_task(plan, width, seconds)
        return plan if size == plan.group else replace(plan, group=size)
    return (both_ways_in_parts if plan.results else in_parts)(plan, width, seconds, rates, memory_bytes)


def slices_per_task(plan: Plan, width: int, seconds: float) -> int:
    """Choose how many slices are worth a task, and few enough that all workers end together.

    For sums, return the largest of the numbers with the fewest rounds. Beliefs are added up group by group. Their
    number therefore depends neither on the width nor on measured rates, so that beliefs are equal on any number of
    workers and devices.
    """
    if plan.results:
        plan = with_rates(plan, Rates())
    enough = math.ceil(seconds * plan.slices / max(run_seconds(plan), 1e-9))
    if plan.results:
        even = -(-plan.slices // _DEVICE_TASKS) if plan.device else plan.slices
        return max(1, min(enough, even))
    most = max(1, min(enough, plan.slices // (2 * width)))
    return min(range(most, most // 4, -1), key=lambda size: -(-plan.slices // (size * width)) * size)


def run_seconds(plan: Plan) -> float:
    """Predict how long a sweep takes where it runs; both sweeps on a device are planned at the rates of a core."""
    return plan.sweep_seconds / (CORES_OF_A_DEVICE if plan.device and plan.results else 1)


def seconds_on_devices(plan: Plan, devices: int, begin_seconds: float) -> float:
    """Predict a plan whose slices or boxes threads of one process run on several devices.

    Slices and boxes are divided; tables that all slices share, copies of boxes and what Python does for each step are
    not. A few devices are preferred to many that save little.

    Parameters
    ----------
    begin_seconds : float
        Seconds until all these devices compute.
    """
    policy, tasks = PlanningPolicy.current(), plan.slices
    whole, alone = run_seconds(plan), plan.shared_seconds if plan.variant_from else 0.0
    if plan.spill is not None:
        tasks, whole, alone = plan.spill.tasks, plan.spill.seconds, plan.spill.moving_seconds
    elif not plan.results:  # both sweeps of a slice are one launch
        scaled = plan.steps[0].lowered.semiring.name == "sum_product"
        alone += (policy.device_step_seconds * len(plan.steps) if scaled else policy.device_slice_seconds) * tasks
    if devices == 1 or tasks == 1:
        return whole
    divided = max(whole - alone, 0.0) * -(-tasks // devices) / tasks
    return (alone + divided) / (1.0 - policy.device_least_gain) + policy.device_join_seconds + begin_seconds


def in_parts(plan: Plan, width: int, seconds: float, rates: Rates, memory_bytes: int) -> Plan:
    """Cut a forward sweep into parts of at least ``seconds`` for ``width`` workers, where that pays and fits."""
    if plan.slices > 1 or plan.seconds < 2 * seconds or width < 2:
        return plan
    work = {s.node: lowered_seconds(s, rates, plan.itemsize) for s in plan.up}
    cuts = _cuts(plan, work, max(seconds, _PART_SHARE * plan.seconds / width)) | plan.cuts
    fixed, sizing = plan.model_bytes + plan.leaf_bytes, Sizing(plan.tree.dims, plan.itemsize, device=plan.device)
    peak = fixed + recomputing_peak(plan.tree, plan.up, sizing, cuts)
    return replace(plan, cuts=cuts, peak_bytes=peak) if cuts and peak <= memory_bytes else plan


def both_ways_in_parts(plan: Plan, width: int, seconds: float, rates: Rates, memory_bytes: int) -> Plan:
    """Divide both sweeps among ``width`` workers if this pays and all tables fit in the memory of one worker.

    On GPUs a part also copies its tables to the host and back; otherwise one launch does everything.

    Parameters
    ----------
    plan : Plan
        A propagation.
    width : int
        Number of workers.
    seconds : float
        Shortest part worth a task.
    rates : Rates
    memory_bytes : int
        Memory of a worker.

    Returns
    -------
    Plan
        With parts, or the same plan if they do not pay.
    """
    policy = PlanningPolicy.current()
    if plan.slices > 1 or plan.cuts or width < 2 or not plan.up:
        return plan
    cores = CORES_OF_A_DEVICE if plan.device else 1
    work = {step.node: lowered_seconds(step, rates, plan.itemsize) / cores for step in plan.steps}
    total = ordered_sum(work.values())
    if total < 2 * seconds:
        return plan
    tree, homes = plan.tree, _homes(plan)
    load = dict.fromkeys(tree.schedule, 0.0)
    for table, home in homes.items():
        load[home] += work[table]
    enough = max(seconds, _PART_SHARE * total / width)
    heads = _cuts(plan, load, enough) | {root for root in tree.roots if root >= tree.n_leaves}
    head: dict[int, int] = {}
    for node in reversed(tree.schedule):
        head[node] = node if node in heads else head[tree.parent[node]]
    head = _bundled(plan, head, load, enough)
    upward = {step.node for step in plan.up}
    makers = {table: (head[home], table in upward) for table, home in homes.items()}
    longest = _longest_chain(plan, makers, work)
    parts = set(head.values())
    begun = policy.start_seconds
    if plan.device:
        begun += 2 * plan.kept_bytes / policy.device_link_bytes_per_second
    # the longest chain of parts bounds the time, however many workers there are
    pays = longest + len(parts) * policy.part_seconds + begun <= (1.0 - _LEAST_GAIN) * total
    if not pays or plan.kept_bytes > memory_bytes:
        return plan
    return replace(plan, parts=Parts(makers, tuple(node for node in tree.schedule if node in parts), longest))


def parts_of(plan: Plan) -> Parts:
    """Return the parts that run: the parts of both sweeps, or for a forward sweep the steps below each cut."""
    if plan.parts is not None:
        return plan.parts
    below = parts_below(plan.tree, plan.up, plan.cuts)
    return Parts({step.node: (head, True) for head, steps in below.items() for step in steps}, tuple(below))


def _cuts(plan: Plan, load: Mapping[int, float], enough: float) -> frozenset[int]:
    """Cut off nodes with ``enough`` below them; tables that would be too large to send stay inside a part."""
    small = {
        s.node
        for s in plan.up
        if table_bytes(plan.tree.dims, s.axes, plan.itemsize) <= PlanningPolicy.current().sent_bytes
    }
    return partition(plan.tree, [s.node for s in plan.up], load.__getitem__, enough, small.__contains__)


def _homes(plan: Plan) -> dict[int, int]:
    """For every table that a step makes the internal node of the tree whose join it comes from."""
    tree, number = plan.tree, Numbering(len(plan.tree.scopes))
    homes = {step.node: step.node for step in plan.up}
    for step in plan.back:
        if number.is_down(step.node):
            homes[step.node] = tree.parent[number.node(step.node)]
            continue
        near = [i for i in step.inputs if not number.is_down(i)]
        places = [homes[i] if not number.is_up(i) else tree.parent[i] if tree.parent[i] >= 0 else i for i in near]
        # a single function that is a tree by itself is read anywhere
        homes[step.node] = places[0] if places[0] in homes else plan.up[-1].node
    return homes


def _bundled(plan: Plan, head: Mapping[int, int], load: Mapping[int, float], enough: float) -> dict[int, int]:
    """Put the parts of small trees together, under the name of that which comes last."""
    own: dict[int, float] = defaultdict(float)
    for node, top in head.items():
        own[top] += load[node]
    names = {top: top for top in own}
    waiting: list[int] = []
    for node in plan.tree.schedule:
        if names.get(node) == node and plan.tree.parent[node] < 0:
            waiting.append(node)
            names.update(dict.fromkeys(waiting, node))
            if ordered_sum(own[top] for top in waiting) >= enough:
                waiting = []
    return {node: names[top] for node, top in head.items()}


def _longest_chain(plan: Plan, makers: Mapping[int, Task], work: Mapping[int, float]) -> float:
    """Return the seconds of the longest chain of tasks; each task waits for all its inputs."""
    seconds: dict[Task, float] = defaultdict(float)
    needs: dict[Task, set[Task]] = defaultdict(set)
    for step in plan.steps:
        task = makers[step.node]
        seconds[task] += work[step.node]
        needs[task].update(makers[i] for i in step.inputs if i in makers)
        if not task[1]:
            needs[task].add((task[0], True))
    ends: dict[Task, float] = {}
    # parts in the order of the upward steps of their heads, then back
    order = dict.fromkeys(makers[step.node] for step in plan.steps)
    pending = list(order)
    while pending:
        ready = [task for task in pending if all(n == task or n in ends for n in needs[task])]
        for task in ready:
            ends[task] = seconds[task] + max((ends[n] for n in needs[task] if n != task), default=0.0)
        pending = [task for task in pending if task not in ends]
    return max(ends.values())
