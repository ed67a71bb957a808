"""Weighted machines that read the variables of a scope in order, made deterministic and minimal.

The machine of a global cost function charges each word of its variables' states the least cost of its runs. Weighted
subset construction makes the machine deterministic (Mohri, Computational Linguistics 1997). Each word then has exactly
one run, so the states between readings follow from the variables and can be hidden variables (Allouche et al., AAAI
2012). Optima, sums and counts do not change. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.light_dataclass import dataclass
from ...models.function import FORBIDDEN
from ..format_policy import FormatPolicy
from ..text.source import check_deadline

# Most moves between such states that are tried, of a counter or as long as its; more would take seconds.
_MACHINE_MOVES: Final = 1 << 21

State = Any
"""The machine's state between two readings; hashable."""
Moves = Iterable[tuple[State, int]]
Key = frozenset[tuple[State, int]]
# Where an entry of a machine leads and what it costs; None where the word is forbidden.
Entry = tuple[int, int] | None


class TooManyStatesError(Exception):
    """A machine that has more states than may be made."""


@dataclass(frozen=True)
class Machine:
    """A machine with costs, which may have several runs of a word.

    Parameters
    ----------
    starts : mapping
        State before the first reading → what it costs to begin there.
    moves : callable
        Called with a state, the place of a variable in the scope and its state; returns what may follow and its cost.
    end : callable
        Called with a state behind the last reading; returns what it costs to end there.
    work : int
        How many moves of a counter take as long as one.
    """

    starts: Mapping[State, int]
    moves: Callable[[State, int, int], Moves]
    end: Callable[[State], int]
    work: int = 1

    @classmethod
    def counting(
        cls, start: State, step: Callable[[State, int, int], State | None], end: Callable[[State], int], work: int = 1
    ) -> Machine:
        """Return a machine of one run, which costs where it ends; a step to None is forbidden."""

        def moves(state: State, place: int, value: int) -> Moves:
            to = step(state, place, value)
            return () if to is None else ((to, 0),)

        return cls({start: 0}, moves, end, work)


@dataclass(frozen=True, eq=False)
class Layers:
    """A deterministic machine of the least number of states; the one before all readings has the number 0.

    Parameters
    ----------
    to : tuple of ndarray, shape (states, domain size)
        For each reading where it leads from each state, -1 where what was read is forbidden; behind the last reading
        there is one state.
    costs : tuple of ndarray, shape (states, domain size)
        Cost of each reading, by state and value.
    """

    to: tuple[NDArray[np.int64], ...]
    costs: tuple[NDArray[np.int64], ...]

    @property
    def allows_nothing(self) -> bool:
        """Whether every word is forbidden."""
        return bool((self.to[0] < 0).all())

    def table(self, dims: Sequence[int]) -> NDArray[np.int64]:
        """Return the cost of every word, with one axis for each reading."""
        states, costs = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for to, own in zip(self.to, self.costs, strict=True):
            allowed = costs < FORBIDDEN
            following = np.where(allowed[:, None], to[states], -1)
            costs = np.where(following < 0, FORBIDDEN, np.where(allowed, costs, 0)[:, None] + own[states]).ravel()
            states = np.maximum(following, 0).ravel()
        return costs.reshape(tuple(dims))


def layers_of(machine: Machine, dims: Sequence[int], limit: int, most: int | None = None) -> Layers:
    """Make a machine deterministic over a scope that is not empty, and merge states that charge the same from there on.

    Costs move towards the beginning of words as far as possible. Costs of ``limit`` or more are forbidden. At most
    ``most`` states are built before any reading; by default the policy's limit.

    Raises
    ------
    TooManyStatesError
        If there are more states, or moves between them, than the policy allows; it says which, and how many.
    OverflowError
        If costs add up beyond 62 bits.
    """
    most = FormatPolicy.current().machine_states if most is None else most
    return _minimal(_deterministic(machine, dims, limit, most), dims, limit)


def _deterministic(machine: Machine, dims: Sequence[int], limit: int, most: int) -> list[list[list[Entry]]]:
    """Make a machine deterministic: for each variable and state, what each value leads to.

    States of the result are sets of (state, cost above the least one): the subset construction for weighted automata
    (Mohri 1997).

    Parameters
    ----------
    machine : Machine
        A nondeterministic machine with costs.
    dims : sequence of int
        Number of states of each variable that is read.
    limit : int
        Costs of this or more are forbidden.
    most : int
        Most states between two variables.

    Raises
    ------
    TooManyStatesError
        If the machine becomes too large.
    """
    current: list[Key] = [frozenset(machine.starts.items())]
    readings: list[list[list[Entry]]] = []
    work = 0
    for place, size in enumerate(dims):
        numbers: dict[Key, int] = {}
        reading: list[list[Entry]] = []
        for key in current:
            check_deadline()
            entries: list[Entry] = []
            for value in range(size):
                reached, moves = _reached(machine, key, place, value, limit)
                if place == len(dims) - 1:
                    reached = _ended(machine, reached, limit)
                work += moves * machine.work
                if not reached:
                    entries.append(None)
                    continue
                low = min(reached.values())
                # the least cost is charged now, so that sets that differ by a constant are one state
                ahead = frozenset((state, cost - low) for state, cost in reached.items())
                entries.append((numbers.setdefault(ahead, len(numbers)), low))
            reading.append(entries)
            if len(numbers) > most:
                raise TooManyStatesError(f"more than {most} states between two variables")
            if work > _MACHINE_MOVES:
                raise TooManyStatesError(f"more than {_MACHINE_MOVES} moves between states")
        readings.append(reading)
        current = [*numbers]
    return readings


def _reached(machine: Machine, key: Key, place: int, value: int, limit: int) -> tuple[dict[State, int], int]:
    """Return the states that follow a set of states, with the least cost of each, and the number of moves tried."""
    reached: dict[State, int] = {}
    tried = 0
    for state, before in key:
        for to, cost in machine.moves(state, place, value):
            tried += 1
            total = before + cost
            if cost < limit and (to not in reached or total < reached[to]):
                reached[to] = total
    return reached, tried


def _ended(machine: Machine, reached: Mapping[State, int], limit: int) -> dict[State, int]:
    """Return the one end of all runs, with the least cost; nothing where none may end."""
    ends = [(cost, machine.end(state)) for state, cost in reached.items()]
    totals = [cost + end for cost, end in ends if end < limit]
    return {None: min(totals)} if totals else {}


def _minimal(readings: list[list[list[Entry]]], dims: Sequence[int], limit: int) -> Layers:
    """Merge the states of each layer that lead on alike, from the last one backwards; dead ones are forbidden."""
    numbers: list[int] = [0]
    offsets: list[int] = [0]
    kept: list[list[tuple[Entry, ...]]] = []
    for at in range(len(readings) - 1, -1, -1):
        classes: dict[tuple[Entry, ...], int] = {}
        new_numbers, new_offsets = [], []
        for entries in readings[at]:
            ahead = [None if e is None or numbers[e[0]] < 0 else (numbers[e[0]], e[1] + offsets[e[0]]) for e in entries]
            costs = [e[1] for e in ahead if e is not None]
            low = min(costs, default=0) if at else 0
            row = tuple([None if e is None or e[1] - low >= limit else (e[0], e[1] - low) for e in ahead])
            new_numbers.append(classes.setdefault(row, len(classes)) if costs else -1)
            new_offsets.append(low)
        numbers, offsets = new_numbers, new_offsets
        kept.insert(0, [*classes])
    if not kept[0]:
        kept[0] = [(None,) * dims[0]]
    return Layers(
        tuple([_array(rows, 0, -1, size) for rows, size in zip(kept, dims, strict=True)]),
        tuple([_array(rows, 1, 0, size) for rows, size in zip(kept, dims, strict=True)]),
    )


def _array(rows: Sequence[tuple[Entry, ...]], part: int, nothing: int, size: int) -> NDArray[np.int64]:
    numbers = [[nothing if e is None else e[part] for e in row] for row in rows]
    if max((abs(n) for row in numbers for n in row), default=0) >= FORBIDDEN:
        raise OverflowError("costs that add up beyond 62 bits")
    return np.array(numbers, np.int64).reshape(len(rows), size)


def sizes_of(layers: Layers) -> list[int]:
    """Return how many states there are between each two readings."""
    return [len(after) for _, after in pairwise(layers.to)]
