"""Dataclasses whose methods are written late behave as those of the standard library."""

from __future__ import annotations

import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import numpy as np
import pytest

from bucketflow import values

Decorator = Callable[..., Any]


def shapes_of(dataclass: Decorator) -> list[Any]:
    """Make classes of all kinds that the package has."""

    @dataclass
    class Open:
        """Can be changed, and is not hashed."""

        a: int
        b: list[int] = field(default_factory=list)
        c: str = field(default="x", repr=False)

    @dataclass(frozen=True)
    class Base:
        """Cannot be changed."""

        a: int
        b: float = 2.5
        c: int = field(default=7, init=False)

        @property
        def double(self) -> int:
            """Twice the first field."""
            return 2 * self.a

    @dataclass(frozen=True)
    class Derived(Base):
        """Has a field more, one that is not compared, and what follows its making."""

        d: tuple[int, ...] = ()
        e: dict[str, int] = field(default_factory=dict, compare=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    @dataclass(frozen=True, kw_only=True)
    class Named:
        """All by name, one without a default behind one with it."""

        a: int = 1
        b: int

    @dataclass(frozen=True, eq=False)
    class Same:
        """Equal only to itself."""

        a: int = 0

    @dataclass(frozen=True, repr=False)
    class Silent:
        """Has a text of its own."""

        a: int = 0

        def __repr__(self) -> str:
            return "silent"

    @dataclass(frozen=True)
    class Empty:
        """Has no field."""

    @dataclass(frozen=True, slots=True)
    class Slotted:
        """Has slots."""

        a: int = 3

    return [Open, Base, Derived, Named, Same, Silent, Empty, Slotted]


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *[((), {}), ((1,), {}), ((1, 2.5), {}), ((1, 3), {}), ((-1,), {}), ((1, 2.0, 3), {}), ((1, 2.0, (1, 2)), {})],
    *[((), {"b": 2}), ((), {"a": 2, "b": 2}), ((), {"c": 2}), ((1,), {"e": {"k": 1}}), ((1,), {"nothing": 1})],
]


def attempt(call: Callable[[], Any]) -> Any:
    """Return what a call returns, as text, or how it fails."""
    try:
        return repr(call())
    except (TypeError, ValueError, AttributeError) as error:
        return type(error).__name__


def test_values_behave_as_those_of_the_standard_library() -> None:
    late, plain = shapes_of(values.dataclass), shapes_of(dataclasses.dataclass)
    for ours, theirs in zip(late, plain, strict=True):
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        made = []
        for args, named in CALLS:
            assert attempt(lambda: ours(*args, **named)) == attempt(lambda: theirs(*args, **named))  # noqa: B023
            if "(" in (text := attempt(lambda: ours(*args, **named))) or text == "silent":  # noqa: B023
                made.append((ours(*args, **named), theirs(*args, **named)))
        assert made
        for mine, other in made:
            assert attempt(lambda: hash(mine)) == attempt(lambda: hash(other)) or ours.__name__ == "Same"  # noqa: B023
            assert dataclasses.asdict(mine) == dataclasses.asdict(other)
            assert attempt(lambda: replace(mine, a=5)) == attempt(lambda: replace(other, a=5))  # noqa: B023
            assert [mine == second for second, _ in made] == [other == second for _, second in made]
            assert mine != other
        for mine, other in made:
            for change in (lambda value: setattr(value, "a", 9), lambda value: delattr(value, "b")):
                assert attempt(lambda: change(mine)) == attempt(lambda: change(other))  # noqa: B023


def test_one_kind_is_derived_from_the_other() -> None:
    @dataclasses.dataclass(frozen=True)
    class Plain(Kept):
        more: int = 3

    @values.dataclass(frozen=True)
    class Late(Plain):
        last: int = 4

    assert Plain(1) == Plain(1, None, 3)
    assert repr(Late(1, last=5)).endswith("Late(a=1, table=None, more=3, last=5)")
    assert Late.__match_args__ == ("a", "table", "more", "last")
    with pytest.raises(FrozenInstanceError):
        setattr(Late(1), "more", 2)  # noqa: B010


@values.dataclass(frozen=True)
class Kept:
    """A value that travels."""

    a: int
    table: Any = None


def test_values_travel_and_are_compared_by_identity_first() -> None:
    assert pickle.loads(pickle.dumps(Kept(4))) == Kept(4)
    table = np.arange(3)
    assert Kept(1, table) == Kept(1, table)  # what is the same is equal, though an array has no one truth
    assert Kept(1, math.nan) == Kept(1, math.nan)


def test_a_frozen_value_refuses_changes() -> None:
    with pytest.raises(FrozenInstanceError, match="'a'"):
        setattr(Kept(1), "a", 2)  # noqa: B010
    with pytest.raises(FrozenInstanceError, match="'a'"):
        delattr(Kept(1), "a")
