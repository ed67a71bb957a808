"""Which questions are asked together, and in which order: those of one model in packs, the longest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import Any

from .asking import OVERHEAD_SECONDS, Asked

# Seconds of a pack: enough that handing it over does not count, little enough that all workers end together.
_LEAST_SECONDS, _MOST_SECONDS = 0.25, 4.0
_PACKS_PER_WORKER = 8


def levels(asked: Iterable[Asked], limit: float = inf) -> Iterator[list[Asked]]:
    """Yield the questions of each priority, the highest first; those that would take longer than a limit by themselves.

    In what time there is they would be stopped, and keep others from being answered.
    """

    def level(a: Asked) -> tuple[int, bool]:
        return -a.row.priority, a.price.seconds > limit

    for _, alike in groupby(sorted(asked, key=level), key=level):
        yield list(alike)


def large_ones(asked: Iterable[Asked]) -> list[Asked]:
    """Return the questions that are worth all workers, the longest first."""
    return sorted((a for a in asked if a.price.kind == "large"), key=lambda a: -a.price.seconds)


def packs(asked: Iterable[Asked], width: int) -> list[list[Asked]]:
    """Pack small questions by model, each in the time of its share; those between bounds are alone. Longest first."""
    small = [a for a in asked if a.price.kind == "small"]
    whole = sum(map(_seconds, small))
    limit = min(max(whole / (_PACKS_PER_WORKER * width), _LEAST_SECONDS), _MOST_SECONDS)
    made = [[a] for a in asked if a.price.kind == "alone"]

    def alike(a: Asked) -> tuple[Any, ...]:
        return a.row.model, a.row.query, str(a.row.settings)

    for _, group in groupby(sorted(small, key=alike), key=alike):
        made += _filled(list(group), limit)
    return sorted(made, key=lambda pack: -sum(map(_seconds, pack)))


def _seconds(asked: Asked) -> float:
    return asked.price.seconds + OVERHEAD_SECONDS


def _filled(group: Sequence[Asked], limit: float) -> list[list[Asked]]:
    """Cut a row of questions wherever the limit is reached."""
    made: list[list[Asked]] = []
    room = 0.0
    for asked in group:
        if room <= 0:
            made.append([])
            room = limit
        made[-1].append(asked)
        room -= _seconds(asked)
    return made
