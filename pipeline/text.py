"""Text as a terminal and a message may show it: what comes from files and users, numbers, and sizes in words."""

from __future__ import annotations

import re
from math import log2

# No part of a path is longer, so that paths can be copied from a message.
_LONGEST_WORD = 255
_LONG_WORD = re.compile(rf"[^\s/]{{{_LONGEST_WORD + 1},}}")
_LONGEST_MESSAGE = 2000
# Hopeless plans need more than any float says.
_LARGEST = 1 << 1000


def printable(text: str, width: int = 60) -> str:
    """Return text on one line: what does not print as an escape, the middle left out beyond ``width`` characters."""
    return "".join(map(_escaped, _shortened(text, width)))


def message(text: str) -> str:
    """Return a message without control characters, long words and lists without their middle."""
    words = _LONG_WORD.sub(lambda word: _shortened(word.group(), _LONGEST_WORD), text)
    return "\n".join("".join(map(_escaped, line)) for line in _shortened(words, _LONGEST_MESSAGE).split("\n"))


def logarithm(value: float) -> str:
    """Write log10 of a probability with twelve digits; the rounding of sums about 1 is not shown."""
    return f"{round(value, 12) + 0.0:.12g}"


def shown_number(value: object) -> str:
    """Write a cost, or log10 of a probability; None is what is not known."""
    if value is None:
        return "unknown"
    return logarithm(value) if isinstance(value, float) else str(value)


def format_bytes(count: int) -> str:
    """Write a number of bytes with a decimal unit, as ``--memory`` reads it."""
    value = float(min(count, _LARGEST))
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 1000 or unit == "PB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError


def format_count(count: int) -> str:
    """Write a number with three digits, also one that no float holds."""
    return f"{float(count):.3g}" if count < _LARGEST else f"2^{count.bit_length() - 1}"


def format_cells(count: int) -> str:
    """Write a number of cells, with its size as a power of two where it is large."""
    return f"{count:,}" if count < 10_000 else f"{float(count):.3g} (2^{log2(count):.1f})"


def shorten(text: str, width: int = 40) -> str:
    """Return the text itself, or its beginning when it is longer than ``width`` characters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width * 2 // 3]}…{text[len(text) - width // 4 :]}"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
