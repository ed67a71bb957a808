"""The examples load, are small, and mean what their descriptions say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, ModelError
from bucketflow.pipeline.examples import Example, example_path, examples
from bucketflow.pipeline.formats.read import load


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_example_loads(example: Example) -> None:
    path = example_path(example.name)
    assert path == example_path(example.file)
    assert path.stat().st_size < 60_000
    evidence = example_path(example.evidence) if example.evidence else None
    model = load(path, evidence)
    assert len(model.dims) >= 20
    assert bool(model.evidence) == (evidence is not None)
    assert {v for f in model.functions for v in f.scope} == set(range(len(model.dims)))


def test_every_file_belongs_to_an_example() -> None:
    folder = example_path("grid").parent
    listed = (
        {e.file for e in examples()} | {e.evidence for e in examples() if e.evidence} | {"diagnosis.csv"}
    )  # to learn from
    assert {p.name for p in Path(folder).iterdir() if p.is_file() and p.suffix != ".py"} == listed


def test_examples_are_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bucketflow.load("diagnosis")
    assert Path(model.source) == example_path("diagnosis")
    assert len(bucketflow.marginals(model, evidence="diagnosis.evid")) == 26
    monkeypatch.chdir(tmp_path)
    Path("diagnosis").write_text("MARKOV 1 2 1 1 0 2 1 3")
    assert bucketflow.load("diagnosis").dims == (2,)


def test_unknown_example() -> None:
    with pytest.raises(ModelError, match=r"no example 'nothing'; there are satellite, "):
        example_path("nothing")


def test_diagnosis_distributions_sum_to_one() -> None:
    model = load(example_path("diagnosis"))
    assert model.kind == "bayes"
    for f in model.functions:
        np.testing.assert_allclose(f.values.sum(axis=-1), 1.0, atol=1e-9)
        assert f.child == f.scope[-1]


def test_fields_are_too_many_to_sweep_and_quickly_proved() -> None:
    model = load(example_path("fields"))
    with pytest.raises(BudgetError):
        bucketflow.plan(model, order_time=0.05, memory="1GB")
    found = bucketflow.solve(model)
    assert (found.status, found.value) == ("optimal", 9539)
    assert model.cost(list(found.assignment.values())) == 9539  # type: ignore[union-attr]


def test_satellite_may_take_nothing() -> None:
    model = load(example_path("satellite"))
    assert model.top is not None
    assert model.cost([0] * len(model.dims)) == model.top - 1
    assert model.cost([1] * len(model.dims)) is None
