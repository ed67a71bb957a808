"""Gates that are on disk while a circuit is made: appended once, and put in order by two passes over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
