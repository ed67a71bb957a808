"""The layout of a problem for a search: each entry in its place, and little memory beside the result."""

from __future__ import annotations

import numpy as np
import pytest

from bucketflow.tasks.search import state
from bucketflow.tasks.search.state import INF, new_state
from tests.memory import traced


@pytest.mark.parametrize("block", [1, 12, 1 << 15])
def test_tables_follow_each_other_however_they_are_converted(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "BLOCK_CELLS", block)
    rng = np.random.default_rng(0)
    dims = [2, 3, 1, 4]
    pairs = {(x, y): rng.integers(0, 9, (dims[x], dims[y])).astype(float) for x in range(4) for y in range(x + 1, 4)}
    pairs[0, 1][1, 2] = np.inf
    wide = [((0, 1, 3), rng.integers(0, 9, (2, 3, 4)).astype(float))]
    found = new_state([np.zeros(d) for d in dims], pairs, wide, 0, np.arange(4))
    tables = [table for costs in pairs.values() for table in (costs, costs.T)] + [costs for _, costs in wide]
    expected = np.concatenate([np.where(np.isfinite(t), t, INF).astype(np.int64).reshape(-1) for t in tables])
    np.testing.assert_array_equal(found.entries, expected)
    assert new_state([np.zeros(2)], {}, [], 0, np.arange(1)).entries.tolist() == [0]


def test_large_tables_take_little_memory_besides() -> None:
    """The memory that a prover is given counts two copies of a network, and one more."""
    pairs = {(x, y): np.ones((100, 100)) for x in range(12) for y in range(x + 1, 12)}
    unary = [np.zeros(100) for _ in range(12)]
    peak, found = traced(lambda: new_state(unary, pairs, [], 0, np.arange(12)), within=np.inf)
    assert peak < 1.5 * found.entries.nbytes
