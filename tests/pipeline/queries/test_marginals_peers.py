"""Marginals against pyAgrum on random networks, and against published ``.MAR`` and ``.PR`` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.models.model import Function
from tests.models import named_model


def random_network(seed: int, size: int = 25) -> Model:
    """A Bayesian network in which every variable has up to three earlier parents."""
    rng = np.random.default_rng(seed)
    dims = rng.integers(2, 5, size).tolist()
    functions = []
    for child in range(size):
        parents = rng.permutation(child)[: rng.integers(0, 4)].tolist()
        values = rng.random([*(dims[p] for p in parents), dims[child]]) ** 4
        functions.append(Function((*parents, child), values / values.sum(-1, keepdims=True), child=child))
    return named_model("bayes", dims, functions)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("ignore")
def test_pyagrum_on_random_networks(seed: int) -> None:
    gum = pytest.importorskip("pyagrum")
    model = random_network(seed)
    network = gum.BayesNet()
    for name, size in zip(model.names, model.dims, strict=True):
        network.add(gum.RangeVariable(name, name, 0, size - 1))
    for f in model.functions:
        assert f.child is not None
        child = model.names[f.child]
        for p in f.scope[:-1]:
            network.addArc(model.names[p], child)
        for index in np.ndindex(*f.values.shape[:-1]):
            given = {model.names[p]: s for p, s in zip(f.scope, index, strict=False)}
            network.cpt(child)[given] = f.values[index].tolist()
    rng = np.random.default_rng(seed)
    compiled = bucketflow.compile(model)
    for _ in range(3):
        observed = rng.permutation(len(model.dims))[: rng.integers(0, 8)]
        evidence = {model.names[v]: int(rng.integers(model.dims[v])) for v in observed}
        inference = gum.LazyPropagation(network)
        inference.setEvidence(evidence)
        inference.makeInference()
        found = bucketflow.marginals(model, evidence=evidence)
        compiled.set_evidence(evidence)
        updated = compiled.marginals()
        for name in model.names:
            assert found[name] == pytest.approx(inference.posterior(name).toarray(), abs=1e-10)
            assert updated[name] == pytest.approx(found[name], abs=1e-12)


@pytest.mark.parametrize("name", ["Pedigree_11", "Promedus_34", "linkage_21", "ObjectDetection_41"])
def test_published_marginals(data: Path, name: str) -> None:
    folder = data / "uai" / "uai2014"
    path = next(p for suffix in ("", ".xz", ".gz") if (p := folder / f"{name}.uai{suffix}").exists())
    found = bucketflow.marginals(bucketflow.load(path), evidence=folder / f"{name}.uai.evid")
    published = (folder / f"{name}.uai.PR").read_text().split()
    assert found.log10_evidence == pytest.approx(float(published[-1]), rel=1e-5, abs=1e-4)
    numbers = (folder / f"{name}.uai.MAR").read_text().split()[2:]
    for table in found.values():
        assert int(numbers[0]) == len(table)
        printed = [float(x) for x in numbers[1 : len(table) + 1]]
        assert table == pytest.approx(printed, rel=6e-6, abs=1e-6)
        numbers = numbers[len(table) + 1 :]
    assert not numbers
