"""Spreading one propagation over workers: the tree is cut into parts that are worth a task each.

A part collects when those below it have, and distributes when those above it have: messages of one level run
at the same time. Two-way plans only; a solve cuts its forward sweep by the same rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...cluster.pool import Pool
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program, pick, run_part
from ..plans.numbering import Numbering
from ..plans.plan import Plan
from ..plans.planner import MAX_SENT_BYTES
from ..trees.costs import Rates, lowered_seconds
from ..trees.memory import partition

# A part should take at least this share of what each worker would do if all did the same.
_SHARE = 0.25
# Chains of parts that save less than this share of the time are not worth sending.
_LEAST_GAIN = 0.2
# What it costs to send a part, to schedule its four tasks and to fetch what they find, and to begin at all.
_PART_SECONDS, _START_SECONDS = 0.05, 0.5

Task = tuple[int, bool]
"""The head of a part, and whether it is the task that collects."""


@dataclass(frozen=True)
class Cut:
    """A plan cut into parts.

    Parameters
    ----------
    makers : mapping of int to (int, bool)
        The task that makes each table.
    heads : tuple of int
        The top node of every part, parts below before those above.
    seconds : float
        Predicted time with enough workers: that of the longest chain of tasks.
    """

    makers: Mapping[int, Task]
    heads: tuple[int, ...]
    seconds: float


def cut_for(plan: Plan, width: int, seconds: float, rates: Rates) -> Cut | None:
    """Cut a plan without slices into parts of at least ``seconds`` for ``width`` workers; None where it does not pay.

    Tables that would be too large to send stay inside a part.
    """
    tree, first = plan.tree, plan.tree.n_leaves
    if plan.slices > 1 or plan.spill or plan.cuts or width < 2 or not plan.up:
        return None
    work = {step.node: lowered_seconds(step, rates, plan.itemsize) for step in plan.steps}
    total = sum(work.values())
    if total < 2 * seconds:
        return None
    homes = _homes(plan)
    load = dict.fromkeys(tree.schedule, 0.0)
    for table, home in homes.items():
        load[home] += work[table]
    enough = max(seconds, _SHARE * total / width)
    cuts = partition(tree, tree.schedule, load.__getitem__, enough)
    limit = MAX_SENT_BYTES // plan.itemsize
    heads = {node for node in cuts if tree.cells[node] <= limit} | {root for root in tree.roots if root >= first}
    head: dict[int, int] = {}
    for node in reversed(tree.schedule):
        head[node] = node if node in heads else head[tree.parent[node]]
    head = _bundled(plan, head, load, enough)
    upward = {step.node for step in plan.up}
    makers = {table: (head[home], table in upward) for table, home in homes.items()}
    longest = _longest_chain(plan, makers, work)
    parts = set(head.values())
    if longest + len(parts) * _PART_SECONDS + _START_SECONDS > (1.0 - _LEAST_GAIN) * total:
        return None
    return Cut(makers, tuple(node for node in tree.schedule if node in parts), longest)


def run_parts(
    plan: Plan,
    cut: Cut,
    program: Program[Any],
    pool: Pool,
    report: Callable[[int, int], None] | None = None,
) -> dict[int, Any]:
    """Run both sweeps part by part on a pool and return the roots and results.

    The steps are those of the serial sweeps, and so are their results, bit for bit.

    Parameters
    ----------
    report : callable, optional
        Called with the parts whose answers are there and the parts there are.
    """
    parts = {head: pool.put(part) for head, part in _parts(plan, cut, program).items()}
    steps: dict[Task, list[Step]] = defaultdict(list)
    for step in plan.steps:
        steps[cut.makers[step.node]].append(step)
    outputs = _sent(plan, cut)
    running: dict[Task, Any] = {}

    def picked(wanted: Iterable[int]) -> list[Any]:
        sources: dict[Task, list[int]] = defaultdict(list)
        for i in wanted:
            sources[cut.makers[i]].append(i)
        return [pool.submit(pick, running[task], numbers) for task, numbers in sources.items()]

    for task in [*((head, True) for head in cut.heads), *((head, False) for head in reversed(cut.heads))]:
        if task not in steps:
            continue
        own = [task, (task[0], True)]
        outside = dict.fromkeys(i for step in steps[task] for i in step.inputs if i in cut.makers)
        messages = picked(i for i in outside if cut.makers[i] not in own)
        # a part distributes where it collected, beside the tables it kept
        beside = [] if task[1] else [running[own[1]]]
        nodes = tuple(step.node for step in steps[task])
        running[task] = pool.submit(run_part, parts[task[0]], nodes, outputs[task], *beside, *messages)
    found = {i: program.leaves[i] for i in plan.outputs if i not in cut.makers}
    answers = picked(i for i in plan.outputs if i in cut.makers)
    for done, handle in enumerate(answers, 1):
        found.update(pool.get(handle))
        if report is not None:
            report(done, len(answers))
    return found


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
            if sum(own[top] for top in waiting) >= enough:
                waiting = []
    return {node: names[top] for node, top in head.items()}


def _longest_chain(plan: Plan, makers: Mapping[int, Task], work: Mapping[int, float]) -> float:
    """Seconds of the longest chain of tasks, each of which waits for all that it reads."""
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


def _parts(plan: Plan, cut: Cut, program: Program[Any]) -> dict[int, Program[Any]]:
    """Give every part its steps and the leaves that they read."""
    steps: dict[int, list[Step]] = defaultdict(list)
    for step in plan.steps:
        steps[cut.makers[step.node][0]].append(step)
    return {head: program.part(steps[head]) for head in cut.heads}


def _sent(plan: Plan, cut: Cut) -> dict[Task, tuple[int, ...]]:
    """For every task the tables that it keeps for others and for the answer."""
    makers = cut.makers
    needed: dict[Task, set[int]] = defaultdict(set)
    for i in plan.outputs:
        if i in makers:
            needed[makers[i]].add(i)
    for step in plan.steps:
        for i in step.inputs:
            if i in makers and makers[i] != makers[step.node]:
                needed[makers[i]].add(i)
    return defaultdict(tuple, {task: tuple(sorted(tables)) for task, tables in needed.items()})
