"""Steps by rows in memory on several devices of this process: each goes to a device that is free, large ones to all.

A step waits for the steps that make its inputs. Independent subtrees therefore run side by side, each on the device
with most of its inputs. A step whose join has very many rows waits for the other steps, and then runs by ranges of keys
on all devices. Every device has its own memory account.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

from ...cluster.memory import default_memory_bytes
from ...cluster.pool import DeviceThreads, Node, present_device
from ...tasks.gpu import arrays
from ...tasks.gpu.arrays import is_device
from ...tasks.gpu.kernels import cupy
from ...tasks.gpu.memory import portable_errors
from ...tasks.rows.algebra import bare
from ...tasks.rows.device_algebra import (
    DeviceChoice,
    DeviceRowsProgram,
    entries,
    table_here,
    with_entries,
)
from ...tasks.rows.memory_account import LargeJoinError, MemoryAccount, RowsNoRoomError
from ...tasks.rows.ordering import concatenated
from ...tasks.rows.relation import Dense, Relation, Table
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import RowPolicy
from ...tasks.steps.step import Step
from ...tasks.sweeps.sweep import spend
from .run import Run

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)
class DeviceTeam:
    """Devices of this process, and the account of the memory of each.

    Parameters
    ----------
    pool : DeviceThreads
        With one thread for each device, which enters nothing into the accounts of others.
    rooms : sequence of MemoryAccount
    """

    pool: DeviceThreads
    rooms: Sequence[MemoryAccount]

    def joined(self, choice: DeviceChoice, step: Step, tables: Sequence[Table]) -> Relation:
        """Join tables by ranges of keys, one for each device; the same rows as on one.

        Raises
        ------
        RowsNoRoomError
            If a range does not fit its device, or all of them the first.
        """
        parts = len(self.rooms)

        def part(number: int) -> tuple[Any, ...]:
            return self._part, choice, step, tables, number

        found: dict[int, Relation] = {}
        for number, outcome in self.pool.run_graph({i: Node(set(), part, near=_itself) for i in range(parts)}):
            if isinstance(outcome, BaseException):
                raise outcome
            found[number] = outcome
        first, needed = self.rooms[0], sum(rows.nbytes for rows in found.values())
        if needed > first.free:
            raise RowsNoRoomError(step.axes, first.nbytes - first.free + needed, first.nbytes)
        return concatenated([brought(found[number]) for number in range(parts)])

    def _part(self, choice: DeviceChoice, step: Step, tables: Sequence[Table], number: int) -> Relation:
        """Task: do a range of keys on the device of the thread."""
        room = self.rooms[present_device()]
        own = replace(choice, room=room, part=(number, len(self.rooms)), most_joined=None, shared=None)
        with portable_errors():
            found = own.joined_there(step, [_entered(table, room) for table in tables])
            finished()
        return found

    def close(self) -> None:
        """Give back what is free on each device."""
        for card in range(1, len(self.rooms)):
            with arrays.on_card(card):
                arrays.free_pools()


def _itself(number: int) -> int:
    return number


def finished() -> None:
    """Wait until what this thread launched is done, so that other devices may read it."""
    cupy().cuda.get_current_stream().synchronize()


def brought(values: V) -> V:
    """Return an array, rows, or a table with its variables, on the present device where it is on another."""
    found: Any = values
    if isinstance(values, Relation):
        words, own = arrays.brought(values.words), arrays.brought(values.values)
        found = values if words is values.words else replace(values, words=words, values=own)
    elif isinstance(values, Dense):
        own = arrays.brought(values.values)
        found = values if own is values.values else replace(values, values=own)
    else:
        found = arrays.brought(values)
    return found  # type: ignore[no-any-return]


def _entered(table: Table, room: MemoryAccount) -> Table:
    """Return a table on the present device; a table from another device is entered into the account."""
    found = brought(table)
    if found is not table:
        room.keep(bare(found))
    return found


def card_of(values: Any) -> int | None:
    """Return the device of an array or of rows; None on the host."""
    bare = values.values if isinstance(values, Relation) else values
    return arrays.card_of(bare) if is_device(bare) else None


def swept_on_devices(run: Run[T], *, keep: bool) -> dict[int, T] | None:
    """Return the tables that the answer is read from; None where what devices hold together is more than each may.

    Parameters
    ----------
    keep : bool
        Whether all tables are kept for decoding, on the first device and on the host.
    """
    pool, room = run.pool, run.room
    assert isinstance(pool, DeviceThreads)
    assert room is not None
    cupy()  # threads begin on their devices where it is loaded
    rooms = [room, *(MemoryAccount(room.nbytes, room.most_work) for _ in range(1, pool.devices))]
    team = DeviceTeam(pool, rooms)
    try:
        found = RowsOnDevices(run, team, keep).swept()
    except RowsNoRoomError:
        return None
    finally:
        team.close()
    for other in rooms[1:]:
        room.take(other)
    return found


@dataclass
class RowsOnDevices(Generic[T]):
    """The tables of a sweep by rows on several devices.

    Parameters
    ----------
    run : Run
    team : DeviceTeam
    keep : bool
        Whether tables are needed after the sweep, for decoding.

    Attributes
    ----------
    tables : dict of int to table
        Leaf tables on the host, and step tables that will still be read, each on some device or on the host.
    """

    run: Run[T]
    team: DeviceTeam
    keep: bool
    tables: dict[int, T] = field(default_factory=dict)
    _readers: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        plan = self.run.plan
        program: Any = self.run.program(plan.steps, plan.outputs)
        assert isinstance(program, DeviceRowsProgram)
        self.program = program
        self.tables = dict(program.leaves)
        self._readers.update(i for step in program.steps for i in dict.fromkeys(step.inputs))

    def swept(self) -> dict[int, T]:
        """Run all steps, and return the tables that the answer is read from."""
        left = {step.node: step for step in self.program.steps}
        self.program.compile_kernels(decoded=False)
        while left:
            for node in self._side_by_side(left):
                step = left.pop(node)
                self._enter(step, *self._by_all(step))
        return self._kept() if self.keep else {i: self._here(i) for i in self.program.outputs}

    def _side_by_side(self, left: dict[int, Step]) -> list[int]:
        """Run the remaining steps except the steps shared by all devices, which are returned, and their dependents."""
        shared = []
        nodes = {step.node: self._node(step, left.keys()) for step in left.values()}
        for node, outcome in self.team.pool.run_graph(nodes):
            if isinstance(outcome, LargeJoinError):
                shared.append(node)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._enter(left.pop(node), *outcome)
        return shared

    def _node(self, step: Step, left: Collection[int]) -> Node:
        def call(_: int) -> tuple[Any, ...]:
            return self._made, step, {i: self.tables[i] for i in step.inputs}

        return Node({i for i in step.inputs if i in left}, call, near=lambda _: self._nearest(step))

    def _nearest(self, step: Step) -> int | None:
        """Return the device with most of a step's inputs."""
        there = Counter[int]()
        for i in step.inputs:
            values: Any = entries(self.tables[i]) if i in self.tables else None
            if values is not None and (card := card_of(values)) is not None:
                there[card] += values.nbytes
        return max(there, key=lambda card: (there[card], -card), default=None)

    def _made(self, step: Step, inputs: dict[int, T]) -> tuple[T, float]:
        """Task: do a step on the device of the thread; returns the seconds, too.

        Raises
        ------
        LargeJoinError
            If its join is worth all devices.
        """
        room = self.team.rooms[present_device()]
        algebra = self._choosing(self.program.algebra, room=room, most_joined=RowPolicy.current().device_shared_joins)
        before = room.joined, room.done
        try:
            return self._done(step, inputs, algebra, room)
        except LargeJoinError:
            room.joined, room.done = before
            raise

    @staticmethod
    def _choosing(algebra: Any, **how: Any) -> Any:
        """Return the algebra that does joins otherwise."""
        return replace(algebra, choice=replace(algebra.choice, **how))

    def _by_all(self, step: Step) -> tuple[T, float]:
        """Run a step with a join shared by all devices; return its table and its seconds."""
        shared = self._choosing(self.program.algebra, shared=self.team.joined)
        return self._done(step, {i: self.tables[i] for i in step.inputs}, shared, self.team.rooms[0])

    def _done(self, step: Step, inputs: dict[int, T], algebra: Any, room: MemoryAccount) -> tuple[T, float]:
        """Run a step on the present device, from leaf tables (large ones are sent there) and from tables of other
        steps.
        """
        start = time.perf_counter()
        given = self.program.leaves_there([i for i in inputs if i in self.program.leaves])
        given |= {i: self._brought(table, room) for i, table in inputs.items() if i not in given}
        with portable_errors():
            made: T = algebra.step(
                step, [given[i] for i in step.inputs], max(1, self.run.threads // len(self.team.rooms))
            )
            finished()
        return made, time.perf_counter() - start

    def _brought(self, table: T, room: MemoryAccount) -> T:
        """Return a table on the present device where it is on another."""
        values = entries(table)
        found = brought(values)
        return table if found is values else with_entries(table, room.keep(found))

    def _enter(self, step: Step, made: T, seconds: float) -> None:
        """Store the table of a step with its seconds, and drop tables without remaining readers."""
        spend(step.node, seconds)
        self.tables[step.node] = made
        if (told := self.run.on_table()) is not None:
            told(step, made)
        del made
        for i in dict.fromkeys(step.inputs):
            self._readers[i] -= 1
            if not self.keep and not self._readers[i] and i not in self.program.outputs:
                self._drop(i)

    def _drop(self, node: int) -> None:
        """Drop a table, on its device."""
        card = card_of(entries(self.tables[node]))
        with arrays.on_card(card or 0):
            del self.tables[node]

    def _here(self, node: int) -> T:
        """Return a table in the host's memory."""
        with arrays.on_card(card_of(entries(self.tables[node])) or 0):
            return table_here(self.tables[node])

    def _kept(self) -> dict[int, T]:
        """Return all tables where they are decoded: on the first device while it has room, others on the host.

        Raises
        ------
        RowsNoRoomError
            If the host has no memory for them.
        """
        room = self.team.rooms[0]
        for node, table in self.tables.items():
            values: Any = entries(table)
            if not card_of(values):
                continue
            if values.nbytes <= room.free:
                self.tables[node] = self._brought(table, room)
            elif values.nbytes <= (free := default_memory_bytes()):
                self.tables[node] = self._here(node)
            else:
                raise RowsNoRoomError((), values.nbytes, free)
        finished()
        return self.tables
