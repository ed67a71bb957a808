"""Building gates: equal gates of a bucket are merged, and their memory is checked before.

Gates on disk are appended once while a circuit is made, and two passes over them put them in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...storage.files import free_bytes
from ..errors import BudgetError, format_bytes
from .circuit import CircuitPolicy, Gates, pieces, ranges

Array = NDArray[Any]
# Bytes in memory of a gate on disk: whether the root needs it, and its new number.
STORED_GATE_BYTES = 5
_KINDS = ("is_sum", "arities", "children")
# Gates as they are made, and again in order.
_PASSES = 2


def stored_bytes(gates: int, edges: int) -> int:
    """Return the bytes of gates and their children on disk."""
    return 9 * gates + 8 * edges


@dataclass(eq=False)
class StoredGates:
    """Gates in pieces; no gate of a piece has a child in the same piece.

    Parameters
    ----------
    folder : Path
        Folder of scratch files; the caller removes it.
    """

    folder: Path
    sizes: list[tuple[int, int]] = field(default_factory=list)
    _stored: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def verify_room(self, more: int, share: float) -> None:
        """Refuse before more is written if a circuit is far too large for the disk; ``share`` is the fraction built so
        far.

        Raises
        ------
        BudgetError
            With what it is expected to take and what is left.
        """
        expected = int(_PASSES * (self._stored + more) / share)
        left = free_bytes(self.folder) + self._stored
        if expected > left * (CircuitPolicy.current().disk_margin if share < 1 else 1):
            raise BudgetError(
                f"the circuit is expected to take {format_bytes(expected)} of disk, estimated at {share:.0%} of it, "
                "but "
                f"{self.folder} has {format_bytes(left)} free; set TMPDIR to another disk, or give more memory"
            )

    def append(self, is_sum: Array | bool, counts: Array, children: Array) -> None:
        """Write gates that are made of earlier ones alone.

        Raises
        ------
        BudgetError
            If the disk has no room for them and for the circuit.
        """
        kinds = np.broadcast_to(np.asarray(is_sum, np.bool_), len(counts))
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        self._stored += stored_bytes(len(counts), len(children))
        needed = _PASSES * self._stored
        if (left := free_bytes(self.folder)) < needed:
            raise BudgetError(
                f"the circuit needs {format_bytes(needed)} of disk by now, but {self.folder} has "
                f"{format_bytes(left)} left"
            )
        for piece in pieces(starts, CircuitPolicy.current().stored_edges):
            edges = children[starts[piece.start] : starts[piece.stop]]
            parts = kinds[piece], counts[piece].astype(np.int64), edges.astype(np.int64)
            for name, part in zip(_KINDS, parts, strict=True):
                with (self.folder / name).open("ab") as file:
                    np.ascontiguousarray(part).tofile(file)
            self.sizes.append((piece.stop - piece.start, len(edges)))

    def _pieces(self, *, backward: bool = False) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the number of the first gate of each piece, and its kinds, numbers of children, and children."""
        ends = np.cumsum(np.array([(0, 0), *self.sizes], np.int64), axis=0)
        order = range(len(self.sizes))
        for k in reversed(order) if backward else order:
            (gate, edge), (gates, edges) = ends[k].tolist(), self.sizes[k]
            yield (
                gate,
                np.fromfile(self.folder / "is_sum", np.bool_, gates, offset=gate),
                np.fromfile(self.folder / "arities", np.int64, gates, offset=8 * gate),
                np.fromfile(self.folder / "children", np.int64, edges, offset=8 * edge),
            )

    def reachable(self, first: int) -> tuple[Gates, Array, Array]:
        """Drop what the last gate is not made of.

        Parameters
        ----------
        first : int
            The number of the first gate.

        Returns
        -------
        Gates
            With leaves and gates numbered anew; its arrays are in files.
        ndarray of int
            The leaves that are left.
        ndarray of int64
            Where pieces of the gates begin, and their end.
        """
        total = first + sum(gates for gates, _ in self.sizes)
        used = np.zeros(total, np.bool_)
        used[-1] = True
        # parents come after their children, so one backward pass marks everything that is used
        for gate, _, counts, children in self._pieces(backward=True):
            own = used[first + gate : first + gate + len(counts)]
            used[children[np.repeat(own, counts)]] = True
        dtype = np.int32 if total < 1 << 31 else np.int64
        numbers: Array = np.cumsum(used, dtype=dtype)
        np.subtract(numbers, 1, out=numbers)
        parts, edge = [0], 0
        for name in ("kept_is_sum", "kept_starts", "kept_children"):
            (self.folder / name).unlink(missing_ok=True)
        for gate, kinds, counts, children in self._pieces():
            left = np.flatnonzero(used[first + gate : first + gate + len(counts)])
            if not len(left):
                continue
            ends = np.cumsum(counts)
            kept = numbers[children[ranges(ends[left] - counts[left], ends[left])]]
            self._write("kept_is_sum", kinds[left])
            self._write("kept_starts", edge + np.cumsum(counts[left]) - counts[left])
            self._write("kept_children", kept)
            edge += len(kept)
            parts.append(parts[-1] + len(left))
        self._write("kept_starts", np.array([edge], np.int64))
        arrays = [
            self._mapped(name, own) for name, own in (("is_sum", np.bool_), ("starts", np.int64), ("children", dtype))
        ]
        return Gates(*arrays), np.flatnonzero(used[:first]), np.array(parts, np.int64)

    def _write(self, name: str, part: Array) -> None:
        with (self.folder / name).open("ab") as file:
            part.tofile(file)

    def _mapped(self, name: str, dtype: Any) -> Array:
        path = self.folder / f"kept_{name}"
        return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)


# Nominal seconds of one byte of a join's rows, all that is done with them included: 42 ns of insurance, 26 of
# water, 16 of barley.
_ROW_BYTE_SECONDS: Final = 2e-8


NOTHING = -1
"""In place of a child: a factor of 1."""
# Bytes of a row of a join while its product is built: itself, its children, sorted, packed and distinct copies; and the
# numbers for sorting.
_COPIES, WORK_BYTES = 4, 48
# Maximum bytes of an edge and of a gate: at the end, when gates are sorted and useless ones removed.
EDGE_BYTES, GATE_BYTES = 56, 40


class TurnOver(Exception):
    """The next work takes more seconds than the turn has left."""


class JoinTooLargeError(BudgetError):
    """A join does not fit memory."""


@dataclass(eq=False)
class GateStore:
    """Gates that are made one bucket after the other.

    Parameters
    ----------
    first : int
        The number of the first gate: how many leaves there are.
    allowed_bytes : int
        For gates, and the tables that they are made from.
    expected_bytes : float
        Maximum bytes of the circuit, by the cells of the plan.
    turn_seconds : float
        Nominal seconds that all joins may take until now; raised from turn to turn.
    reserved_bytes : int
        Of what is allowed, for others.
    disk : StoredGates, optional
        Place of gates that no longer fit in memory beside the next work.
    made_share : float
        The part of all cells that is made by now, for the price of the disk.
    """

    first: int
    allowed_bytes: int
    expected_bytes: int = 0
    held_bytes: int = 0
    turn_seconds: float = math.inf
    reserved_bytes: int = 0
    disk: StoredGates | None = None
    made_share: float = 0.0
    blocks: list[tuple[Array | bool, Array, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next, self.seconds = self.first, 0.0

    def take_room(self, rows: int, row_bytes: int, worked_bytes: int, where: str) -> None:
        """Refuse a join before it is made, if it and the circuit so far are too large, or for another turn.

        Parameters
        ----------
        rows, row_bytes : int
            Of the join.
        worked_bytes : int
            Bytes of a row for the nominal time.
        where : str
            Which join it is.

        Raises
        ------
        JoinTooLargeError
            With the needed bytes, the maximum by the plan's cells, and the limit.
        TurnOver
            If it takes longer than what is left of the turn.
        """
        joined = rows * (_COPIES * row_bytes + WORK_BYTES)
        needed = self.held_bytes + joined
        if needed > self.allowed_bytes - self.reserved_bytes and self.disk is not None:
            self.store_blocks(self.disk)
            needed = self.held_bytes + joined
        if needed > self.allowed_bytes - self.reserved_bytes:
            raise JoinTooLargeError(
                f"the circuit needs at least {format_bytes(needed)} {where}, with dense tables at most "
                f"{format_bytes(self.expected_bytes)}, allowed {format_bytes(self.allowed_bytes)}; give more memory"
            )
        seconds = rows * worked_bytes * _ROW_BYTE_SECONDS
        if self.seconds + seconds > self.turn_seconds:
            raise TurnOver
        self.seconds += seconds

    def store_blocks(self, disk: StoredGates) -> None:
        """Write all gates that are in memory to disk, if that has room for as many a cell of all that is to come."""
        waiting = sum(stored_bytes(len(counts), len(children)) for _, counts, children in self.blocks)
        if self.made_share:
            disk.verify_room(waiting, self.made_share)
        for is_sum, counts, children in self.blocks:
            disk.append(is_sum, counts, children)
            self.held_bytes -= EDGE_BYTES * len(children) + (GATE_BYTES - STORED_GATE_BYTES) * len(counts)
        self.blocks.clear()

    def products(self, children: Array) -> Array:
        """Return a product for each row of children, shape (rows, most); ``NOTHING`` counts for 1.

        A product of one child is that child, of none ``NOTHING``.
        """
        rows, place = _distinct(np.sort(children, axis=1))
        counts = np.count_nonzero(rows != NOTHING, axis=1)
        found = np.full(len(rows), NOTHING, np.int64)
        one = counts == 1
        found[one] = rows[one, -1]
        made = counts > 1
        found[made] = self.add(False, counts[made], rows[made][rows[made] != NOTHING])
        return found[place]

    def sums(self, starts: Array, children: Array) -> Array:
        """Return a sum for each run of children, without empty runs; the sum of one child is that child."""
        counts = np.diff(np.append(starts, len(children)))
        found = np.empty(len(starts), np.int64)
        for count in np.unique(counts).tolist():
            same = np.flatnonzero(counts == count)
            rows = np.sort(children[starts[same][:, np.newaxis] + np.arange(count)], axis=1)
            if count == 1:
                found[same] = rows[:, 0]
                continue
            rows, place = _distinct(rows)
            found[same] = self.add(True, np.full(len(rows), count), rows.reshape(-1))[place]
        return found

    def add(self, is_sum: Array | bool, counts: Array, children: Array) -> Array:
        """Add gates of one kind, or each of its own, and return their numbers."""
        numbers = np.arange(self.next, self.next + len(counts))
        if len(counts):
            self.blocks.append((is_sum, counts, children))
            self.held_bytes += EDGE_BYTES * len(children) + GATE_BYTES * len(counts)
            self.next += len(counts)
        return numbers

    def end(self, children: Array) -> None:
        """Add the root: a product, or the sum of nothing if one of them is missing."""
        if self.next > self.first and len(children) == 1 and children[0] == self.next - 1:
            return
        self.add(False, np.array([len(children)]), children)

    def end_impossible(self) -> None:
        """Add a root that is 0."""
        self.add(True, np.array([0]), np.zeros(0, np.int64))

    def reachable(self) -> tuple[Gates, Array, Array | None]:
        """Drop what the last gate is not made of.

        Returns
        -------
        Gates
            With leaves and gates numbered anew; in files where some were on disk.
        ndarray of int
            The leaves that are left.
        ndarray of int64 or None
            For gates in files: the start of each piece and the end. No gate of a piece has a child in the same piece.
        """
        if self.disk is not None and self.disk.sizes:
            self.store_blocks(self.disk)
            return self.disk.reachable(self.first)
        return (*reachable(self.gates(), self.first), None)

    def gates(self) -> Gates:
        """Return all gates, which are in memory."""
        kinds = [np.full(len(counts), is_sum) for is_sum, counts, _ in self.blocks]
        arities = np.concatenate([counts for _, counts, _ in self.blocks])
        children = np.concatenate([children for *_, children in self.blocks])
        return Gates(np.concatenate(kinds), np.append(0, arities.cumsum()), children)


def _distinct(rows: Array) -> tuple[Array, Array]:
    """Return distinct rows, and for each given one which it is."""
    if rows.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), np.intp)
    order = np.lexsort(_packed(rows).T[::-1])
    ordered = rows[order]
    new = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))[: len(order)]
    place = np.empty(len(order), np.intp)
    place[order] = new.cumsum() - 1
    return ordered[new], place


def _packed(rows: Array) -> Array:
    """Return rows in the same order of fewer columns, two numbers in one where they fit: half as many are sorted."""
    if rows.shape[1] < 2 or not len(rows) or rows.max() >= (1 << 31) - 1:
        return rows
    even = rows if rows.shape[1] % 2 == 0 else np.concatenate([np.full((len(rows), 1), NOTHING), rows], axis=1)
    pairs: Array = ((even[:, ::2] + 1) << 31) | (even[:, 1::2] + 1)
    return pairs


def reachable(gates: Gates, first: int) -> tuple[Gates, Array]:
    """Drop what the last gate is not made of.

    Returns
    -------
    Gates
        With leaves and gates numbered anew.
    ndarray of int
        The leaves that are left.
    """
    used = np.zeros(first + len(gates), np.bool_)
    used[-1] = True
    depth = depths_descending(gates, first)
    for part in depth:
        own = part[used[part + first]]
        used[gates.children[ranges(gates.starts[own], gates.starts[own + 1])]] = True
    kept = np.flatnonzero(used[first:])
    numbers = used.cumsum() - 1
    children = numbers[gates.children[ranges(gates.starts[kept], gates.starts[kept + 1])]]
    dtype = np.int32 if len(numbers) < 1 << 31 else np.int64
    starts = np.append(0, gates.arities[kept].cumsum())
    return Gates(gates.is_sum[kept], starts, children.astype(dtype)), np.flatnonzero(used[:first])


def depths_descending(gates: Gates, first: int) -> list[Array]:
    """Return the gates by depth, the deepest first."""
    from .circuit import depths_of

    depth = depths_of(gates, first)
    order = np.argsort(-depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1)
