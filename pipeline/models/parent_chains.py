"""Distributions that take their parents one after another: noisy and deterministic maxima, minima and sums.

A hidden state passes from parent to parent, and the state after the last parent is the child's. Small distributions are
expanded into tables. In larger ones, a hidden variable holds the state between two parents, so that no function has
more than one parent (parent divorcing; K. G. Olesen et al., A MUNIN network for the median nerve, Applied Artificial
Intelligence 3, 1989). Noisy-MAX distributions follow F. J. Díez and S. F. Galán, Efficient computation for the noisy
MAX, International Journal of Intelligent Systems 18, 2003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .function import Function

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ParentChain:
    """A distribution of a child as a walk over its parents.

    Parameters
    ----------
    scope : tuple of int
        The parents, and last the child.
    start : ndarray, shape (states,)
        How likely each state is before the first parent.
    steps : tuple of ndarray, shape (states before, states of the parent, states behind)
        One for each parent; the states behind the last one are the child's.
    """

    scope: tuple[int, ...]
    start: Numbers
    steps: tuple[Numbers, ...]

    @property
    def cells(self) -> int:
        """Entries of the whole table."""
        last = self.steps[-1] if self.steps else self.start
        return math.prod([*(int(step.shape[1]) for step in self.steps), int(last.shape[-1])])

    @property
    def is_random(self) -> bool:
        """Whether hidden states are random given the states of the parents and the child."""
        return not all(np.isin(part, (0.0, 1.0)).all() for part in (self.start, *self.steps))

    @property
    def hidden(self) -> tuple[int, ...]:
        """How many states there are between each two parents."""
        return tuple(step.shape[-1] for step in self.steps[:-1])

    def table(self) -> Function:
        """Return the distribution as one function."""
        found: Numbers = self.start
        for step in self.steps:
            found = np.tensordot(found, step, axes=(-1, 0))
        return Function(self.scope, found, child=self.scope[-1])

    def links(self, first: int) -> list[Function]:
        """Return the distribution as one function per parent, with hidden variables numbered from ``first`` on."""
        behind = [*range(first, first + len(self.steps) - 1), self.scope[-1]]
        first_step = np.tensordot(self.start, self.steps[0], axes=(0, 0))
        found = [Function((self.scope[0], behind[0]), first_step, child=behind[0])]
        for k, step in enumerate(self.steps[1:], 1):
            found.append(Function((behind[k - 1], self.scope[k], behind[k]), step, child=behind[k]))
        return found


def noisy_extreme(
    scope: Sequence[int], causes: Sequence[Numbers], leak: Numbers, *, greatest: bool = True
) -> ParentChain:
    """Return the distribution of the greatest (or least) of the independent effects of each cause and a leak.

    Parameters
    ----------
    scope : sequence of int
        The causes, and last the effect.
    causes : sequence of ndarray, shape (states of the cause, states of the effect)
        How likely each cause, in each of its states, brings the effect into each of its own.
    leak : ndarray, shape (states of the effect,)
        How likely what is not modelled does so.
    """
    states = np.arange(len(leak))
    extreme = (np.maximum if greatest else np.minimum).outer(states, states)
    steps = []
    for cause in causes:
        step = np.zeros((len(states), len(cause), len(states)))
        for own in range(len(states)):
            for before in range(len(states)):
                step[before, :, extreme[before, own]] += cause[:, own]
        steps.append(step)
    return ParentChain(tuple(scope), np.asarray(leak, np.float64), tuple(steps))


def capped_sum(scope: Sequence[int], amounts: Sequence[Sequence[int]], size: int, base: int = 0) -> ParentChain:
    """Return the distribution of a base plus the amounts of the parents' states, clipped to 0 and ``size`` - 1.

    Parameters
    ----------
    scope : sequence of int
        The parents, and last the child.
    amounts : sequence of sequence of int
        Amount of each state of each parent; at least 0.
    size : int
        How many states the child has.
    base : int
        Amount added at the end. Sums below 0 become 0.
    """
    most = max(0, min(size - 1 - base, sum(map(max, amounts))))
    start, steps = np.eye(1, most + 1)[0], []
    for counts in amounts:
        reached = np.minimum(np.add.outer(np.arange(most + 1), counts), most)
        steps.append(np.eye(most + 1)[reached])
    ends = np.eye(size)[np.clip(np.arange(most + 1) + base, 0, size - 1)]
    return ParentChain(tuple(scope), start, (*steps[:-1], steps[-1] @ ends))
