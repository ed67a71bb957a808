"""What whole runs are predicted to take: steps, leaf tables, decoding, slices, where and how fast Python is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketflow.pipeline.plans.plan import Plan, with_rates
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.prediction import REFERENCE, RunOverhead, step_seconds
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.trees.costs import Rates, gpu_rates
from bucketflow.pipeline.trees.tree import bucket_tree
from bucketflow.tasks.steps.lowering import lower
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT, Semiring

CHAIN = tuple((i, i + 1) for i in range(499))


def planned(states: int = 2, decode: bool = False, **given: int) -> Plan:
    """Plan a chain, a function for each pair of neighbours."""
    problem = Problem((states,) * 500, CHAIN, MIN_PLUS, 8, **given)
    tree = bucket_tree(problem.dims, problem.scopes, tuple(range(500)))
    return Planner(problem, PlanOptions(decode=decode), Rates()).of(tree)


def test_small_runs_take_what_is_done_around_their_steps() -> None:
    """Five hundred tables of four cells are made in some milliseconds, more functions in more."""
    once, thrice = planned(functions=499), planned(functions=3 * 499)
    assert 2e-3 < thrice.predicted_seconds - once.predicted_seconds < 5e-2
    assert planned().predicted_seconds == once.predicted_seconds  # each table is a function, if nobody counted


def test_decoding_and_evaluating_are_predicted() -> None:
    swept, decoded = planned(evaluated=499), planned(decode=True, evaluated=499)
    assert 1e-3 < decoded.predicted_seconds - swept.predicted_seconds < 5e-2


def test_steps_are_predicted_by_their_kernels() -> None:
    """Small steps take no longer than NumPy's calls; of large ones only the loops matter."""
    small = lower([(0, 1), (1,)], (0,), {0: 2, 1: 2}, "float64", SUM_PRODUCT)
    product = lower([(0, 1), (1, 2)], (0, 2), dict.fromkeys(range(3), 1024), "float64", SUM_PRODUCT)
    loops = lower([(0, 1), (0, 1)], (0,), {0: 1 << 12, 1: 1 << 12}, "float64", SUM_PRODUCT)
    assert [step.regime for step in (small, product, loops)] == ["small", "matrix", "streaming"]
    assert step_seconds(small, Rates(), 8) < 2e-5
    assert 0.9 < step_seconds(product, Rates(), 8) * REFERENCE.matmul_cells_per_second / product.cells < 2
    assert 0.5 < step_seconds(loops, Rates(), 8) * REFERENCE.cells_per_second / loops.cells < 5


def test_tables_read_against_their_order_take_longer() -> None:
    sizes = {0: 2048, 1: 64, 2: 2048}
    ordered = lower([(1, 0, 2), (0, 2)], (1,), sizes, "float64", MIN_PLUS)
    across = lower([(1, 0, 2), (2, 0, 1)], (1,), sizes, "float64", MIN_PLUS)
    assert ordered.regime == across.regime == "streaming"
    assert step_seconds(across, Rates(), 8) > 2 * step_seconds(ordered, Rates(), 8)


def test_fresh_pages_are_predicted() -> None:
    step = lower([(0,), (1,)], (0, 1), {0: 4096, 1: 4096}, "float64", MIN_PLUS)
    fast, slow = (replace(REFERENCE, fresh_bytes_per_second=rate) for rate in (1e12, 1e8))
    longer = step_seconds(step, slow, 8) - step_seconds(step, fast, 8)
    assert longer == pytest.approx(step.out_cells * 8 / 1e8, rel=0.01)


def test_predictions_follow_what_was_measured() -> None:
    plan = planned(functions=499)
    half = Rates(*(getattr(REFERENCE, name) / 2 for name in ("cells_per_second", "matmul_cells_per_second")))
    slow = replace(half, step_seconds=2 * REFERENCE.step_seconds)
    assert with_rates(plan, slow).predicted_seconds == pytest.approx(2 * plan.predicted_seconds)


def test_slices_repeat_what_depends_on_them() -> None:
    problem = Problem((4,) * 500, CHAIN, MIN_PLUS, 8)
    whole = planned(4)
    sliced = Planner(problem, PlanOptions(), Rates()).conditioned(whole, frozenset({250}))
    assert whole.predicted_seconds < sliced.predicted_seconds < 4 * whole.predicted_seconds


@pytest.mark.parametrize("semiring", [MIN_PLUS, SUM_PRODUCT], ids=lambda s: s.name)
def test_launches_of_sums_take_longer_than_those_that_are_made_once(semiring: Semiring) -> None:
    problem = Problem((4,) * 500, CHAIN, semiring, 8)
    plan = Planner(problem, PlanOptions(), Rates()).of(bucket_tree((4,) * 500, CHAIN, tuple(range(500))))
    there = replace(with_rates(plan, gpu_rates(semiring)), device=True)
    assert (there.predicted_seconds > there.seconds) == (semiring is SUM_PRODUCT)


def test_nothing_around_takes_no_time() -> None:
    assert RunOverhead().leaf_seconds(False, 0) == RunOverhead().reading_seconds(False, 100, 0) == 0.0


def test_large_functions_take_longer() -> None:
    """Leaf tables of many cells take what their cells do."""
    many = RunOverhead(functions=1).leaf_seconds(False, 1 << 24)
    assert 100 * RunOverhead(functions=1).leaf_seconds(False, 4) < many < 1.0
