"""A file as a list of tokens: numbers are converted in bulk, lines are found only when something is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError
from .source import Source, shorten

WORDS = re.compile(r"\S+")
MAX_DOMAIN = 2**31 - 1
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
N = TypeVar("N", int, float, Decimal)


class Tokens:
    """The tokens of one source.

    Parameters
    ----------
    source : Source
    pattern : re.Pattern
        Finds one token; without groups.
    text : str, optional
        The source's text after comments were blanked out (with its line breaks kept).
    """

    def __init__(self, source: Source, pattern: re.Pattern[str] = WORDS, text: str | None = None):
        self.path = source.path
        self.text = source.text if text is None else text
        self._pattern = pattern
        self.items: list[str] = pattern.findall(self.text)
        # int() and float() take "1_000" and digits of any script, which no format has.
        self._suspicious = "_" in self.text or not self.text.isascii()

    def __len__(self) -> int:
        return len(self.items)

    def fail(self, at: int, expected: str, found: str | None = None) -> FormatError:
        """Return the error for the token at an index (which may lie behind the last one)."""
        if at >= len(self.items):
            return FormatError(self.path, self._last_line(), expected, found or "the end of the file")
        start = next(islice(self._pattern.finditer(self.text), at, None)).start()
        line = self.text.count("\n", 0, start) + 1
        return FormatError(self.path, line, expected, found or repr(shorten(self.items[at])))

    def peek(self, at: int) -> str:
        """Return the token at an index, or an empty string behind the end."""
        return self.items[at] if at < len(self.items) else ""

    def expect(self, at: int, wanted: str, where: str = "") -> int:
        """Check that a token stands at an index and return the next index."""
        if self.peek(at) != wanted:
            raise self.fail(at, f"{wanted!r}{where}")
        return at + 1

    def find(self, wanted: str, at: int) -> int:
        """Return the index of the next such token from an index on."""
        try:
            return self.items.index(wanted, at)
        except ValueError:
            raise self.fail(len(self.items), f"{wanted!r}") from None

    def integer(self, at: int, what: str, low: int = 0, high: int | None = None) -> int:
        """Return the token at an index as an integer within bounds."""
        token = self.peek(at)
        if not _converts(token, int) or int(token) < low or (high is not None and int(token) > high):
            raise self.fail(at, bounds(what, low, high))
        return int(token)

    def integers(self, start: int, stop: int, what: str = "an integer") -> list[int]:
        """Return the tokens of a range as integers."""
        if stop > len(self.items):
            raise self.fail(len(self.items), what)
        return self.converted(self.items[start:stop], int, what, lambda k: start + k)

    def probabilities(self, part: list[str], place: Callable[[int], int]) -> NDArray[np.float64]:
        """Return number tokens as float64; ``place`` turns a position in ``part`` into a token index."""
        what = "a finite number of at least 0"
        values = np.array(self.converted(part, float, what, place), dtype=np.float64)
        good = (values >= 0.0) & (values < math.inf)
        if not good.all():
            raise self.fail(place(int(np.flatnonzero(~good)[0])), what)
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

    def _last_line(self) -> int:
        return self.text.rstrip().count("\n") + 1


def blank_comments(text: str) -> str:
    """Return a text without ``/* */`` comments but with its line breaks."""
    return _COMMENT.sub(lambda found: " " + "\n" * found.group().count("\n"), text)


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
