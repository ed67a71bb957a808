"""All tables of a sweep, or of a part of one, as assignments are read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...tasks.steps.step import Step

T = TypeVar("T")


@dataclass(frozen=True)
class SweptTables(Generic[T]):
    """All tables of a sweep, or of one of its slices or boxes, and how assignments are read from them.

    Parameters
    ----------
    steps : tuple of Step
        In execution order.
    tables : mapping of int to table
        Leaf tables and step tables on the host.
    sizes : tuple of int
        Domain sizes; 1 for variables that the slice or box fixes.
    states : mapping of int to int
        States that the slice or box fixes.
    """

    steps: Sequence[Step]
    tables: Mapping[int, T]
    sizes: tuple[int, ...]
    states: Mapping[int, int]

    def read(self, step: Step) -> list[tuple[T, tuple[int, ...]]]:
        """Return the tables that a step joins, with their variables."""
        return [(self.tables[node], axes) for node, axes in zip(step.inputs, step.input_axes, strict=True)]
