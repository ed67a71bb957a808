"""What people are used to: files and texts in place of models and mappings, and the word that was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow import Model, ModelError

RAIN = Model.build(
    "bayes",
    {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    [(("rain",), [0.8, 0.2]), (("rain", "wet"), [[0.9, 0.1], [0.2, 0.8]])],
)


def test_a_path_or_an_example_stands_for_its_model(tmp_path: Path) -> None:
    path = tmp_path / "pair.wcsp"
    bucketflow.save(Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), [[3, 1], [2, 5]])]), path)
    found = bucketflow.solve(path)
    assert (found.value, found.assignment) == (1, {"x0": 0, "x1": 1})
    assert bucketflow.solve(str(path), "count").value == 4
    assert [ranked.value for ranked in bucketflow.best(path, 2)] == [1, 2]
    assert bucketflow.bound(path).lower == 1
    assert len(bucketflow.sample(path, 3, temperature=1.0)) == 3
    assert bucketflow.EditableModel(path).solve().value == 1
    assert bucketflow.plan("diagnosis", "marginals").cells > 0
    loaded = bucketflow.load("diagnosis")
    assert bucketflow.marginals("diagnosis")["Storm"].tolist() == bucketflow.marginals(loaded)["Storm"].tolist()
    assert bucketflow.compile("diagnosis").model.names == loaded.names


def test_reading_a_path_keeps_to_the_memory_that_is_given() -> None:
    with pytest.raises(bucketflow.BudgetError):
        bucketflow.solve("fields", memory="1kB")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("wet=yes", {"wet": "yes"}),
        ('rain=0, wet="yes"', {"rain": "no", "wet": "yes"}),
        ("wet=[0.25,0.5]", {"wet": [0.25, 0.5]}),
    ],
)
def test_evidence_as_a_text_is_that_of_its_names(text: str, same: dict[str, Any]) -> None:
    for query in ("optimum", "partition"):
        found, expected = (bucketflow.solve(RAIN, query, evidence=given) for given in (text, same))
        assert (found.log10, found.assignment) == (expected.log10, expected.assignment)
    posteriors, others = (bucketflow.marginals(RAIN, evidence=given) for given in (text, same))
    assert posteriors["rain"].tolist() == others["rain"].tolist()


def test_evidence_that_is_no_list_is_a_file_as_before(tmp_path: Path) -> None:
    path = tmp_path / "a=b.evid"
    path.write_text("1 1 1")
    assert bucketflow.marginals(RAIN, evidence=str(path))["wet"].tolist() == [0.0, 1.0]
    with pytest.raises(bucketflow.FormatError, match="a readable file"):
        bucketflow.solve(RAIN, evidence="nothing.evid")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bucketflow.solve(RAIN, evidence="wett=yes"), "evidence names 'wett', .*; did you mean 'wet'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"Rain": 1}), "evidence names 'Rain', .*; did you mean 'rain'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"wet": "yess"}), "its states are no, yes; did you mean 'yes'?"),
        (lambda: bucketflow.solve(RAIN, evidence={"we": [1, 2]}), "did you mean 'wet'?"),
        (lambda: bucketflow.marginals(RAIN, query_vars=["rian"]), "'rian' is not a variable .*; did you mean 'rain'?"),
        (lambda: bucketflow.solve(RAIN, order=["rain", "wat"]), "the order names 'wat', .*; did you mean 'wet'?"),
        (lambda: bucketflow.compile(RAIN).marginals_batch({"wat": [1]}), "cases name 'wat', .*did you mean 'wet'?"),
        (lambda: bucketflow.sample(RAIN, 1)["wat"], "'wat' is not a variable .*; did you mean 'wet'?"),
        (lambda: bucketflow.solve("sattelite"), "sattelite: .*; did you mean 'satellite'?"),
        (lambda: Model.build("cost", {"abc": 2}, [(("abd",), [1, 2])]), "over 'abd', .*; did you mean 'abc'?"),
    ],
)
def test_the_word_that_was_meant_is_named(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(bucketflow.BucketflowError, match=message.replace("?", r"\?")):
        ask()


def test_a_word_that_is_like_none_gets_no_hint() -> None:
    with pytest.raises(ModelError) as refused:
        bucketflow.solve(RAIN, evidence={"temperature": 1})
    assert str(refused.value) == "evidence names 'temperature', which is not a variable of the model"
