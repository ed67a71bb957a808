"""Tables of probabilities on a device: exact bounds, scaled only where they are far from 1."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from bucketflow.tasks.sweeps.scaled import LOOSE, NEAR, measured
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
    if abs(math.log(values.max())) <= NEAR and math.log(values[values > 0].min()) >= -LOOSE:
        assert (found == values).all()
    else:
        assert found.max() == 1.0


def test_zeros_stay_zeros() -> None:
    table = measured(np.zeros(5).view(DeviceArray), 2.0)
    assert (table.low, table.high, table.log_scale) == (0.0, 0.0, 2.0)
    assert not np.asarray(table.values).any()
