"""Trees against brute force: scopes, eliminations, schedules."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.trees.costs import Rates, tree_cost
from bucketflow.pipeline.trees.tree import Tree, bucket_tree, elimination_order, junction_tree

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)


@st.composite
def problems(draw):
    """Draw domain sizes and scopes: any hypergraph, with repeated, nested, private and unused variables."""
    n = draw(st.integers(1, 9))
    dims = draw(st.lists(st.sampled_from((1, 2, 3, 5)), min_size=n, max_size=n))
    scopes = draw(st.lists(st.lists(st.integers(0, n - 1), max_size=4, unique=True), max_size=9))
    return tuple(dims), tuple(tuple(s) for s in scopes)


def leaves_below(tree: Tree, node: int) -> list[int]:
    """List the input functions of a subtree."""
    if node < tree.n_leaves:
        return [node]
    return [leaf for c in tree.children[node - tree.n_leaves] for leaf in leaves_below(tree, c)]


def check(tree: Tree) -> None:
    """Check every promise of a tree by looking at whole subtrees."""
    nodes = range(tree.n_leaves + len(tree.children))
    used = [c for kids in tree.children for c in kids]
    assert len(used) == len(set(used))
    assert set(used) | set(tree.roots) == set(nodes)
    assert all(c < tree.n_leaves + j for j, kids in enumerate(tree.children) for c in kids)
    assert all(kids for kids in tree.children)
    for node in nodes:
        inside = leaves_below(tree, node)
        outside = set(range(tree.n_leaves)) - set(inside)
        below = {v for i in inside for v in tree.leaves[i]}
        above = {v for i in outside for v in tree.leaves[i]}
        expected = set(tree.leaves[node]) if node < tree.n_leaves else below & above
        assert tree.scopes[node] == expected
    for j, kids in enumerate(tree.children):
        assert tree.joined[j] == frozenset().union(*(tree.scopes[c] for c in kids))
        assert tree.eliminated[j] == tree.joined[j] - tree.scopes[tree.n_leaves + j]
    gone = [v for e in tree.eliminated for v in e]
    assert sorted(gone) == sorted({v for leaf in tree.leaves for v in leaf})
    assert all(not tree.scopes[r] for r in tree.roots)
    for node, parent in enumerate(tree.parent):
        assert (parent < 0) == (node in tree.roots)
        assert parent < 0 or node in tree.children[parent - tree.n_leaves]


@given(problems(), st.data())
def test_trees_of_an_order(problem, data):
    dims, scopes = problem
    order = data.draw(st.permutations(range(len(dims))))
    for tree in (bucket_tree(dims, scopes, order), junction_tree(dims, scopes, order)):
        assert tree.leaves == scopes
        check(tree)
        assert sorted(elimination_order(tree)) == list(range(len(dims)))


@given(problems(), st.sampled_from(("bucket", "junction", "refined")), st.integers(0, 3))
def test_searched_trees(problem, kind, seed):
    dims, scopes = problem
    tree = TreeSearch(dims, scopes, tree=kind, seed=seed).cheapest()
    assert tree.leaves == scopes
    check(tree)


@settings(max_examples=30, deadline=None)
@given(problems(), st.integers(0, 3))
def test_compiled_search(problem, seed):
    dims, scopes = problem
    check(TreeSearch(dims, scopes, seconds=0.02, seed=seed).cheapest())


@given(problems(), st.data())
def test_variables_are_eliminated_in_the_given_order(problem, data):
    dims, scopes = problem
    order = data.draw(st.permutations(range(len(dims))))
    tree = bucket_tree(dims, scopes, order)
    rank = {v: i for i, v in enumerate(order)}
    for kids, gone in zip(tree.children, tree.eliminated, strict=True):
        first = min(gone, key=rank.__getitem__)
        # whatever is in the bucket had the variable, and whatever is gone earlier is gone below
        assert all(first in tree.scopes[c] for c in kids)
        assert all(rank[v] >= rank[first] for c in kids for v in tree.scopes[c])


@given(problems(), st.data())
def test_cliques_of_a_junction_tree(problem, data):
    dims, scopes = problem
    order = data.draw(st.permutations(range(len(dims))))
    tree = junction_tree(dims, scopes, order)
    for j, kids in enumerate(tree.children):
        assert all(not tree.joined[j] <= tree.joined[c - tree.n_leaves] for c in kids if c >= tree.n_leaves)
    if scopes:
        buckets = tree_cost(bucket_tree(dims, scopes, order))
        assert tree_cost(tree).cells <= buckets.cells


@given(problems(), st.data())
def test_running_intersection(problem, data):
    dims, scopes = problem
    tree = junction_tree(dims, scopes, data.draw(st.permutations(range(len(dims)))))
    first = tree.n_leaves
    for v in range(len(dims)):
        holding = {j for j, joined in enumerate(tree.joined) if v in joined}
        tops = [j for j in holding if tree.parent[first + j] - first not in holding]
        assert len(tops) == (1 if holding else 0)


@given(problems())
def test_cost_equals_counting(problem):
    _, scopes = problem
    dims = PRIMES[: len(problem[0])]
    tree = TreeSearch(dims, scopes, tree="junction").cheapest()
    cost = tree_cost(tree)
    sizes = [prod(dims[v] for v in s) for s in tree.scopes]
    assert cost.cells == sum(prod(dims[v] for v in j) for j in tree.joined)
    assert cost.largest_table_cells == max(sizes, default=1)
    assert cost.written_cells == sum(sizes[tree.n_leaves :])
    assert cost.read_cells == sum(sizes[c] for kids in tree.children for c in kids)
    assert cost.width == max((len(j) for j in tree.joined), default=0) - 1
    assert cost.steps == len(tree.children)
    for v in range(len(dims)):
        sliced = tree_cost(tree, sliced=frozenset({v}))
        whole = sum(prod(dims[u] for u in j) for j in tree.joined if v in j)
        assert sliced.cells * dims[v] == whole + dims[v] * (cost.cells - whole)


def test_cost_of_a_hopeless_tree():
    n = 3000
    tree = bucket_tree((2,) * n, (tuple(range(n)),), range(n))
    cost = tree_cost(tree)
    assert cost.cells == 2**n
    assert cost.seconds == float("inf")


def test_matmul_rate():
    rates = Rates(cells_per_second=1.0, matmul_cells_per_second=4.0, bytes_per_second=1e30, step_seconds=0.5)
    tree = bucket_tree((32, 16, 32, 2), ((0, 1), (1, 2), (0, 3), (2, 3)), (1, 0, 2, 3))
    assert tree_cost(tree, rates).seconds == pytest.approx(0.5 + 16384 / 4 + 2048 + 0.5 + 2048 + 0.5 + 64)


def peak_cells(tree: Tree, sequence: tuple[int, ...]) -> int:
    """Simulate a sequence of steps and return the most cells of messages ever live."""
    size = [prod(tree.dims[v] for v in s) for s in tree.scopes]
    live = peak = 0
    for node in sequence:
        peak = max(peak, live + size[node])
        live += size[node]
        live -= sum(size[c] for c in tree.children[node - tree.n_leaves] if c >= tree.n_leaves)
    return peak


def naive_order(tree: Tree) -> tuple[int, ...]:
    """Return a post-order that visits children as they are stored."""
    out: list[int] = []

    def visit(node: int) -> None:
        if node >= tree.n_leaves:
            for c in tree.children[node - tree.n_leaves]:
                visit(c)
            out.append(node)

    for root in tree.roots:
        visit(root)
    return tuple(out)


@given(problems(), st.data())
def test_schedule(problem, data):
    dims, scopes = problem
    tree = bucket_tree(dims, scopes, data.draw(st.permutations(range(len(dims)))))
    sequence = tree.schedule
    assert sorted(sequence) == list(range(tree.n_leaves, tree.n_leaves + len(tree.children)))
    place = {node: i for i, node in enumerate(sequence)}
    assert all(
        place[c] < place[tree.n_leaves + j] for j, kids in enumerate(tree.children) for c in kids if c >= tree.n_leaves
    )
    assert peak_cells(tree, sequence) <= peak_cells(tree, naive_order(tree)) + len(tree.roots)


def test_large_trees_are_quick():
    n = 4000
    scopes = [(i, i + 1) for i in range(n - 1)] + [(i, i + 40) for i in range(n - 40)]
    tree = bucket_tree((2,) * n, scopes, range(n))
    assert len(elimination_order(tree)) == n
    assert tree_cost(tree).width == 40
