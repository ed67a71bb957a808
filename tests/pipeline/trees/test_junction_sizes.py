"""The sizes of junction trees that plans show, against networkx's cliques of the same filled graph."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import combinations
from math import prod
from pathlib import Path

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.trees.layouts import SetSizes, junction_tree_sizes
from bucketflow.pipeline.trees.tree import bucket_tree, junction_tree
from tests.models import grid


def maximal_cliques(scopes: list[list[int]], order: list[int]) -> list[frozenset[int]]:
    """Of the graph that eliminations fill: each variable with its neighbours then, if no other set has all of them."""
    around: dict[int, set[int]] = {v: set() for scope in scopes for v in scope}
    for scope in scopes:
        for v in scope:
            around[v] |= {*scope} - {v}
    found = []
    for v in order:
        if v in around:
            near = around.pop(v)
            for u in near:
                around[u] = (around[u] | near) - {u, v}
            found.append(frozenset((v, *near)))
    return maximal(found)


def maximal(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    found = [*dict.fromkeys(each for each in sets if each)]
    return [each for each in found if not any(each < other for other in found)]


def spanning_separators(cliques: list[frozenset[int]]) -> list[frozenset[int]]:
    """Separators of a junction tree, which is any spanning forest of the most common variables (Jensen 1988)."""
    part = list(range(len(cliques)))
    found = []
    for a, b in sorted(combinations(part, 2), key=lambda pair: -len(cliques[pair[0]] & cliques[pair[1]])):
        common = cliques[a] & cliques[b]
        if common and part[a] != part[b]:
            part = [part[a] if each == part[b] else each for each in part]
            found.append(common)
    return found


def expected(sets: list[frozenset[int]], dims: list[int]) -> SetSizes:
    cells, counts = [prod(dims[v] for v in each) for each in sets], [len(each) for each in sets]
    if not sets:
        return SetSizes()
    means = sum(cells) / len(sets), sum(counts) / len(sets)
    return SetSizes(*(len(sets), sum(cells), min(cells), means[0], max(cells)), min(counts), means[1], max(counts))


@given(st.data())
def test_sizes_are_those_of_the_maximal_cliques(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    dims = data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    scope = st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True)
    scopes = data.draw(st.lists(scope, min_size=1, max_size=10))
    order = data.draw(st.permutations(range(n)))
    for build in bucket_tree, junction_tree:
        tree = build(dims, scopes, order)
        cliques, found = maximal(tree.joined), junction_tree_sizes(tree)
        assert found.cliques == expected(cliques, dims)
        assert found.separators == expected(spanning_separators(cliques), dims)
        assert (found.nodes, found.cells) == (found.cliques.count, found.cliques.cells)
        if all(len(gone) == 1 or gone == joined for gone, joined in zip(tree.eliminated, tree.joined, strict=True)):
            assert {*cliques} == {*maximal_cliques(scopes, order)}


def test_plans_say_them(tmp_path: Path) -> None:
    bucketflow.save(grid(4, 4, 3, "markov"), tmp_path / "grid.uai")
    asked = ["plan", str(tmp_path / "grid.uai"), "--query", "marginals", "--tree"]
    sizes = bucketflow.plan(bucketflow.load(tmp_path / "grid.uai"), "marginals", tree="junction").junction_tree
    found = json.loads(CliRunner().invoke(main, [*asked, "junction", "--json"]).stdout)["plan"]["junction_tree"]
    assert found["cliques"] == vars(sizes.cliques)
    assert found["separators"] == vars(sizes.separators)
    shown = CliRunner().invoke(main, [*asked, "junction"]).stdout
    assert "junction tree" in shown
    assert f"{sizes.cliques.mean_cells:,.1f}" in shown
    assert "junction tree" not in CliRunner().invoke(main, [*asked, "bucket"]).stdout


def test_slices_do_not_hide_what_the_tree_holds() -> None:
    model = grid(5, 5, 4, "markov")
    whole = bucketflow.plan(model, "marginals", tree="junction")
    sliced = bucketflow.plan(model, "marginals", tree="junction", memory=whole.peak_bytes // 3, fit="slice")
    assert sliced.slices > 1
    assert sliced.junction_tree == whole.junction_tree


def test_nothing_to_eliminate_has_no_sizes() -> None:
    model = bucketflow.Model.build("markov", {"a": 2}, [((), 1.0)])
    assert bucketflow.plan(model, "marginals", tree="junction").junction_tree.cliques == SetSizes()
