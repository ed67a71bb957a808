"""A file as words between white space, split block by block: nothing but the text itself is kept."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from .source import Source, pieces
from .tokens import Tokens

# A block, split, is a few megabytes of strings.
_BLOCK_BYTES = 1 << 17
_WORD = re.compile(r"\S+")
_IS_SPACE = np.array([chr(code).isspace() for code in range(256)])


class Words(Tokens):
    """The words of one source, to be read from front to back (another order costs time).

    Parameters
    ----------
    source : Source
        Without comments.
    """

    def __init__(self, source: Source):
        self.path, self.allowance = source.path, source.allowance
        self._data = source.data
        self._encoding = source.encoding
        self._ranges = list(pieces(self._data, _BLOCK_BYTES))
        longest = max((stop - start for start, stop in self._ranges), default=0)
        self.allowance.take(0, "a block of words", for_now=(4 if self._data.isascii() else 10) * longest)
        self._block, self._words = -1, [""][:0]
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

    def _split(self, block: int) -> None:
        if block != self._block:
            text = self._text(block)
            self._words, self._suspicious = text.split(), "_" in text or not text.isascii()
            self._block, self._first, self._end = block, self._starts[block], self._starts[block] + len(self._words)

    def _text(self, block: int) -> str:
        start, stop = self._ranges[block]
        return self._data[start:stop].decode(self._encoding)

    def _count(self, block: int) -> int:
        if len(self._ranges) == 1:
            self._split(block)
            return len(self._words)
        text = self._text(block)
        if not text.isascii():
            return len(text.split())
        space = _IS_SPACE[np.frombuffer(text.encode(), dtype=np.uint8)]
        return int(np.count_nonzero(space[:-1] & ~space[1:])) + (not space[0])

    def _line(self, at: int) -> int:
        block = bisect_right(self._starts, at) - 1
        text = self._text(block)
        start = next(islice(_WORD.finditer(text), at - self._starts[block], None)).start()
        return self._data.count(b"\n", 0, self._ranges[block][0]) + text.count("\n", 0, start) + 1

    def _last_line(self) -> int:
        return self._line(len(self) - 1) if len(self) else 1
