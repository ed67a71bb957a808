"""How public classes and functions present themselves: as members of ``bucketflow``, with the names that users need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

T = TypeVar("T")


def public(named: T) -> T:
    """Let a class or function say that it belongs to ``bucketflow``, as in ``<class 'bucketflow.Model'>``."""
    named.__module__ = __name__.partition(".")[0]
    return named


class ShortDir:
    """Let ``dir()`` and the completion of notebooks list the names that users need; the other names work too."""

    _SHOWN: ClassVar[tuple[str, ...]]

    def __dir__(self) -> Iterable[str]:
        return self._SHOWN
