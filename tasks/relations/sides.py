"""What operations on rows are made of, on one side: the host's, or a device's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..gpu.arrays import is_device
from ..steps.semiring import Semiring
from .host import HOST


class Side(Protocol):
    """Operations over arrays of one side; every side gives the same bits (sums of logarithms: up to rounding)."""

    @property
    def arrays(self) -> Any:
        """NumPy, or CuPy."""

    def repacked(self, words: Any, moves: Any, n_words: int) -> Any:
        """Move fields of keys to where they stand in another layout (see :meth:`.rows.keys.Keys.moves`)."""

    def packed(self, cells: Any, digits: Sequence[tuple[int, int, int, int, int]]) -> Any:
        """Return the keys of cells of a dense table from (word, shift, bits, stride, domain size) by variable."""

    def offsets(self, words: Any, parts: Any) -> Any:
        """Return where keys stand in a dense table (see :meth:`.rows.keys.Keys.gathers`), int64."""

    def matching(self, words: Any, mask: Any, wanted: Any) -> Any:
        """Return the numbers of keys that are `wanted` in the bits of `mask`, int64."""

    def order(self, words: Any) -> Any:
        """Return the numbers of rows in stable ascending order of their keys; None where they stand in order."""

    def starts(self, words: Any) -> Any:
        """Return where runs of equal keys begin, int64."""

    def places(self, words: Any, among: Any) -> Any:
        """Return where keys stand among distinct ascending ones, -1 for those that do not, int64."""

    def spread(self, ends: Any, first: int, last: int) -> tuple[Any, Any]:
        """Return (row, number within the row) of outputs `first` to `last`; those of row i end before ``ends[i]``."""

    def product(self, left: Any, right: Any, semiring: Semiring) -> Any:
        """Multiply values."""

    def sums(self, values: Any, starts: Any, semiring: Semiring) -> Any:
        """Sum runs of values."""


def side_of(array: Any) -> Side:
    """Return the side on which an array is."""
    if is_device(array):
        raise NotImplementedError("rows on a device")
    return HOST
