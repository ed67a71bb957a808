"""Layouts of published propagations, which only a bench uses, find the beliefs of brute force."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.models.model import Function

BENCHES = Path(__file__).parent / "bench"
LAYOUTS = ("mapped", "by size", "chunked")


class Apart(np.ndarray):
    """A table that is copied to and from the host, as a device's."""

    def get(self, out: np.ndarray) -> None:
        out[...] = self

    def set(self, values: np.ndarray) -> None:
        self[...] = values


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The bench's modules on junction trees and on layouts."""
    monkeypatch.syspath_prepend(BENCHES)
    return importlib.import_module("parts.junction"), importlib.import_module("parts.layouts")


def network(seed: int) -> bucketflow.Model:
    """Nine variables of 2 to 4 states, with impossible states and, for some seeds, in several components."""
    rng = np.random.default_rng(seed)
    dims = tuple(int(n) for n in rng.integers(2, 5, size=9))
    functions = []
    for child in range(len(dims)):
        count = min(child, int(rng.integers(0, 4)) if child else 0)
        parents = sorted(int(p) for p in rng.permutation(child)[:count])
        values = rng.random([*(dims[p] for p in parents), dims[child]])
        values[..., 1:] *= rng.random(values[..., 1:].shape) < 0.8
        values = (values + 1e-3 * (np.arange(dims[child]) == 0)) / 1.0
        functions.append(Function((*parents, child), values / values.sum(axis=-1, keepdims=True), child=child))
    names = tuple(f"x{v}" for v in range(len(dims)))
    return bucketflow.Model("bayes", names, dims, (None,) * len(dims), tuple(functions))


def brute_beliefs(model: bucketflow.Model, findings: dict[int, np.ndarray]) -> list[np.ndarray]:
    """Posteriors of all variables by enumeration."""
    names = range(len(model.dims))
    operands: list[Any] = []
    for scope, values in [(f.scope, f.values) for f in model.functions] + [((v,), f) for v, f in findings.items()]:
        operands += [np.asarray(values), list(scope)]
    joint = np.einsum(*operands, list(names))
    beliefs = [joint.sum(axis=tuple(u for u in names if u != v)) for v in names]
    return [each / each.sum() for each in beliefs]


def laid_out(name: str, layouts: Any, tree: Any, tables: list[np.ndarray]) -> Any:
    """Return a layout on the host, every other clique apart where places are told apart."""
    host = layouts.HostKernels()
    if name == "chunked":
        return layouts.chunked(tree, tables, host)
    there = layouts.HostKernels()
    there.table = lambda values: np.array(values).view(Apart)
    there.host = np.asarray
    return layouts.mapped(tree, tables, lambda clique: host if name == "mapped" or clique % 2 else there)


@pytest.mark.parametrize("name", LAYOUTS)
def test_beliefs_are_those_of_brute_force(parts: tuple[Any, Any], name: str) -> None:
    junction, layouts = parts
    for seed in (0, 1):
        model = network(seed)
        findings = {2: np.eye(model.dims[2])[0], 7: np.linspace(0.2, 1.0, model.dims[7])}
        compiled = bucketflow.compile(model, tree="junction", background=False)
        local = compiled.skeleton.network.local
        states = compiled.skeleton.network.domains
        tree = junction.junction_of(compiled)
        left = {local[v]: vector[states[v]] for v, vector in findings.items() if v in local}
        layout = laid_out(name, layouts, tree, junction.clique_tables(compiled, tree, left))
        expected = brute_beliefs(model, findings)
        ours = bucketflow.marginals(model, evidence={model.names[v]: f for v, f in findings.items()})
        for _ in range(2):  # what is calibrated stays so
            layout.run()
            tables = layout.read()
            for v, at in local.items():
                home = tree.smallest[at]
                found = junction.belief(tables[home], tree.cliques[home], at)
                np.testing.assert_allclose(found, expected[v][states[v]], rtol=1e-10, atol=1e-14)
                np.testing.assert_allclose(found, ours[model.names[v]][states[v]], rtol=1e-10, atol=1e-14)
        assert ("transfer" in layout.kinds) == (name == "by size")
        assert ("reordering" in layout.kinds) == (name == "chunked")


def test_cliques_are_maximal_and_hold_their_functions(parts: tuple[Any, Any]) -> None:
    junction, layouts = parts
    compiled = bucketflow.compile(network(5), tree="junction", background=False)
    tree = junction.junction_of(compiled)
    sizes = compiled.plan.junction_tree
    assert (len(tree.cliques), sum(tree.clique_cells)) == (sizes.nodes, sizes.cells)
    for one in tree.messages:
        assert set(tree.separators[one.separator]) == set(tree.cliques[one.source]) & set(tree.cliques[one.target])
    assert layouts.layout_bytes(tree)[1] == 4 * sum(
        layouts.index_table(tree, clique, m.separator).size for m in tree.messages for clique in (m.source,)
    )


def test_axes_that_stay_together_are_one(parts: tuple[Any, Any]) -> None:
    _, layouts = parts
    assert layouts.merged_axes((2, 3, 4, 5), (2, 3, 0, 1)) == ((6, 20), (1, 0))
    assert layouts.merged_axes((2, 3, 4), (0, 1, 2)) == ((24,), (0,))
    values = np.arange(120.0)
    target = np.empty(120)
    layouts.HostKernels().reordering(values, target, (2, 3, 4, 5), (3, 0, 2, 1))()
    assert np.array_equal(target, values.reshape(2, 3, 4, 5).transpose(3, 0, 2, 1).reshape(-1))
    assert [layouts.team_of(n) for n in (1, 2, 3, 64, 65, 5000)] == [1, 2, 4, 64, 128, 256]
