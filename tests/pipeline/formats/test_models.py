"""Models made in Python: what contradicts itself is refused when it is made, in one sentence."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Function, Model, ModelError
from bucketflow.pipeline.models.model import row_function

PAIR = np.array([[0.5, 0.5], [0.1, 0.9]])


def made(**changes: Any) -> Model:
    facts: dict[str, Any] = {
        "kind": "markov",
        "names": ("a", "b"),
        "dims": (2, 2),
        "states": (None, ("no", "yes")),
        "functions": (Function((0, 1), PAIR),),
    }
    return Model(**(facts | changes))


def cost(values: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "cost", "functions": (Function((0, 1), values, **more),)}


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "wcsp"}, "unknown kind of model 'wcsp'; one of cost, markov, bayes"),
    ({"names": ("a",)}, "1 names, 2 domains and 2 lists of labels"),
    ({"names": ("a", "a")}, "the names of variables must differ; 'a' occurs twice"),
    ({"names": (1, 2)}, "the names of variables must be strings"),
    ({"names": "ab"}, "lists of names"),
    ({"dims": (2, 0)}, "the domain of 'b' is 0; expected at least 1"),
    ({"dims": (2, 2.5)}, "the domain of 'b' is 2.5, which is not an integer"),
    ({"states": (None, ("no",))}, "variable 'b' has 2 states and 1 labels"),
    ({"states": (None, ("no", "no"))}, "the names of states of 'b' must differ"),
    ({"functions": (PAIR,)}, "function 0 is not a Function but ndarray"),
    (
        {"functions": (Function((0, -1), PAIR),)},
        r"function 0 has the scope \(0, -1\), where variables are numbered 0 to 1",
    ),
    ({"functions": (Function((0, 2), PAIR),)}, "numbered 0 to 1"),
    ({"functions": (Function(("a", "b"), PAIR),)}, "numbered 0 to 1"),  # type: ignore[arg-type]
    ({"functions": (Function((1, 1), PAIR),)}, "names a variable twice"),
    ({"functions": (Function(0, PAIR),)}, "the scope 0; expected a tuple"),  # type: ignore[arg-type]
    ({"functions": (Function((0, 1), [[1], [1, 2]]),)}, "values that are not an array"),  # type: ignore[arg-type]
    ({"functions": (Function((0, 1), PAIR[0]),)}, r"values of shape \(2,\); its scope has shape \(2, 2\)"),
    ({"functions": (Function((0,), PAIR[0], child=1),)}, "the child 1, which is not in its scope"),
    (
        {"functions": (Function((0, 1), PAIR), Function((0,), np.array([1, np.nan])))},
        "function 1 has a value that is neg",
    ),
    ({"functions": (Function((0, 1), -PAIR),)}, "negative or not finite"),
    ({"functions": (Function((0, 1), PAIR * np.inf),)}, "negative or not finite"),
    ({"functions": (Function((0,), np.array(["1", "2"])),)}, "values of type <U1; expected numbers"),
    ({"functions": (Function((0, 1), np.ma.masked_equal(PAIR, PAIR[0, 0])),)}, "function 0 has masked values"),
    ({"top": 5}, "only costs have a top"),
    (cost(PAIR), "function 0 has costs that are not integers"),
    (cost(np.full((2, 2), 2**63, dtype=np.uint64)), "not integers of at most 64 bits"),
    (cost(np.array([1]), rows=np.array([[0, 2]])), "lists states outside of its domains"),
    (cost(np.array([1]), rows=np.array([[0.0, 1.0]])), "rows that are not an array of integers"),
    (cost(np.array([1, 2]), rows=np.array([[0, 1], [0, 1]])), "lists an assignment twice"),
    (cost(np.array([1]), rows=np.array([[0, 1]]), default=0.5), "the default cost of function 0 is 0.5"),
    (cost(np.zeros((2, 2), dtype=np.int64)) | {"top": 1.5}, "top is 1.5, which is not an integer"),
    ({"evidence": {"a": 1}}, "a variable of a model's evidence, by its index, is 'a', which is not an integer"),
    ({"evidence": {0: 1.7}}, "the state of 'a' is 1.7, which is not an integer"),
    ({"evidence": {0: 2}}, "the state of 'a' is 2; expected 0 to 1"),
    ({"evidence": {-1: 0}}, "is -1; expected 0 to 1"),
]


@pytest.mark.parametrize(("changes", "reason"), FAULTS)
def test_faults(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        made(**changes)


def test_lists_and_integers_will_do() -> None:
    model = made(
        names=["a", "b"],
        dims=[np.int64(2), 2],
        states=[None, ["no", "yes"]],
        functions=[Function([0], [1, 2]), Function((), 3)],  # type: ignore[arg-type]
    )
    assert (model.names, model.dims, model.states) == (("a", "b"), (2, 2), (None, ("no", "yes")))
    assert model.functions[0].values.dtype == np.float64
    assert made(**cost(np.array([[1.0, 2.0], [3.0, 4.0]]))).functions[0].values.dtype == np.int64


def test_rows_that_were_made_distinct_are_not_compared_again() -> None:
    rows = np.array([[0, 1], [1, 1], [0, 1]])
    function = row_function((0, 1), rows, np.array([1, 2, 3]), 0)
    assert "distinct" in vars(function)
    assert made(kind="cost", functions=(function,)).functions[0].at((0, 1)) == 3


def test_a_changed_copy_does_not_look_at_its_functions_again() -> None:
    model = made()
    assert replace(model, name="again").functions is model.functions
    with pytest.raises(ModelError, match="its scope has shape"):
        replace(model, dims=(2, 3), states=(None, None))


def test_evidence_is_a_state() -> None:
    for state in (1.7, float("nan"), None, 5):
        with pytest.raises(ModelError, match="variable 'a' has no state"):
            bucketflow.solve(made(), evidence={"a": state})
    assert bucketflow.solve(made(), evidence={"a": np.float64(1)}).assignment == {"a": 1, "b": "yes"}


@pytest.mark.parametrize("truth", [bool, np.bool_])
def test_truth_values_are_the_states_labelled_so(truth: Any) -> None:
    """Their numbers would be the other state where the first label is the true one."""
    weights = np.array([0.9, 0.1])
    for labels in (2, ("true", "false"), ("True", "False"), ("1", "0")):
        model = Model.build("markov", {"a": labels}, [("a", weights[::-1] if labels == 2 else weights)])
        for state, share in ((truth(True), 0.9), (truth(False), 0.1)):
            found = [bucketflow.solve(model, "partition", evidence={"a": state}).log10]
            compiled = bucketflow.compile(model)
            found += compiled.marginals_batch({"a": [state]}).log10_evidence.tolist()
            compiled.add("a", state)
            assert np.array([*found, compiled.partition()]) == pytest.approx(np.log10(share))
    for labels in (("no", "yes"), ("true", "1")):
        with pytest.raises(ModelError, match="has no state"):
            bucketflow.solve(Model.build("markov", {"a": labels}, []), evidence={"a": truth(True)})


def test_large_models_are_shown_short() -> None:
    model = Model.build(
        "markov", {f"v{k}": 2 for k in range(1000)}, [((f"v{k}",), [1, 2]) for k in range(1000)], name="many"
    )
    assert repr(model) == "<markov model 'many': 1000 variables of up to 2 states, 1000 functions>"
    assert repr(made().functions[0]) == "Function(scope=(0, 1), shape=(2, 2))"


def test_build_by_names() -> None:
    rain = np.array([0.8, 0.2])
    wet = np.array([[0.9, 0.1], [0.2, 0.8]])
    model = Model.build("bayes", {"rain": ["no", "yes"], "wet": 2}, [("rain", rain), (("rain", "wet"), wet)])
    assert (model.names, model.dims, model.states) == (("rain", "wet"), (2, 2), (("no", "yes"), None))
    assert [f.child for f in model.functions] == [0, 1]
    assert bucketflow.marginals(model, evidence={"wet": 1})["rain"] == pytest.approx([0.08 / 0.24, 0.16 / 0.24])
    costs = Model.build("cost", {"a": 2, "b": 3}, [(("b", "a"), [[3, 1], [0, 5], [9, 9]]), ((), 4)], top=8)
    assert bucketflow.solve(costs).value == 4
    assert bucketflow.solve(costs, "count").value == 3
    for functions, reason in [
        ([(("a", "q"), [[1, 2]])], "function 0 is over 'q'"),
        ([(("a",), [[1, 2], [3]])], "function 0 has values that are not an array"),
        ([(("a", "b"), [[1, 2], [3, 4]])], r"function 0 has values of shape \(2, 2\)"),
    ]:
        with pytest.raises(ModelError, match=reason):
            Model.build("cost", {"a": 2, "b": 3}, functions)


def test_arrays_that_a_model_was_built_of_may_be_used_again() -> None:
    costs, rows, listed = np.array([[3, 1], [2, 5]]), np.array([[0, 1]]), np.array([4])
    functions = [(("a", "b"), costs), (("a", "b"), rows, listed, 0)]
    model = Model.build("cost", {"a": 2, "b": 2}, functions)  # type: ignore[arg-type]
    expected = bucketflow.solve(model).value
    costs[:], rows[:], listed[:] = -9, 0, -9
    assert bucketflow.solve(model).value == expected == 2
    assert bucketflow.bound(model).lower == 2


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (2.0, "the domain of 'a' is 2.0, which is not an integer"),
        (None, "which is not an integer"),
        (0, "expected at least 1"),
    ],
)
def test_domains_that_are_none_are_refused(domain: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Model.build("cost", {"a": domain}, [])


def test_labels_may_come_one_by_one() -> None:
    assert Model.build("cost", {"a": (str(k) for k in range(3))}, []).states == (("0", "1", "2"),)  # type: ignore[dict-item]


@pytest.mark.parametrize("default", [10**30, -(2**63) - 1])
def test_default_costs_are_of_64_bits_too(default: int) -> None:
    with pytest.raises(ModelError, match=f"the default cost of function 0 is {default}; expected -92233720368"):
        Model.build("cost", {"a": 2}, [(("a",), [[0]], [4], default)])


def test_arrays_of_a_model_cannot_be_written_to(tmp_path: Path) -> None:
    """Plans, compiled models and answers are kept for what they hold."""
    table, rows = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0, 1]])
    built = Model.build("markov", {"a": 2, "b": 2}, [(("a", "b"), table), (("a", "b"), rows, [2.0], 1.0)])
    given = Model("markov", ("a", "b"), (2, 2), (None, None), (Function((0, 1), table), Function((0, 1), table)))
    (path := tmp_path / "clauses.cnf").write_text("p cnf 3 2\n1 -2 0\n2 3 0\n")
    copies = copy.copy(built), copy.deepcopy(built), pickle.loads(pickle.dumps(built))
    others = replace(built, name="other"), bucketflow.load(path), bucketflow.load("satellite")
    for model in (built, given, *copies, *others):
        for function in model.functions:
            with pytest.raises(ValueError, match="read-only"):
                function.values[...] = 0
            if function.rows is not None:
                with pytest.raises(ValueError, match="read-only"):
                    function.rows[...] = 0
    table[0, 0] = 5.0  # the caller's own arrays stay writable; those of Model.build are copies
    assert built.functions[0].values[0, 0] == 1.0
    assert given.functions[0].values is given.functions[1].values


@pytest.mark.parametrize("rows", [[[]], np.empty((1, 0)), np.empty((1, 0), np.int64), [()]], ids=str)
def test_a_sparse_function_of_no_variables_has_one_row(rows: Any, tmp_path: Path) -> None:
    functions = [(("x",), [1, 4]), ((), rows, [3], 2)]
    model = Model.build("cost", {"x": 2}, functions)
    assert model.functions[1].dense(model.dims) == 3
    assert bucketflow.solve(model).value == 4
    edited = bucketflow.EditableModel(Model.build("cost", {"x": 2}, functions[:1]))
    edited.add((), [3], rows=rows, default=2)
    assert edited.solve().value == 4
    markov = Model.build("markov", {"x": 2}, functions)
    bucketflow.save(markov, tmp_path / "model.uai")
    for each in (markov, bucketflow.load(tmp_path / "model.uai")):
        assert 10 ** (bucketflow.solve(each, "partition").log10 or 0) == pytest.approx(15)
    with pytest.raises(ModelError, match="rows of shape"):
        Model.build("cost", {"x": 2}, [((), rows, [3, 4], 2)])
    with pytest.raises(ModelError, match="rows of shape"):
        Model.build("cost", {"x": 2}, [((), [], [3], 2)])
