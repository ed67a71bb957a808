"""ADPOP's split buckets: their parts first agree on what they share, as mini-buckets do; an agent, on what it holds.

Parts share out the sum of their minima, by :func:`bucketflow.pipeline.bounds.buckets.mini_buckets.shifts`. Shares are
lifted to be at least 0, which a message loses again, so that what is forbidden stays so; what is more than any total is
forbidden too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...tasks.gpu.arrays import on_host
from ...tasks.steps.semiring import Semiring
from ...tasks.sweeps.sweep import Algebra, useful_threads
from ..bounds.buckets.mini_buckets import shifts
from .planning.plan import WORK, AgentPlan


def matched(
    plan: AgentPlan, tables: Mapping[int, Any], semiring: Semiring, most: int, algebra: Algebra[Any], threads: int
) -> dict[int, Any]:
    """Run an agent's steps, with matching in every bucket that is split; return what they make.

    Parameters
    ----------
    plan : AgentPlan
        Its steps are lowered for ``WORK``.
    tables : mapping
        Own ones and those of messages, by number, over ``semiring``.
    most : int
        What no total is more than.
    algebra : Algebra
        Over ``WORK``.
    """
    live = {number: _widened(table, semiring) for number, table in tables.items()}
    made: dict[int, Any] = {}
    steps = iter(plan.steps)
    for bucket, matching in zip(plan.buckets, plan.matchings, strict=True):
        lifts = [0] * len(bucket)
        if matching is not None:
            minima = [algebra.step(s, [live[t] for t in s.inputs], useful_threads(s, threads)) for s in matching.minima]
            shares, lifts = _shares(minima, most)
            live |= zip(matching.shares, shares, strict=True)
        for _, lift in zip(bucket, lifts, strict=True):
            step = next(steps)
            found = algebra.step(step, [live[t] for t in step.inputs], useful_threads(step, threads))
            live[step.node] = _kept_to(found, lift, most)
            made[step.node] = _narrowed(live[step.node], semiring)
    return made


def _shares(minima: Sequence[Any], most: int) -> tuple[list[Any], list[int]]:
    """Return what each part of a bucket gets, at least 0, and by how much that was lifted."""
    exact = [np.where(on_host(each) >= WORK.zero, np.inf, on_host(each).astype(np.float64)) for each in minima]
    shares, lifts = [], []
    for shift in shifts(exact, most + 1):
        allowed = np.isfinite(shift)
        lifts.append(-int(min(shift[allowed].min(initial=0.0), 0.0)))
        shares.append(np.where(allowed, np.where(allowed, shift, 0.0) + lifts[-1], WORK.zero).astype(WORK.dtype))
    return shares, lifts


def _kept_to(cells: Any, lift: int, most: int) -> Any:
    """Take a lift from a table; what is then more than any total is forbidden."""
    return np.where(cells - lift > most, WORK.zero, cells - lift)


def _widened(table: Any, semiring: Semiring) -> Any:
    return np.where(table >= semiring.zero, WORK.zero, table.astype(WORK.dtype))


def _narrowed(table: Any, semiring: Semiring) -> Any:
    table = on_host(table)
    return np.where(table >= WORK.zero, semiring.zero, table).astype(semiring.dtype)
