"""A propagation in parts, each of them a task: subtrees collect and distribute on different workers.

Tables pass between tasks as their results; a part distributes where it collected, beside the tables it kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..steps.step import Step
from .messages import Steps, freed_tables, two_sweeps

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Part(Generic[T]):
    """A connected piece of a tree.

    Parameters
    ----------
    up, back : tuple of Step
        The steps of both sweeps that belong to it, in execution order.
    leaves : mapping of int to table
        The input functions that they read.
    kept : frozenset of int
        Tables of the upward steps that are read later, here or elsewhere.
    sent : frozenset of int
        Tables of the backward steps that others read, and results.
    algebra : Steps
    """

    up: tuple[Step, ...]
    back: tuple[Step, ...]
    leaves: Mapping[int, T]
    kept: frozenset[int]
    sent: frozenset[int]
    algebra: Steps[T]


def collect(part: Part[T], *messages: Mapping[int, T]) -> dict[int, T]:
    """Task: the upward steps of a part, from what the parts below it sent."""
    return _run(part, part.up, part.kept, messages)


def distribute(part: Part[T], *messages: Mapping[int, T]) -> dict[int, T]:
    """Task: the backward steps of a part, from what it collected and what others sent."""
    return _run(part, part.back, part.sent, messages)


def pick(tables: Mapping[int, T], numbers: Collection[int]) -> dict[int, T]:
    """Task: some of the tables that another task made, so that only those travel."""
    return {i: tables[i] for i in numbers}


def _run(
    part: Part[T], steps: Sequence[Step], keep: Collection[int], messages: Sequence[Mapping[int, T]]
) -> dict[int, T]:
    tables = {i: table for message in (part.leaves, *messages) for i, table in message.items()}
    freed = freed_tables(steps, {*keep, *tables})
    return two_sweeps(steps, tables, freed, keep, part.algebra)
