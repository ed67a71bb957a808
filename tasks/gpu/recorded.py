"""A sweep that is known: its launches with all their arguments, made once and repeated for as long as tables lie there.

Python's work for a step takes ten times as long as its launch. A sweep of the same steps gets a block of the same size,
usually at the same place, with its leaf tables in it. Then a single copy precedes the launches.

The tables of a sweep lie in one block of device memory, so that the sweep takes the planned memory and no more. Pools
cache freed memory by request size, and hold half as much again as is in use. A sweep is known before it begins: the
live tables at each step, and their sizes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from ..steps.light_dataclass import dataclass
from ..steps.semiring import Semiring
from ..steps.step import Step
from . import arrays
from .arrays import Packing
from .device_policy import DevicePolicy
from .kernels import ALIGNED, bound_launches, cupy
from .launch import DeviceRun
from .memory import out_of_memory
from .small_steps import SmallRun, SmallSteps

# So are tables below this share of the largest one.
_PLACED_LEAST_SHARE: Final = 1 / 256
# Orders in which requests are placed that are tried from each of the first ones.
_PLACEMENT_TRIALS: Final = 16
# The largest tables and workspaces are placed, at most this many; others are left to the pool.
_PLACED_TABLES: Final = 128

POOL_BYTES: Final = 512
"""Blocks of CuPy's memory pool have multiples of this number of bytes."""


class Request(NamedTuple):
    """A table or a workspace: how large it is, and from which step of a sweep to which it is there."""

    nbytes: int
    first: int
    last: int


def placed(requests: Sequence[Request]) -> tuple[list[int], int]:
    """Return where each request begins, and how many bytes all of them take.

    Requests are placed one after another, as low as they fit: the largest first (the greedy algorithm by size of
    Pisarchyk & Lee, 2020, §5.2), or the longest-living first. If gaps remain, the request that ends highest is moved to
    the front, a few times.

    >>> placed([Request(512, 0, 1), Request(1024, 1, 2), Request(512, 2, 2), Request(1024, 3, 3)])
    ([1024, 0, 1024, 0], 1536)
    """
    least = _together(requests)
    numbers = range(len(requests))
    by_size = sorted(numbers, key=lambda i: -requests[i].nbytes)
    by_time = sorted(by_size, key=lambda i: requests[i].first - requests[i].last)
    best, end = _in_order(requests, by_size)
    for order in (by_size, by_time):
        for _ in range(_PLACEMENT_TRIALS):
            if end <= least:
                return best, end
            places, taken = _in_order(requests, order)
            if taken < end:
                best, end = places, taken
            top = max(numbers, key=lambda i: places[i] + _whole(requests[i].nbytes))
            order = [top, *(i for i in order if i != top)]
    return best, end


def placed_in_turn(requests: Sequence[Request]) -> tuple[list[int], int]:
    """Place requests in the order in which they begin, each in the first gap; return where each begins, and the end.

    As pools do it, for many small tables: it takes no time, and some bytes more than `placed`.

    >>> placed_in_turn([Request(512, 0, 1), Request(512, 0, 0), Request(1024, 1, 1), Request(512, 1, 2)])
    ([0, 512, 1024, 512], 2048)
    """
    places, end = list[int](), 0
    gaps = list[tuple[int, int]]()
    there = list[tuple[int, int, int]]()
    for nbytes, first, last in requests:
        ended = [(at, until) for gone, at, until in there if gone < first]
        if ended:
            there = [each for each in there if each[0] >= first]
            gaps = _merged([*gaps, *ended])
        size = _whole(nbytes)
        for k, (at, until) in enumerate(gaps):
            if until - at >= size:
                gaps[k] = at + size, until
                break
        else:
            at, end = end, end + size
        places.append(at)
        there.append((last, at, at + size))
    return places, end


def _merged(gaps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join gaps that touch; those without bytes go."""
    found = list[tuple[int, int]]()
    for at, until in sorted(gaps):
        if found and found[-1][1] == at:
            found[-1] = found[-1][0], until
        elif at < until:
            found.append((at, until))
    return found


def _whole(nbytes: int) -> int:
    return -(-nbytes // POOL_BYTES) * POOL_BYTES


def _together(requests: Sequence[Request]) -> int:
    """Return how many bytes are there at once at most."""
    steps = {request.first for request in requests}
    return max([sum([_whole(r.nbytes) for r in requests if r.first <= k <= r.last]) for k in steps], default=0)


def _in_order(requests: Sequence[Request], order: Sequence[int]) -> tuple[list[int], int]:
    """Place requests one after another, each as low as it fits; return where each begins, and where the last ends."""
    places = [0] * len(requests)
    there: list[tuple[int, int, int, int]] = []
    for i in order:
        nbytes, first, last = requests[i]
        at = 0
        for begin, end, other_first, other_last in there:
            if other_first <= last and first <= other_last:
                if begin - at >= nbytes:
                    break
                at = max(at, end)
        places[i] = at
        there.append((at, at + _whole(nbytes), first, last))
        there.sort()
    return places, max((end for _, end, _, _ in there), default=0)


@dataclass(frozen=True)
class DeviceBlock:
    """A block of device memory, and where in it the output and the workspace of each step lie.

    Parameters
    ----------
    nbytes : int
    places : mapping
        By step, as an object, where its output and its workspace begin; None where they are not placed.
    """

    nbytes: int
    places: Mapping[int, tuple[int | None, int | None]]
    block: Any = None

    def begun(self) -> DeviceBlock:
        """Return the same with memory."""
        return DeviceBlock(self.nbytes, self.places, arrays.block(self.nbytes)) if self.nbytes else self

    def of(self, step: Step) -> tuple[Any, Any]:
        """Return where the output and the workspace of a step lie, None where they are not placed."""
        out, workspace = self.places.get(id(step), (None, None))
        return (
            None if out is None else self.block + out,
            None if workspace is None else self.block + workspace,
        )


def room_for(
    steps: Sequence[Step],
    runs: Mapping[int, DeviceRun] | Mapping[int, DeviceRun | SmallRun],
    freed: Sequence[Collection[int]],
    others: Collection[int],
    all_placed: bool = False,
) -> DeviceBlock:
    """Place what a sweep needs on the device.

    Parameters
    ----------
    steps : sequence of Step
        In execution order.
    runs : mapping
        The launches of the steps that run on the device, by their nodes.
    freed : sequence of collections
        For each step the tables that are dropped after it; others stay to the end.
    others : collection of int
        Tables that outlast the sweep and are left to the pool.
    all_placed : bool
        Whether small tables have places too.
    """
    policy = DevicePolicy.current()
    times = Counter(map(id, steps))  # a step that is run again has no single place
    ends: dict[int, int] = {}
    requests: list[tuple[Request, int, bool]] = []
    for k in range(len(steps) - 1, -1, -1):
        step = steps[k]
        ends.update(dict.fromkeys(freed[k], k))
        run = runs.get(step.node)
        last = ends.pop(step.node, len(steps))
        if run is None or times[id(step)] > 1:
            continue
        if step.node not in others:
            requests.append((Request(run.out_bytes, k, last), id(step), True))
        requests.append((Request(run.workspace_bytes, k, k), id(step), False))
    least = max(
        policy.placed_least_bytes,
        _PLACED_LEAST_SHARE * max((request.nbytes for request, _, _ in requests), default=0),
    )
    large = sorted((r for r in requests if r[0].nbytes >= least), key=lambda r: -r[0].nbytes)[:_PLACED_TABLES]
    offsets, nbytes = placed([request for request, _, _ in large])
    if all_placed:
        chosen = set(map(id, large))
        small = [r for r in reversed(requests) if id(r) not in chosen and r[0].nbytes]
        others_at, more = placed_in_turn([request for request, _, _ in small])
        large, offsets = large + small, offsets + [nbytes + at for at in others_at]
        nbytes += more
    places: dict[int, tuple[int | None, int | None]] = {}
    for at, (_, step_id, is_output) in zip(offsets, large, strict=True):
        out, workspace = places.get(step_id, (None, None))
        places[step_id] = (at, workspace) if is_output else (out, at)
    return DeviceBlock(nbytes, places)


class RecordedSweep:
    """The launches of some steps, and where each of their tables lies.

    Parameters
    ----------
    steps : sequence of Step
        In execution order, the small ones first; each makes another table.
    runs : mapping
        The launches of every step that has its own, by its node.
    small : SmallSteps
        The others.
    freed : sequence of collections
        For each step the tables that are dropped after it.
    kept : collection of int
        Tables that are returned: those of steps.
    others : collection of int
        Tables of steps that outlast the sweep, and have memory of their own.
    given : collection of int
        Tables on the device that steps read and others made.
    semiring : Semiring
        Of all tables.

    Attributes
    ----------
    dtype : str
    """

    def __init__(
        self,
        steps: Sequence[Step],
        runs: Mapping[int, DeviceRun],
        small: SmallSteps,
        freed: Sequence[Collection[int]],
        kept: Collection[int],
        others: Collection[int],
        given: Collection[int],
        semiring: Semiring,
    ) -> None:
        """Place all tables of the sweep in one block of device memory.

        Parameters
        ----------
        steps : sequence of Step
        runs : mapping of int to DeviceRun
            Prepared launches, by node.
        small : SmallSteps
            Small steps that share launches.
        freed : sequence of collection of int
            Tables that are not needed after each step.
        kept : collection of int
            Tables that outlast the sweep.
        others : collection of int
            Tables that get memory of their own.
        given : collection of int
            Tables that are on the device before.
        semiring : Semiring
        """
        self.dtype = semiring.dtype
        self._small = small
        made_by: dict[int, DeviceRun | SmallRun] = {**runs, **small.runs}
        together = len(small.steps)
        if together:  # their input tables exist until all of them are done
            freed = [*[()] * (together - 1), [*chain.from_iterable(freed[:together])], *freed[together:]]
        room = room_for(steps, made_by, freed, others, all_placed=True)
        nodes = [step.node for step in steps]
        made, cells = set(nodes), dict[int, int]()
        for step in steps:
            cells.update(zip(step.inputs, step.lowered.input_cells, strict=True))
        read = [node for node in cells if node not in made]
        self._given = [node for node in read if node in given]
        self._staged = [node for node in read if node not in given]
        self._packing = Packing([cells[node] for node in self._staged], semiring.dtype)
        self._first = -(-room.nbytes // arrays.PACKED) * arrays.PACKED
        places = {step.node: room.places.get(id(step), (None, None)) for step in steps}
        self._outputs = {node: out for node, (out, _) in places.items() if out is not None}
        self._steps = [
            (runs[step.node], step.inputs, step.node, places[step.node][1] or 0) for step in steps if step.node in runs
        ]
        self._others = [node for node in nodes if node not in self._outputs]
        self._kept = [node for node in nodes if node in kept]
        self._cells = {node: made_by[node].cells for node in {*self._others, *self._kept}}
        self._lock = threading.Lock()
        self._where: tuple[int, ...] = ()
        self._repeat: Callable[[], None] = bound_launches((), ())

    @property
    def nbytes(self) -> int:
        """Bytes of the block: leaf tables, step tables, and workspaces."""
        return self._first + self._packing.nbytes

    def run(self, tables: Mapping[int, Any]) -> dict[int, Any] | None:
        """Sweep and return the kept tables by node.

        Return None if a table is not in its expected place or not aligned, or if the device has no room for the block
        in one piece, or for the tables that outlast the sweep.

        Parameters
        ----------
        tables : mapping of int to array
            Leaf tables of the host, and tables of the device.
        """
        given = [tables[node].data.ptr for node in self._given]
        staged = [tables[node] for node in self._staged]
        if any(at % ALIGNED for at in given) or set(map(type, staged)) - {np.ndarray}:
            return None
        try:
            place = arrays.block(self.nbytes)
            live = {node: arrays.empty(self._cells[node], self.dtype) for node in self._others}
        except MemoryError as error:
            if out_of_memory(error):
                return None
            raise
        first, cp = place.ptr, cupy()
        if staged:
            self._packing.copy(staged, place + self._first)
        where = first, *given, *[table.data.ptr for table in live.values()]
        with self._lock:
            # launches are bound to addresses, so that a repeated sweep at the same place costs no Python per step
            if where != self._where:
                self._repeat = self._bound(first, given, {node: table.data.ptr for node, table in live.items()})
                self._where = where
            self._repeat()
        for node in self._kept:
            if node not in live:
                live[node] = cp.ndarray(self._cells[node], self.dtype, place + self._outputs[node])
        return live

    def _bound(self, first: int, given: Sequence[int], others: Mapping[int, int]) -> Callable[[], None]:
        """Return the launches on tables that lie there."""
        at = {**dict(zip(self._given, given, strict=True)), **others}
        at |= {node: first + place for node, place in self._outputs.items()}
        leaves = first + self._first
        at |= {node: leaves + place for node, place in zip(self._staged, self._packing.places, strict=True)}
        launches = list(self._small.bound(at))
        waits: list[Sequence[int]] = [range(max(k - 1, 0), k) for k in range(len(launches))]
        before = [len(launches) - 1] if launches else []
        for run, inputs, node, workspace in self._steps:
            begun = len(launches)
            launches += run.bound([at[i] for i in inputs], at[node], first + workspace)
            # tables of two steps may share memory, so a step begins after all passes of the previous step
            waits += [[begun + i for i in own] or before for own in run.waits]
            read = {i for own in run.waits for i in own}
            before = [begun + i for i in range(len(run.waits)) if i not in read]
        return bound_launches(launches, waits)
