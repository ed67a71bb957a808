"""Tables of .wcsp files from the numbers of the whole file: functions of one arity and length are built together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..models.function import FORBIDDEN, Function, many_functions, state_dtype
from .format_policy import FormatPolicy
from .text.source import check_deadline
from .text.tables import MAX_AXES, take_functions
from .text.tokens import Tokens

# Cells are numbered by 64 bits.
_MOST_CELLS: Final = float(1 << 62)
# Domain sizes from which on states need more bytes.
_STATE_LIMITS: Final = (1 << 8, 1 << 16)
# A few integers for each number of the file.
_BYTES_FOR_NOW: Final = 40


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
        order = np.lexsort((self.counts, self.arities))
        arities, counts = self.arities[order], self.counts[order]
        changes = np.flatnonzero((np.diff(arities) != 0) | (np.diff(counts) != 0)) + 1
        most = FormatPolicy.current().token_block_bytes
        for which in np.split(order, changes):
            arity, count = int(self.arities[which[0]]), int(self.counts[which[0]])
            step = max(1, most // ((count + 1) * (arity + 1)))
            for first in range(0, len(which), step):
                yield arity, count, which[first : first + step]


def read_headers(
    numbers: NDArray[np.int64], at: int, n_functions: int, other: Callable[[int], int]
) -> tuple[Headers, list[int], int]:
    """Return the headers of plain tables, how many were before each other function, and the index behind the last.

    Parameters
    ----------
    numbers : ndarray, shape (words,)
        The whole file.
    at : int
        Where the first function starts.
    n_functions : int
    other : callable
        Reads the function at an index that is no plain table of variables, and returns the index behind it.

    Raises
    ------
    IndexError
        If the file ends before.
    """
    words: Any = numbers.data  # a memoryview, whose items are Python's integers
    starts, arities, counts, breaks = list[int](), list[int](), list[int](), list[int]()
    for _ in range(n_functions):
        arity = words[at]
        default_at = at + 1 + arity
        if arity <= 0 or words[default_at] < 0 or (count := words[default_at + 1]) < 0:
            breaks.append(len(starts))
            at = other(at)
            continue
        starts.append(at)
        arities.append(arity)
        counts.append(count)
        at = default_at + 2 + count * (arity + 1)
    if at > len(words):
        raise IndexError(at)
    return Headers(*(np.array(field, np.int64) for field in (starts, arities, counts))), breaks, at


@dataclass(frozen=True, eq=False)
class TableBuilder:
    """Build the functions of plain tables.

    Parameters
    ----------
    tokens : Tokens
        Counts memory.
    numbers : ndarray, shape (words,)
        The whole file.
    headers : Headers
    dims : tuple of int
        Domain sizes of all variables.
    top : int
        As the file has it.
    """

    tokens: Tokens
    numbers: NDArray[np.int64]
    headers: Headers
    dims: tuple[int, ...]
    top: int

    def functions(self) -> list[Function | None]:
        """Return the function of each header; None for a table that is irregular and must be read by itself.

        A table is irregular if a variable, state or cost is out of range, or a variable or a tuple occurs twice.
        """
        headers = self.headers
        take_functions(self.tokens, len(headers.starts), int(headers.arities.sum()))
        found: list[Function | None] = [None] * len(headers.starts)
        sizes = np.array(self.dims, np.int64)
        for arity, count, which in headers.groups():
            check_deadline()
            starts = headers.starts[which]
            scopes = self.numbers[starts[:, None] + np.arange(1, arity + 1)]
            ordered = np.sort(scopes, axis=1)
            good = (ordered[:, 0] >= 0) & (ordered[:, -1] < len(sizes)) & (np.diff(ordered) != 0).all(axis=1)
            which, starts, scopes = which[good], starts[good], scopes[good]
            if not which.size:
                continue
            self._build(found, which, starts + arity + 1, scopes, sizes[scopes], count)
        return found

    def _build(
        self,
        found: list[Function | None],
        which: NDArray[np.intp],
        at: NDArray[np.int64],
        scopes: NDArray[np.int64],
        sizes: NDArray[np.int64],
        count: int,
    ) -> None:
        """Build functions of one arity and number of tuples.

        Parameters
        ----------
        found : list
            Gets them.
        which : ndarray, shape (functions,)
            Their places in ``found``.
        at : ndarray, shape (functions,)
            Where their default costs stand.
        scopes, sizes : ndarray, shape (functions, arity)
            Their variables, and the sizes of these.
        count : int
            How many tuples each lists.
        """
        arity = scopes.shape[1]
        length = count * (arity + 1)
        self.tokens.allowance.take(0, f"tables of {count} tuples", for_now=_BYTES_FOR_NOW * length * len(at))
        cells = sizes.prod(axis=1, dtype=np.float64)
        if len(at) == 1:
            listed = self.numbers[int(at[0]) + 2 : int(at[0]) + 2 + length]
        else:
            listed = self.numbers[at[:, None] + np.arange(2, 2 + length)]
        tuples = listed.reshape(len(at), count, arity + 1)
        states, costs, defaults = tuples[:, :, :-1], tuples[:, :, -1], self.numbers[at]
        bad = (states.view(np.uint64) >= sizes[:, None].view(np.uint64)).any(axis=(1, 2))
        bad |= self._are_odd(costs).any(axis=1) | self._are_odd(defaults) | (cells >= _MOST_CELLS)
        highest = min(self.top, FORBIDDEN)
        costs, defaults = np.minimum(costs, highest), np.minimum(defaults, highest)
        steps = np.ones_like(sizes)
        steps[:, :-1] = sizes[:, :0:-1].cumprod(axis=1)[:, ::-1]
        places = (states * steps[:, None]).sum(axis=2)
        dense = (4 * count >= cells) & (arity <= MAX_AXES)
        rare = np.flatnonzero(~dense)
        ordered = np.sort(places[rare], axis=1)
        bad[rare] |= (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)

        full = dense & ~bad
        own = (array[full] for array in (scopes, sizes, defaults, places, costs))
        _put(found, which[full], self._dense(*own))
        kinds = np.searchsorted(_STATE_LIMITS, sizes.max(axis=1))
        for kind in np.unique(kinds[rare]).tolist():
            some = ~dense & ~bad & (kinds == kind)
            rows, values = states[some].astype(state_dtype([int(sizes[kinds == kind].max())])), costs[some]
            self._take(rows.nbytes + values.nbytes, values.size)
            rows.flags.writeable = values.flags.writeable = False
            functions = many_functions(map(tuple, scopes[some].tolist()), values, rows, defaults[some].tolist())
            _put(found, which[some], functions)

    def _are_odd(self, costs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether costs are none, or from ``FORBIDDEN`` on and below the top."""
        odd: NDArray[np.bool_] = (costs < 0) | ((costs >= FORBIDDEN) & (costs < self.top))
        return odd

    def _take(self, nbytes: int, count: int) -> None:
        self.tokens.allowance.take(nbytes, f"tables of {count} tuples")

    def _dense(
        self,
        scopes: NDArray[np.int64],
        sizes: NDArray[np.int64],
        defaults: NDArray[np.int64],
        places: NDArray[np.int64],
        costs: NDArray[np.int64],
    ) -> list[Function]:
        """Return dense functions, whose arrays are parts of one."""
        cells = sizes.prod(axis=1)
        self._take(8 * int(cells.sum()), costs.size)
        ends = cells.cumsum()
        table = np.repeat(defaults, cells)
        table[places + (ends - cells)[:, None]] = costs  # of repeated tuples the last one wins
        table.flags.writeable = False
        if len(sizes) and (sizes == sizes[0]).all():
            return many_functions(map(tuple, scopes.tolist()), table.reshape(len(sizes), *sizes[0].tolist()))
        parts = zip((ends - cells).tolist(), ends.tolist(), sizes.tolist(), strict=True)
        values = (table[start:stop].reshape(shape) for start, stop, shape in parts)
        return many_functions(map(tuple, scopes.tolist()), values)


def _put(found: list[Function | None], places: NDArray[np.intp], functions: Sequence[Function]) -> None:
    for place, function in zip(places.tolist(), functions, strict=True):
        found[place] = function
