"""Compiled loops of a propagation that several threads run together: each takes the next item that is ready.

Items are made ready by the last one that they wait for, and are taken in that order. An item is a group of small steps,
or a stage of a large one, whose parts are taken one by one. Which cells a part makes does not depend on who takes it:
the tables are the same for any number of threads.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..cpu.compiling.atomics import awaited, fetch_add, publish
from ..cpu.compiling.calls import calling, reader
from ..cpu.compiling.vectors import SumProduct, put_word, word
from ..machine_code import njit
from .packed_loops import STATE_AT, Layout, State, is_due
from .planning.large import MOST_PARTS
from .stage_loops import GROUP, IDLE, Course, Stages

TAKEN: Final = 0
MADE: Final = 16
CONTROL_WORDS: Final = 32
"""Words that count tickets that were taken and entries that were made, each on a line of its own."""


class Items(NamedTuple):
    """What never changes, arrays of int64 or their addresses; lists of lists are cut by a ``*_start`` array.

    ``items`` are (kind, group or large step, parts, cells), ``after`` those that wait for each. ``tickets`` counts
    parts. ``small`` and ``stage`` are where the functions are that run a small step, and a stage.
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
_read_layout, _read_state, _read_stages = reader(Layout), reader(State), reader(Stages)
_read_course, _read_items, _read_queue = reader(Course), reader(Items), reader(Queue)

_STAGES_AT: Final = STATE_AT + 8 * len(State._fields)
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
    """Work as :func:`work`, whose address, where things are and how many cells are words at an address."""
    _call_work(word(given, 0), SumProduct(0.0, 1.0), word(given, 1), worker, word(given, 2))


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
