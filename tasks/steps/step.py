"""One table operation as a value, and its lowering: steps of equal structure are lowered once.

The tables of a small step are joined two at a time: the pairs, and the memory that they need, follow from sizes only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from heapq import heappop, heappush
from math import log, prod
from typing import NamedTuple

from .axes import Axes, Sizes, bits_of
from .lowering import Lowered, Quick, lower
from .semiring import Semiring

Join = tuple[int, int, str]
"""Positions of two tables that are taken out of the list and joined; the result goes to its end."""

# Maximum tables of a step for which every pair is considered; with more tables, only neighbouring pairs are. More
# tables are always joined in pairs, because some versions of NumPy's einsum accept at most 32.
_FEW_TABLES = 24


def pairwise(terms: Sequence[str], out: str, sizes: Mapping[str, int]) -> tuple[tuple[Join, ...], list[str], int]:
    """Join tables until two are left: each time those two whose join grows the least.

    Parameters
    ----------
    terms : sequence of str
        The axes of each table, a letter each.
    out : str
        The axes of the output, in the order in which joins have theirs.
    sizes : mapping of str to int

    Returns
    -------
    joins : tuple of Join
    left : list of str
        The axes of the tables that are left.
    cells : int
        Cells of the results that are there at the same time, at most.
    """
    if len(terms) < 3:
        return (), [*terms], 0
    joiner = _PairJoiner(terms, out, sizes)
    while len(joiner.alive) > 2:
        joiner.join(*joiner.best())
    return tuple(joiner.joins), joiner.left, joiner.peak


class _PairJoiner:
    """The tables that are left, and the pairs that may be joined next, the best first.

    Tables are bit sets of axes, numbered in the order of their appearance. One additional bit is an axis of one state
    that all tables have: it makes tables neighbours that share no other axis.
    """

    def __init__(self, terms: Sequence[str], out: str, sizes: Mapping[str, int]) -> None:
        self._letters = sorted({*out, *"".join(terms)})
        bit = {letter: 1 << i for i, letter in enumerate(self._letters)}
        everywhere = 1 << len(bit)
        dims = [*(sizes[letter] for letter in self._letters), 1]
        self._sizes = Sizes(dims)
        self.masks = [everywhere + sum(bit[letter] for letter in term) for term in terms]
        self._text = list(terms)
        self._keys: list[tuple[int, int, int]] = []
        self._given = len(terms)
        self._few = len(terms) <= _FEW_TABLES
        self._stays = everywhere + sum(bit[letter] for letter in out)
        self.alive: list[int] = []
        self.joins: list[Join] = []
        self.live = self.peak = 0
        # the tables that have an axis, by their scopes: equal ones are side by side, small ones before large ones
        self._holders: list[list[tuple[int, int, int]]] = [[] for _ in dims]
        self._private = self._shared = 0
        self._heap: list[tuple[int, int, int]] = []
        for table in range(self._given):
            self._add(table)
        self._private = sum(1 << i for i, held in enumerate(self._holders) if len(held) == 1) & ~self._stays
        self._shared = sum(1 << i for i, held in enumerate(self._holders) if len(held) == 2) & ~self._stays
        for table in range(self._given):
            self._consider(table, [other for other in self._neighbours(table) if other < table])

    @property
    def left(self) -> list[str]:
        """The axes of the tables that are left."""
        return [self._text[table] for table in self.alive]

    def best(self) -> tuple[int, int]:
        """Return the next pair, the earlier table first."""
        while True:
            _, right, left = heappop(self._heap)
            if self.masks[left] and self.masks[right]:
                return left, right

    def join(self, left: int, right: int) -> None:
        """Replace two tables by their join; an axis that no other table and not the output has is summed out."""
        a, b, sizes = self.masks[left], self.masks[right], self._sizes
        mask, table = self._joined(a, b), len(self.masks)
        i, j = bisect_left(self.alive, left), bisect_left(self.alive, right)
        text = "".join([self._letters[k] for k in bits_of(mask) if k < len(self._letters)])
        self.joins.append((i, j, f"{self._text[left]},{self._text[right]}->{text}"))
        self._text.append(text)
        self.live += sizes[mask]
        self.peak = max(self.peak, self.live)
        self.live -= sum([sizes[self.masks[each]] for each in (left, right) if each >= self._given])
        self._remove(left, i)
        self._remove(right, j - 1)
        self.masks.append(mask)
        self._add(table)
        self._note(a & b)
        self._consider(table, self._neighbours(table))

    def _note(self, axes: int) -> None:
        """Look again at the axes that two tables had: where two have it now, their join becomes smaller."""
        self._shared &= ~axes
        for axis in bits_of(axes & ~self._stays):
            held = self._holders[axis]
            if len(held) == 2:
                self._shared |= 1 << axis
                self._consider(held[0][2], [held[1][2]])

    def _joined(self, a: int, b: int) -> int:
        return (a | b) & ~(a & b & self._shared | self._private)

    def _consider(self, table: int, others: Iterable[int]) -> None:
        """Enter pairs by how many cells more their join has than they have."""
        masks, sizes, mask = self.masks, self._sizes, self.masks[table]
        for other in others:
            b = masks[other]
            growth = sizes[self._joined(mask, b)] - sizes[mask] - sizes[b]
            heappush(self._heap, (growth, table, other) if other < table else (growth, other, table))

    def _neighbours(self, table: int) -> set[int]:
        if self._few:
            return {other for other in self.alive if other != table}
        key = self._keys[table]
        found: set[int] = set()
        for axis in bits_of(self.masks[table]):
            held = self._holders[axis]
            at = bisect_left(held, key)
            found.update(other for *_, other in held[max(at - 1, 0) : at + 2])
        return found - {table}

    def _add(self, table: int) -> None:
        self.alive.append(table)
        mask = self.masks[table]
        key = mask.bit_count(), mask, table
        self._keys.append(key)
        for axis in bits_of(mask):
            insort(self._holders[axis], key)

    def _remove(self, table: int, position: int) -> None:
        del self.alive[position]
        key = self._keys[table]
        for axis in bits_of(self.masks[table]):
            held = self._holders[axis]
            del held[bisect_left(held, key)]
        self.masks[table] = 0


# Maximum cells for which einsum is faster than NumPy's broadcasting, and than loading or starting compiled loops.
QUICK_CELLS = 1 << 17
# With three tables or more einsum has only its slow general loop: from here on they are joined two at a time,
# which is faster than NumPy broadcasting, but soon not than compiled loops.
_PAIRWISE_CELLS, MOST_PAIRWISE_CELLS = 512, 1 << 20
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Step(NamedTuple):
    """One table operation: combine ``inputs``, eliminate the variables that the output lacks.

    Parameters
    ----------
    node : int
        The table that this step makes (a node of the tree).
    inputs : tuple of int
        The tables that it reads.
    input_axes, axes : tuples of int
        Variables of each input and of the output, in the order of their axes.
    lowered : Lowered
        The loops, fixed at planning time.
    """

    node: int
    inputs: tuple[int, ...]
    input_axes: tuple[tuple[int, ...], ...]
    axes: tuple[int, ...]
    lowered: Lowered


def make_step(
    node: int,
    inputs: tuple[int, ...],
    input_axes: tuple[tuple[int, ...], ...],
    axes: tuple[int, ...],
    sizes: Sequence[int],
    semiring: Semiring,
    *,
    keep: bool = True,
) -> Step:
    """Lower a step; steps that differ only in the names of their variables are lowered once.

    Unless ``keep`` is set, nothing is remembered about a step whose sizes occur once.
    """
    names: dict[int, int] = {}
    for scope in input_axes:
        for v in scope:
            if v not in names:
                names[v] = len(names)
    name = names.__getitem__
    renamed = tuple([tuple(map(name, scope)) for scope in input_axes])
    lowered = _lowered if keep else _lowered.__wrapped__
    size = tuple(map(sizes.__getitem__, names))
    return Step(node, inputs, input_axes, axes, lowered(renamed, tuple(map(name, axes)), size, semiring))


@lru_cache(maxsize=1 << 13)
def _lowered(
    input_axes: tuple[tuple[int, ...], ...], axes: tuple[int, ...], sizes: tuple[int, ...], semiring: Semiring
) -> Lowered:
    if semiring.name != "sum_product":
        return lower(input_axes, axes, sizes, semiring.dtype, semiring)
    most = QUICK_CELLS if len(input_axes) < 3 else MOST_PAIRWISE_CELLS
    quick = partial(_quick, most, semiring.itemsize)
    return lower(input_axes, axes, sizes, semiring.dtype, semiring, quick)


def _quick(most: int, itemsize: int, fused: Axes) -> tuple[Quick, int] | None:
    """Return the einsum of a step, and the bytes of its temporaries; None for more than ``most`` cells."""
    sizes, cells = fused.sizes, fused.cells
    if cells > most or len(sizes) > len(_LETTERS):
        return None
    orders = [_axis_order(strides) for strides in fused.strides]
    shapes = tuple([tuple([sizes[a] for a in order]) for order in orders])
    terms = ["".join([_LETTERS[a] for a in order]) for order in orders]
    out = _LETTERS[fused.eliminated : len(sizes)]
    pairs: tuple[Join, ...] = ()
    workspace = 0
    if cells >= _PAIRWISE_CELLS or len(terms) > _FEW_TABLES:
        pairs, terms, workspace = pairwise(terms, out, dict(zip(_LETTERS, sizes, strict=False)))
    summed = log(prod(sizes[: fused.eliminated]))
    return Quick(shapes, f"{','.join(terms)}->{out}", pairs, summed), workspace * itemsize


def _axis_order(strides: Sequence[int]) -> list[int]:
    """Return the axes that a table has, the most significant first."""
    return sorted([axis for axis, stride in enumerate(strides) if stride], key=strides.__getitem__, reverse=True)
