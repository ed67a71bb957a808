"""Text that comes from files and users, as a terminal and a message may show it."""

from __future__ import annotations

import re

# No part of a path is longer, so that paths can be copied from a message.
_LONGEST_WORD = 255
_LONG_WORD = re.compile(rf"[^\s/]{{{_LONGEST_WORD + 1},}}")
_LONGEST_MESSAGE = 2000


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


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width * 2 // 3]}…{text[len(text) - width // 4 :]}"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
