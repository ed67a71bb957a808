"""What is written is read again with the same answers, for random models; what is lost is said."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BucketflowError, Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.formats.write import save
from bucketflow.pipeline.models.model import FORBIDDEN, Function, row_function

from ...models import assignments, bayes_models, cost_models, markov_models
from .test_formats_data import toulbar2
from .test_formats_fuzz import CLAUSES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("written")


@st.composite
def written_costs(draw: st.DrawFn) -> Model:
    """Cost networks of every kind that files hold: tops, forbidden entries, decimals, the least or the most."""
    model, far = draw(cost_models(low=-30)), draw(st.booleans())
    functions = [replace(f, values=np.where(f.values > 8, FORBIDDEN, f.values)) if far else f for f in model.functions]
    return replace(
        model,
        top=draw(st.sampled_from([None, -40, -3, 0, 1, 30, 2**62 + 9])),
        functions=tuple(functions),
        maximize=draw(st.booleans()),
        decimals=draw(st.integers(0, 3)),
    )


@settings(max_examples=150, deadline=None)
@given(model=written_costs(), suffix=st.sampled_from(["wcsp", "wcsp.gz", "wcsp.xz"]))
def test_costs(folder: Path, model: Model, suffix: str) -> None:
    notes = save(model, folder / f"a.{suffix}")
    again = load(folder / f"a.{suffix}")
    shift = -sum(min(low, 0) for low in model.lowest)
    for states in assignments(model, {}):
        cost = model.cost(states)
        assert again.cost(states) == (None if cost is None else cost + shift)
    scaled = model.decimals > 0 or model.maximize
    assert any("the file's total is" in note for note in notes) == (shift > 0 or scaled)


@settings(max_examples=80, deadline=None)
@given(model=st.one_of(markov_models(), bayes_models()), suffix=st.sampled_from(["uai", "uai.gz", "uai.xz"]))
def test_probabilities(folder: Path, model: Model, suffix: str) -> None:
    assert save(model, folder / f"a.{suffix}") == ()
    again = load(folder / f"a.{suffix}")
    assert again.kind == model.kind
    for states in assignments(model, {}):
        assert again.log10_value(states) == model.log10_value(states)


@settings(max_examples=150, deadline=None)
@given(model=written_costs())
def test_cost_function_networks(folder: Path, model: Model) -> None:
    assert save(model, folder / "a.cfn") == ()
    again = load(folder / "a.cfn")
    assert (again.names, again.states, again.maximize) == (model.names, model.states, model.maximize)
    for states in assignments(model, {}):
        cost, read_back = model.cost(states), again.cost(states)
        assert (cost is None) == (read_back is None)
        assert cost is None or model.objective(cost) == again.objective(read_back or 0)


@pytest.mark.parametrize("suffix", ["cfn", "xml", "yaml"])
@pytest.mark.parametrize(("cost", "decimals"), [(53, 12), (2**60 - 1, 12), (999_999_999_999_999_999, 1)])
def test_constants_of_many_decimals(suffix: str, cost: int, decimals: int, tmp_path: Path) -> None:
    """Costs of no variable are as exact as others."""
    model = replace(Model.build("cost", {"a": 2}, [((), cost), ("a", [0, 1])]), decimals=decimals)
    save(model, tmp_path / f"a.{suffix}")
    again = load(tmp_path / f"a.{suffix}")
    assert [again.objective(again.cost((s,)) or 0) for s in (0, 1)] == [model.objective(cost + s) for s in (0, 1)]


@pytest.mark.parametrize("maximize", [False, True])
def test_toulbar2_reads_what_is_written(maximize: bool, tmp_path: Path) -> None:
    far = np.array([[150, FORBIDDEN], [-250, 3], [FORBIDDEN, 1]])
    rows = row_function((0, 1, 2), np.array([[1, 0, 2], [2, 1, 0]]), np.array([FORBIDDEN, -725]), 40)
    functions = (Function((0, 1), far), rows, Function((), np.array(-5)))
    labels = (("v1", "b-c", "x y"), None, ("7", "8", "9"))
    model = Model("cost", ("é", "b", "c_1"), (3, 2, 3), labels, functions, decimals=2, maximize=maximize)
    notes = save(model, tmp_path / "a.cfn")
    assert [note.partition(",")[0] for note in notes] == [
        "values of 1 variables begin with v in the file",
        "values of 1 variables are not kept",
    ]
    assert load(tmp_path / "a.cfn").states == (None, None, ("v7", "v8", "v9"))
    found = bucketflow.solve(load(tmp_path / "a.cfn")).value
    assert found == bucketflow.solve(model).value
    [answer] = toulbar2([tmp_path / "a.cfn"])
    assert answer is not None
    assert answer[1] == pytest.approx(float(found))


LARGE = [
    (Function((0,), np.array([0, 10**18])), None, "where costs of 1000000000000000000 and more are infinite"),
    (Function((0,), np.array([0, 10**18 - 1])), 2 * 10**18, None),
    (Function((0,), np.array([-(10**18), 1])), None, "where costs of 1000000000000000000 and more are infinite"),
]


@pytest.mark.parametrize(("function", "top", "message"), LARGE)
def test_what_is_infinite_to_the_format(
    function: Function, top: int | None, message: str | None, tmp_path: Path
) -> None:
    model = Model("cost", ("a",), (2,), (None,), (function,), top=top)
    if message is None:
        save(model, tmp_path / "a.cfn")
        assert load(tmp_path / "a.cfn").cost([1]) == model.cost([1])
        return
    with pytest.raises(BucketflowError, match=message):
        save(model, tmp_path / "a.cfn")


# Numbers at the edges of int64, of 10^18, and of where costs are forbidden.
SIZES = st.lists(st.sampled_from([1, 2]), max_size=3)
EDGES = [0, 1, 10**18 - 1, 10**18, 10**18 + 1, 2**61, 2**62 - 1, 2**62, 92 * 10**17, 2**63 - 1]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), suffix=st.sampled_from(["cfn", "xml", "yaml", "wcsp"]))
def test_extreme_costs_are_read_again_or_refused(folder: Path, data: st.DataObject, suffix: str) -> None:
    """What cannot be read again is not written; what a format does not hold of a top is a note."""
    edges = st.sampled_from([*EDGES, *(-number for number in EDGES)])
    tables = [np.array(data.draw(st.lists(edges, min_size=n, max_size=n))) for n in data.draw(SIZES)]
    functions = tuple(Function((0,) if t.size == 2 else (), t if t.size == 2 else t[0]) for t in tables)
    top, decimals = data.draw(st.one_of(st.none(), edges)), data.draw(st.sampled_from([0, 0, 1, 18]))
    try:
        model = Model("cost", ("a",), (2,), (None,), functions, top=top, decimals=decimals)
        model = replace(model, maximize=data.draw(st.booleans()))
        notes = save(model, folder / f"edges.{suffix}")
    except BucketflowError:
        return
    again = load(folder / f"edges.{suffix}")
    shift = -sum(min(low, 0) for low in model.lowest) if suffix == "wcsp" else 0
    for states in assignments(model, {}):
        cost, other = model.cost(states), again.cost(states)
        if suffix == "wcsp":
            assert other == (None if cost is None else cost + shift)
        elif not any("allowed in the file" in note for note in notes):
            assert (cost is None) == (other is None)
            assert cost is None or model.objective(cost) == again.objective(other or 0)


def test_rows_are_written_and_shifted(folder: Path) -> None:
    rows = np.array([[0, 1, 2], [2, 2, 2]])
    function = row_function((0, 1, 2), rows, np.array([-7, FORBIDDEN]), -2)
    model = Model("cost", ("a", "b", "c"), (9, 9, 9), (None,) * 3, (function,), top=-1)
    save(model, folder / "rows.wcsp")
    again = load(folder / "rows.wcsp")
    assert again.functions[0].rows is not None
    assert [again.cost(s) for s in ((0, 1, 2), (0, 0, 0), (2, 2, 2))] == [0, 5, None]
    save(model, folder / "rows.cfn")
    again = load(folder / "rows.cfn")
    assert again.functions[0].rows is not None
    assert [again.cost(s) for s in ((0, 1, 2), (0, 0, 0), (2, 2, 2))] == [-7, -2, None]


CFN = """{problem: {name: n mustbe: "<-8.92"} variables: {a: [u v] b: 2}
functions: {{scope: [a b] costs: [-10.5 0 3 -9]} {scope: [a] costs: [0.25 inf]}}}"""


def test_convert_says_what_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a.cfn").write_text(CFN)
    done = CliRunner().invoke(main, ["convert", str(tmp_path / "a.cfn"), str(tmp_path / "a.wcsp")])
    assert done.exit_code == 0
    assert done.stdout == ""
    for words in ("names of variables", "labels of states", "the file's total is 100 * value + 1050"):
        assert f"bucketflow: note: {words}" in done.stderr.replace("note: costs are integers of at least 0: ", "note: ")
    before, after = (bucketflow.solve(bucketflow.load(tmp_path / name)) for name in ("a.cfn", "a.wcsp"))
    assert (str(before.value), after.value) == ("-10.25", 100 * before.value + 1050)
    model = replace(load(tmp_path / "a.wcsp"), evidence={0: 1})
    assert save(model, tmp_path / "b.wcsp") == ("the model's evidence on 1 variables is not kept",)


@pytest.mark.parametrize("suffix", ["uai", "wcsp", "cfn", "xml", "yaml"])
@pytest.mark.parametrize("name", sorted(CLAUSES))
def test_clauses_costs_and_logarithms_are_written_as_others(name: str, suffix: str, tmp_path: Path) -> None:
    """Every assignment has the value that it had, but for the shift that a note tells; projections are told."""
    (tmp_path / name).write_text(CLAUSES[name])
    model, target = load(tmp_path / name), tmp_path / f"written.{suffix}"
    if (model.kind == "cost") != (suffix != "uai"):
        with pytest.raises(BucketflowError):
            save(model, target)
        return
    notes = save(model, target)
    assert any("the projection on" in note for note in notes) == (model.projection is not None)
    again = load(target)
    if model.kind != "cost":
        for states in assignments(model, {}):
            assert again.log10_value(states) == pytest.approx(model.log10_value(states), rel=1e-12)
        return
    if suffix == "wcsp":
        shift = -sum(min(low, 0) for low in model.lowest)
        for states in assignments(model, {}):
            assert again.cost(states) == (None if (cost := model.cost(states)) is None else cost + shift)
        return
    for states in assignments(model, {}):
        cost, other = model.cost(states), again.cost(states)
        assert (cost is None) == (other is None)
        assert cost is None or model.objective(cost) == again.objective(other or 0)


def test_a_clause_of_many_variables_is_written_by_its_rows(tmp_path: Path) -> None:
    literals = " ".join(map(str, range(1, 71)))
    (tmp_path / "a.wcnf").write_text(f"h {literals} 0\n2 -1 0\n1.5 -2 0\n")
    model = load(tmp_path / "a.wcnf")
    for suffix in ("wcsp", "cfn"):
        save(model, tmp_path / f"b.{suffix}")
        again = load(tmp_path / f"b.{suffix}")
        assert [f.rows is not None for f in again.functions] == [True, False, False]
        assert bucketflow.marginals(again, max_marginals=True).value == 0
        assert bucketflow.solve(again, "count", method="dense").value == 2**70 - 1


def test_a_read_only_folder_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    model = bucketflow.load("diagnosis")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)  # what a folder of a file system that is mounted read-only does
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(ModelError, match=r"cannot write .*a\.bif: read-only file system"):
            save(model, tmp_path / "a.bif")
    assert [*tmp_path.iterdir()] == []
