"""A program: the part of a plan that one task runs, with its leaf tables, for any of the plan's slices."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from math import prod
from typing import Any, Final, Generic, TypeVar

from ..steps.step import Step
from .sweep import Algebra, sweep

T = TypeVar("T")

OnStep = Callable[[Step], None]

# Hundreds of small tables are sent several times faster as one; large ones are better not copied.
_PACKED_CELLS: Final = 1 << 21


@dataclass(frozen=True)
class Program(Generic[T]):
    """Steps and the leaf tables they read.

    Parameters
    ----------
    steps : tuple of Step
        In execution order. Those before ``variant_from`` give the same tables in every slice.
    leaves : mapping of int to table
        Leaf tables with all states, in the axis order that the steps expect.
    leaf_axes : mapping of int to tuple of int
    outputs : tuple of int
        The tables that the task returns.
    dims : tuple of int
        Domain sizes without slicing.
    algebra : Algebra
    """

    steps: tuple[Step, ...]
    leaves: Mapping[int, T]
    leaf_axes: Mapping[int, tuple[int, ...]]
    outputs: tuple[int, ...]
    dims: tuple[int, ...]
    algebra: Algebra[T]
    variant_from: int = 0
    shared: dict[int, T] = field(default_factory=dict, compare=False, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = tuple(getattr(self, f.name) for f in fields(self) if f.init)
        cells = sum(prod(self.dims[v] for v in self.leaf_axes[node]) for node in self.leaves)
        if cells > _PACKED_CELLS:
            return type(self), parts
        return _unpacked, (type(self), pickle.dumps(parts, pickle.HIGHEST_PROTOCOL))

    def restricted_leaves(self, states: Mapping[int, int]) -> dict[int, T]:
        """Return the leaf tables with the given variables fixed (their axes keep one state)."""
        return self.leaves_at(states, self.leaves)

    def leaves_at(self, states: Mapping[int, int], nodes: Iterable[int]) -> dict[int, T]:
        """Return some of the leaf tables with the given variables fixed."""
        restrict = self.algebra.restrict
        return {node: restrict(self.leaves[node], self.leaf_axes[node], self.dims, states) for node in nodes}

    def again(self, steps: tuple[Step, ...], leaves: Mapping[int, T]) -> Program[T]:
        """Return a program of other steps on other leaf tables, whose results stay where they are made."""
        return replace(self, steps=steps, leaves=leaves)

    def run(
        self,
        messages: Mapping[int, T] | None = None,
        *,
        keep: Collection[int] = (),
        threads: int = 1,
        on_step: OnStep | None = None,
    ) -> dict[int, T]:
        """Sweep once, without slicing; return the outputs and every table in ``keep``."""
        tables = {**self.leaves, **(messages or {})}
        kept = {*keep, *self.outputs}
        live = sweep(self.steps, tables, self.algebra, keep=kept, threads=threads, on_step=on_step)
        return {node: table for node, table in live.items() if node in kept}

    def run_slices(
        self,
        slices: Iterable[Mapping[int, int]],
        *,
        threads: int = 1,
        on_step: OnStep | None = None,
        shared: dict[int, T] | None = None,
    ) -> Iterator[list[T]]:
        """Sweep once per slice and yield the outputs of each.

        Steps that no slice changes run once; their tables are put into ``shared`` with the leaf tables that no slice
        changes, unless they are there already.
        """
        slices = iter(slices)
        shared = {} if shared is None else shared
        for one in slices:
            varying = [node for node, axes in self.leaf_axes.items() if not one.keys().isdisjoint(axes)]
            first, rest = self.steps[: self.variant_from], self.steps[self.variant_from :]
            if not shared:
                read = {i for step in rest for i in step.inputs} | set(self.outputs)
                constant = self.leaves_at({}, self.leaves.keys() - varying)
                live = sweep(first, constant, self.algebra, keep=read, threads=threads, on_step=on_step)
                shared |= {node: table for node, table in live.items() if node in read}
            for states in chain((one,), slices):
                tables = {**shared, **self.leaves_at(states, varying)}
                live = sweep(rest, tables, self.algebra, keep=self.outputs, threads=threads, on_step=on_step)
                yield [live[node] for node in self.outputs]


def _unpacked(kind: type[Program[T]], parts: bytes) -> Program[T]:
    return kind(*pickle.loads(parts))
