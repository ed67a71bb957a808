"""Value assignment on the device (Dechter 1999 §3): all steps of a sweep at once, with one copy back at the end.

Most steps have few joint states and dozens of tables with a few cells. Decoding on the host therefore spends its time
on Python's work per table and on waiting for device tables. Here the tables stay on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..steps.caches import Remembered
from ..steps.light_dataclass import dataclass
from ..steps.number_limits import CELL_BYTES
from ..steps.semiring import Semiring
from ..steps.step import Step
from . import arrays
from .device_policy import DevicePolicy
from .kernels import Kernel, cupy, kernel, processors
from .memory import to_device

# Most items of a step for each block that there may be.
_DECODE_STEP_ITEMS: Final = 4
# Maximum blocks per multiprocessor; the result is the same for any number.
_DECODE_BLOCKS: Final = 4
# Maximum bytes of the host's tables that go to the device again after a sweep has freed its memory. Also the maximum
# bytes in which all blocks write the positions of inputs; a single block takes the bytes that it needs.
_DECODE_BYTES: Final = 1 << 22

Array = NDArray[Any]
States = dict[int, int]

_SHARED_LINES: Final = 2048
"""Entries of a step's lines that a block keeps in shared memory; as in ``cuda/decode.cu``."""

_PART_BYTES: Final = 2 * CELL_BYTES
"""The least cost of an item, and its joint state."""

_RECORD: Final = np.dtype(
    [
        *((name, "u8") for name in ("tables", "joint", "first_axis", "axes", "first_input", "first_found", "found")),
        *((name, "u8") for name in ("sizes", "item_step", "first_item", "states", "offsets", "parts")),
        *((name, "u8") for name in ("ended", "taken")),
        ("line", "i8"),
        ("bound", "i8"),
        ("first", "i4"),
        ("last", "i4"),
    ],
    align=True,
)
"""The layout of ``Decoding`` in ``cuda/decode.cu``."""


def decodes(tables: Mapping[int, Any], semiring: Semiring) -> bool:
    """Whether some tables are on a device, and all are arrays that can be."""
    kinds = set(map(type, tables.values()))
    if not kinds - {np.ndarray} or not all(kind is np.ndarray or arrays.is_device_type(kind) for kind in kinds):
        return False
    here = sum([table.nbytes for table in tables.values() if type(table) is np.ndarray])
    return here <= _DECODE_BYTES and {table.dtype for table in tables.values()} <= {np.dtype(semiring.dtype)}


def begin_there(
    steps: Sequence[Step],
    tables: Mapping[int, Any],
    sizes: Sequence[int],
    semiring: Semiring,
    assignment: States,
    best_of: Callable[[Step], States],
) -> Callable[[], None]:
    """Begin to find a state of every variable that ``steps`` eliminated, behind all that was launched before.

    Returns what waits for them and extends ``assignment`` (variable → state), in place.

    Parameters
    ----------
    steps : sequence of Step
        In execution order.
    tables : mapping
        The table of every input of every step, an array of the host or of the device; of the semiring's dtype.
    sizes : sequence of int
        Domain sizes; a variable that was fixed before the sweep has one state and must be in ``assignment``.
    semiring : Semiring
        Min-plus.
    best_of : callable
        Finds the best states of a step with more joint states than `DevicePolicy` allows, where others have their
        states of ``assignment``.
    """
    fixed = frozenset(assignment)
    records = _RECORDS.of(steps, (tuple(sizes), fixed), lambda: DecodeRecords.of(steps, sizes, fixed))
    found = _Found(records, tables, sizes, semiring, assignment)
    left = records.left_to_caller
    ends = [*left, len(records.steps)]
    found.launch(0, ends[0])

    def end() -> None:
        for step, last in zip(left, ends[1:], strict=True):
            assignment.update(found.states(step))
            assignment.update(best_of(records.steps[step]))
            found.replace(assignment)
            found.launch(step + 1, last)
        assignment.update(found.states(len(records.steps)))

    return end


@dataclass
class DecodeRecords:
    """The launch's records of each step with variables to decode, roots first; see ``cuda/decode.cu``.

    Parameters
    ----------
    steps : list of Step
    joint : list of int
        Joint states of each step.
    nodes : list of int
        Nodes of the tables read, step by step, without tables that have no variable to decode.
    axes, lengths : list of int
        Of each of them in turn: variables with known states, and the complements of places among those to be found;
        and how many.
    inputs, ends : list of int
        Where the inputs of each step begin, and where its variables do; one entry more than steps.
    variables : list of int
        Those to be found, of more than one state.
    others : list of int
        Those of one state.
    line : int
        Most entries of the lines of a step, which say where its inputs lie.
    """

    steps: list[Step] = field(default_factory=list)
    joint: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    axes: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=lambda: [0])
    ends: list[int] = field(default_factory=lambda: [0])
    variables: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    line: int = 1

    @classmethod
    def of(cls, steps: Sequence[Step], sizes: Sequence[int], known: Collection[int]) -> DecodeRecords:
        """Describe the steps of a sweep, given which variables have states before."""
        records, seen = cls(), set(known)
        for step in reversed(steps):
            left = [v for v in dict.fromkeys(chain.from_iterable(step.input_axes)) if v not in seen]
            seen.update(left)
            wide = [v for v in left if sizes[v] > 1]
            if len(wide) < len(left):
                records.others += [v for v in left if sizes[v] == 1]
            if wide:
                records._add(step, wide, prod([sizes[v] for v in wide]))
        return records

    def _add(self, step: Step, wide: list[int], joint: int) -> None:
        places = {v: ~place for place, v in enumerate(wide)}
        chosen, place_of = places.keys(), places.get
        for node, axes in zip(step.inputs, step.input_axes, strict=True):
            if not chosen.isdisjoint(axes):
                self.nodes.append(node)
                self.axes.extend(map(place_of, axes, axes))
                self.lengths.append(len(axes))
        self.steps.append(step)
        self.joint.append(joint)
        self.variables += wide
        self.inputs.append(len(self.nodes))
        self.ends.append(len(self.variables))
        self.line = max(self.line, (self.inputs[-1] - self.inputs[-2]) * (len(wide) + 1))

    @cached_property
    def read(self) -> list[int]:
        """Return the nodes of the tables read, each once."""
        return [*dict.fromkeys(self.nodes)]

    @cached_property
    def reads(self) -> Array:
        """For each input of a step its table's place among those."""
        places = dict(zip(self.read, range(len(self.read)), strict=True))
        return np.array([places[node] for node in self.nodes], np.intp)

    @cached_property
    def described(self) -> dict[str, Array]:
        """The arrays that a launch reads for all steps, by their names there."""
        return {
            "joint": np.array([min(joint, 1 << 62) for joint in self.joint], np.int64),
            "first_axis": np.cumsum([0, *self.lengths], dtype=np.int32),
            "axes": np.array(self.axes, np.int32),
            "first_input": np.array(self.inputs, np.int32),
            "first_found": np.array(self.ends, np.int32),
            "found": np.array(self.variables, np.int32),
        }

    @property
    def left_to_caller(self) -> list[int]:
        """The steps that have more joint states than `DevicePolicy` allows."""
        most = DevicePolicy.current().decode_joint_states
        return [step for step, joint in enumerate(self.joint) if joint > most]

    def items(self, blocks: int) -> Array:
        """Return the number of items of each step; several blocks search a large step's joint states in parallel."""
        policy = DevicePolicy.current()
        joint, inputs = self.described["joint"], np.diff(self.inputs)
        each = np.maximum(policy.decode_item_cells // inputs, policy.decode_item_states)
        most = _DECODE_STEP_ITEMS * blocks
        counts: Array = np.minimum(-(-joint // each), most)
        counts[self.left_to_caller] = 0
        return counts


_RECORDS: Final[Remembered[DecodeRecords]] = Remembered()


class _Found:
    """States of all variables on the device, and the launches that find more of them."""

    def __init__(
        self,
        records: DecodeRecords,
        tables: Mapping[int, Any],
        sizes: Sequence[int],
        semiring: Semiring,
        known: Mapping[int, int],
    ) -> None:
        """Lay all records out in one block, and copy it to the device at once.

        Parameters
        ----------
        records : DecodeRecords
            Steps in the order of decoding.
        tables : mapping of int to array
            The tables that the steps read, on the host or on the device.
        sizes : sequence of int
            Number of states, by variable.
        semiring : Semiring
        known : mapping of int to int
            States that are fixed before.
        """
        self._blocks = processors() * _DECODE_BLOCKS
        if records.line > _SHARED_LINES:
            self._blocks = max(1, min(self._blocks, _DECODE_BYTES // (8 * records.line)))
        items = records.items(self._blocks)
        self._ends: list[int] = [0, *items.cumsum().tolist()]
        read = [tables[n] for n in records.read]
        on_host = np.array([type(table) is np.ndarray for table in read], bool)
        values = [table for table in read if type(table) is np.ndarray]
        parts: dict[str, Array] = {
            "values": np.concatenate([np.zeros(1, semiring.dtype), *values], axis=None),
            "tables": np.zeros(len(records.nodes), np.uint64),
            **records.described,
            "sizes": np.array(sizes, np.int32),
            "item_step": np.repeat(np.arange(len(items), dtype=np.int32), items),
            "first_item": np.array(self._ends, np.int32),
            "states": _states_array(known, len(sizes)),
            "ended": np.zeros(len(items), np.uint32),
            "taken": np.zeros(1 + len(records.left_to_caller), np.uint32),
        }
        at, block = arrays.side_by_side([*parts.values()])
        there = cupy().asarray(block).data
        places = dict(zip(parts, [there + place for place in at], strict=True))
        begins = np.cumsum([semiring.itemsize, *[value.nbytes for value in values[:-1]]], dtype=np.uint64)
        addresses = np.empty(len(read), np.uint64)
        addresses[on_host] = begins[: len(values)] + np.uint64(places["values"].ptr)
        addresses[~on_host] = [table.data.ptr for table in read if type(table) is not np.ndarray]
        listed = addresses[records.reads]
        to_device(listed, cupy().ndarray(len(listed), np.uint64, places["tables"]))
        lines = self._blocks * records.line if records.line > _SHARED_LINES else 1
        room = arrays.empty(lines, "int64"), arrays.empty(max(1, self._ends[-1]) * _PART_BYTES, "uint8")
        self._states = cupy().ndarray(len(sizes), np.int32, places["states"])
        self._records, self._held = records, (tables, there, listed, room)
        self._record = np.zeros((), _RECORD)
        for name in places.keys() & _RECORD.fields.keys():  # type: ignore[union-attr]
            self._record[name] = places[name].ptr
        self._record["offsets"], self._record["parts"] = room[0].data.ptr, room[1].data.ptr
        self._record["line"] = records.line
        self._record["bound"] = int(semiring.zero) if semiring.saturates else 0
        self._kernel = decode_kernel(semiring)
        self._count = len(sizes)

    def launch(self, first: int, last: int) -> None:
        """Find the states of the variables that some steps eliminated."""
        from .tiling.streams import THREADS

        begin, end = self._ends[first], self._ends[last]
        if begin == end:
            return
        self._record["first"], self._record["last"] = begin, end
        self._kernel((min(self._blocks, end - begin),), (THREADS,), (self._record,))
        self._record["taken"] += np.uint64(4)  # each launch counts by itself

    def states(self, steps: int) -> States:
        """Return the states found by the first steps, with the variables of one state."""
        variables = self._records.variables[: self._records.ends[steps]]
        found = self._states.get()[variables].tolist()
        return {**dict.fromkeys(self._records.others, 0), **dict(zip(variables, found, strict=True))}

    def replace(self, known: Mapping[int, int]) -> None:
        """Copy the states that are known to the device."""
        self._states.set(_states_array(known, self._count))


def decode_kernel(semiring: Semiring) -> Kernel:
    """Return the kernel that decodes tables of a semiring of costs."""
    return kernel("decode", "min_plus", semiring.dtype, **({"CLAMP": 1} if semiring.saturates else {}))


def _states_array(known: Mapping[int, int], count: int) -> Array:
    states = np.full(count, -1, np.int32)  # unknown
    if known:
        states[list(known)] = list(known.values())
    return states
