"""The option ``--cases N`` of the tests: only N cases of each test function, where all would take too long."""

from __future__ import annotations

from collections import defaultdict
from math import gcd

import pytest


class FewCases:
    """A pytest plugin that keeps some cases of each test function, of those that other options leave."""

    def __init__(self, cases: int) -> None:
        self.cases = cases

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the other cases."""
        cases = defaultdict(list)
        for item in items:
            cases[item.nodeid.partition("[")[0]].append(item)
        kept = {item for some in cases.values() for item in spread(some, self.cases)}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def spread(items: list[pytest.Item], count: int) -> list[pytest.Item]:
    """Choose some items such that products of several parameters are not all met with one value of a parameter."""
    step = next(s for s in range(max(1, round(0.618 * len(items))), 2 * len(items) + 1) if gcd(s, len(items)) == 1)
    return [items[i * step % len(items)] for i in range(min(count, len(items)))]
