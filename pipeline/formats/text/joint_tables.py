"""Tables of listed tuples, built together: tables of one arity and one number of tuples are parts of one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.light_dataclass import dataclass
from ...models.function import Function, many_functions, state_dtype
from ..format_policy import FormatPolicy
from .source import Allowance
from .tables import MAX_AXES

# Cells are numbered by 64 bits.
_MOST_CELLS: Final = float(1 << 62)
# Domain sizes from which on states need more bytes.
_STATE_LIMITS: Final = (1 << 8, 1 << 16)


@dataclass(frozen=True, eq=False)
class Headers:
    """Where functions start in the numbers of a file, and how long they are.

    Parameters
    ----------
    starts : ndarray of int
        The index of each function's arity.
    arities, counts : ndarray of int
        Variables and listed tuples of each function.
    """

    starts: NDArray[np.int64]
    arities: NDArray[np.int64]
    counts: NDArray[np.int64]

    def groups(self) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
        """Yield arity, number of tuples, and the functions of both, not too many at a time."""
        if not len(self.starts):
            return
        order = np.lexsort((self.counts, self.arities))
        arities, counts = self.arities[order], self.counts[order]
        changes = np.flatnonzero((np.diff(arities) != 0) | (np.diff(counts) != 0)) + 1
        most = FormatPolicy.current().token_block_bytes
        for which in np.split(order, changes):
            arity, count = int(self.arities[which[0]]), int(self.counts[which[0]])
            step = max(1, most // ((count + 1) * (arity + 1)))
            for first in range(0, len(which), step):
                yield arity, count, which[first : first + step]


@dataclass(frozen=True, eq=False)
class TupleTables:
    """Tables of one arity and one number of listed tuples.

    Parameters
    ----------
    allowance : Allowance
        Counts memory.
    scopes, sizes : ndarray of int64, shape (tables, arity)
        The variables of each table, which are distinct, and their domain sizes.
    states : ndarray of int64, shape (tables, tuples, arity)
        The listed tuples.
    costs : ndarray of int64, shape (tables, tuples)
    defaults : ndarray of int64, shape (tables,)
        The costs of tuples that are not listed.
    """

    allowance: Allowance
    scopes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    states: NDArray[np.int64]
    costs: NDArray[np.int64]
    defaults: NDArray[np.int64]

    def functions(self, bad: NDArray[np.bool_], unique: bool = False) -> list[Function | None]:
        """Return the function of each table; None for a bad or irregular table.

        Parameters
        ----------
        bad : ndarray of bool, shape (tables,)
            Tables that are known to be bad.
        unique : bool
            Whether dense tables that list a tuple twice are irregular. Otherwise the last cost of the tuple holds.
        """
        found: list[Function | None] = [None] * len(self.scopes)
        sizes, (count, arity) = self.sizes, self.states.shape[1:]
        cells = sizes.prod(axis=1, dtype=np.float64)
        bad = bad | (self.states.view(np.uint64) >= sizes[:, None].view(np.uint64)).any(axis=(1, 2))
        bad |= cells >= _MOST_CELLS
        steps = np.ones_like(sizes)
        steps[:, :-1] = sizes[:, :0:-1].cumprod(axis=1)[:, ::-1]
        places = (self.states * steps[:, None]).sum(axis=2)
        dense = (4 * count >= cells) & (arity <= MAX_AXES)
        checked = np.flatnonzero(~dense | unique)
        ordered = np.sort(places[checked], axis=1)
        bad[checked] |= (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)

        full = np.flatnonzero(dense & ~bad)
        if full.size:
            put(found, full, self._dense(full, places))
        kinds = np.searchsorted(_STATE_LIMITS, sizes.max(axis=1))
        for kind in sorted(set(kinds[~dense].tolist())):
            some = ~dense & ~bad & (kinds == kind)
            rows = self.states[some].astype(state_dtype([int(sizes[kinds == kind].max())]))
            values = self.costs[some]
            self._take(rows.nbytes + values.nbytes, values.size)
            rows.flags.writeable = values.flags.writeable = False
            defaults = self.defaults[some].tolist()
            put(found, np.flatnonzero(some), many_functions(self._scopes(some), values, rows, defaults))
        return found

    def _scopes(self, which: NDArray[Any]) -> Iterator[tuple[int, ...]]:
        return map(tuple, self.scopes[which].tolist())

    def _take(self, nbytes: int, count: int) -> None:
        self.allowance.take(nbytes, f"tables of {count} tuples")

    def _dense(self, which: NDArray[np.intp], places: NDArray[np.int64]) -> list[Function]:
        """Return dense functions, whose arrays are parts of one."""
        sizes = self.sizes[which]
        cells = sizes.prod(axis=1)
        self._take(8 * int(cells.sum()), self.costs[which].size)
        ends = cells.cumsum()
        table = np.repeat(self.defaults[which], cells)
        table[places[which] + (ends - cells)[:, None]] = self.costs[which]  # of repeated tuples the last one wins
        table.flags.writeable = False
        if (sizes == sizes[0]).all():
            return many_functions(self._scopes(which), table.reshape(len(sizes), *sizes[0].tolist()))
        parts = zip((ends - cells).tolist(), ends.tolist(), sizes.tolist(), strict=True)
        return many_functions(self._scopes(which), (table[start:stop].reshape(shape) for start, stop, shape in parts))


def put(found: list[Function | None], places: NDArray[np.intp], functions: Sequence[Function | None]) -> None:
    """Put functions at their places in a list."""
    for place, function in zip(places.tolist(), functions, strict=True):
        found[place] = function
