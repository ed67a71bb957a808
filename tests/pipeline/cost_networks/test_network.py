"""Integer networks have the totals of the models they were made from."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError
from bucketflow.pipeline.cost_networks.cost_network import LARGEST, CostNetwork, CostTable, Totals, Units, cost_network
from bucketflow.pipeline.models.model import Model, dense_function
from bucketflow.pipeline.orders.depth_first import bucket_parents, depth_first_order
from bucketflow.pipeline.preprocessing.preprocess import Network, reduce_model
from tests.memory import traced
from tests.models import bayes_models, cost_models, markov_models, named_model
from tests.pipeline.proofs.networks import coarse_networks


def full_states(network: Network, states: tuple[int, ...]) -> list[int]:
    """States of all variables of the model; those that are free or fixed take their first."""
    full = [int(domain[0]) for domain in network.domains]
    for v, state in zip(network.variables, states, strict=True):
        full[v] = int(network.domains[v][state])
    return full


def check_totals(network: Network, small: CostNetwork, units: Units, true_cost: object) -> None:
    for states in product(*map(range, network.dims)):
        total, cost = small.total(states), true_cost(full_states(network, states))  # type: ignore[operator]
        if cost == math.inf:
            assert total == math.inf or network.model.kind == "cost"
        elif total < math.inf:
            assert total == int(total) < LARGEST * 4
            assert units.base + units.unit * (total - units.below) <= cost + 1e-9
            assert units.base + units.unit * (total + units.above) >= cost - 1e-9
            assert units.at_least(int(total)) <= cost + 1e-9
            assert total < units.above_total(cost)


@given(cost_models())
def test_totals_of_costs(model: Model) -> None:
    network = reduce_model(model, "optimum", {})
    if not network.feasible:
        return
    small, units = cost_network(network)
    fixed = sum(
        int(model.functions[f].at([int(network.domains[v][0]) for v in model.functions[f].scope])) - model.lowest[f]
        for f in network.constants
    )

    def cost(full: list[int]) -> float:
        value = model.cost(full)
        return math.inf if value is None else value - fixed

    assert units.exact
    check_totals(network, small, units, cost)


@given(coarse_networks(), st.integers(-50, 50), st.integers(-50, 50))
def test_totals_that_there_can_be(network: CostNetwork, bound: int, upper: int) -> None:
    totals = network.totals
    there = {network.total(states) for states in product(*map(range, network.dims))} - {math.inf}
    assert all((total - totals.first) % totals.step == 0 and total >= totals.first for total in there)
    assert bound <= totals.at_least(bound) <= bound + totals.step - 1
    assert all(total >= totals.at_least(bound) for total in there if total >= bound)
    assert [total for total in there if total < totals.cut_off(upper)] == [total for total in there if total < upper]
    assert totals.at_least(totals.cut_off(upper)) == totals.at_least(upper)


def test_steps_are_found_in_the_whole_of_large_tables() -> None:
    costs = np.full(5000, 30.0)
    costs[17], costs[4000] = np.inf, 44.0
    unary = CostTable((1,), np.array([3.0, 24.0]))
    assert CostNetwork((5000, 2), (CostTable((0,), costs), unary)).totals == Totals(33, 7)
    assert CostNetwork((5000,), (CostTable((0,), np.full(5000, 8.0)),)).totals == Totals(8, 1)


@given(st.one_of(markov_models(), bayes_models()))
def test_totals_of_energies(model: Model) -> None:
    network = reduce_model(model, "optimum", {})
    if not network.feasible:
        return
    small, units = cost_network(network)
    left = [f for leaf in network.leaves for f in leaf.functions]

    def energy(full: list[int]) -> float:
        values = [float(model.functions[f].at([full[v] for v in model.functions[f].scope])) for f in left]
        return math.inf if 0.0 in values else -math.fsum(map(math.log, values))

    check_totals(network, small, units, energy)


def test_costs_too_large_for_exact_sums_are_rounded_down() -> None:
    big = (1 << 59) + 12345
    model = Model.build("cost", {"a": 2, "b": 2}, [(["a", "b"], np.array([[0, big], [1, 3]]))])
    small, units = cost_network(reduce_model(model, "optimum", {}))
    assert not units.exact
    assert small.total((0, 1)) * units.unit <= big < (small.total((0, 1)) + units.above) * units.unit
    exact, units = cost_network(reduce_model(model, "optimum", {}), most=3)
    assert units.exact
    assert exact.total((0, 1)) == math.inf
    assert exact.total((1, 1)) == 3


def test_orders_walk_the_bucket_tree_depth_first() -> None:
    dims, scopes = (2,) * 9, [(v, v + 1) for v in range(8)] + [(0, 8), (2, 6)]
    order = depth_first_order(dims, scopes, seconds=0.01)
    assert sorted(order) == list(range(9))
    parents, _ = bucket_parents(9, scopes, order)
    place = {v: i for i, v in enumerate(order)}
    for v in range(9):
        below = {u for u in range(9) if u == v or v in chain(parents, u)}
        places = sorted(place[u] for u in below)
        assert places == list(range(places[0], places[0] + len(below)))


def chain(parents: list[int], v: int) -> list[int]:
    """All ancestors of a variable."""
    found = []
    while parents[v] >= 0:
        v = parents[v]
        found.append(v)
    return found


def test_units_are_no_finer_than_logarithms_and_fine_where_nothing_differs() -> None:
    for value in (0.5, 1e-300, 1.0):
        model = named_model("markov", [2], [dense_function([0], np.array([value, value]))])
        _, units = cost_network(reduce_model(model, "optimum", {}))
        assert 2.0**-53 * abs(math.log(value)) <= units.unit <= 1e-12


def test_functions_that_do_not_fit_as_tables_are_refused_before_they_are_made() -> None:
    costs = [(["a", "b"], [[5, 5], [7, 9]], [100, 2], 1), (["a"], np.arange(1000))]
    model = Model.build("cost", {"a": 1000, "b": 1000}, costs)
    refused = "bounds need 64 MB for functions that take 8 MB as tables of all their assignments, allowed 20 MB"

    def bound() -> None:
        with pytest.raises(BudgetError, match=refused):
            bucketflow.bound(model, memory="20MB")

    def search() -> None:
        with pytest.raises(BudgetError, match=refused):
            bucketflow.solve(model, method="search", time=9, memory="20MB")

    for ask in (bound, search):
        assert traced(ask, 4e6)[0] < 4e6
    for time in (None, 60):  # a sweep has memory, and is through in the time
        found = bucketflow.solve(model, time=time, memory="20MB")
        assert (found.status, found.value) == ("optimal", 1)
