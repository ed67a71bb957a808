"""Tables of probabilities on a device: exact bounds, scaled only where they are far from 1."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from bucketflow.tasks.sweeps.scaled import HIGHEST, LOOSE, NEAR, Scaled, centred, in_range, measured
from tests.device_stand_in import DeviceArray, StandIn, device


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with device(monkeypatch) as stand_in:
        yield stand_in


@pytest.mark.parametrize("top", [-600.0, -200.0, -100.0, 0.0, 100.0, 200.0, 600.0])
@pytest.mark.parametrize("spread", [1.0, 200.0, 500.0])
def test_bounds_are_exact_and_the_product_is_kept(top: float, spread: float) -> None:
    logs = top - spread * np.random.default_rng(0).random(1000)
    values = np.where(np.arange(1000) % 7 == 0, 0.0, np.exp(logs))
    there = values.copy().view(DeviceArray)
    table = measured(there, 3.0)
    found = np.asarray(table.values)
    with np.errstate(divide="ignore"):
        kept = (values > 0) & (found > 1e-300)
        np.testing.assert_allclose(np.log(found[kept]) + table.log_scale - 3.0, np.log(values[kept]), rtol=1e-9)
    assert math.isclose(table.high, math.log(found.max()), abs_tol=1e-9)
    assert math.isclose(table.low, math.log(found[found > 0].min()), abs_tol=1e-6)
    if math.log(values.max()) <= NEAR and math.log(values[values > 0].min()) >= -LOOSE:
        assert (found == values).all()
    else:
        assert found.max() == 1.0


def test_zeros_stay_zeros() -> None:
    table = measured(np.zeros(5).view(DeviceArray), 2.0)
    assert (table.low, table.high, table.log_scale) == (0.0, 0.0, 2.0)
    assert not np.asarray(table.values).any()


@pytest.mark.parametrize("low", [-250.0, -340.0, 150.0, -100.0])
@pytest.mark.parametrize("own", [0.0, -60.0])
def test_small_inputs_take_scales_that_large_ones_need(low: float, own: float) -> None:
    """The output's bounds are about 1 then, and its value the same."""
    rng = np.random.default_rng(6)
    large, small = (
        Scaled(np.exp(rng.uniform(start, start + 50.0, cells)), 2.0, start, start + 50.0)
        for start, cells in ((low, 6400), (own, 100))
    )
    given = [large, small]
    moved = centred(given, 4.0)
    middle = (sum(t.low + t.high for t in moved) + 4.0) / 2
    assert abs(middle) <= max(1.0, NEAR)
    assert in_range(moved, 4.0)
    assert moved[0] is large
    value, shift = moved[1].values, moved[1].log_scale - small.log_scale
    np.testing.assert_allclose(np.log(value) + shift, np.log(small.values), rtol=0, atol=1e-12)
    assert moved[1].low - 1e-9 <= math.log(value.min())
    assert math.log(value.max()) <= moved[1].high + 1e-9 <= HIGHEST


def test_inputs_of_one_size_keep_their_scales() -> None:
    given = [Scaled(np.full(100, 1e-120), 0.0, -280.0, -270.0) for _ in range(2)]
    assert centred(given, 1.0) is given
