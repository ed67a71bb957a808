"""Which state a value means: every way into a model gives the same state, or refuses."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import FormatError, Model, ModelError
from bucketflow.pipeline.bridges.labelled_tables import labelled_model
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.read import load_evidence
from bucketflow.pipeline.models.state_names import StateNames, TypedLabel

WEIGHTS = np.array([0.2, 0.3, 0.5])


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREY = 7


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2
    TOP = 3


def typed(states: list[Any]) -> Model:
    """A model whose states a bridge knows with their types."""
    weights = WEIGHTS[: len(states)]
    table = np.stack([weights / 2, weights / 2], axis=1)
    return labelled_model("markov", {"x": states, "y": ["a", "b"]}, [(("x", "y"), {}, table)])


def texts(states: list[str] | int) -> Model:
    """A model whose labels are texts, as files have them."""
    weights = WEIGHTS[: states if isinstance(states, int) else len(states)]
    table = np.stack([weights / 2, weights / 2], axis=1)
    return Model.build("markov", {"x": states, "y": ["a", "b"]}, [(("x", "y"), table)])


# A model, a value, and the index of the state that it means; None where it is refused.
ONES = [1, 1.0, np.int64(1), np.uint8(1), np.float32(1), np.array(1), Fraction(1), Decimal(1), True, np.bool_(True)]
TABLE: list[tuple[Model, Any, int | None]] = [
    *[(typed([1, 2, 3]), one, 0) for one in (*ONES, "1", Level.LOW)],
    *[(typed([1, 2, 3]), value, None) for value in (0, "0", 4, 1.5, math.inf, "one", False)],
    (typed([1, 2, 3]), 3, 2),
    *[(typed([1.0, 2.0, 3.0]), one, 0) for one in (*ONES, "1.0", "1")],
    (typed([1.0, 2.0, 3.0]), 0, None),
    *[(typed([3, 1, 2]), one, 1) for one in (*ONES, "1")],
    *[(typed([2, 1, 0]), value, k) for k, value in enumerate([2, 1, 0])],
    *[(typed([True, False]), value, k) for value, k in [(True, 0), (False, 1), (1, 0), (0, 1), ("True", 0), ("1", 0)]],
    *[(typed([*Colour]), value, 1) for value in (Colour.BLUE, "Colour.BLUE", 1)],
    *[(typed([*Level]), value, 1) for value in (Level.HIGH, 2, "2", np.int32(2))],
    *[(typed([(0, 1), (1, 0)]), value, k) for value, k in [((0, 1), 0), ((1, 0), 1), ("(0, 1)", 0)]],
    *[(texts(["1", "2", "3"]), one, None) for one in ONES[:8]],
    *[(texts(["1", "2", "3"]), value, k) for value, k in [("1", 0), ("2", 1), (3, 2), (0, None), ("0", None)]],
    *[(texts(["10", "20", "30"]), value, k) for value, k in [(10, 0), ("10", 0), (0, None), (1, None), (30.0, 2)]],
    *[(texts(["0", "1", "2"]), one, 1) for one in (*ONES, "1")],
    *[(texts(["low", "mid", "high"]), one, 1) for one in (*ONES[:8], "1", "mid")],
    *[(texts(["low", "1", "0"]), value, k) for value, k in [("1", 1), (1, 1), (0, None), ("0", 2), (2, None)]],
    *[(texts(["00", "01", "10"]), value, k) for value, k in [("10", 2), (10, 2), (2, None), (1, None)]],
    *[(texts(["red", "blue", "grey"]), Colour.BLUE, 1), (texts(["BLUE", "RED", "x"]), Colour.BLUE, 0)],
    (texts(["red", "BLUE", "blue"]), Colour.BLUE, None),
    *[(texts(3), one, 1) for one in (*ONES, "1", "1.0")],
    *[(texts(3), value, None) for value in (3, -1, "3", "-1", 0.5, "x", "1e0", None)],
]
IDS = [f"{'/'.join(map(str, model.states[0] or '3'))}-{value!r}" for model, value, _ in TABLE]


def which(model: Model, log10: float) -> int:
    """The state of x whose weight the sum of the observed model is."""
    return int(np.argmin(np.abs(WEIGHTS[: model.dims[0]] - 10.0**log10)))


def by_sum(model: Model, value: Any) -> int:
    log10 = bucketflow.solve(model, "partition", evidence={"x": value}).log10
    assert log10 is not None
    return which(model, log10)


def by_solve(model: Model, value: Any) -> int:
    assignment = bucketflow.solve(model, evidence={"x": value}).assignment
    assert assignment is not None
    return model.state_index(0, assignment["x"])


def by_marginals(model: Model, value: Any) -> int:
    return int(bucketflow.marginals(model, evidence={"x": value})["x"].argmax())


def by_best(model: Model, value: Any) -> int:
    return model.state_index(0, next(iter(bucketflow.best(model, 1, evidence={"x": value}))).assignment["x"])


def by_sample(model: Model, value: Any) -> int:
    return int(bucketflow.sample(model, 1, evidence={"x": value}).states[0][0])


def by_bound(model: Model, value: Any) -> int:
    upper = bucketflow.bound(model, "partition", evidence={"x": value}, z=3).upper
    assert upper is not None
    return which(model, float(upper))


def by_conditional(model: Model, value: Any) -> int:
    return int(bucketflow.conditional(model, "x", evidence={"x": value}).argmax())


def by_compiled(model: Model, value: Any) -> int:
    compiled = bucketflow.compile(model)
    compiled.add("x", value)
    return which(model, compiled.partition())


def by_sensitivity(model: Model, value: Any) -> int:
    """The state whose posterior the sensitivity is of."""
    found = bucketflow.sensitivity(model, "x", value).posterior
    return int(np.argmin(np.abs(bucketflow.marginals(model)["x"] - found)))


def by_columns(model: Model, value: Any) -> int:
    return which(model, float(bucketflow.compile(model).marginals_batch({"x": [value]}).log10_evidence[0]))


def by_array(model: Model, value: Any) -> int:
    if np.ndim(value):
        pytest.skip("an array of tuples has axes")
    return which(model, float(bucketflow.compile(model).marginals_batch({"x": np.array([value])}).log10_evidence[0]))


def by_records(model: Model, value: Any) -> int:
    return which(model, float(bucketflow.compile(model).marginals_batch([{"x": value}]).log10_evidence[0]))


def by_frame(model: Model, value: Any) -> int:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"x": [value, value]})
    return which(model, float(bucketflow.compile(model).marginals_batch(frame).log10_evidence[0]))


def by_series(model: Model, value: Any) -> int:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return int(bucketflow.marginals(model, evidence=pandas.Series({"x": value}))["x"].argmax())


def by_circuit(model: Model, value: Any) -> int:
    return which(model, float(bucketflow.circuit(model).log10([{"x": value}])[0]))


def by_observed_circuit(model: Model, value: Any) -> int:
    return which(model, float(bucketflow.circuit(model, evidence={"x": value}).log10()[0]))


def by_evaluation(model: Model, value: Any) -> int:
    log10 = model.evaluate({"x": value, "y": "a"}).log10
    assert log10 is not None
    return which(model, log10 + math.log10(2))


def by_slices(model: Model, value: Any) -> int:
    size, states = model.dims[0], model.states[0]
    first = Model("markov", ("x",), (size,), (states,), (bucketflow.Function((0,), WEIGHTS[:size]),))
    later = Model(
        "markov", ("x_prev", "x"), (size, size), (states, states), (bucketflow.Function((0,), np.ones(size)),)
    )
    return which(model, float(bucketflow.dynamic(first, later).filtered([{"x": value}]).log10_evidence[0]))


DOORS: list[Callable[[Model, Any], int]] = [
    *[by_sum, by_solve, by_marginals, by_best, by_sample, by_bound, by_conditional, by_compiled, by_sensitivity],
    *[by_columns, by_array, by_records, by_frame, by_series, by_circuit, by_observed_circuit, by_evaluation, by_slices],
]


@pytest.mark.parametrize(("model", "value", "index"), TABLE, ids=IDS)
def test_python_gives_one_state_or_refuses(model: Model, value: Any, index: int | None) -> None:
    for door in DOORS:
        if value is None and door in (by_columns, by_array, by_records, by_frame, by_series, by_circuit, by_slices):
            continue  # a case that observes nothing
        if str(value) == "-1" and door is by_array:
            continue  # in an array of integers: not observed
        if isinstance(value, tuple) and door in (by_array, by_frame):
            continue  # NumPy and pandas read a tuple as an axis
        if index is None:
            with pytest.raises(ModelError, match=r"has no state|may be a label or an index|in state"):
                door(model, value)
        else:
            assert door(model, value) == index, door.__name__


def shown(result: Any) -> Any:
    assert result.exit_code in (0, 2), result.output
    return json.loads(result.output) if result.exit_code == 0 else None


@pytest.mark.parametrize(
    ("labels", "text", "index"),
    [
        (m.states[0], v, k)
        for m, v, k in TABLE
        if isinstance(v, str) and not isinstance((m.states[0] or "-")[0], TypedLabel)
    ],
)
def test_command_lines_and_files_agree_with_python(
    tmp_path: Path, labels: list[str] | None, text: str, index: int | None
) -> None:
    """Files hold texts, and models in files have labels that are texts."""
    model = texts([*labels] if labels else 3)
    path, cases, evidence = tmp_path / "model.bif", tmp_path / "cases.csv", tmp_path / "model.evid"
    bayes = Model.build(
        "bayes", {"x": model.states[0] or 3, "y": ["a", "b"]}, [(("x",), WEIGHTS), (("x", "y"), np.full((3, 2), 0.5))]
    )
    bucketflow.save(bayes, path)
    bayes = bucketflow.load(path)
    run = CliRunner().invoke
    listed = run(main, ["solve", str(path), "--query", "partition", "--evidence", f"x={text}", "--json"])
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"model": str(path), "query": "partition", "evidence": {"x": text}}) + "\n")
    summary = run(main, ["batch", str(rows), "--out", str(tmp_path / "out"), "--json"])
    cases.write_text(f"x\n{text}\n")
    answered = run(
        main, ["marginals", str(path), "--cases", str(cases), "--out", str(tmp_path / "out.jsonl"), "--json"]
    )
    evidence.write_text(f"1 x {text}\n")
    if index is None:
        assert listed.exit_code == answered.exit_code == 2
        assert summary.exit_code != 0
        with pytest.raises(FormatError, match="a state of variable 'x'"):
            load_evidence(evidence, bayes)
        return
    found = shown(listed)["log10"]
    assert which(model, found) == index
    assert which(model, json.loads((tmp_path / "out.jsonl").read_text())["log10_evidence"]) == index
    (row,) = map(json.loads, (tmp_path / "out" / "results.jsonl").read_text().splitlines())
    assert row["answer"]["log10"] == pytest.approx(found)
    assert load_evidence(evidence, bayes) == {0: index}


def test_a_number_in_json_lines_is_refused_where_labels_are_other_numbers(tmp_path: Path) -> None:
    path = tmp_path / "model.bif"
    bucketflow.save(Model.build("bayes", {"x": ["1", "2", "3"]}, [(("x",), WEIGHTS)]), path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"model": str(path), "query": "partition", "evidence": {"x": 1}}) + "\n")
    result = CliRunner().invoke(main, ["batch", str(rows), "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code != 0
    assert "may be a label or an index of variable 'x'" in (tmp_path / "out" / "results.jsonl").read_text()


def test_named_findings_are_read_back_as_the_same_states() -> None:
    """What is named inside is asked again by name; an index must not become a label on the way."""
    for states in (["1", "2", "0"], ["2", "1", "0"], 3):
        model = texts(states)
        for state in range(3):
            assert model.observe(model.named({0: state})) == {0: state}
        observed = Model(model.kind, model.names, model.dims, model.states, model.functions, evidence={0: 2})
        assert which(model, bucketflow.compile(observed).partition()) == 2
        assert bucketflow.marginals(observed)["x"].argmax() == 2
        drawn = bucketflow.sample(observed, 3)
        assert {row[0] for row in drawn.states} == {2}


def test_labels_are_looked_up_and_not_searched() -> None:
    """Many different cells of a variable with many states: each is found without a walk over all labels."""
    labels = [TypedLabel(k) for k in range(5, 50_005)]
    names = StateNames("x", len(labels), labels)
    looks = 0

    class Counted(dict[Any, int]):
        def get(self, key: Any, default: Any = None) -> Any:
            nonlocal looks
            looks += 1
            return super().get(key, default)

    names.__dict__["places"], names.__dict__["typed"] = Counted(names.places), Counted(names.typed)
    assert [names.index(k) for k in range(5, 50_005)] == [*range(50_000)]
    assert looks <= 2 * 50_000
