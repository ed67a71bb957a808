"""``bound``: both bounds enclose the answer, the assignment is worth what is said, refusals are one sentence."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Bounds, BudgetError, Model, ModelError
from bucketflow.cluster.pool import present_device
from bucketflow.pipeline.api import bound as bound_module
from bucketflow.pipeline.api import bound_ladder
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, model_of
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.minibuckets.joins import BucketPolicy
from bucketflow.pipeline.minibuckets.rounds import SumBounds
from bucketflow.pipeline.models.model import dense_function
from tests.device_stand_in import imagine_devices
from tests.exact import Weights, costs
from tests.models import bayes_models, cost_models, markov_models, named_model
from tests.pipeline.proofs.networks import brute_least, coarse_networks

ZS = st.sampled_from([None, 1, 2, 3])


@given(cost_models(), ZS)
def test_costs(model: Model, z: int | None) -> None:
    found = bucketflow.bound(model, z=z, memory="1GB")
    every = costs(model, {})
    if not every:
        assert found.value is None
        assert z is not None or found.status == "infeasible"
        return
    assert found.lower is not None
    assert found.lower <= min(every.values())
    check_assignment(found, model, every)
    if z is None:
        assert (found.status, found.lower) == ("optimal", min(every.values()))


@given(coarse_networks(), ZS)
def test_coarse_costs(network: CostNetwork, z: int | None) -> None:
    found, least = bucketflow.bound(model_of(network, None), z=z, memory="1GB"), brute_least(network)
    if least == math.inf:
        assert found.value is None
        return
    assert isinstance(found.lower, int)
    assert found.lower <= least <= (math.inf if found.upper is None else found.upper)
    assert network.totals.at_least(found.lower) == found.lower
    assert z is not None or found.lower == least == found.upper


def check_assignment(found: Bounds, model: Model, every: dict[tuple[int, ...], int]) -> None:
    """The upper bound is what the assignment costs."""
    assert found.upper == found.value
    if found.assignment is not None:
        states = tuple(model.state_index(v, found.assignment[name]) for v, name in enumerate(model.names))
        assert every[states] == found.upper


@given(cost_models())
@settings(max_examples=50)
def test_costs_that_are_prepared_first(model: Model) -> None:
    with BucketPolicy.using(easy_cells=-1):
        found = bucketflow.bound(model, memory="1GB", seed=1)
    every = costs(model, {})
    if every:
        check_assignment(found, model, every)
        assert (found.status, found.lower) == ("optimal", min(every.values()))
    else:
        assert found.status == "infeasible"


@given(st.one_of(markov_models(), bayes_models()))
@settings(max_examples=50)
def test_probabilities_that_are_prepared_first(model: Model) -> None:
    with BucketPolicy.using(easy_cells=-1):
        found = bucketflow.bound(model, memory="1GB")
    best = Weights(model, {}).log10_best
    if best == -np.inf:
        assert found.status == "infeasible"
    else:
        near = 1e-12 * (1 + len(model.functions)) + 1e-13 * abs(best)
        assert found.lower == pytest.approx(best, abs=near + 1e-7 * abs(best))
        assert found.upper is not None
        assert found.upper >= best - near


@given(st.one_of(markov_models(), bayes_models()), ZS)
def test_probabilities(model: Model, z: int | None) -> None:
    exact = Weights(model, {})
    for query, value in (("optimum", exact.log10_best), ("partition", exact.log10_sum)):
        found = bucketflow.bound(model, query, z=z, memory="1GB")
        if value == -np.inf:
            assert found.lower is None
            assert z is not None or found.status == "infeasible"
            continue
        # the oracle adds logarithms of units of 2**-1074, which rounds too
        near = 1e-12 * (1 + len(model.functions)) + 1e-13 * abs(value)
        assert found.upper is not None
        assert found.upper >= value - near
        assert found.lower is None or found.lower <= value + near
        if z is None:
            assert found.gap == pytest.approx(0.0, abs=1e-7 * (1 + abs(value)))


def grid(n: int, top: int | None = None) -> Model:
    """A square of variables with random costs of neighbours: far wider than two."""
    rng = np.random.default_rng(n)
    scopes = [(i * n + j, i * n + j + 1) for i in range(n) for j in range(n - 1)]
    scopes += [(j, j + n) for j in range(n * n - n)]
    functions = [dense_function(list(scope), rng.integers(0, 50, (3, 3))) for scope in scopes]
    return named_model("cost", [3] * (n * n), functions, top=top)


def test_rounds_grow_until_nothing_is_split() -> None:
    model = grid(5)
    with BucketPolicy.using(first_part=math.inf, bucket_seconds=0.0):
        found = bucketflow.bound(model)
    assert found.status == "optimal"
    assert found.value == bucketflow.solve(model).value
    lowers = [each.lower for each in found.rounds]
    assert lowers == sorted(lowers)  # type: ignore[type-var]
    assert [each.cells for each in found.rounds] == sorted({each.cells for each in found.rounds})
    assert found.rounds[0].largest <= 16


def test_a_round_that_loads_something_does_not_make_later_ones_seem_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    now, attempt = [0.0], bound_module._Optimum.attempt

    def attempted(question: Any, split: Any, *args: Any) -> Any:
        now[0] += 5.0 if 1000 < split.cells < 10_000 else 1e-9 * split.cells
        return attempt(question, split, *args)

    monkeypatch.setattr(bound_module, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bound_ladder, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bound_module._Optimum, "attempt", attempted)
    with BucketPolicy.using(first_part=math.inf, bucket_seconds=0.0):
        *_, slow, last = bucketflow.bound(grid(6), time=9.0).rounds
    assert (slow.seconds, last.exact) == (5.0, True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that only eliminations move: a second for a million cells, as they are predicted."""
    now, attempt = [0.0], bound_module._Optimum.attempt

    def attempted(question: Any, split: Any, *args: Any) -> Any:
        now[0] += 1e-6 * split.cells
        return attempt(question, split, *args)

    monkeypatch.setattr(bound_module, "compiled_until", lambda seconds: nullcontext())  # that takes no time either
    monkeypatch.setattr(bound_module, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bound_ladder, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bound_module._Optimum, "attempt", attempted)
    with BucketPolicy.using(bucket_seconds=0.0, cell_seconds=1e-6):
        yield now


def test_the_first_round_takes_a_tenth_of_the_time(clock: list[float]) -> None:
    """Of a square whose exact elimination takes a million cells."""
    first, *later = bucketflow.bound(grid(8), time=0.5).rounds
    assert first.limit > 16  # type: ignore[operator]
    assert first.seconds <= 0.05 < 10 * first.seconds
    assert [each.way for each in later].count("") <= 1
    with BucketPolicy.using(first_part=math.inf):
        assert bucketflow.bound(grid(8), time=0.5).rounds[0].limit == 16


def test_other_orders_are_tried_once_nothing_larger_fits_and_the_best_is_kept(clock: list[float]) -> None:
    model = grid(8)
    found = bucketflow.bound(model, time=0.05)
    ways = [each.way for each in found.rounds]
    assert ways.count("another order") > 1
    assert {"", "another order"} == {*ways}
    lowers = [each.lower for each in found.rounds]
    assert lowers == sorted(lowers)  # type: ignore[type-var]
    assert lowers[ways.index("another order") - 1] < found.lower <= bucketflow.solve(model).value  # type: ignore[operator]
    assert clock[0] <= 0.05
    plain = bucketflow.bound(model, time=0.05, order=[f"x{i}" for i in range(64)])
    assert {each.way for each in plain.rounds} == {""}  # an order that was asked for is kept


@BucketPolicy.using(other_orders=6)
def test_several_gpus_try_other_orders_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a partition function whose larger mini-buckets do not fit; joins are so small that they run here."""
    together, used, lock, attempt = threading.Barrier(3), list[int](), threading.Lock(), SumBounds.attempt

    def attempted(question: SumBounds, *args: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            with lock:
                first = present_device() not in used
                used.append(present_device())
            if first:
                together.wait(20.0)
        return attempt(question, *args)

    rng = np.random.default_rng(3)
    pairs = [(i, j) for i in range(16) for j in range(i) if rng.random() < 0.5]
    model = named_model("markov", [3] * 16, [dense_function(list(p), rng.random((3, 3)) + 0.1) for p in pairs])
    monkeypatch.setattr(Resources, "gpu_count", property(lambda found: int(found.asked.gpus or 0)))
    monkeypatch.setattr(Resources, "memory_bytes", 1 << 15)
    monkeypatch.setattr(Resources, "least_cells", lambda *_: 1 << 40)
    monkeypatch.setattr(SumBounds, "attempt", attempted)
    imagine_devices(monkeypatch)
    alone = bucketflow.bound(model, "partition", time=1e6)
    found = bucketflow.bound(model, "partition", time=1e6, gpus=3)
    assert {*used} == {0, 1, 2}
    assert [each.way for each in found.rounds] == [each.way for each in alone.rounds]
    assert [each.way for each in found.rounds].count("another order") == len(used) > 3
    uppers = [each.upper for each in found.rounds]
    assert uppers == sorted(uppers, reverse=True)  # type: ignore[type-var]
    assert found.upper == alone.upper, "the least of all orders, whichever ends first"
    exact = bucketflow.solve(model, "partition").log10
    assert found.lower <= exact <= found.upper  # type: ignore[operator]


def test_triangles_raise_what_mini_buckets_leave(clock: list[float]) -> None:
    """Of a clique, whose pairs say little of a total."""
    rng, n = np.random.default_rng(3), 9
    pairs = [(i, j) for i in range(n) for j in range(i)]
    model = named_model("cost", [4] * n, [dense_function(list(p), rng.integers(0, 30, (4, 4))) for p in pairs])
    found = bucketflow.bound(model, time=0.02)
    best = bucketflow.solve(model, method="dense").value
    ways = [each.way for each in found.rounds]
    first = ways.index("triangles")
    assert {*ways[:first]} == {""}
    before, after = found.rounds[first - 1], found.rounds[first]
    assert before.lower < after.lower <= found.lower <= best <= found.upper  # type: ignore[operator]
    assert after.size == "triangles"


def test_no_time_is_one_round_and_evidence_counts() -> None:
    found = bucketflow.bound(grid(6), time=0, evidence={"x0": 2})
    assert len(found.rounds) == 1
    assert found.status == "bounded"
    assert found.assignment is not None
    assert found.assignment["x0"] == 2
    assert found.gap == found.upper - found.lower  # type: ignore[operator]


def test_a_top_below_everything_is_infeasible() -> None:
    assert bucketflow.bound(grid(4, top=1)).status == "infeasible"


def test_maximised_decimals_are_bounded_from_above(tmp_path: Any) -> None:
    path = tmp_path / "a.cfn"
    path.write_text(
        '{"problem": {"name": "a", "mustbe": ">-9.50"}, "variables": {"x": ["l", "r"], "y": 2},'
        '"functions": {"f": {"scope": ["x", "y"], "costs": [0.25, 1.5, -3, 0.75]}}}'
    )
    found = bucketflow.bound(bucketflow.load(path))
    assert (found.status, found.lower, found.upper) == ("optimal", Decimal("1.50"), Decimal("1.50"))
    assert found.assignment == {"x": "l", "y": 1}


def test_memory_is_held_or_refused_with_both_numbers() -> None:
    model = grid(6)
    small = bucketflow.bound(model, memory=30_000)
    assert small.status == "bounded"
    assert 0 < max(each.largest for each in small.rounds) * 8 < 30_000
    with pytest.raises(BudgetError, match=r"take .* kB, more than the 20 kB of memory"):
        bucketflow.bound(model, memory=20_000, z=9)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"query": "count"}, "bounds do not exist for the query 'count'"),
        ({"query": "partition"}, "no partition function"),
        ({"z": 0}, "z is 0"),
        ({"time": float("nan")}, "time is nan"),
        ({"order": ["x0"]}, "the order omits"),
    ],
)
def test_refusals(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        bucketflow.bound(grid(3), **keywords)


def in_process(*args: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["bound", *map(str, args)])
    assert done.exit_code == code, done.output
    return done.output


def test_the_command() -> None:
    found = json.loads(in_process("satellite", "--json"))
    assert (found["status"], found["lower"], found["upper"], found["gap"]) == ("optimal", 49, 49, 0)
    assert set(found["seconds"]) - {"compile"} == {"read", "plan", "run"}
    assert found["rounds"][0]["cells_limit"] >= 16
    assert found["rounds"][-1]["exact"]
    shown = in_process("grid", "--query", "partition", "--z", "3")
    assert "3 variables" in shown
    assert "bounded" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["/nowhere.uai"], 2, "/nowhere.uai"),
        (["satellite", "--z", "0"], 2, "0"),
        (["satellite", "--query", "count"], 2, "count"),
        (["satellite", "--query", "partition"], 2, "partition"),
        (["satellite", "--evidence", "nobody=1"], 2, "nobody"),
        (["grid", "--z", "9", "--memory", "20kB"], 3, "20 kB"),
    ],
)
def test_bad_input_of_the_command(arguments: list[str], code: int, words: str) -> None:
    said = in_process(*arguments, code=code)
    assert words in said
    assert "Traceback" not in said
