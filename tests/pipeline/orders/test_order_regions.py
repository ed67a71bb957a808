"""Regions of a bucket tree are eliminated anew: the cells that are counted are those of the tree, and never more."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest

from bucketflow.pipeline.orders.min_fill import primal_graph
from bucketflow.pipeline.orders.order_regions import BucketForest, improve_order, new_forest, new_region
from bucketflow.pipeline.orders.tried_orders import OrderPool
from bucketflow.pipeline.trees.layouts import junction_tree_sizes
from bucketflow.pipeline.trees.tree import bucket_tree

Scopes = list[tuple[int, ...]]


def forest_of(dims: list[int], scopes: Scopes) -> BucketForest:
    n, words = len(dims), len(dims) // 64 + 1
    rows = b"".join(mask.to_bytes(8 * words, "little") for mask in primal_graph(n, scopes))
    adjacency = np.frombuffer(rows, dtype=np.uint64).reshape(n, words).copy()
    return new_forest(adjacency, np.log2(np.asarray(dims, dtype=np.float64)))


def cells_of(dims: list[int], scopes: Scopes, order: list[int]) -> int:
    return junction_tree_sizes(bucket_tree(dims, scopes, order)).cells


def random_network(seed: int, n: int, pairs: int) -> tuple[list[int], Scopes]:
    """Random pairs and triples of variables of 2 to 5 states, and one function of each variable alone."""
    rng = Random(seed)
    scopes = [tuple(rng.sample(range(n), rng.choice((2, 2, 3)))) for _ in range(pairs)]
    return [rng.randint(2, 5) for _ in range(n)], [*scopes, *((v,) for v in range(n))]


def grid_network(side: int) -> tuple[list[int], Scopes]:
    cells = range(side * side)
    scopes = [(i, i + 1) for i in cells if (i + 1) % side] + [(i, i + side) for i in cells if i + side < side * side]
    return [2] * len(cells), scopes


@pytest.mark.parametrize("seed", range(12))
def test_counted_cells_are_those_of_the_tree(seed: int) -> None:
    """In networks of one to four words, connected or not; a bucket within a child's is counted with it."""
    n = (9, 40, 70, 200)[seed % 4]
    dims, scopes = random_network(seed, n, n + n // 4)
    forest, region = forest_of(dims, scopes), new_region(n)
    order = np.array(Random(seed).sample(range(n), n))
    before = cells_of(dims, scopes, order.tolist())
    improve_order(forest, region, order, seed, 1)  # lays out the tree, and draws a region
    for turn in range(3):
        _, work = improve_order(forest, region, order, turn, 200_000)
        assert sorted(order.tolist()) == list(range(n))
        after = cells_of(dims, scopes, order.tolist())
        assert float(forest.cells.sum()) == pytest.approx(after, rel=1e-9)
        assert after <= before
        assert work >= 1
        before = after


@pytest.mark.parametrize("seed", range(8))
def test_small_networks_get_the_best_order(seed: int) -> None:
    dims, scopes = random_network(100 + seed, 7, 9)
    forest, order = forest_of(dims, scopes), np.arange(7)
    improve_order(forest, new_region(7), order, seed, 300_000)
    best = min(cells_of(dims, scopes, list(each)) for each in permutations(range(7)))
    assert cells_of(dims, scopes, order.tolist()) == best


def test_a_seed_gives_the_same_order() -> None:
    dims, scopes = random_network(5, 60, 80)
    found = []
    for _ in range(2):
        order = np.arange(60)
        improve_order(forest_of(dims, scopes), new_region(60), order, 3, 100_000)
        found.append(order.tolist())
    assert found[0] == found[1]


def test_the_pool_improves_its_best_order() -> None:
    """A grid of 20 by 20 in ten million operations; greedy orders alone have twice the cells."""
    dims, scopes = grid_network(20)
    pool, greedy = (OrderPool(dims, scopes, rule, seed=1) for rule in ("auto", "min-fill"))
    pool.more(10_000_000)
    greedy.more(10_000_000)
    (order,), (other,) = pool.take(1), greedy.take(1)
    assert cells_of(dims, scopes, list(order)) < 220_000_000
    assert 2 * cells_of(dims, scopes, list(order)) < cells_of(dims, scopes, list(other))
    assert next(pool.take(1)) != order
