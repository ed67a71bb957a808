"""The work of threads in a propagation and its order: items, and the items that each waits for. Pure: no values.

Small steps are grouped until a group is worth the time of finding it and of telling other threads. Large steps go
through their stages. Work areas of large steps take turns in one arena: a step waits until the previous user of its
area is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..steps.step import Step
from .stages import LargeStep, PropagationPolicy, is_small, is_streamed, large_step, small_cells

_STEP_CELLS: Final = 200
"""Cells that take as long as what a small step takes besides."""

_ARENA_STEPS: Final = 2
"""The arena has room for this number of average steps a thread, and always for the largest step."""

STAGES: Final = (
    *("group", "prepare", "merge", "stream", "order"),
    *("measure", "scale", "top", "compare", "copy", "finish"),
)
"""Kinds of items; the stages of a large step follow each other."""


class Item(NamedTuple):
    """Parts that threads may take once all items in ``after`` are done.

    Parameters
    ----------
    kind : str
        Of ``STAGES``.
    number : int
        Of the group or the large step.
    parts : int
    cells : int
        Of all parts.
    after : frozenset of int
    """

    kind: str
    number: int
    parts: int
    cells: int
    after: frozenset[int]


@dataclass(frozen=True)
class Schedule:
    """Items, none of which waits for itself.

    Parameters
    ----------
    items : tuple of Item
    groups : tuple of tuple of int
        Positions of the steps of each group, in their order.
    large : dict of int to LargeStep
        By position.
    areas : tuple of int
        Where in the arena each large step works.
    """

    items: tuple[Item, ...]
    groups: tuple[tuple[int, ...], ...]
    large: dict[int, LargeStep]
    areas: tuple[int, ...]


def scratch_cells(steps: Sequence[Step], threads: int) -> int:
    """Return how many cells of temporaries :class:`.packed.Packed` needs, at most, besides the tables."""
    single = max([step.lowered.out_cells for step in steps], default=0)
    return single + threads * small_cells(steps) + arena_words(steps, threads)


def arena_words(steps: Sequence[Step], threads: int) -> int:
    """Return the words of 8 bytes that work areas of large steps share."""
    needs = [large_step(step, threads).words for step in steps if is_streamed(step)]
    return _arena_words(needs, threads)


def _arena_words(needs: Sequence[int], threads: int) -> int:
    if threads == 1 or not needs:
        return max(needs, default=0)
    return max(*needs, min(sum(needs), _ARENA_STEPS * threads * sum(needs) // len(needs)))


def scheduled(steps: Sequence[Step], threads: int) -> Schedule:
    """Arrange steps for some threads; the inputs of a step are present or are made by earlier steps."""
    large = {k: large_step(step, threads) for k, step in enumerate(steps) if is_streamed(step)}
    arena = _Arena(_arena_words([each.words for each in large.values()], threads))
    made = _Made()
    areas: list[int] = []
    makers: dict[int, int] = {}
    for k, step in enumerate(steps):
        after = {makers[i] for i in step.inputs if i in makers}
        if k in large:
            area, before = arena.place(large[k].words)
            makers[step.node] = made.staged(len(areas), large[k], step.lowered.cells, after | before)
            arena.took(area, large[k].words, makers[step.node])
            areas.append(area)
        else:
            cells = _STEP_CELLS + (step.lowered.cells if is_small(step) else 0)
            makers[step.node] = made.grouped(k, cells, after)
    items = [Item(d.kind, d.number, d.parts, d.cells, frozenset(d.after)) for d in made.items]
    return Schedule(tuple(items), tuple(map(tuple, made.groups)), large, tuple(areas))


@dataclass
class _Draft:
    kind: str
    number: int
    parts: int
    cells: int
    after: set[int]
    level: int


@dataclass
class _Made:
    """Items so far; one waits only for items of lower levels, so that no group ever waits for itself."""

    items: list[_Draft] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)

    def grouped(self, step: int, cells: int, after: set[int]) -> int:
        """Put a small step into the group of its last input, or into a group of the same level; return the item."""
        level = max([self.items[i].level for i in after], default=-1)
        last = [i for i in after if self.items[i].level == level]
        for item in (last[0] if len(last) == 1 else None, self.open.get(level + 1)):
            if item is not None and self._has_room(item, cells):
                break
        else:
            item = self._add("group", len(self.groups), 1, 0, after)
            self.groups.append([])
            self.open[self.items[item].level] = item
        group = self.items[item]
        group.after |= after - {item}
        group.cells += cells
        self.groups[group.number].append(step)
        return item

    def _has_room(self, item: int, cells: int) -> bool:
        return (
            self.items[item].kind == "group"
            and self.items[item].cells + cells <= PropagationPolicy.current().grain_cells
        )

    def staged(self, number: int, large: LargeStep, cells: int, after: set[int]) -> int:
        """Add the stages of a large step; return the last."""
        parts, out_parts, merged = large.parts, large.out_parts, large.merged_cells
        item = self._add("prepare", number, 1, large.offset_cells, after)
        if merged:
            item = self._add("merge", number, parts, merged, {item})
        item = self._add("stream", number, parts, cells, {item})
        if large.ordered:
            item = self._add("order", number, out_parts, large.out_cells * large.summed, {item})
        for kind in ("measure", "scale", "top", "compare", "copy"):
            item = self._add(kind, number, out_parts, large.out_cells, {item})
        return self._add("finish", number, 1, 0, {item})

    def _add(self, kind: str, number: int, parts: int, cells: int, after: set[int]) -> int:
        level = 1 + max([self.items[i].level for i in after], default=-1)
        self.items.append(_Draft(kind, number, parts, cells, after, level))
        return len(self.items) - 1


@dataclass
class _Arena:
    """Areas one after the other, from the beginning again where the end is reached."""

    words: int
    at: int = 0
    taken: list[tuple[int, int, int]] = field(default_factory=list)

    def place(self, words: int) -> tuple[int, set[int]]:
        """Return where the next area begins, and the items that have to be done before."""
        if self.at + words > self.words:
            self.at = 0
        stop = self.at + words
        return self.at, {item for start, end, item in self.taken if start < stop and end > self.at}

    def took(self, start: int, words: int, item: int) -> None:
        """Note that an item is the last that uses an area."""
        self.at = stop = start + words
        left = [part for s, e, i in self.taken for part in ((s, min(e, start), i), (max(s, stop), e, i))]
        self.taken = [*[part for part in left if part[0] < part[1]], (start, stop, item)]
