"""States of eliminated variables, listed from tables some of which are rows, with some variables fixed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from bucketflow.pipeline.queries import decode
from bucketflow.tasks.rows.algebra import PlainRows, Representation
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.memory_account import MemoryAccount
from bucketflow.tasks.rows.relation import Dense, from_dense
from bucketflow.tasks.steps.semiring import MIN_PLUS
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps.sweep import Plain

SIZES = (3, 2, 3, 2, 2)


def costs(scope: tuple[int, ...], share: float, seed: int) -> np.ndarray:
    """Return small costs over a scope; the given share of the entries is infinite."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 9, [SIZES[v] for v in scope]).astype(float)
    return np.where(rng.random(found.shape) < share, np.inf, found)


@pytest.mark.parametrize("seed", range(6))
def test_the_states_of_variables_that_are_left_have_their_sums(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(decode, "WHOLE_CELLS", 0)
    scopes = ((0, 1, 2), (1, 2, 3), (2, 4))
    tables = [costs(scope, 0.7 if i == 0 else 0.2, seed + 10 * i) for i, scope in enumerate(scopes)]
    first = from_dense(Dense(Keys(scopes[0], tuple(SIZES[v] for v in scopes[0])), tables[0].reshape(-1)), MIN_PLUS)
    algebra: Any = PlainRows(Representation(MIN_PLUS, SIZES, MemoryAccount(1 << 24)), Plain(MIN_PLUS))
    step = make_step(3, (0, 1, 2), scopes, (1, 3), SIZES, MIN_PLUS)  # eliminates 0, 2 and 4
    states = {1: 1, 3: 0}
    given: dict[int, Any] = {0: first, 1: tables[1].reshape(-1), 2: tables[2].reshape(-1)}
    found: dict[tuple[int, ...], float] = {}
    (listed,) = decode.choices(step, given, SIZES, algebra, MIN_PLUS, dict(states))
    for code, worth in enumerate(np.asarray(listed.worth).reshape(-1).tolist()):
        assert not listed.states(code).keys() & states.keys()
        whole = {**states, **listed.states(code)}
        found[whole[0], whole[2], whole[4]] = worth
    for a, c, e in product(range(3), range(3), range(2)):
        expected = tables[0][a, 1, c] + tables[1][1, c, 0] + tables[2][c, e]
        assert found.get((a, c, e), np.inf) == expected
