"""Walks along the steps: forward, or with messages from later steps that are made backward, kept at checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Any, TypeVar

from numpy.typing import NDArray

from .slice_optimum import EnergyMessage, SliceOptimum
from .slice_sums import SliceBeliefs, SliceSums, SumMessage
from .step_findings import StepFindings

Array = NDArray[Any]
Message = TypeVar("Message", SumMessage, EnergyMessage)


class ImpossibleError(Exception):
    """The findings are jointly impossible."""


def block_steps(count: int, message_bytes: int, allowed: int) -> int:
    """Return the number of steps between checkpoints: all steps if ``allowed`` bytes hold all messages, otherwise about
    their square root.
    """
    if count * message_bytes <= allowed:
        return count
    return min(isqrt(count - 1) + 1, count)


def from_later(
    count: int, block: int, backward: Callable[[int, Message | None], Message | None]
) -> Iterator[Message | None]:
    """Yield for each step, from the first on, the message from the later steps; None for the last step.

    At most ``count / block + block`` messages are there at once: those between checkpoints are made twice, the second
    time when they are wanted.

    Parameters
    ----------
    count, block : int
        Steps, and those between checkpoints.
    backward : callable
        Takes a step and what comes from those after it; returns what comes from it and them.

    Raises
    ------
    ImpossibleError
        If a message is None, which says that nothing is possible.
    """

    def made(step: int, after: Message | None) -> Message:
        found = backward(step, after)
        if found is None:
            raise ImpossibleError
        return found

    ends: dict[int, Message | None] = {count - 1: None}
    message: Message | None = None
    for step in range(count - 1, block - 1, -1):
        message = made(step, message)
        if step % block == 0:
            ends[step - 1] = message
    for start in range(0, count, block):
        stop = min(start + block, count)
        inside = [ends.pop(stop - 1)]
        for step in range(stop - 1, start, -1):
            inside.append(made(step, inside[-1]))
        while inside:
            yield inside.pop()


@dataclass(frozen=True, eq=False)
class SumWalk:
    """Sums along the steps, with tables of its own.

    Parameters
    ----------
    first, later : SliceSums
        Of the first slice, and of every other.
    findings : StepFindings
    """

    first: SliceSums
    later: SliceSums
    findings: StepFindings

    def entered(self, step: int) -> SliceSums:
        """Return the sums of a step's slice with its findings."""
        sums = self.later if step else self.first
        sums.enter(self.findings.likelihoods(step))
        return sums

    def _backward(self, step: int, after: SumMessage | None) -> SumMessage | None:
        return self.entered(step).backward(after)

    def smoothed(self, block: int) -> Iterator[SliceBeliefs]:
        """Yield what is found of each step given all that is observed."""
        before: SumMessage | None = None
        for step, after in enumerate(from_later(self.findings.count, block, self._backward)):
            found = self.entered(step).beliefs(before, after)
            if not found.posteriors:
                raise ImpossibleError
            yield found
            before = found.leaving

    def filtered(self, lag: int) -> Iterator[SliceBeliefs]:
        """Yield what is found of each step given what is observed up to ``lag`` steps later.

        Raises
        ------
        ImpossibleError
            At the first step at which that is impossible.
        """
        before: SumMessage | None = None
        for step in range(self.findings.count):
            after = self._from_next(step, lag)
            found = self.entered(step).beliefs(before, after)
            if not found.posteriors:
                raise ImpossibleError
            yield found
            before = found.leaving

    def _from_next(self, step: int, lag: int) -> SumMessage | None:
        """Return the message from the next ``lag`` steps."""
        message: SumMessage | None = None
        for later in range(min(step + lag, self.findings.count - 1), step, -1):
            message = self._backward(later, message)
            if message is None:
                raise ImpossibleError
        return message

    def impossible_step(self) -> int | None:
        """Return the first step that is impossible given all before it; None if there is none."""
        before: SumMessage | None = None
        for step in range(self.findings.count):
            before = self.entered(step).forward(before)
            if before is None:
                return step
        return None


@dataclass(frozen=True, eq=False)
class OptimumWalk:
    """The most likely states along the steps.

    Parameters
    ----------
    first, later : SliceOptimum
    findings : StepFindings
    """

    first: SliceOptimum
    later: SliceOptimum
    findings: StepFindings

    def _swept(self, step: int, after: EnergyMessage | None) -> tuple[SliceOptimum, dict[int, Array]]:
        optimum = self.later if step else self.first
        return optimum, optimum.swept(self.findings.energies(step), after)

    def _backward(self, step: int, after: EnergyMessage | None) -> EnergyMessage | None:
        optimum, tables = self._swept(step, after)
        return optimum.message(tables, after)

    def path(self, block: int) -> Iterator[tuple[float, list[int]]]:
        """Yield for each step the least energy of all steps, and the states of its variables in the best path."""
        past: list[int] = []
        energy = 0.0
        for step, after in enumerate(from_later(self.findings.count, block, self._backward)):
            optimum, tables = self._swept(step, after)
            if not step:
                whole = optimum.message(tables, after)
                if whole is None:
                    raise ImpossibleError
                energy = whole.energy
            states = optimum.decoded(tables, past)
            yield energy, states
            past = [states[v] for v in optimum.leaves.interface]
