"""Threads that run both sweeps in compiled code: their shared data, laid out as their loops read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiler.jit import njit
from ..compiler.pthreads import address_of, awaited, blocks, calling, fetch_add, publish, reader, together
from ..compiler.vectors import SumProductLaw, law_of, put_word, word
from ..cpu.product import Multiplication, multiplication, multiply
from ..cpu.stream_loops import Scratch, StreamNest, nest_of, stream
from ..steps.axes import Axes
from ..steps.semiring import SUM_PRODUCT
from ..steps.streaming import StreamLoops
from .packed_loops import STATE_AT, PackedLayout, PackedState, is_due, iterate_nest, run_small
from .schedule import STAGES, Item, Schedule
from .stage_loops import GROUP, IDLE, Course, Large, Stages, run_stage
from .stages import MOST_PARTS, LargeStep, PropagationPolicy, spread_code

# Compiled loops of a propagation that several threads run together: each takes the next item that is ready. An item
# becomes ready when the last item that it waits for is done, and items are taken in that order. An item is a group of
# small steps, or a stage of a large step, whose parts are taken one by one. The cells of a part do not depend on the
# thread that takes it: the tables are the same for any number of threads.

TAKEN, MADE, CONTROL_WORDS = range(0, 48, 16)
"""Words that count tickets that were taken and entries that were made, each on a line of its own."""


class Items(NamedTuple):
    """Constant data, as int64 arrays or their addresses; lists of lists are cut by a ``*_start`` array.

    ``items`` are (kind, group or large step, parts, cells), ``after`` the items that wait for each. ``tickets`` counts
    parts. ``small`` and ``stage`` are the addresses of the functions that run a small step and a stage.
    """

    items: Any
    after: Any
    after_start: Any
    groups: Any
    group_start: Any
    tickets: int
    small: int
    stage: int


class Queue(NamedTuple):
    """Addresses of words that many threads change.

    ``ready`` are parts in the order in which they can be run, 0 until then; ``waiting`` counts what an item waits for,
    ``left`` its parts that are not done.
    """

    control: int
    ready: int
    waiting: int
    left: int


_call_small, _call_stage, _call_work = calling(4), calling(10), calling(4)
_read_layout, _read_state, _read_stages = reader(PackedLayout), reader(PackedState), reader(Stages)
_read_course, _read_items, _read_queue = reader(Course), reader(Items), reader(Queue)

_STAGES_AT: Final = STATE_AT + 8 * len(PackedState._fields)
_COURSE_AT: Final = _STAGES_AT + 8 * len(Stages._fields)
_ITEMS_AT: Final = _COURSE_AT + 8 * len(Course._fields)
_QUEUE_AT: Final = _ITEMS_AT + 8 * len(Items._fields)


@njit(nogil=True, cache=True)
def work(law: Any, where: int, worker: int, most: int) -> None:
    """Run items until all are taken, or about ``most`` cells were computed here, not counting what was up to date.

    Layout, state, stages, course, items and queue follow each other at an address.
    """
    layout, state, stages = _read_layout(where), _read_state(where + STATE_AT), _read_stages(where + _STAGES_AT)
    course, items, queue = (
        _read_course(where + _COURSE_AT),
        _read_items(where + _ITEMS_AT),
        _read_queue(where + _QUEUE_AT),
    )
    cells = 0
    while cells < most:
        ticket = fetch_add(queue.control, TAKEN, 1)
        if ticket >= items.tickets:
            return
        entry = awaited(queue.ready, ticket) - 1
        item, part = entry // MOST_PARTS, entry % MOST_PARTS
        here = items.items + 32 * item
        kind, number, parts = word(here, 0), word(here, 1), word(here, 2)
        if kind == GROUP:
            ran = _run_group(layout, state, course, items, number, worker)
        else:
            _call_stage(items.stage, law, layout, state, stages, course, kind, number, part, parts, worker)
            ran = word(course.mode, number) != IDLE
        cells += word(here, 3) // parts if ran else 0
        if fetch_add(queue.left, item, -1) == 1:
            _release(items, queue, item)


@njit(nogil=True, cache=True)
def work_in_thread(given: int, worker: int) -> None:
    """Call :func:`work`; its address, its data's address and the number of cells are words at an address."""
    _call_work(word(given, 0), SumProductLaw(0.0, 1.0), word(given, 1), worker, word(given, 2))


@njit(nogil=True)
def _run_group(layout: Any, state: Any, course: Any, items: Any, group: int, worker: int) -> bool:
    """Run the steps of a group that are stale and needed; return whether there were any."""
    ran = False
    for i in range(word(items.group_start, group), word(items.group_start, group + 1)):
        step = word(items.groups, i)
        if word(state.needed, step) and is_due(layout, state, step):
            _call_small(items.small, layout, state, step, worker)
            ran = True
            put_word(course.done, 8 * worker, word(course.done, 8 * worker) + 1 - word(state.stale, step))
    return ran


@njit(nogil=True)
def _release(items: Any, queue: Any, item: int) -> None:
    """Make ready what waits for nothing but an item."""
    for i in range(word(items.after_start, item), word(items.after_start, item + 1)):
        other = word(items.after, i)
        if fetch_add(queue.waiting, other, -1) == 1:
            parts = word(items.items, 4 * other + 2)
            place = fetch_add(queue.control, MADE, parts)
            for part in range(parts):
                publish(queue.ready, place + part, other * MOST_PARTS + part + 1)


Array = NDArray[Any]


@dataclass
class CrewTables:
    """The tables of a propagation: layout and state; by step places of its inputs, the table it makes, and its axes."""

    layout: PackedLayout
    state: PackedState
    inputs: Sequence[Sequence[int]]
    made: Sequence[int]
    axes: Sequence[Axes]


class ThreadTeam:
    """Threads that run the stale and needed steps, except the steps that need more care.

    Parameters
    ----------
    schedule : Schedule
    tables : Tables
    arena : int
        Where work areas of large steps begin among the values.
    threads : int
    """

    def __init__(self, schedule: Schedule, tables: CrewTables, arena: int, threads: int) -> None:
        self._law = law_of(SUM_PRODUCT)
        self._stages = _Laid(schedule, tables, arena).stages()
        self._items = _items(schedule)
        parts = max([item.parts for item in schedule.items], default=1)
        large = len(schedule.large)
        done = np.zeros((threads, 8), np.int64)
        bounds, tops = np.zeros((large, 6)), np.zeros((large, parts, 2))
        self._course = Course(np.zeros(large, np.int64), bounds, tops, done, parts)
        self._first = _first_words(schedule.items, self._items.tickets)
        self._words = self._first.copy()
        items = len(schedule.items)
        begins = accumulate((CONTROL_WORDS, self._items.tickets, items), initial=self._words.ctypes.data // 8)
        queue = Queue(*[8 * word for word in begins])
        fixed = (tables.layout, tables.state, self._stages, self._course, self._items)
        self._where = _words([*[word for each in fixed for word in addresses(each)], *queue])
        #: Address of layout and state, as loops read them; asked for so often that NumPy is asked once.
        self.where: int = self._where.ctypes.data
        self._tables = tables
        self._work(0, 0)  # loads it, in this thread

    def run(self, threads: int) -> int:
        """Run what can be run; return the number of steps."""
        self._words[:] = self._first
        self._course.done[:] = 0
        self._work(0, PropagationPolicy.current().alone_cells)
        while self._words[TAKEN] < self._items.tickets:
            self._work_together(threads)
        return int(self._course.done.sum())

    def _work(self, number: int, most: int) -> None:
        work(self._law, self.where, number, most)

    def _work_together(self, threads: int) -> None:
        most = PropagationPolicy.current().turn_cells
        if threads == 1:
            self._work(0, most)
            return
        given = _words([functions().work, self.where, most])
        each = blocks(threads, functions().work_in_thread, given.ctypes.data)
        together(each.ctypes.data)


def addresses(arrays: tuple[Any, ...]) -> list[int]:
    """Return the words that loops read for a named tuple of arrays, which must stay alive, and numbers."""
    return [each.ctypes.data if isinstance(each, np.ndarray) else each for each in arrays]


class Functions(NamedTuple):
    """Addresses of compiled functions, by purpose."""

    iterate: int
    stream: int
    multiply: int
    small: int
    stage: int
    work: int
    work_in_thread: int


@cache
def functions() -> Functions:
    """Return where the functions are that loops call."""
    law, none = law_of(SUM_PRODUCT), [0] * 64
    layout, state = PackedLayout(*none[: len(PackedLayout._fields)]), PackedState(*none[: len(PackedState._fields)])
    stages, course = Stages(*none[: len(Stages._fields)]), Course(*none[: len(Course._fields)])
    return Functions(
        address_of(iterate_nest, *none[:5]),
        address_of(stream, law, StreamNest(*none[:18]), Scratch(*none[:4]), 0, 0),
        address_of(multiply, law, Multiplication(*none[: len(Multiplication._fields)]), *none[:5]),
        address_of(run_small, layout, state, 0, 0),
        address_of(run_stage, law, layout, state, stages, course, *none[:5]),
        address_of(work, law, *none[:3]),
        address_of(work_in_thread, *none[:2]),
    )


def _items(schedule: Schedule) -> Items:
    after: list[list[int]] = [[] for _ in schedule.items]
    for number, item in enumerate(schedule.items):
        for before in item.after:
            after[before].append(number)
    rows = [(STAGES.index(item.kind), item.number, item.parts, item.cells) for item in schedule.items]
    return Items(
        items=_words(rows).reshape(-1, 4),
        after=_words([number for each in after for number in each]),
        after_start=_starts(after),
        groups=_words([step for group in schedule.groups for step in group]),
        group_start=_starts(schedule.groups),
        tickets=sum([item.parts for item in schedule.items]),
        small=functions().small,
        stage=functions().stage,
    )


def _first_words(items: Sequence[Item], tickets: int) -> Array:
    """Return control, ready parts, counts of items that are waited for and of parts, before anything was done."""
    ready = [n * MOST_PARTS + part + 1 for n, item in enumerate(items) if not item.after for part in range(item.parts)]
    control = [0] * CONTROL_WORDS
    control[MADE] = len(ready)
    ready += [0] * (tickets - len(ready))
    return _words([*control, *ready, *[len(item.after) for item in items], *[item.parts for item in items]])


class _Laid:
    """Lays out large steps; the words that their loops read are kept in one array."""

    def __init__(self, schedule: Schedule, tables: CrewTables, arena: int) -> None:
        self._tables, self._schedule, self._arena = tables, schedule, arena
        self._values: int = tables.state.values.ctypes.data
        self._words = np.zeros(sum([_own_words(each) for each in schedule.large.values()]), np.int64)
        self._used = 0
        self._codes: list[int] = []
        self._bases: list[int] = []
        self._spreads: list[list[tuple[int, int, int]]] = []

    def stages(self) -> Stages:
        """Return all of them."""
        pairs = zip(self._schedule.large.items(), self._schedule.areas, strict=True)
        rows = [self._large(step, large, self._arena + area) for (step, large), area in pairs]
        return Stages(
            large=_words([row for row, *_ in rows]).reshape(-1, len(Large._fields)),
            nests=_words([nest for _, nest, _ in rows]).reshape(-1, len(StreamNest._fields)),
            products=_words([product for *_, product in rows]).reshape(-1, len(Multiplication._fields)),
            spreads=_words([spread for each in self._spreads for spread in each]).reshape(-1, 3),
            spread_start=_starts(self._spreads),
            codes=_words(self._codes),
            bases=_words(self._bases),
            words=self._words,
        )

    def _large(self, step: int, large: LargeStep, area: int) -> tuple[Large, tuple[int, ...], tuple[int, ...]]:
        """Lay out a step; return it with its nest and its product, all zeros for the kernel that it does not use.

        Parameters
        ----------
        step : int
            The step's position in the program.
        large : LargeStep
            Its stages, with places that count from the beginning of its work area.
        area : int
            Where the work area begins, in float64 numbers of the arena.

        Returns
        -------
        tuple of (Large, tuple of int, tuple of int)
            Words of int64: the step, the fields of its StreamNest, and the fields of its Multiplication.
        """
        inputs = self._tables.inputs[step]
        merged, target = [area + merge for merge in large.merges], area + large.target
        tables = [(*inputs, *merged)[table] for table in _operands(large)]
        # The last word is for the output. Its address depends on whether the result is compared: the stage writes it.
        addresses = self._kept([*[self._address(table) for table in tables], 0])
        code, offsets = self._kept(large.code), self._address(area + large.offsets)
        self._spreads.append([])
        nest: tuple[int, ...] = (0,) * len(StreamNest._fields)
        product: tuple[int, ...] = (0,) * len(Multiplication._fields)
        if large.loops is not None:
            nest = self._nest(large.loops, inputs, merged, target, (addresses, offsets))
        elif large.product is not None:
            axes = self._tables.axes[step]
            product = multiplication(axes, large.product, SUM_PRODUCT, addresses, offsets)
        row = Large(
            step=step,
            table=self._tables.made[step],
            out_parts=large.out_parts,
            code=code,
            code_words=len(large.code),
            offsets=offsets,
            addresses=addresses,
            operands=len(tables),
            parts_at=self._address(area + large.parts_at),
            places=large.operands,
            words=large.operands + large.numbers,
            target=target if large.ordered else -1,
            summed=large.summed,
            room=area + large.room,
            ranges=-1 if large.product is None else int(large.by_batch),
        )
        return row, nest, product

    def _nest(
        self, loops: StreamLoops, inputs: Sequence[int], merged: Sequence[int], target: int, at: tuple[int, int]
    ) -> StreamNest:
        inside = self._kept([int(loops.gathered_inside(operand)) for operand in loops.operands])
        for merge, out in zip(loops.merges, merged, strict=True):
            places = [inputs[i] for i in merge.inputs]
            self._spread(merge.axes.sizes, [*zip(merge.axes.strides, places, strict=True)], out)
        if loops.turn is not None:
            sizes, order = loops.turn.sizes, loops.turn.order
            strides = [*accumulate(sizes[:0:-1], int.__mul__, initial=1)][::-1]
            self._spread([sizes[i] for i in order], [([strides[i] for i in order], target)], -1)
        return nest_of(loops, SUM_PRODUCT, *at, inside)

    def _spread(self, sizes: Sequence[int], tables: Sequence[tuple[Sequence[int], int]], out: int) -> None:
        code, operands = spread_code(sizes, [strides for strides, _ in tables])
        self._spreads[-1].append((len(self._codes), len(self._bases), out))
        self._codes += code
        self._bases += [tables[i][1] for i in operands]

    def _address(self, place: int) -> int:
        return self._values + 8 * place

    def _kept(self, words: Sequence[int]) -> int:
        """Put words into the array; return their address."""
        at: int = self._words.ctypes.data + 8 * self._used
        self._words[self._used : self._used + len(words)] = words
        self._used += len(words)
        return at


def _operands(large: LargeStep) -> list[int]:
    """The inputs of loops or products: positions among the inputs, then among the merged tables."""
    if large.loops is not None:
        return [operand.table for operand in large.loops.operands]
    assert large.product is not None
    return [*large.product.left, *large.product.right]


def _own_words(large: LargeStep) -> int:
    """Words of addresses, marks and offsets' code of a step."""
    return 2 * len(_operands(large)) + 1 + len(large.code)


def _starts(lists: Sequence[Sequence[Any]]) -> Array:
    return _words([0, *accumulate([len(each) for each in lists])])


def _words(values: Sequence[Any]) -> Array:
    return np.array(values, np.int64)
