"""Tables spread over the memory of several devices: the same answers, within each one's budget, on a stand-in."""

from __future__ import annotations

import pytest

import bucketflow
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from tests.device_stand_in import device
from tests.models import grid
from tests.policies import InForce

CASES = [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov"), ("count", "forbids")]


@pytest.mark.parametrize("cards", [2, 4, 8])
@pytest.mark.parametrize(("query", "kind"), CASES)
def test_tables_over_several_cards_give_the_same_answer(
    query: str, kind: str, cards: int, monkeypatch: pytest.MonkeyPatch, in_force: InForce
) -> None:
    in_force(BudgetPolicy, margin_bytes=1 << 8, chunk_bytes=(1 << 10, 1 << 12))
    model = grid(5, 7, 5, kind)
    free = bucketflow.solve(model, query)
    with device(monkeypatch, cards=cards, peers=cards != 4) as there:
        plan = bucketflow.plan(model, query, gpus=1, tree="bucket")
        assert plan is not None
        budget = plan.peak_bytes * 3 // 4
        spread = bucketflow.solve(model, query, gpus=cards, tree="bucket", fit="spread", gpu_memory=budget)
    assert spread.plan is not None
    assert spread.plan.spill is not None
    assert spread.plan.spill.cards == cards
    assert (spread.status, spread.value) == (free.status, free.value)
    if free.log10 is not None:
        assert spread.log10 == pytest.approx(free.log10, rel=1e-12)
    assert min(there.peaks) > 0
    assert max(there.peaks) <= budget
