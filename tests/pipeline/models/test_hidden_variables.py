"""Hidden variables of global cost functions: counted where they must be, and shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.errors import FormatError, ModelError
from bucketflow.pipeline.formats.read import load, load_dcop, load_evidence
from bucketflow.pipeline.models.function import FORBIDDEN, Function

N = 12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twelve variables of two states, of which two to four are 1; too many for a table."""
    scope = " ".join(map(str, range(N)))
    text = f"p {N} 2 2 100\n{' '.join(['2'] * N)}\n{N} {scope} -1 wamong hard 100 1 1 2 4\n1 0 0 1\n1 5\n"
    (tmp_path / "among.wcsp").write_text(text)
    return tmp_path / "among.wcsp"


def test_hidden_variables_are_in_no_answer(path: Path) -> None:
    model = load(path)
    assert model.hidden == N - 1
    assert model.own_names == tuple(f"x{v}" for v in range(N))
    result = bucketflow.solve(model)
    assert result.value == 0
    assert [*(result.assignment or {})] == [*model.own_names]
    assert bucketflow.solve(model, "count").value == 66 + 220 + 495
    assert [*bucketflow.marginals(model, max_marginals=True)] == [*model.own_names]
    assert [*bucketflow.marginals(model, max_marginals=True, variables=["x3"])] == ["x3"]


def test_projected_counts_and_best_assignments_have_none(path: Path) -> None:
    model = load(path)
    # eleven others make up for whatever one of these is, but for three of them to be 1 four may be at most
    assert bucketflow.solve(model, "count", project=["x0", "x1"]).value == 4
    assert bucketflow.solve(model, "count", project=["x0", "x1", "x2", "x3", "x4"]).value == 31
    found = [result for result, _ in zip(bucketflow.best(model), range(3), strict=False)]
    assert [result.value for result in found] == [0, 0, 0]
    assert all([*(result.assignment or {})] == [*model.own_names] for result in found)
    assert len({tuple((result.assignment or {}).values()) for result in found}) == 3


def test_costs_of_assignments_without_hidden_variables(path: Path) -> None:
    model = load(path)
    assert model.cost([1, 1] + [0] * (N - 2)) == 5
    assert model.cost([1] + [0] * (N - 1)) is None
    whole = model.completed([0, 1, 1] + [0] * (N - 3))
    assert whole is not None
    assert len(whole) == len(model.dims)
    assert model.cost(whole) == 0


def test_hidden_variables_have_no_evidence(path: Path, tmp_path: Path) -> None:
    model = load(path)
    with pytest.raises(ModelError, match="'hidden0', which is not a variable of the model"):
        bucketflow.solve(model, evidence={"hidden0": 1})
    with pytest.raises(ModelError, match="'hidden0' is not a variable of the model"):
        bucketflow.marginals(model, max_marginals=True, variables=["hidden0"])
    (tmp_path / "a.evid").write_text(f"1 {N} 0")
    with pytest.raises(FormatError, match=f"a variable from 0 to {N - 1}"):
        load_evidence(tmp_path / "a.evid", model)
    assert bucketflow.solve(model, "count", evidence={"x0": 1, "x1": 1, "x2": 1}).value == 1 + 9


def test_hidden_variables_are_written_behind_the_others(path: Path, tmp_path: Path) -> None:
    model = load(path)
    for name in ("a.wcsp", "a.cfn"):
        notes = bucketflow.save(model, tmp_path / name)
        assert notes[-1] == "11 hidden variables, the last ones, are variables of the file"
        written = load(tmp_path / name)
        assert (len(written.own_names), written.hidden) == (2 * N - 1, 0)
        assert bucketflow.solve(written, "count").value == 781


def test_agents_own_no_hidden_variables(path: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"agents own no hidden variables, .* need 11; use solve or count, which "
        r"answer",
    ):
        load_dcop(path)
    with pytest.raises(ModelError, match="agents own no hidden variables"):
        bucketflow.save(load(path), tmp_path / "a.xml")


def test_the_command_line_says_how_many_there_are(path: Path) -> None:
    found = json.loads(CliRunner().invoke(main, ["info", str(path), "--json"]).stdout)
    assert (found["variables"], found["hidden_variables"], found["max_domain"]) == (N, 11, 2)
    found = json.loads(CliRunner().invoke(main, ["solve", str(path), "--json"]).stdout)
    assert [*found["assignment"]] == [f"x{v}" for v in range(N)]
    refused = CliRunner().invoke(main, ["dpop", str(path)])
    assert refused.exit_code == 2


def test_runs_on_disk_go_on_from_assignments_without_them(path: Path, tmp_path: Path) -> None:
    first = bucketflow.solve(load(path), workdir=tmp_path / "run")
    again = bucketflow.solve(load(path), workdir=tmp_path / "run")
    assert first.value == again.value == 0
    assert first.assignment == again.assignment


def test_names_of_hidden_variables_are_new(tmp_path: Path) -> None:
    scope = " ".join(f"hidden{v}" for v in range(N))
    variables = " ".join(f"hidden{v}: 2" for v in range(N))
    (tmp_path / "a.cfn").write_text(
        f"{{problem: {{name: p mustbe: <9}} variables: {{{variables}}} functions: {{f: {{scope: [{scope}] type: wsum "
        "params: {metric: hard cost: 9 comparator: == to: 3}}}}"
    )
    model = load(tmp_path / "a.cfn")
    assert model.own_names == tuple(f"hidden{v}" for v in range(N))
    assert bucketflow.solve(model, "count").value == 220


def test_hidden_variables_may_follow_from_several_functions_together() -> None:
    def allowing(*pairs: tuple[int, int]) -> np.ndarray:
        table = np.full((3, 3), FORBIDDEN)
        table[tuple(np.transpose(pairs))] = 0
        return table

    every = [(a, b) for a in range(3) for b in range(3)]

    def model(*functions: Function) -> Model:
        return Model("cost", ("a", "h", "k"), (3, 3, 3), (None,) * 3, functions, hidden=2)

    below = allowing(*[(a, b) for a, b in every if b <= a])
    above = allowing(*[(a, b) for a, b in every if b >= a])
    after = allowing(*[(a, b) for a, b in every if b == (a + 1) % 3])
    both = model(Function((0, 1), below), Function((0, 1), above), Function((1, 2), after))
    assert both.completed([1]) == [1, 1, 2]
    # neither h nor k has one state: only h = 1 leads to an allowed k
    unequal = allowing(*[(a, b) for a, b in every if a != b])
    only = allowing((1, 0), (1, 2))
    tried = model(Function((0, 1), unequal), Function((1, 2), only), Function((2, 1), after))
    assert tried.completed([2]) == [2, 1, 0]
    assert tried.completed([1]) is None
    circle = model(Function((0, 1), unequal), Function((1, 2), after), Function((2, 1), after))
    assert circle.completed([0]) is None
    assert circle.cost([0]) is None


def test_what_does_not_follow_is_an_error() -> None:
    free = Model("cost", ("a", "b"), (2, 2), (None, None), (Function((0, 1), np.zeros((2, 2), int)),), hidden=1)
    with pytest.raises(ModelError, match="the states of 1 hidden variables do not follow from the others"):
        free.cost([0])
    told = np.array([[0, FORBIDDEN], [FORBIDDEN, FORBIDDEN]])
    model = Model("cost", ("a", "b"), (2, 2), (None, None), (Function((0, 1), told),), hidden=1)
    assert (model.cost([0]), model.cost([1])) == (0, None)
