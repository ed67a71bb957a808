"""Tuned numbers are values: read where they are used, replaced for a while by whoever tests."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bucketflow.tasks.steps.policy import Policy


@dataclass(frozen=True)
class SomePolicy(Policy):
    rows: int = 8
    seconds: float = 0.5


@dataclass(frozen=True)
class OtherPolicy(Policy):
    rows: int = 9


def test_a_value_is_in_force_until_the_block_ends() -> None:
    with SomePolicy.using(rows=2) as value:
        assert SomePolicy.current() is value
        assert value == SomePolicy(2, 0.5)
        with SomePolicy.using(seconds=1.0):
            assert SomePolicy.current() == SomePolicy(2, 1.0)
        assert SomePolicy.current() is value
        assert OtherPolicy.current() == OtherPolicy(9)
    assert SomePolicy.current() == SomePolicy()


def test_errors_put_the_defaults_back() -> None:
    with pytest.raises(ValueError, match="stop"), SomePolicy.using(rows=2):
        raise ValueError("stop")
    assert SomePolicy.current() == SomePolicy()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(TypeError, match="columns"), SomePolicy.using(columns=2):
        pass
