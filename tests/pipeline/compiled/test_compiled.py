"""Compiled models: updates equal a fresh run and touch little; saved ones answer as before."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Compiled, Marginals, Model, ModelError
from bucketflow.pipeline.compiled import file as compiled_files
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.models.model import Function
from tests.full_disk import files_of_at_most
from tests.models import bayes_models, markov_models, named_model
from tests.policies import InForce

PROBABILITIES = st.one_of(markov_models(), bayes_models())


def agree(found: Marginals, expected: Marginals) -> None:
    assert found.status == expected.status
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-10, abs=1e-10)
    assert set(found) == set(expected)
    for name, table in found.items():
        assert table == pytest.approx(expected[name], rel=1e-9, abs=1e-13)


@st.composite
def findings(draw: st.DrawFn, model: Model) -> tuple[str, Any]:
    v = draw(st.integers(0, len(model.dims) - 1))
    size = model.dims[v]
    soft = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=size, max_size=size)
    return model.names[v], draw(st.one_of(st.integers(0, size - 1), soft))


@given(model=PROBABILITIES, data=st.data())
def test_updates_equal_a_fresh_run(model: Model, data: st.DataObject) -> None:
    compiled = bucketflow.compile(model)
    evidence: dict[str, Any] = {}
    for _ in range(5):
        action = data.draw(st.sampled_from(["add", "add", "clear", "set"]))
        if action == "add":
            name, finding = data.draw(findings(model))
            compiled.add(name, finding)
            evidence[name] = finding
        elif action == "clear":
            name = data.draw(st.sampled_from(model.names))
            compiled.clear(name)
            evidence.pop(name, None)
        else:
            evidence = dict(data.draw(st.lists(findings(model), max_size=3)))
            compiled.set_evidence(evidence)
        if data.draw(st.booleans()):
            name = data.draw(st.sampled_from(model.names))
            found = compiled.marginals([name])
            expected = bucketflow.marginals(model, evidence=evidence, variables=[name])
        else:
            found, expected = compiled.marginals(), bucketflow.marginals(model, evidence=evidence)
        agree(found, expected)
        assert compiled.partition() == pytest.approx(expected.log10_evidence, rel=1e-10, abs=1e-10)
    compiled.clear()
    agree(compiled.marginals(), bucketflow.marginals(model))


@given(model=PROBABILITIES, data=st.data())
def test_saved_models_answer_as_before(
    model: Model, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compiled = bucketflow.compile(model, joint=[model.names[:2]])
    compiled.set_evidence(dict(data.draw(st.lists(findings(model), max_size=2))))
    expected = compiled.marginals()
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    compiled.save(path)
    loaded = Compiled.load(path)
    found = loaded.marginals()
    assert loaded.computed == 0
    assert found.status == expected.status
    assert found.log10_evidence == expected.log10_evidence
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert found.joint.keys() == expected.joint.keys()
    name, finding = data.draw(findings(model))
    compiled.add(name, finding)
    loaded.add(name, finding)
    agree(loaded.marginals(), compiled.marginals())


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    with pytest.raises(bucketflow.FormatError, match="no such file"):
        Compiled.load(path)
    path.write_text("no archive")
    with pytest.raises(bucketflow.FormatError, match="compiled model"):
        Compiled.load(path)
    np.savez(path, header=np.zeros(3))
    with pytest.raises(bucketflow.FormatError, match="compiled model"):
        Compiled.load(path)
    bucketflow.compile(chain(3)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(bucketflow.FormatError, match="compiled model"):
        Compiled.load(path)


def test_every_damaged_file_is_refused(tmp_path: Path) -> None:
    """One bit of any byte, and any end that is missing or too long."""
    path, found = tmp_path / "model.npz", bucketflow.compile(chain(3))
    found.add("x3", 1)
    found.marginals()
    found.save(path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    flips = [
        (int(at), 1 << int(bit)) for at, bit in zip(range(len(whole)), rng.integers(0, 8, len(whole)), strict=True)
    ]
    files = [whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :] for at, bit in flips[::7] + flips[-40:]]
    files += [whole[:end] for end in range(0, len(whole), 97)] + [whole + b"\0", whole + whole, b""]
    for content in files:
        path.write_bytes(content)
        with pytest.raises(
            bucketflow.FormatError, match=r"expected a compiled model, found (a damaged one|no checksum)"
        ):
            Compiled.load(path)
    path.write_bytes(whole)
    agree(Compiled.load(path).marginals(), found.marginals())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "bucketflow compiled model 1"),
        ("model", None),
        ("children", [[0, 1], [2, 3], [99, 4]]),
        ("children", "abc"),
        ("findings", [99]),
        ("findings", [[]]),
        ("options", {"colour": 1}),
        ("tables", [[99, 2, 0.0, 0.0, 0.0, False]]),
        ("tables", 5),
        ("joints", [[99]]),
        ("findings", [-1]),
    ],
)
def test_files_that_say_something_else_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    """Their checksum is right, but no :meth:`save` wrote them."""
    path = tmp_path / "model.npz"
    bucketflow.compile(chain(3)).save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays["header"].tobytes()) | {key: value}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)
    compiled_files._seal(path)
    with pytest.raises(bucketflow.BucketflowError):
        Compiled.load(path)


def chain(n: int) -> Model:
    """A hidden chain with a sensor at each variable."""
    rng = np.random.default_rng(0)
    functions = [Function((0,), np.array([0.3, 0.7]), child=0)]
    for i in range(1, n):
        rows = rng.random((2, 2)) + 0.1
        functions.append(Function((i - 1, i), rows / rows.sum(1, keepdims=True), child=i))
    for i in range(n):
        rows = rng.random((2, 2)) + 0.1
        functions.append(Function((i, n + i), rows / rows.sum(1, keepdims=True), child=n + i))
    return named_model("bayes", [2] * (2 * n), functions)


def test_only_what_changes_is_computed() -> None:
    compiled = bucketflow.compile(chain(40))
    compiled.marginals()
    everything = compiled.computed
    compiled.marginals()
    assert compiled.computed == everything
    compiled.add("x45", 1)
    compiled.marginals(["x45"])
    one = compiled.computed - everything
    assert one < everything / 3
    before = compiled.computed
    compiled.add("x45", [0.5, 0.5])
    compiled.add("x45", 1)
    compiled.partition()
    assert compiled.computed - before <= 40


def test_evidence_below_impossible_is_forgiven() -> None:
    model = named_model("markov", [2, 2], [Function((0, 1), np.array([[1.0, 0.0], [1.0, 1.0]]))])
    compiled = bucketflow.compile(model)
    compiled.set_evidence({"x0": 0, "x1": 1})
    assert compiled.marginals().status == "infeasible"
    assert compiled.partition() == -math.inf
    compiled.clear("x1")
    assert compiled.marginals()["x1"] == pytest.approx([1.0, 0.0])


def test_refusals() -> None:
    model = chain(3)
    compiled = bucketflow.compile(model)
    with pytest.raises(bucketflow.ModelError, match="'nobody'"):
        compiled.add("nobody", 1)
    with pytest.raises(bucketflow.ModelError, match="no state"):
        compiled.add("x0", 7)
    with pytest.raises(bucketflow.BudgetError, match="keeping all messages"):
        bucketflow.compile(model, memory=100)
    assert isinstance(compiled, Compiled)


def test_likelihoods_may_be_changed_and_given_again() -> None:
    compiled, weights = bucketflow.compile(chain(3)), np.array([0.5, 0.5])
    compiled.set_evidence({"x0": weights})
    compiled.marginals()
    weights[:] = 0.0, 1.0
    compiled.set_evidence({"x0": weights})
    assert compiled.marginals()["x0"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("names", [{"x0": 1}, 5, [["x0"]]])
def test_only_names_are_names(names: Any) -> None:
    """A mapping may have been meant as evidence."""
    model = chain(3)
    for ask in (bucketflow.compile(model).marginals, lambda names: bucketflow.marginals(model, variables=names)):
        with pytest.raises(ModelError, match=r"not names of variables|is not a variable of the model"):
            ask(names)


def test_names_may_be_an_array() -> None:
    assert list(bucketflow.compile(chain(3)).marginals(np.array(["x0", "x2"]))) == ["x0", "x2"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [(["x", 1], "expected 2 numbers"), ([10**400, 1], "expected 2 numbers"), ([1j, 1], "expected 2 numbers")],
)
def test_likelihoods_that_are_no_numbers_are_refused(likelihood: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bucketflow.marginals(chain(3), evidence={"x0": likelihood})


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([{"x0": [0.5, 0.5]}], "likelihoods are an array, a row for each case"),
        ({"x0": np.array([0, -5])}, "in state -5; it has 2 states"),
    ],
)
def test_cases_that_are_none_are_refused(cases: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bucketflow.compile(chain(3)).marginals_batch(cases)


def test_files_that_cannot_be_written_are_one_sentence_and_keep_what_was_there(tmp_path: Path) -> None:
    path, compiled = tmp_path / "model.npz", bucketflow.compile(chain(3), memory=np.int64(10**9))  # type: ignore[arg-type]
    compiled.save(path)
    before = path.read_bytes()
    compiled.add("x0", 1)
    with files_of_at_most(1000), pytest.raises(ModelError, match=f"cannot write {path}: file too large"):
        compiled.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ModelError, match=f"cannot write {tmp_path / 'none' / 'x'}: there is no folder"):
        compiled.save(tmp_path / "none" / "x")


def absent_symptoms() -> Model:
    """Causes with common noisy-OR symptoms: a symptom that is absent says of each cause by itself."""
    rng, causes, symptoms = np.random.default_rng(5), 12, 9
    variables, functions = {f"C{k}": 2 for k in range(causes)}, [([f"C{k}"], [0.9, 0.1]) for k in range(causes)]
    for s in range(symptoms):
        parents = sorted(rng.choice(causes, 6, replace=False).tolist())
        off = np.array(0.98)
        for k, weight in enumerate(rng.uniform(0.1, 0.9, 6)):
            off = off * np.array([1.0, weight]).reshape([-1 if k == axis else 1 for axis in range(6)])
        variables[f"S{s}"] = 2
        functions.append(([*[f"C{p}" for p in parents], f"S{s}"], np.stack([off, 1 - off], -1)))
    return Model.build("bayes", variables, functions)


def test_a_question_is_asked_afresh_where_that_is_predicted_to_be_quicker(in_force: InForce) -> None:
    model = absent_symptoms()
    absent = {f"S{k}": 0 for k in range(9)}
    compiled = bucketflow.compile(model, joint=["C0", "C1"], background=False)
    assert compiled.plan is not None
    in_force(CompiledPolicy, afresh_seconds=compiled.plan.seconds / 1000)
    compiled.set_evidence({**absent, "C3": [0.5, 2.0]})
    expected = bucketflow.marginals(model, evidence={**absent, "C3": [0.5, 2.0]}, joint=["C0", "C1"])
    found = compiled.marginals()
    assert compiled.computed == 0
    assert [*found] == [*expected]
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)
    np.testing.assert_allclose(found.joint["C0", "C1"], expected.joint["C0", "C1"], rtol=1e-12)
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-12)
    in_force(CompiledPolicy, afresh_seconds=1000.0)
    again = compiled.marginals()
    assert compiled.computed > 0
    for name in expected:
        np.testing.assert_allclose(again[name], expected[name], rtol=1e-12)
