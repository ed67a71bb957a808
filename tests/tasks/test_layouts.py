"""What is kept of layouts of keys: bounded, and forgotten as a whole."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from bucketflow.tasks.rows import ordering
from bucketflow.tasks.rows.keys import Keys
from bucketflow.tasks.rows.ordering import disorder, joined, layout, moved
from bucketflow.tasks.steps.caches import Memo


@pytest.mark.parametrize("variables", [3, 30, 300])
def test_what_is_kept_of_layouts_is_bounded(monkeypatch: pytest.MonkeyPatch, variables: int) -> None:
    kept: Memo[Any] = Memo(1 << 20)
    monkeypatch.setattr(ordering, "LAYOUTS", kept)
    rng = np.random.default_rng(variables)
    tracemalloc.start()
    try:
        for _ in range({3: 500, 30: 100, 300: 8}[variables]):
            # none of them twice; together they take several times as much
            scope = (rng.permutation(10 * variables)[:variables] + 1000).tolist()
            keys = Keys(tuple(scope), (3,) * variables)
            target = layout(keys, scope[::-1])
            both = joined(keys, Keys((1, 2), (2, 2)))
            disorder(scope, target)
            moved(np.zeros((0, keys.n_words), np.uint64), keys, both)
            assert kept.size <= 1 << 20
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_memo_forgets_all_before_it_is_too_full_and_says_so_before() -> None:
    seen: list[int] = []
    memo: Memo[int] = Memo(100, lambda: seen.append(memo.size))
    for key in range(5):
        assert memo.put(key, key, 40) == key
    assert seen == [80, 80]
    assert [memo.get(key) for key in range(5)] == [None, None, None, None, 4]
    assert memo.put("large", 7, 101) == 7
    assert (memo.get("large"), memo.size) == (None, 0)
