"""Networks that are written as .bif and .net: read again with names, labels and the same values, by others too."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.models.bayesian_networks import network_fault

from ...models import assignments, bayes_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@settings(max_examples=30, deadline=None)
@given(model=bayes_models())
def test_networks_are_read_again(folder: Path, model: Model) -> None:
    assume(network_fault(model.functions, model.names, model.dims, model.states) is None)
    names = [f"v{v}" for v in range(len(model.dims))]
    labels = [tuple(f"<{s}-{v}/a" for s in range(size)) for v, size in enumerate(model.dims)]
    model = replace(model, names=names, states=labels)
    for suffix in ("bif", "net"):
        assert bucketflow.save(model, folder / f"a.{suffix}") == ()
        again = bucketflow.load(folder / f"a.{suffix}")
        assert (again.kind, again.names, again.states) == ("bayes", model.names, model.states)
        for states in assignments(model, {}):
            assert again.log10_value(states) == model.log10_value(states)


def network() -> Model:
    rain, hose = [0.7, 0.3], [0.5, 0.25, 0.25]
    wet = np.array([[[0.9, 0.1], [0.4, 0.6]], [[0.2, 0.8], [0.05, 0.95]], [[0.25, 0.75], [1, 0]]])
    model = Model.build(
        "bayes",
        {"rain": ["no", "yes"], "hose": ["off", "low", "on"], "wet": ["dry", "damp"]},
        [(("rain",), rain), (("hose",), hose), (("hose", "rain", "wet"), wet)],
    )
    turned = replace(model.functions[2], scope=(1, 2, 0), values=wet.transpose(0, 2, 1))  # the child in the middle
    return replace(model, functions=(*model.functions[:2], turned), name="a garden")


@pytest.mark.parametrize("suffix", ["bif", "net", "bif.gz"])
def test_what_is_written(suffix: str, tmp_path: Path) -> None:
    assert bucketflow.save(network(), tmp_path / f"a.{suffix}") == ()
    again = bucketflow.load(tmp_path / f"a.{suffix}")
    for evidence in ({}, {"wet": "damp"}):
        before, after = (bucketflow.marginals(model, evidence=evidence) for model in (network(), again))
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])
    if suffix == "bif":
        assert "probability ( wet | hose, rain ) {\n  (off, no) 0.9, 0.1;" in (tmp_path / "a.bif").read_text()
    if suffix == "net":
        text = " ".join((tmp_path / "a.net").read_text().split())
        assert "data = (((0.9 0.1) (0.4 0.6)) ((0.2 0.8) (0.05 0.95)) ((0.25 0.75) (1.0 0.0))) ;" in text


@pytest.mark.parametrize("suffix", ["bif", "net"])
def test_aggrum_reads_what_is_written(suffix: str, tmp_path: Path) -> None:
    gum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    bucketflow.save(network(), tmp_path / f"a.{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inference = gum.LazyPropagation(gum.loadBN(str(tmp_path / f"a.{suffix}")))
        inference.setEvidence({"wet": "damp"})
        inference.makeInference()
        found = bucketflow.marginals(network(), evidence={"wet": "damp"})
        for name in ("rain", "hose"):
            np.testing.assert_allclose(inference.posterior(name).toarray(), found[name], atol=1e-12)


@pytest.mark.parametrize("suffix", ["bif", "net"])
def test_what_is_lost_and_what_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    odd = Model.build("bayes", {"a b": ['say "x"', "y"]}, [(("a b",), [0.25, 0.75])])
    notes = bucketflow.save(replace(odd, evidence={0: 1}), path)
    assert [note.partition(",")[0] for note in notes] == [
        "names of variables are not kept",
        "values of 1 variables are not kept",
        "the model's evidence on 1 variables is not kept",
    ]
    again = bucketflow.load(path)
    assert (again.names, again.states) == (("x0",), (("0", "1"),))
    with pytest.raises(ModelError, match=rf"the model holds costs, and \.{suffix} holds Bayesian networks"):
        bucketflow.save(Model.build("cost", {"a": 2}, []), path)
    with pytest.raises(ModelError, match="the model holds potentials"):
        bucketflow.save(Model.build("markov", {"a": 2}, []), path)
    nothing = Model.build("bayes", {}, [])
    if suffix == "net":
        assert bucketflow.save(nothing, path) == ()
        assert bucketflow.load(path).names == ()
    else:
        with pytest.raises(ModelError, match="the model has no variables"):
            bucketflow.save(nothing, path)
    wrong = Model.build("bayes", {"a": 2}, [(("a",), [0.5, 0.25])], check=False)
    with pytest.raises(ModelError, match=rf"cannot be written as \.{suffix}, which holds Bayesian networks: prob"):
        bucketflow.save(wrong, path)
    with pytest.raises(ModelError, match=r"models are written as \.cfn, \.uai, \.bif, \.net, \.xml, \.yaml or \.wcsp"):
        bucketflow.save(odd, tmp_path / "a.dsc")
