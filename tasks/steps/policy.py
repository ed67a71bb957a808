"""Tuned parameters as values: one frozen dataclass for each room, of which one value is in force. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Self


class Policy:
    """Base of the rooms' tuned numbers.

    A room derives one frozen dataclass, whose fields have defaults, units in their names and reasons beside them. Each
    field is one that a test or a bench sets; other numbers are constants beside the code that uses them. Code
    reads ``RowPolicy.current().merged_rows``; a test or an experiment puts another value in force for a while with
    ``with RowPolicy.using(merged_rows=4): …``, in all threads of this process.
    """

    _in_force: ClassVar[dict[type[Policy], Policy]] = {}

    @classmethod
    def current(cls) -> Self:
        """Return the value in force: the defaults, unless another one is used."""
        value = cls._in_force.get(cls)
        if value is None:
            value = cls._in_force.setdefault(cls, cls())
        assert isinstance(value, cls)
        return value

    @classmethod
    @contextmanager
    def using(cls, **changes: Any) -> Iterator[Self]:
        """Put the value in force, with some fields changed, in force until the block ends.

        Raises
        ------
        TypeError
            When a name is no field of this policy.
        """
        before = cls.current()
        value = replace(before, **changes)  # type: ignore[type-var]
        cls._in_force[cls] = value
        try:
            yield value
        finally:
            cls._in_force[cls] = before
