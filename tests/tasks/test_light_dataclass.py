"""Data classes that are cheap to import behave as those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from bucketflow.tasks.steps import light_dataclass

BOTH = {"ours": light_dataclass.dataclass, "standard": dataclasses.dataclass}


def classes(decorator: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """Return a frozen class, a subclass of it that counts, and one that can be changed."""

    @decorator(frozen=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list, compare=False)

    @decorator(frozen=True)
    class Counted(Point):
        """A point that is checked."""

        seen: list[int] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)
        label: str = dataclasses.field(default="p", kw_only=True)

        def __post_init__(self) -> None:
            self.seen.append(self.x)

    @decorator
    class Open:
        """A value that can be changed."""

        only: float
        fixed: int = dataclasses.field(default=3, init=False)

    return Point, Counted, Open


@light_dataclass.dataclass(frozen=True, slots=True)
class Slotted:
    """A value with slots that other processes read."""

    x: int
    fixed: int = dataclasses.field(default=3, init=False)
    y: tuple[int, ...] = ()


@pytest.fixture(params=BOTH)
def made(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    return classes(BOTH[request.param])


def test_values_are_set_compared_and_shown(made: tuple[Any, Any, Any]) -> None:
    point, counted, opened = made
    assert point(1) == point(1, 2, ["a"]) != point(1, 3)
    assert hash(point(1)) == hash(point(1, names=["b"]))
    assert point(1).names is not point(1).names
    assert counted(1) != point(1)
    one = counted(4, label="q")
    assert (one.seen, one.label, one.y) == ([4], "q", 2)
    assert repr(one).endswith("Counted(x=4, y=2, names=[], label='q')")
    nan = float("nan")
    assert opened(nan) == opened(nan)
    assert opened(1.0).fixed == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(opened(1.0))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        point()


@pytest.mark.parametrize("many", [1, 300])
def test_the_first_instances_and_later_ones_are_equal(made: tuple[Any, Any, Any], many: int) -> None:
    point, _, opened = made
    assert [vars(point(1, names=["a"], y=k)) for k in range(many)] == [
        {"x": 1, "y": k, "names": ["a"]} for k in range(many)
    ]
    assert [*vars(point(1, names=["a"], y=3))] == ["x", "y", "names"]
    assert opened(only=2.0) == opened(2.0)
    for given, named in (((1, 2, [], 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1})):
        with pytest.raises(TypeError, match="argument"):
            point(*given, **named)


@pytest.mark.parametrize("decorator", BOTH.values(), ids=BOTH)
def test_a_class_with_its_own_comparison_keeps_it(decorator: Callable[..., Any]) -> None:
    @decorator(frozen=True)
    class Hashed:
        x: int
        y: int = 0

        def __hash__(self) -> int:
            return self.x

    @decorator(frozen=True)
    class Compared:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

    assert hash(Hashed(7)) == 7
    assert Hashed(7) != Hashed(7, 1)
    assert Compared(1) == Compared(2)
    assert hash(Compared(1)) == hash((1,)) != hash(Compared(2))


def test_frozen_values_stay(made: tuple[Any, Any, Any]) -> None:
    point, counted, opened = made
    for value in (point(1), counted(1)):
        for name in ("x", "other"):
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(value, name, 5)
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del value.x
    changed = opened(1.0)
    changed.only = 2.0
    assert changed == opened(2.0)
    assert dataclasses.replace(point(1), x=7) == point(7)


def test_fields_signatures_and_patterns_are_known_before_the_first_call(made: tuple[Any, Any, Any]) -> None:
    point, counted, _ = made
    assert [f.name for f in dataclasses.fields(counted)] == ["x", "y", "names", "seen", "label"]
    assert list(inspect.signature(counted).parameters) == ["x", "y", "names", "label"]
    assert point.__match_args__ == ("x", "y", "names")


def test_the_signature_is_found_in_the_class_itself() -> None:
    """From Python 3.13 on, ``inspect.signature`` calls the descriptor with the class in place of an instance."""
    point, _, _ = classes(light_dataclass.dataclass)
    init = vars(point)["__init__"].__get__(point, type(point))
    assert list(inspect.signature(init).parameters) == ["x", "y", "names"]


def test_values_are_compared_while_another_thread_collects_the_fields() -> None:
    class Paused(type):
        def __delattr__(cls, name: str) -> None:  # during collection, the class loses the fields without a default
            super().__delattr__(name)
            if name == "names":
                comparing.start()
                comparing.join(0.1)

    @light_dataclass.dataclass
    class Point(metaclass=Paused):
        x: int
        names: list[str] = dataclasses.field(default_factory=list, compare=False)

    found: list[bool] = []
    comparing = threading.Thread(target=lambda: found.append(Point(1, ["a"]) == Point(1, ["b"])))
    dataclasses.fields(Point)
    comparing.join()
    assert found == [True]
    assert Point(1, ["a"]) == Point(1, ["b"])


def test_the_first_calls_of_many_threads_succeed() -> None:
    for _ in range(20):
        _, counted, _ = classes(light_dataclass.dataclass)
        found: list[Any] = []
        start = threading.Barrier(4)

        def make(counted: Any = counted, start: threading.Barrier = start, found: list[Any] = found) -> None:
            start.wait()
            found.append(counted(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [counted(1)] * 4


def test_values_with_slots() -> None:
    one = Slotted(1, (2,))
    assert (one.x, one.fixed, one.y) == (1, 3, (2,))
    assert not hasattr(one, "__dict__")
    assert copy.copy(one) == pickle.loads(pickle.dumps(one)) == one != Slotted(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2  # type: ignore[misc]


def test_values_are_copied_and_pickled_between_processes() -> None:
    from bucketflow.pipeline.options import Options

    options = Options(seed=3)
    assert copy.copy(options) == pickle.loads(pickle.dumps(options)) == options
    # the other process compares and shows a value before it makes one
    script = (
        "import pickle, sys; v = pickle.load(sys.stdin.buffer); print(v == v, hash(v) == hash(v), 'seed=3' in repr(v))"
    )
    given = pickle.dumps(options)
    done = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, check=True)
    assert done.stdout.decode().split()[::2] == ["True", "True"]
