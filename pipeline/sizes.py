"""Sizes and rates that users write."""

from __future__ import annotations

import re

from .errors import ModelError

_SIZE = re.compile(r"(?ia)(.*?)(?:([kmgtp])(i?))?b?")


def parse_size(size: int | str) -> int:
    """Read a size in bytes, as a number or as ``"4GB"`` or ``"512MiB"``.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        found = -1 if isinstance(size, bool) else size if isinstance(size, int) else _parsed(size)
    except (ValueError, OverflowError, TypeError, AttributeError):
        found = -1
    if found < 0:
        raise ModelError(f"{size!r} is not a size; write for example 4GB or 512MiB")
    return found


def _parsed(size: float | str) -> int:
    """Read a number and its unit as Dask does, which takes a tenth of a second to be imported."""
    if not isinstance(size, str):
        return int(size)
    parts = _SIZE.fullmatch(size.replace(" ", ""))
    if parts is None:
        raise ValueError(size)
    number, prefix, binary = parts.groups()
    unit = (1024 if binary else 1000) ** ("kmgtp".index(prefix.lower()) + 1) if prefix else 1
    return int(float(number or 1) * unit)


def parse_rate(rate: float | str) -> float:
    """Read bytes per second, as a number or as ``"1GB/s"``.

    Raises
    ------
    ModelError
        If the rate is not a size per second, or is not above 0.
    """
    try:
        text = rate.replace(" ", "").removesuffix("/s") if isinstance(rate, str) else rate
        found = parse_size(int(text) if isinstance(text, float) else text)
    except (ModelError, ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise ModelError(f"{rate!r} is not a rate above 0; write for example 1GB/s")
    return float(found)
