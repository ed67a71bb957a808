"""Predicted seconds of many cases over one compiled plan: together in tables with an axis of cases, or one by one.

Together, cases share the fixed cost of each step, which is Python's. In return, every step that some case changes is
computed for every case, and no step is a product of matrices. One by one, a case computes only the messages that differ
from the messages of the case before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...tasks.steps.number_limits import ordered_sum
from ...tasks.steps.semiring import SUM_PRODUCT
from ...tasks.steps.step import Step
from ..models.cases import Cases
from ..orders.effort import BOTH_WAYS_STEP_SECONDS
from ..trees.costs import Rates, lowered_work, step_seconds


def together_seconds(steps: Sequence[Step], cases: int, size: int, threads: int) -> float:
    """Predict the seconds of some cases in blocks of ``size`` cases, in ``threads`` threads.

    The tables of every block are new memory.
    """
    rates = replace(Rates(), step_seconds=0.0)
    seconds = 0.0
    for step in steps:
        work = lowered_work(step.lowered)
        block = work._replace(cells=cases * work.cells, moved_cells=cases * work.moved_cells, matrix=False)
        seconds += step_seconds(block, rates, SUM_PRODUCT.itemsize)
        seconds += cases * work.out_cells * SUM_PRODUCT.itemsize / rates.fresh_bytes_per_second
    blocks = math.ceil(cases / size)
    return seconds / threads + math.ceil(blocks / threads) * len(steps) * Rates().step_seconds


def alone_seconds(
    steps: Sequence[Step], cases: Cases, leaves: dict[int, int], answers: int, compiled: bool, threads: int
) -> float:
    """Predict the seconds of some cases one after the other.

    Parameters
    ----------
    steps : sequence of Step
        The steps that a case can change and that an answer needs.
    cases : Cases
    leaves : dict of int to int
        For each observed variable of the tree, the leaf that contains its findings.
    answers : int
        Number of tables that are read for each case. Without compiled loops, reading takes as long as a step.
    compiled : bool
        Whether compiled loops run the steps.
    threads : int
    """
    rates = replace(Rates(), step_seconds=0.0)
    priced = {step.node: step_seconds(lowered_work(step.lowered), rates, SUM_PRODUCT.itemsize) for step in steps}
    some = [
        ordered_sum(priced[node] / threads + BOTH_WAYS_STEP_SECONDS for node in changed)
        for changed in (_changed(steps, each) for each in _sampled_changes(cases, leaves))
    ]
    reading = 0.0 if compiled else answers * BOTH_WAYS_STEP_SECONDS
    return cases.count * (ordered_sum(some) / max(len(some), 1) + reading)


def _changed(steps: Sequence[Step], leaves: Collection[int]) -> list[int]:
    """Return the tables that change if some leaves change."""
    changed = set(leaves)
    found = []
    for step in steps:
        if not changed.isdisjoint(step.inputs):
            changed.add(step.node)
            found.append(step.node)
    return found


def _sampled_changes(cases: Cases, leaves: dict[int, int]) -> Iterator[set[int]]:
    """Yield the leaves in which a case differs from the case before it, for a sample of evenly spaced cases."""
    columns = {v: column for v, column in cases.columns.items() if v in leaves}
    if cases.count == 1:
        yield {*leaves.values()}
        return
    for k in np.unique(np.linspace(1, cases.count - 1, cases.count.bit_length(), dtype=int)):
        yield {leaves[v] for v, column in columns.items() if not np.array_equal(column[k], column[k - 1])}
