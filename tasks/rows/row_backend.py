"""Building blocks of joins and sorts of rows: one protocol, and the backend of an array, on the host or a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..gpu.arrays import is_device
from ..steps.semiring import Semiring
from .host import HOST
from .keys import Keys


class Index(Protocol):
    """Rows that stand together by their keys."""

    def find(self, words: Any) -> tuple[Any, Any]:
        """Return the first row of each key and how many there are, int64; 0 where there are none."""


class RowBackend(Protocol):
    """Operations over arrays of one place; every backend gives the same bits (sums of logarithms: up to rounding)."""

    @property
    def arrays(self) -> Any:
        """NumPy, or CuPy."""

    def block_rows(self, budget_rows: int) -> int:
        """Return how many rows at a time are fastest."""

    def repacked(self, words: Any, moves: Any, n_words: int) -> Any:
        """Move fields of keys to where they stand in another layout (see :meth:`.rows.keys.Keys.moves`)."""

    def offsets(self, words: Any, parts: Any) -> Any:
        """Return where keys stand in a dense table (see :meth:`.rows.keys.Keys.gathers`), int64."""

    def scattered(self, words: Any, values: Any, parts: Any, out: Any) -> None:
        """Set the entries of a dense table where keys stand (see :meth:`.rows.keys.Keys.gathers`)."""

    def order(self, words: Any) -> Any:
        """Return the numbers of rows in stable ascending order of their keys; None where they stand in order."""

    def starts(self, words: Any, mask: Any = None) -> Any:
        """Return where runs begin of keys that are equal in the bits of `mask` (None: in all), int64."""

    def between(self, words: Any, low: Any, high: Any) -> tuple[int, int]:
        """Return the start and the end of the ascending keys that lie between two keys.

        Parameters
        ----------
        low, high : (1, words) uint64, of the host
        """

    def inside(self, words: Any, fields: Any) -> Any:
        """Return which keys have states within ranges, ``(rows,) bool``.

        Parameters
        ----------
        fields : (fields, 5) uint64, of the host
            Word, shift, mask, first state and the one behind the last.
        """

    def index(self, words: Any, keys: Keys, ascending: bool) -> Index:
        """Return where rows are that are looked for by their keys, which ascend.

        `ascending` says that what is looked for at a time ascends too.
        """

    def expanded(
        self, matches: tuple[Any, Any], span: tuple[int, int], words: tuple[Any, Any], values: tuple[Any, Any],
        semiring: Semiring,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the nonzero outputs of a join.

        Parameters
        ----------
        matches : (rows,) int64, (rows,) int64
            Row i of the left meets rows of the right from the first number on; its outputs end before the second.
        span : int, int
            The first output, and the one behind the last.
        words, values
            Keys in the layout of the result, zeros where an input has no state, and values, of left and right.
        """

    def expanded_sums(
        self, matches: tuple[Any, Any], span: tuple[int, int], words: tuple[Any, Any], values: tuple[Any, Any],
        semiring: Semiring, most: int,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return :meth:`expanded` with ascending keys, equal keys summed in their order, without zeros.

        Parameters
        ----------
        most : int
            How many different keys there are, at most.
        """

    def multiplied(self, words: Any, values: Any, parts: Any, table: Any, semiring: Semiring) -> tuple[Any, Any]:
        """Return rows multiplied with entries of a dense table, without zeros.

        Parameters
        ----------
        parts : (parts, 4) uint64, of the host
            Where the entry of a key stands (see :meth:`.rows.keys.Keys.gathers`).
        table : (cells,)
        """

    def product_sums(
        self, rows: tuple[Any, Any], factor: tuple[Any, Any] | None, mask: Any, moves: tuple[Any, int],
        semiring: Semiring, most: int,
    ) -> tuple[Any, Any] | None:  # fmt: skip
        """Return :meth:`gathered` keys of :meth:`multiplied` rows at once, or None.

        Parameters
        ----------
        rows : (rows, words) uint64, (rows,)
            Keys in ascending order, and values.
        factor : (parts, 4) uint64 and (cells,), optional
            As for :meth:`multiplied`.
        mask : (words,) uint64, of the host
            Rows with equal keys in these bits are summed; other bits are less significant.
        moves : (moves, 5) uint64, int
            The layout of the resulting keys (see :meth:`.rows.keys.Keys.moves`), and their words.
        semiring : Semiring
        most : int
            Different keys, at most.
        """

    def merged(self, runs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Merge runs of keys and values, each in ascending order; among equal keys, rows of earlier runs come first."""

    def gathered(self, words: Any, values: Any, semiring: Semiring | None, group: Any, mask: Any) -> tuple[Any, Any]:
        """Return rows in ascending order of their keys, equal ones summed in the order they had, without zeros.

        Parameters
        ----------
        semiring : Semiring or None
            None where no keys are equal and no values zero.
        group, mask : (words,) uint64, of the host
            Rows that agree in the bits of `group` are neighbours and in order. Rows that also agree in the bits of
            `mask`, which are less significant, are in order.
        """


def backend_of(array: Any) -> RowBackend:
    """Return the backend for where an array is."""
    if is_device(array):
        from .device import DEVICE

        return DEVICE
    return HOST
