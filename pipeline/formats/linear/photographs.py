"""Photographs of satellites: SPOT 5's choice of cameras (.spot), and toulbar2's schedules of one camera (.bep)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import LARGEST_INT32
from ...models.model import FORBIDDEN, Function, Model
from ..decimal_costs import decimal_places
from ..format_policy import OBJECT_BYTES, STATE_BYTES
from ..global_functions.decomposition import Decomposition
from ..text.source import Source
from ..text.tables import tuple_table
from ..text.tokens import WordStream
from .linear_machine import decided, linear_machine

_NOT_TAKEN = "none"
_LINES = 2
_WORDS = 7


@dataclass(frozen=True)
class _Photograph:
    """The value of a photograph, and its states after the first; the first state means not taken."""

    worth: int
    labels: tuple[str, ...]
    used: tuple[Decimal, ...] = ()

    def cost(self) -> NDArray[np.int64]:
        """Costs of its states."""
        return np.array([self.worth, *([0] * len(self.labels))], np.int64)


def _model(source: Source, names: Sequence[str], taken: Sequence[_Photograph], parts: Decomposition) -> Model:
    functions = [Function((v,), each.cost()) for v, each in enumerate(taken)]
    own = [(_NOT_TAKEN, *each.labels) for each in taken]
    return Model(
        kind="cost",
        names=parts.names(names),
        dims=tuple(parts.dims),
        states=(*own, *[None] * parts.hidden),
        functions=(*functions, *parts.functions),
        name=source.stem,
        hidden=parts.hidden,
    )


def read_spot(source: Source) -> Model:
    """Read a problem of SPOT 5: photographs with profits and cameras, and tuples of cameras that are forbidden.

    A photograph that is not taken costs its profit. State 0 means not taken; the other states have the file's camera
    names. The data of taken photographs must fit the recorder's capacity, if the file gives one (E. Bensana, M.
    Lemaître and G. Verfaillie, Earth observation satellite management, Constraints 4, 1999).

    Raises
    ------
    FormatError
        If the file is malformed.
    BudgetError
        If the capacity is one of too many sums.
    """
    tokens = WordStream(source)
    lines = _lines(source)
    reader = _SpotReader(tokens, lines)
    taken = [reader.photograph(v) for v in range(reader.count)]
    parts = Decomposition([1 + len(each.labels) for each in taken], FORBIDDEN, source.allowance)
    at = reader.start(reader.count + 1)
    tuples = tokens.integer(at, "the number of forbidden sets", 0, len(tokens))
    if reader.count + 2 + tuples > len(lines) or reader.count + 3 + tuples < len(lines):
        raise tokens.fail(len(tokens), f"{tuples} lines of forbidden tuples", f"{len(lines) - reader.count - 2} lines")
    for line in range(reader.count + 2, len(lines)):
        if lines[line] == 1:
            _limit(parts, taken, _capacity(tokens, reader.start(line)))
        else:
            reader.conflict(parts, taken, line)
    return _model(source, [str(v) for v in range(reader.count)], taken, parts)


def _lines(source: Source) -> list[int]:
    """Return the number of words of each non-empty line."""
    source.allowance.take(0, "its lines", for_now=64 * source.data.count(b"\n"))
    return [count for count in (len(line.split()) for line in source.data.splitlines()) if count]


def _capacity(tokens: WordStream, at: int) -> Decimal:
    return _amount(tokens, at, "the capacity")


def _amount(tokens: WordStream, at: int, what: str) -> Decimal:
    (number,) = tokens.converted([tokens.peek(at)], Decimal, f"{what}, a number", at.__add__)
    if not (number.is_finite() and 0 <= number <= LARGEST_INT32):
        raise tokens.fail(at, f"{what} from 0 to {LARGEST_INT32}")
    return number


class _SpotReader:
    """Reads the lines of a .spot."""

    def __init__(self, tokens: WordStream, lines: Sequence[int]) -> None:
        self.tokens, self.lines = tokens, lines
        self.starts = [0, *np.cumsum(lines).tolist()]
        self.count = tokens.integer(0, "the number of photographs", 1, len(tokens))

    def start(self, line: int) -> int:
        """Where a line begins."""
        return int(self.starts[min(line, len(self.lines))])

    def photograph(self, v: int) -> _Photograph:
        """Read the line of a photograph: its number, its profit, and its cameras with their data sizes."""
        tokens, at = self.tokens, self.start(v + 1)
        tokens.allowance.take(OBJECT_BYTES, "its photographs")
        tokens.integer(at, "photographs in order,", v, v)
        worth = tokens.integer(at + 1, "a profit", 0, LARGEST_INT32)
        cameras = tokens.integer(at + 2, "the number of cameras", 0, len(tokens))
        places = range(at + 3, at + 3 + 2 * cameras, 2)
        if self.start(v + 2) < at + 3 + 2 * cameras:
            raise tokens.fail(at, f"a line of {cameras} cameras, each with its data size")
        labels = tuple(str(tokens.integer(k, "a camera", 1, LARGEST_INT32)) for k in places)
        if len({*labels}) < cameras:
            raise tokens.fail(at + 3, "different cameras")
        return _Photograph(worth, labels, tuple(_amount(tokens, k + 1, "what a camera records") for k in places))

    def conflict(self, parts: Decomposition, taken: Sequence[_Photograph], line: int) -> None:
        """Read a line of forbidden tuples: how many photographs, which ones, and their cameras."""
        tokens, at = self.tokens, self.start(line)
        arity = tokens.integer(at, "the number of photographs of a tuple", 1, self.lines[line] - 1)
        scope = [tokens.integer(at + 1 + k, "a photograph", 0, self.count - 1) for k in range(arity)]
        rest = self.lines[line] - 1 - arity
        if len({*scope}) < arity or rest % arity:
            raise tokens.fail(at, f"{arity} different photographs, and tuples of as many cameras")
        rows = [*self._rows(taken, scope, at + 1 + arity, rest)]
        array = np.array(rows, np.int32).reshape(len(rows), arity)
        parts.add(tuple_table(scope, parts.dims, array, np.full(len(rows), FORBIDDEN, np.int64), 0))

    def _rows(self, taken: Sequence[_Photograph], scope: Sequence[int], at: int, count: int) -> Iterator[list[int]]:
        """Yield forbidden tuples by states; none where a photograph has no such camera."""
        for start in range(at, at + count, len(scope)):
            words = [str(self.tokens.integer(start + k, "a camera", 1)) for k in range(len(scope))]
            if all(word in taken[v].labels for word, v in zip(words, scope, strict=True)):
                yield [1 + taken[v].labels.index(word) for word, v in zip(words, scope, strict=True)]


def _limit(parts: Decomposition, taken: Sequence[_Photograph], capacity: Decimal) -> None:
    """Forbid that more than the capacity is recorded."""
    factor = 10 ** decimal_places([capacity, *(used for each in taken for used in each.used)])
    sums = [[0, *(int(used * factor) for used in each.used)] for each in taken]
    scope = [v for v, own in enumerate(sums) if any(own)]
    sums, right = [sums[v] for v in scope], int(capacity * factor)
    if decided(0, sum(map(max, sums)), "<=", right) is None:
        parts.what = "the capacity of the recorder"
        parts.machine(scope, linear_machine(sums, "<=", right, None))


def read_bep(source: Source) -> Model:
    """Read toulbar2's photographs of an agile satellite: when one camera takes each, with delays between every two.

    States are the times at which a photograph may begin, and that it is not taken, which costs its revenue. Lines are
    two of text, the number of photographs, for each its number, two coordinates, duration, earliest beginning, latest
    end and revenue, and a matrix of delays.

    Raises
    ------
    FormatError
        If the file is malformed.
    """
    heads = source.data.split(b"\n", _LINES + 1)
    title, skipped = heads[1:2], len(heads[_LINES].split()) if len(heads) > _LINES else 0
    source.data[: sum(len(head) + 1 for head in heads[:_LINES])] = b"\n" * _LINES
    tokens = WordStream(source)
    count = tokens.integer(0, "the number of photographs", 1, len(tokens))
    first = skipped + _WORDS * count
    if len(tokens) != first + count * count:
        expected = f"{_WORDS} words of each of {count} photographs, and {count * count} delays"
        raise tokens.fail(len(tokens), expected, f"{len(tokens) - skipped} words")
    delays = tokens.integer_array(first, len(tokens), "a delay").reshape(count, count)
    begins, taken, durations = _schedule(tokens, skipped, count)
    if int(np.abs(delays).max()) > LARGEST_INT32:
        raise tokens.fail(first + int(np.abs(delays).argmax()), f"a delay up to {LARGEST_INT32}")
    parts = Decomposition([1 + len(own) for own in begins], FORBIDDEN, source.allowance)
    for i in range(count):
        for j in range(i + 1, count):
            gaps = durations[i] + int(delays[i, j]), durations[j] + int(delays[j, i])
            _apart(parts, (i, j), (begins[i], begins[j]), gaps)
    model = _model(source, [f"t{v + 1}" for v in range(count)], taken, parts)
    name = b" ".join(title).decode(source.encoding).strip()
    note = f"the value is the revenue of the photographs not taken; toulbar2 counts it {count - 1} times"
    return replace(model, name=name or model.name, notes=(note,) if count > 2 else ())


def _schedule(
    tokens: WordStream, start: int, count: int
) -> tuple[list[NDArray[np.int64]], list[_Photograph], list[int]]:
    """Return the possible start times of each photograph, its value, and its duration."""
    begins: dict[int, NDArray[np.int64]] = {}
    taken: dict[int, _Photograph] = {}
    durations: dict[int, int] = {}
    for at in range(start, start + _WORDS * count, _WORDS):
        place = tokens.integer(at, "the number of a photograph", 1, count) - 1
        if place in taken:
            raise tokens.fail(at, "one line of each photograph", "a second one")
        duration = tokens.integer(at + 3, "a duration", 0, LARGEST_INT32)
        earliest = max(0, tokens.integer(at + 4, "an earliest beginning", -LARGEST_INT32, LARGEST_INT32))
        latest = tokens.integer(at + 5, "a latest end", -LARGEST_INT32, LARGEST_INT32) - duration
        worth = tokens.integer(at + 6, "a revenue", 0, LARGEST_INT32)
        times = max(0, latest - earliest + 1)
        tokens.allowance.take(OBJECT_BYTES + STATE_BYTES * times, f"{times} times of a photograph")
        begins[place], durations[place] = np.arange(earliest, earliest + times), duration
        taken[place] = _Photograph(worth, tuple(map(str, begins[place].tolist())))
    places = range(count)
    return [begins[k] for k in places], [taken[k] for k in places], [durations[k] for k in places]


def _apart(
    parts: Decomposition, scope: tuple[int, int], begins: Sequence[NDArray[np.int64]], gaps: tuple[int, int]
) -> None:
    """Forbid pairs of start times at which neither photograph begins late enough after the other."""
    x, y = begins[0][:, None], begins[1][None, :]
    parts.allowance.take(0, "a function of two photographs", for_now=4 * 8 * x.size * y.size)
    near = (y < x + gaps[0]) & (x < y + gaps[1])
    if near.any():
        parts.table(scope, np.pad(np.where(near, FORBIDDEN, 0), ((1, 0), (1, 0))))
