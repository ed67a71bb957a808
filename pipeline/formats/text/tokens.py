"""A file as tokens: numbers are converted in bulk, lines are found only when something is wrong."""

from __future__ import annotations

import json
import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import CELL_BYTES, FAR_INTEGER
from ...errors import FormatError, shorten
from ...models.function import FEW
from ..format_policy import WORD_BYTES, FormatPolicy
from .source import Allowance, Source, check_deadline, pieces

_INT64 = np.iinfo(np.int64)
N = TypeVar("N", int, float, Decimal)


class Tokens:
    """The tokens of one source, all in memory, which formats need whose blocks come in any order.

    Parameters
    ----------
    source : Source
        Without comments.
    pattern : re.Pattern
        Finds one token; without groups.
    token_bytes : int
        Maximum bytes that the reader stores per token, in addition to the token itself.
    """

    def __init__(self, source: Source, pattern: re.Pattern[str], token_bytes: int = 0):
        self.path: str = source.path
        self.allowance: Allowance = source.allowance
        self.text: str = source.text
        self._pattern = pattern
        self._check_memory(source, WORD_BYTES + token_bytes)
        self.items: list[str] = self._found() if self.allowance.timed else pattern.findall(self.text)
        self._suspicious = not has_plain_digits(self.text)

    def _found(self) -> list[str]:
        """Return all tokens, and check the deadline between parts of them."""
        found = map(itemgetter(0), self._pattern.finditer(self.text))
        items: list[str] = []
        while part := list(islice(found, FormatPolicy.current().token_block_bytes)):
            check_deadline()
            items += part
        return items

    def _check_memory(self, source: Source, token_bytes: int) -> None:
        """Refuse more tokens than memory allows; they are only counted where they could be too many."""
        allowance = source.allowance
        allowance.take(source.text_bytes, "the text")
        if allowance.taken + len(self.text) * token_bytes > allowance.memory:
            count = sum(1 for _ in self._pattern.finditer(self.text))
            allowance.take(count * token_bytes, f"{count} words and signs")

    def __len__(self) -> int:
        return len(self.items)

    def fail(self, at: int, expected: str, found: str | None = None) -> FormatError:
        """Return the error for the token at an index (which may lie behind the last one)."""
        if at >= len(self):
            return FormatError(self.path, self._last_line(), expected, found or "the end of the file")
        return FormatError(self.path, self.line_at(at), expected, found or repr(shorten(self.peek(at))))

    def peek(self, at: int) -> str:
        """Return the token at an index, or an empty string behind the end."""
        return self.items[at] if at < len(self.items) else ""

    def parts(self, start: int, stop: int) -> Iterable[tuple[int, list[str]]]:
        """Return the tokens of a range, in lists with the index of their first."""
        return ((start, self.items[start:stop]),)

    def expect(self, at: int, token: str, where: str = "") -> int:
        """Check that a token stands at an index and return the next index."""
        if self.peek(at) != token:
            raise self.fail(at, f"{token!r}{where}")
        return at + 1

    def find(self, token: str, at: int) -> int:
        """Return the index of the next such token from an index on."""
        try:
            return self.items.index(token, at)
        except ValueError:
            raise self.fail(len(self.items), f"{token!r}") from None

    def between(self, first: int, last: int) -> str:
        """Return the text between two tokens."""
        starts, ends = self._places
        return self.text[ends[first] : starts[last]]

    @cached_property
    def _places(self) -> tuple[array[int], array[int]]:
        """Where each token starts and ends."""
        self.allowance.take(16 * len(self), "the places of its words")
        starts, ends = array("q"), array("q")
        for found in self._pattern.finditer(self.text):
            starts.append(found.start())
            ends.append(found.end())
        return starts, ends

    @cached_property
    def _breaks(self) -> array[int]:
        """Where the lines end."""
        self.allowance.take(8 * self.text.count("\n"), "the places of its lines")
        return array("q", (found.start() for found in re.finditer("\n", self.text)))

    def line(self, at: int) -> int:
        """Return the line of the token at an index, for readers that need the lines of many tokens."""
        return bisect_right(self._breaks, self._places[0][at]) + 1

    def integer(self, at: int, what: str, low: int = 0, high: int | None = None) -> int:
        """Return the token at an index as an integer within bounds."""
        token = self.peek(at)
        try:
            number = int(token)
        except ValueError:
            raise self.fail(at, bounds(what, low, high)) from None
        if number < low or (high is not None and number > high) or (self._suspicious and _is_odd(token)):
            raise self.fail(at, bounds(what, low, high))
        return number

    def integers(self, start: int, stop: int, what: str = "an integer") -> list[int]:
        """Return the tokens of a range as integers."""
        numbers: list[int] = []
        for at, part in self.parts(start, min(stop, len(self))):
            numbers += self.converted(part, int, what, at.__add__)
        if stop > len(self):
            raise self.fail(len(self), what)
        return numbers

    def integer_array(self, start: int, stop: int, what: str) -> NDArray[np.int64]:
        """Return the tokens of a range, which exist, as int64; larger numbers as the largest of these."""
        values = np.empty(stop - start, dtype=np.int64)
        for at, part in self.parts(start, stop):
            numbers = self.converted(part, int, what, at.__add__)
            try:
                values[at - start : at - start + len(part)] = numbers
            except OverflowError:
                clipped = [min(max(number, _INT64.min), _INT64.max) for number in numbers]
                values[at - start : at - start + len(part)] = clipped
        return values

    def table(self, start: int, stop: int, logs: bool = False) -> NDArray[np.float64]:
        """Return the tokens of a range, which exist, as probabilities or logarithms, float64."""
        values, numbers = np.empty(stop - start), self.logarithms if logs else self.probabilities
        for at, part in self.parts(start, stop):
            values[at - start : at - start + len(part)] = numbers(part, at.__add__)
        return values

    def probabilities(self, part: list[str], place: Callable[[int], int]) -> NDArray[np.float64]:
        """Return number tokens as float64; ``place`` turns a position in ``part`` into a token index."""
        return self._floats(part, place, "a finite number of at least 0", 0.0)

    def logarithms(self, part: list[str], place: Callable[[int], int]) -> NDArray[np.float64]:
        """Return number tokens as float64; minus infinity is allowed. ``place`` is as before."""
        return self._floats(part, place, "a natural logarithm, finite or -inf", -math.inf)

    def _floats(self, part: list[str], place: Callable[[int], int], what: str, least: float) -> NDArray[np.float64]:
        numbers = self.converted(part, float, what, place)
        values = np.array(numbers, dtype=np.float64)
        if len(numbers) <= FEW:  # sooner than arrays are looked through
            good = all(least <= number < math.inf for number in numbers)
        else:
            good = bool(values.min() >= least and values.max() < math.inf)
        if not good:
            raise self.fail(place(int(np.flatnonzero(~((values >= least) & (values < math.inf)))[0])), what)
        return values

    def converted(
        self, part: list[str], convert: Callable[[str], N], what: str, place: Callable[[int], int]
    ) -> list[N]:
        """Return number tokens converted by ``int``, ``float`` or ``Decimal``."""
        if not (self._suspicious and any(map(_is_odd, part))):
            try:
                return list(map(convert, part))
            except (ValueError, ArithmeticError):
                pass
        raise self.fail(place(next(k for k, token in enumerate(part) if not _converts(token, convert))), what)

    def line_at(self, at: int) -> int:
        start = next(islice(self._pattern.finditer(self.text), at, None)).start()
        return self.text.count("\n", 0, start) + 1

    def _last_line(self) -> int:
        return self.text.rstrip().count("\n") + 1


def bounds(what: str, low: int, high: int | None) -> str:
    """Describe an integer within bounds, as error messages word it."""
    return f"{what} of at least {low}" if high is None else f"{what} from {low} to {high}"


def _is_odd(token: str) -> bool:
    return "_" in token or not token.isascii()


def _converts(token: str, convert: Callable[[str], N]) -> bool:
    try:
        convert(token)
    except (ValueError, ArithmeticError):
        return False
    return not _is_odd(token)


def unquote(token: str) -> str:
    """Return the text of a string token, or a word as it is."""
    if len(token) < 2 or token[0] != '"':
        return token
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]


# A file as words between white space, split block by block: nothing but the text itself is kept.

_WORD = re.compile(r"\S+")
_NAME = re.compile(rb"\S+")
# A word, by its first sign, among integers.
_OTHERS = re.compile(rb"[^\s0-9+-]\S*")
#: A word among integers, which no format has as a number: readers take it for one out of range.
NO_NUMBER: Final = -FAR_INTEGER


def has_plain_digits(text: str) -> bool:
    """Whether ``int`` and ``float`` read a text as files mean it: they also take "1_000" and digits of any script."""
    return text.isascii() and "_" not in text


def parsed_numbers(
    data: bytes | bytearray | memoryview, count: int, dtype: type, limited: bool = False
) -> NDArray[Any] | None:
    """Return numbers between white space; None if a word is anything else.

    Parameters
    ----------
    data : bytes-like
    count : int
        The number of words, as ``str.split`` counts them. NumPy reads "1-2" as two numbers, so the counts differ.
    dtype : {numpy.int64, numpy.float64}
        Floats are rounded as ``float`` rounds them, and may be infinite or NaN.
    limited : bool
        Whether integers of more than 64 bits may be read as the largest or the least of these.
    """
    if not count:
        return None
    try:  # older versions of NumPy only warn, and stop there: they do not reach the last number, which is ours
        numbers: NDArray[Any] = np.fromstring(b"".join((data, b" 0")), dtype, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    numbers = numbers[:-1]
    if len(numbers) != count or (dtype is np.int64 and not _are_exact(numbers, data, limited)):
        return None
    return numbers


def _are_exact(numbers: NDArray[np.int64], data: bytes | bytearray | memoryview, limited: bool) -> bool:
    """Whether integers are as written: NumPy limits them to 64 bits, and reads a sign without digits as 0."""
    if not limited and (numbers.max() == _INT64.max or numbers.min() == _INT64.min):
        return False
    codes = np.frombuffer(data, dtype=np.uint8)
    signs = np.flatnonzero((codes == 43) | (codes == 45)) + 1
    return not signs.size or bool(signs[-1] < len(codes) and (codes[signs] - np.uint8(48) < 10).all())


def are_entries(values: NDArray[np.float64], logs: bool = False) -> bool:
    """Whether all numbers are finite and at least 0; logarithms may be negative, and minus infinity."""
    return bool(values.max() < math.inf and (logs or values.min() >= 0.0))  # NaN is neither


def word_count(data: bytearray) -> int:
    """Return the number of words of an ASCII text, as ``str.split`` counts them."""
    codes = np.frombuffer(data, dtype=np.uint8)
    space = _are_spaces(codes)
    return int(np.count_nonzero(space[:-1] & ~space[1:])) + (not space[0])


def _are_spaces(codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return (codes - np.uint8(9) < 5) | (codes - np.uint8(28) < 5)


class WordStream(Tokens):
    """The words of one source, to be read from front to back (another order costs time).

    Parameters
    ----------
    source : Source
        Without comments.
    """

    def __init__(self, source: Source):
        self.path: str = source.path
        self.allowance: Allowance = source.allowance
        self._data = source.data
        self._encoding = source.encoding
        self._ranges = list(pieces(self._data, FormatPolicy.current().token_block_bytes))
        longest = max((stop - start for start, stop in self._ranges), default=0)
        self.allowance.take(0, "a block of words", for_now=(4 if self._data.isascii() else 10) * longest)
        self._block, self._words = -1, [""][:0]
        self._parsed: dict[type, tuple[int, NDArray[Any] | None]] = {}
        self._starts = [0]
        for block in range(len(self._ranges)):
            self._starts.append(self._starts[-1] + self._count(block))

    def __len__(self) -> int:
        return self._starts[-1]

    def peek(self, at: int) -> str:
        """Return the word at an index, or an empty string behind the end."""
        if not self._first <= at < self._end:
            if at >= len(self):
                return ""
            self._split(bisect_right(self._starts, at) - 1)
        return self._words[at - self._first]

    def parts(self, start: int, stop: int) -> Iterable[tuple[int, list[str]]]:
        """Return the words of a range, in lists with the index of their first."""
        if self._first <= start and stop <= self._end:
            return ((start, self._words[start - self._first : stop - self._first]),)
        return self._parts(start, stop)

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, list[str]]]:
        while start < stop:
            self.peek(start)
            end = min(stop, self._end)
            yield start, self._words[start - self._first : end - self._first]
            start = end

    _first = _end = 0
    _suspicious = False

    def integer_array(self, start: int, stop: int, what: str) -> NDArray[np.int64]:
        """Return the words of a range, which exist, as int64; larger numbers as the largest of these."""
        if stop - start < FormatPolicy.current().parsed_words:
            return super().integer_array(start, stop, what)
        values, at = np.empty(stop - start, dtype=np.int64), start
        while at < stop:
            block = bisect_right(self._starts, at) - 1
            first, end = self._starts[block], min(stop, self._starts[block + 1])
            numbers = self._numbers(block, np.int64)
            part = super().integer_array(at, end, what) if numbers is None else numbers[at - first : end - first]
            values[at - start : end - start] = part
            at = end
        return values

    def table(self, start: int, stop: int, logs: bool = False) -> NDArray[np.float64]:
        """Return the words of a range, which exist, as probabilities or logarithms, float64."""
        if stop - start < FormatPolicy.current().parsed_words:
            return super().table(start, stop, logs)
        values, at = np.empty(stop - start), start
        while at < stop:
            block = bisect_right(self._starts, at) - 1
            first, end = self._starts[block], min(stop, self._starts[block + 1])
            numbers = None
            if end - at >= FormatPolicy.current().parsed_words:
                numbers = self._numbers(block, np.float64)
            if numbers is not None and not are_entries(numbers[at - first : end - first], logs):
                numbers = None
            part = super().table(at, end, logs) if numbers is None else numbers[at - first : end - first]
            values[at - start : end - start] = part
            at = end
        return values

    def _numbers(self, block: int, dtype: type) -> NDArray[Any] | None:
        """Return a block of integers or floats, parsed together; None if a word may be anything else."""
        if self._parsed.get(dtype, (-1,))[0] != block:
            check_deadline()
            self._parsed[dtype] = block, parsed_numbers(self._bytes(block), self._size(block), dtype)
        return self._parsed[dtype][1]

    def numbers(self, dtype: type) -> NDArray[Any] | None:
        """Return all words as numbers, parsed together, for readers that build many functions at once.

        Parameters
        ----------
        dtype : {numpy.int64, numpy.float64}
            Integers of more than 64 bits are the largest or the least of these.

        Returns
        -------
        ndarray, shape (words,), or None
            The first word is a name, and 0. Other words that begin with neither digit nor sign are ``NO_NUMBER`` where
            integers are read. None if a word is anything else, or if memory does not hold all numbers.
        """
        if self.allowance.taken + CELL_BYTES * len(self) > self.allowance.memory:
            return None
        values: NDArray[Any] = np.empty(len(self), dtype)
        for block, start in enumerate(self._starts[:-1]):
            check_deadline()
            data, size = bytes(self._bytes(block)), self._size(block)
            if block == 0:
                data = _NAME.sub(b"0", data, count=1)
            numbers = parsed_numbers(data, size, dtype, limited=True)
            if numbers is None and dtype is np.int64:
                numbers = parsed_numbers(_OTHERS.sub(b"%d" % NO_NUMBER, data), size, dtype, limited=True)
            if numbers is None:
                return None
            values[start : start + size] = numbers
        return values

    def are_digits(self, which: NDArray[np.intp]) -> bool:
        """Whether the words at ascending indices are digits alone, as are integers without a sign."""
        for block, start in enumerate(self._starts[:-1]):
            own = which[slice(*np.searchsorted(which, (start, self._starts[block + 1])))] - start
            if not own.size:
                continue
            codes = np.frombuffer(self._bytes(block), dtype=np.uint8)
            space = _are_spaces(codes)
            begins = np.flatnonzero(np.append(True, space[:-1]) & ~space)
            others = np.add.reduceat(~space & (codes - np.uint8(48) >= 10), begins, dtype=np.int64)
            if others[own].any():
                return False
        return True

    def _bytes(self, block: int) -> bytearray:
        start, stop = self._ranges[block]
        return self._data[start:stop]

    def _size(self, block: int) -> int:
        return self._starts[block + 1] - self._starts[block]

    def _split(self, block: int) -> None:
        if block != self._block:
            check_deadline()
            text = self._text(block)
            self._words, self._suspicious = text.split(), "_" in text or not text.isascii()
            self._block, self._first, self._end = block, self._starts[block], self._starts[block] + len(self._words)

    def _text(self, block: int) -> str:
        return self._bytes(block).decode(self._encoding)

    def _count(self, block: int) -> int:
        data = self._bytes(block)
        return word_count(data) if data.isascii() else len(self._text(block).split())

    def line_at(self, at: int) -> int:
        block = bisect_right(self._starts, at) - 1
        text = self._text(block)
        start = next(islice(_WORD.finditer(text), at - self._starts[block], None)).start()
        return self._data.count(b"\n", 0, self._ranges[block][0]) + text.count("\n", 0, start) + 1

    def _last_line(self) -> int:
        return self.line_at(len(self) - 1) if len(self) else 1
