"""Orders and the search against naive counting and exhaustive search."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.errors import BudgetError, ModelError
from bucketflow.pipeline.orders import depth_first, forests, min_fill, tree_search
from bucketflow.pipeline.orders.effort import OrderPolicy
from bucketflow.pipeline.orders.forests import Rearranger, Starts, group_units, pairwise_forest
from bucketflow.pipeline.orders.min_fill import min_fill_order, primal_graph
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.orders.tried_orders import search_order
from bucketflow.pipeline.plans import two_way_steps
from bucketflow.pipeline.plans.planner import Planner
from bucketflow.pipeline.plans.problem import PlanOptions, Problem
from bucketflow.pipeline.trees.costs import Rates, tree_cost
from bucketflow.pipeline.trees.tree import Sizer, bucket_tree, elimination_order
from bucketflow.tasks.steps.semiring import MIN_PLUS
from tests.policies import InForce

CELLS_ONLY = Rates(1.0, 1.0, 1e30, 0.0, 0.0)


@st.composite
def networks(draw, most=8):
    """Draw domain sizes and scopes of two or three variables."""
    n = draw(st.integers(2, most))
    dims = draw(st.lists(st.sampled_from((2, 3, 5)), min_size=n, max_size=n))
    scope = st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True).map(tuple)
    return tuple(dims), tuple(draw(st.lists(scope, min_size=1, max_size=12)))


def grid(side):
    """Return the pairwise scopes of a square grid."""
    right = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    return tuple(right + [(i, i + side) for i in range(side * side - side)])


def fill_of(adjacency, v):
    """Count the pairs of neighbours of a variable that are not adjacent to each other."""
    around = [u for u in range(len(adjacency)) if adjacency[v] >> u & 1]
    return sum(not adjacency[a] >> b & 1 for i, a in enumerate(around) for b in around[:i])


@given(networks(), st.integers(0, 3))
def test_min_fill_takes_the_least_fill_at_every_step(network, seed):
    dims, scopes = network
    left = set(range(len(dims)))
    adjacency = primal_graph(len(dims), scopes)
    for v in min_fill_order(dims, scopes, seed):
        assert fill_of(adjacency, v) == min(fill_of(adjacency, u) for u in left)
        left.discard(v)
        around = adjacency[v]
        adjacency = [
            0 if u == v else (a | (around if around >> u & 1 else 0)) & ~(1 << u) & ~(1 << v)
            for u, a in enumerate(adjacency)
        ]


@settings(max_examples=50, deadline=None)
@given(networks(), st.booleans(), st.data())
def test_incremental_fill_equals_counting_again(network, even, data):
    from bucketflow.pipeline.orders import greedy_orders

    dims, scopes = network
    n = len(dims)
    logs = np.log2(np.array(dims, dtype=float))
    weights = np.ones(n) if even else logs
    adjacency = np.array([[a] for a in primal_graph(n, scopes)], dtype=np.uint64)
    fill = greedy_orders.initial_fill(adjacency, weights, even)
    clique = np.array([logs[v] + sum(logs[u] for u in range(n) if int(adjacency[v, 0]) >> u & 1) for v in range(n)])
    stale, spare = np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.int64)
    left = list(range(n))
    for v in data.draw(st.permutations(range(n))):
        greedy_orders.eliminate(v, spare, adjacency, fill, clique, logs, weights, even, stale)
        left.remove(v)
        for u in left:
            around = [w for w in range(n) if int(adjacency[u, 0]) >> w & 1]
            missing = [(a, b) for a in around for b in around if a < b and not int(adjacency[a, 0]) >> b & 1]
            assert v not in around
            assert fill[u] == pytest.approx(sum(weights[a] * weights[b] for a, b in missing), abs=1e-9)
            assert clique[u] == pytest.approx(logs[u] + logs[around].sum())


@pytest.mark.parametrize("rule", range(5))
def test_compiled_orders_are_permutations_and_price_their_buckets(rule):
    from bucketflow.pipeline.orders import greedy_orders

    scopes, n = grid(9), 81
    adjacency = np.array([[a & (2**64 - 1), a >> 64] for a in primal_graph(n, scopes)], dtype=np.uint64)
    logs, order = np.ones(n), np.empty(n, dtype=np.int64)
    fill = greedy_orders.initial_fill(adjacency, np.ones(n), True)
    cells, work = greedy_orders.greedy_order(adjacency, fill, logs, np.ones(n), rule, 0.3, 0.1, 7, np.inf, order)
    assert sorted(order.tolist()) == list(range(n))
    # buckets that lie within an earlier clique are no steps of their own, but are counted
    exact = tree_cost(bucket_tree((2,) * n, scopes, order)).cells
    assert exact <= cells <= 2 * exact
    given_up, less = greedy_orders.greedy_order(adjacency, fill, logs, np.ones(n), rule, 0.3, 0.1, 7, cells / 2, order)
    assert given_up == np.inf
    assert less < work


@settings(max_examples=40, deadline=None)
@given(networks(most=10), st.integers(3, 6))
def test_rearrangement_of_few_tables_is_exhaustive(network, count):
    dims, scopes = network
    distinct = [s for s in dict.fromkeys(map(frozenset, scopes)) if len(s) > 1][:count]
    units = group_units(len(dims), [tuple(s) for s in distinct])
    masks = units.masks
    if len(masks) < 3 or len(group_components(masks)) > 1:
        return
    full = (1 << len(masks)) - 1

    def union(s):
        out = 0
        for i, mask in enumerate(masks):
            out |= mask if s >> i & 1 else 0
        return out

    @cache
    def least(s):
        if s & (s - 1) == 0:
            return 0
        options = []
        part = (s - 1) & s
        while part:
            scope = [union(p) & union(full ^ p) for p in (part, s ^ part)]
            joined = scope[0] | scope[1]
            kept = s != full and joined == union(s) & union(full ^ s)
            cells = 0 if kept else prod(d for v, d in enumerate(dims) if joined >> v & 1)
            options.append(least(part) + least(s ^ part) + cells)
            part = (part - 1) & s
        return min(options)

    forest = pairwise_forest(units, Sizer(dims), len(dims), range(len(dims)))
    search = Rearranger(forest, dims, CELLS_ONLY, 8, seed=1)
    search.run(100_000)
    assert search.seconds == pytest.approx(least(full))


def group_components(masks):
    """Merge bit sets that overlap."""
    groups: list[int] = []
    for mask in masks:
        near = [g for g in groups if g & mask]
        groups = [g for g in groups if not g & mask]
        for g in near:
            mask |= g
        groups.append(mask)
    return groups


@pytest.mark.parametrize("tree", ["bucket", "junction", "refined"])
@pytest.mark.parametrize("seconds", [None, 0.05])
def test_a_seed_gives_one_tree(tree, seconds):
    dims, scopes = (2, 3) * 32, grid(8)
    first, again = (TreeSearch(dims, scopes, tree=tree, seconds=seconds, seed=5).cheapest() for _ in range(2))
    assert first.children == again.children


def test_a_search_remembers_other_cheap_trees():
    dims, scopes = (2, 3) * 32, grid(8)
    first, again = (TreeSearch(dims, scopes, seconds=0.2, seed=5).trees() for _ in range(2))
    assert [tree.children for tree in first] == [tree.children for tree in again]
    assert first[0].children == TreeSearch(dims, scopes, seconds=0.2, seed=5).cheapest().children
    prices = [(tree_cost(tree).seconds, tree_cost(tree).cells) for tree in first]
    assert len(set(prices)) == len(first) > 1
    assert prices == sorted(prices)


def test_what_no_search_helps_is_refused_before_it_is_searched_or_lowered(monkeypatch):
    def never(*_, **__):
        raise AssertionError("planned in vain")

    scopes = tuple(combinations(range(120), 2))
    problem = Problem((3,) * 120, scopes, MIN_PLUS, 8)
    monkeypatch.setattr(tree_search, "Rearranger", never)
    monkeypatch.setattr(two_way_steps, "make_step", never)
    with monkeypatch.context() as patch:
        patch.setattr(forests, "pairwise_forest", never)
        with pytest.raises(BudgetError, match=r"would sweep .*e\+57 cells"):
            next(Planner(problem, PlanOptions(memory_bytes=10**9), Rates()).plans())
    # whoever asks for a search gets it
    with pytest.raises(AssertionError, match="in vain"):
        next(Planner(problem, PlanOptions(memory_bytes=10**9, order_seconds=0.01), Rates()).plans())


def test_searches_by_other_rates_share_what_orders_give(monkeypatch: pytest.MonkeyPatch) -> None:
    dims, scopes = (3,) * 64, grid(8)
    made: list[tuple[int, ...]] = []
    original = forests.pairwise_forest

    def counted(*args):
        made.append(args[3])
        return original(*args)

    monkeypatch.setattr(forests, "pairwise_forest", counted)
    starts = Starts(dims, scopes)
    for rates in (Rates(1e5, 1e5, 1e5), Rates(1e5, 8e5, 1e6), Rates(1e6, 1e6, 1e5)):
        shared = TreeSearch(dims, scopes, rates=rates, longest=0.1).trees(starts=starts)
        once = len(made)
        assert shared == TreeSearch(dims, scopes, rates=rates, longest=0.1).trees()
        del made[once:]
    assert len(made) == len(set(made))


def test_no_variables_have_an_order() -> None:
    assert search_order((), (), seconds=0.01) == (0.0, ())


def test_an_order_is_searched_without_a_tree(monkeypatch, in_force: InForce):
    def never(*_, **__):
        raise AssertionError("an order is all that was asked for")

    for name in ("bucket_tree", "merged_cliques", "pairwise_forest"):
        monkeypatch.setattr(forests, name, never)
    monkeypatch.setattr(tree_search, "tree_cost", never)
    in_force(OrderPolicy, compiled_seconds=0.0)
    dims, scopes = (3,) * 81, grid(9)
    cells, order = search_order(dims, scopes, seconds=0.01)
    first = depth_first.bucket_cells(dims, scopes, min_fill_order(dims, scopes, 0))
    least = depth_first.bucket_cells(dims, scopes, order)
    assert sorted(order) == list(range(81))
    assert cells <= least <= 1.5 * cells  # three states: the last clique is counted once
    found = depth_first.depth_first_order(dims, scopes, seconds=0.01)
    assert depth_first.bucket_cells(dims, scopes, found) == pytest.approx(min(first, least))


def test_joining_a_bucket_compares_only_tables_that_may_be_best(monkeypatch):
    scopes = tuple((0, *((v,) if v < 200 else ())) for v in range(1, 400))
    looked, log = [], Sizer.log

    def counted(sizer, mask):
        looked.append(mask)
        return log(sizer, mask)

    monkeypatch.setattr(Sizer, "log", counted)
    dims = (2,) * 400
    forest = pairwise_forest(group_units(400, scopes), Sizer(dims), 400, [*range(1, 400), 0])
    assert len(forest.kids) == 198
    assert len(looked) < 10 * len(scopes)


def test_given_order():
    dims, scopes = (2,) * 36, grid(6)
    order = tuple(reversed(range(36)))
    assert TreeSearch(dims, scopes, tree="bucket", order=order).cheapest() == bucket_tree(dims, scopes, order)
    refined = TreeSearch(dims, scopes, order=order, seconds=0.05).cheapest()
    assert tree_cost(refined).seconds <= tree_cost(bucket_tree(dims, scopes, order)).seconds


@pytest.mark.parametrize("kind", ["bucket", "junction", "refined"])
@pytest.mark.parametrize("seconds", [None, 0.01])
@pytest.mark.parametrize("scopes", [(), ((), ()), ((0, 1),)])
def test_hardly_anything_to_plan(kind, seconds, scopes):
    n = 2 if any(scopes) else 0
    tree = TreeSearch((1,) * n, scopes, tree=kind, seconds=seconds).cheapest()
    assert len(tree.children) == n // 2
    assert elimination_order(tree) == tuple(range(n))


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), "max-fill"])
def test_bad_orders(order):
    with pytest.raises(ModelError):
        TreeSearch((2, 2, 2), ((0, 1), (1, 2)), order=order).cheapest()


@settings(max_examples=30, deadline=None)
@given(networks(), st.data())
def test_refined_is_never_dearer_than_buckets(network, data):
    dims, scopes = network
    order = data.draw(st.permutations(range(len(dims))))
    buckets = bucket_tree(dims, scopes, order)
    refined = TreeSearch(dims, scopes, order=order).cheapest()
    assert tree_cost(refined).seconds <= tree_cost(buckets).seconds
    sliced = frozenset(data.draw(st.sets(st.integers(0, len(dims) - 1), max_size=2)))
    again = TreeSearch(buckets.dims, buckets.leaves, seconds=0.001).refined(buckets, sliced)
    assert again.dims == dims
    assert tree_cost(again, sliced=sliced).seconds <= tree_cost(buckets, sliced=sliced).seconds


@pytest.mark.parametrize("order", ["auto", "min-fill", "weighted-min-fill", "min-degree", "min-size", "mixed"])
def test_quality_on_a_grid(order):
    tree = TreeSearch((2,) * 144, grid(12), order=order, seconds=0.2, rates=CELLS_ONLY).cheapest()
    cost = tree_cost(tree)
    assert cost.cells < 2**18
    assert cost.largest_table_cells <= 2**14
    assert sorted(elimination_order(tree)) == list(range(144))


def test_more_time_is_not_worse():
    dims, scopes = (2,) * 196, grid(14)
    searches = [TreeSearch(dims, scopes, seconds=s, rates=CELLS_ONLY) for s in (0.05, 0.4)]
    costs = [tree_cost(search.cheapest(), CELLS_ONLY).seconds for search in searches]
    assert costs[1] <= costs[0]


def test_small_models_load_no_compiler():
    code = (
        "import sys; from bucketflow.pipeline.orders.tree_search import TreeSearch;"
        "n = 50; TreeSearch((2,) * n, [(i, i + 1) for i in range(n - 1)]).cheapest();"
        "sys.exit(any(m in sys.modules for m in ('numba', 'cotengra', 'dask', 'zarr', 'cupy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_same_order_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[min_fill.FillGraph] = []
    graph = min_fill.FillGraph
    monkeypatch.setattr(min_fill, "FillGraph", lambda *given: graphs.append(graph(*given)) or graphs[-1])
    scopes = [[v, v + 1] for v in range(30)]
    first = min_fill_order([2] * 31, scopes, 5)
    assert min_fill_order((2,) * 31, tuple(map(tuple, scopes)), 5) == first
    assert len(graphs) == 1
