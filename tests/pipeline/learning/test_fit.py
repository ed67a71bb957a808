"""Learnt tables: expected counts and likelihoods by enumeration, priors, ties, wrong data, and interrupted runs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.compiled.expected_counts import expected_counts, with_tables
from bucketflow.pipeline.learning.fit_folder import rows_of

DIMS = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 3}
PARENTS = {"a": "", "b": "a", "c": "a", "d": "cb", "e": "d"}
WAYS = ["together", "one by one"]


def network(seed: int, zeros: bool = False) -> Model:
    """A network of five variables; scopes in odd orders, perhaps with zeros."""
    rng = np.random.default_rng(seed)
    functions = []
    for name, parents in PARENTS.items():
        table = rng.random([DIMS[each] for each in (*parents, name)]) + 0.05
        if zeros:
            table *= rng.random(table.shape) < 0.8
            table[..., 0] += 0.1
        functions.append(((*parents, name), table / table.sum(axis=-1, keepdims=True)))
    return Model.build("bayes", DIMS, functions)


def data(model: Model, seed: int, rows: int = 40, missing: float = 0.3) -> dict[str, np.ndarray]:
    """Draws from a network, some cells missing (-1)."""
    rng = np.random.default_rng(seed)
    states = bucketflow.sample(model, rows, seed=seed).states
    states = np.where(rng.random(states.shape) < missing, -1, states)
    return dict(zip(model.names, states.T.astype(np.int64), strict=True))


def assignments(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """All assignments of a network, and the probability of each."""
    states = np.array(list(itertools.product(*map(range, model.dims))))
    weights = np.ones(len(states))
    for f in model.functions:
        weights *= f.dense(model.dims)[tuple(states[:, v] for v in f.scope)]
    return states, weights


def enumerated(model: Model, cells: dict[str, np.ndarray]) -> tuple[list[np.ndarray], float]:
    """Expected counts of each function's scope and the log-likelihood, by summing over all assignments."""
    states, weights = assignments(model)
    counts = [np.zeros([model.dims[v] for v in f.scope]) for f in model.functions]
    total = 0.0
    for row in zip(*(cells.get(name, itertools.repeat(-1)) for name in model.names), strict=False):
        agrees = np.all((states == row) | (np.array(row) < 0), axis=1)
        probability = weights[agrees].sum()
        total += math.log(probability)
        for f, table in zip(model.functions, counts, strict=True):
            np.add.at(table, tuple(states[agrees][:, v] for v in f.scope), weights[agrees] / probability)
    return counts, total


def m_step(model: Model, counts: list[np.ndarray], prior: float = 0.0) -> Model:
    functions = {}
    for k, (f, table) in enumerate(zip(model.functions, counts, strict=True)):
        assert f.scope[-1] == f.child
        found = table + prior
        totals = found.sum(axis=-1, keepdims=True)
        functions[k] = f.changed(values=np.where(totals > 0, found / np.where(totals > 0, totals, 1), f.values))
    return model.with_functions(functions)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("zeros", [False, True])
def test_expected_counts_are_those_of_enumeration(way: str, zeros: bool) -> None:
    for seed in range(3):
        model = network(seed, zeros)
        cells = data(model, seed)
        rows = rows_of(model, cells, 1 << 30)
        compiled = bucketflow.compile(network(seed + 9), families=True)
        scopes = [f.scope for f in model.functions]
        with CompiledPolicy.using(observing_cells=0 if way == "one by one" else 1 << 60):
            found, logs = expected_counts(with_tables(compiled, model), rows.cases, rows.weights, scopes, {})
        counts, total = enumerated(model, cells)
        assert math.fsum(rows.weights * logs) == pytest.approx(total, rel=1e-12)
        for ours, theirs in zip(found, counts, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("prior", [0.0, 0.5])
@pytest.mark.parametrize("hidden", ["", "c", "ad"])
def test_iterations_are_those_of_enumeration_and_never_lower_the_objective(prior: float, hidden: str) -> None:
    truth, model = network(1), network(2)
    cells = {name: column for name, column in data(truth, 3).items() if name not in hidden}
    found = bucketflow.fit(model, cells, prior=prior, iterations=6, tolerance=0)
    objectives = []
    for log in found.log_likelihoods:
        counts, total = enumerated(model, cells)
        assert log == pytest.approx(total, rel=1e-12)
        objectives.append(total + sum(prior * np.log(f.values).sum() for f in model.functions if prior))
        last, model = model, m_step(model, counts, prior)
    assert found.status == "iterations"
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(objectives))
    assert found.log_likelihood + found.log_prior == pytest.approx(objectives[-1], rel=1e-12)
    for ours, theirs in zip(found.model.functions, last.functions, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-9, atol=1e-14)


def test_complete_rows_are_counted() -> None:
    model = network(4)
    cells = data(model, 4, missing=0.0)
    found = bucketflow.fit(model, cells)
    expected = m_step(model, enumerated(model, cells)[0])
    assert (found.status, found.iterations, found.rows_read) == ("counted", 0, 40)
    assert found.different < 40
    assert found.log_likelihood == pytest.approx(enumerated(expected, cells)[1], rel=1e-12)
    for ours, theirs in zip(found.model.functions, expected.functions, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-14)
    smooth = bucketflow.fit(model, cells, equivalent_sample=12, prior={"a": [3.0, 0.0]}).model
    ones = int(cells["a"].sum())
    np.testing.assert_allclose(smooth.functions[0].values, np.array([40 - ones + 9, ones + 6]) / 55)


def test_fixed_tables_stay_and_tied_tables_are_one() -> None:
    names = dict.fromkeys("xyzw", 2)
    chain = [(("x",), [0.3, 0.7])] + [(tuple(pair), [[0.9, 0.1], [0.4, 0.6]]) for pair in ("xy", "yz", "zw")]
    model = Model.build("bayes", names, chain)
    rng = np.random.default_rng(0)
    cells = {name: rng.integers(-1, 2, size=60) for name in names}
    found = bucketflow.fit(model, cells, fixed=["x"], tied=[["y", "z", "w"]], iterations=5, tolerance=0)
    functions = found.model.functions
    assert functions[0].values.tolist() == [0.3, 0.7]
    assert functions[1].values.tolist() == functions[2].values.tolist() == functions[3].values.tolist()
    assert found.parameters == 2
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(found.log_likelihoods))
    counts = enumerated(model, cells)[0]
    once = bucketflow.fit(model, cells, fixed=["x"], tied=[["y", "z", "w"]], iterations=1).model
    total = counts[1] + counts[2] + counts[3]
    np.testing.assert_allclose(once.functions[2].values, total / total.sum(axis=1, keepdims=True), rtol=1e-10)


def test_restarts_keep_the_best_and_are_the_same_again() -> None:
    model = network(5)
    cells = {name: column for name, column in data(model, 6, 60, 0.0).items() if name not in "ad"}
    found = bucketflow.fit(model, cells, start="random", restarts=3, iterations=15, seed=7)
    assert len({round(end, 9) for end in found.starts}) > 1
    assert found.log_likelihood == max(found.starts)
    again = bucketflow.fit(model, cells, start="random", restarts=3, iterations=15, seed=7)
    assert again.starts == found.starts
    assert again.model == found.model
    alike = bucketflow.fit(model, cells, start="uniform")
    assert alike.log_likelihood < found.log_likelihood
    assert not found.notes
    assert "does not tell the states of the hidden variable 'a' apart" in alike.notes[0]


def test_likelihoods_of_states_count_by_their_share() -> None:
    model = Model.build("bayes", {"a": 2, "b": 2}, [(("a",), [0.5, 0.5]), (("a", "b"), [[0.8, 0.2], [0.3, 0.7]])])
    soft = np.array([[0.9, 0.1], [0.5, 0.25], [1.0, 0.0]])
    found = bucketflow.fit(model, {"a": soft, "b": [0, 1, None]}, iterations=1)
    joint = 0.5 * soft[:, :, None] * np.array([[0.8, 0.2], [0.3, 0.7]])
    joint[0, :, 1] = joint[1, :, 0] = 0.0
    assert found.log_likelihoods[0] == pytest.approx(np.log(joint.sum(axis=(1, 2))).sum())
    shares = (joint / joint.sum(axis=(1, 2), keepdims=True)).sum(axis=0)
    np.testing.assert_allclose(found.model.functions[0].values, shares.sum(axis=1) / 3)


def test_zeros_of_fixed_tables_remove_states() -> None:
    """Preprocessing removes state 2 of b everywhere, and the counts are still over all states."""
    model = Model.build(
        "bayes", {"a": 2, "b": 3}, [(("b",), [0.5, 0.5, 0.0]), (("b", "a"), [[0.5, 0.5], [0.1, 0.9], [0.2, 0.8]])]
    )
    cells = {"a": [0, 1, 1, None], "b": [None, 0, None, 1]}
    found = bucketflow.fit(model, cells, fixed=["b"], iterations=1)
    observed = {name: np.array([-1 if x is None else x for x in column]) for name, column in cells.items()}
    expected = m_step(model, enumerated(model, observed)[0])
    np.testing.assert_allclose(found.model.functions[1].values, expected.functions[1].values)
    with pytest.raises(ModelError, match="row 1 of the data is impossible: probability 0 under the fixed tables"):
        bucketflow.fit(model, {"b": [0, 2], "a": [None, None]}, fixed=["b"])
    with pytest.raises(ModelError, match="row 2 of the data is impossible"):
        bucketflow.fit(model, {"b": [0, 1, 2], "a": [0, 0, 1]}, fixed=["b"])


def test_workers_give_the_same(tmp_path: Path) -> None:
    model = network(1)
    cells = data(model, 2, 300)
    here = bucketflow.fit(model, cells, iterations=2)
    there = bucketflow.fit(model, cells, iterations=2, workers=1)
    assert there.log_likelihoods == pytest.approx(here.log_likelihoods, rel=1e-12)


class Stop:
    """Ctrl-C after some iterations."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, iteration: int, log: float) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_a_stopped_run_continues_where_it_was(tmp_path: Path) -> None:
    model = network(3)
    cells = {name: column for name, column in data(network(8), 2, 50).items() if name != "d"}
    asked: dict[str, Any] = {"restarts": 1, "iterations": 6, "tolerance": 0, "seed": 3}
    whole = bucketflow.fit(model, cells, **asked)
    for after in (1, 4, 7, 9):
        folder = tmp_path / str(after)
        with pytest.raises(bucketflow.StoppedError, match="continue with: bucketflow resume"):
            bucketflow.fit(model, cells, workdir=folder, progress=Stop(after), **asked)
        rest = Stop(100)
        found = bucketflow.fit(model, cells, workdir=folder, progress=rest, **asked)
        assert found.log_likelihoods == whole.log_likelihoods
        assert found.starts == whole.starts
        assert found.model == whole.model
        # the last E-step is repeated, and that of a finished start
        assert 100 - rest.left == 14 - after + 1 + (after > 7)
    more = bucketflow.fit(model, cells, workdir=tmp_path / "9", **{**asked, "iterations": 8})
    assert more.log_likelihoods[:7] == whole.log_likelihoods
    with pytest.raises(bucketflow.IncompatibleRunError, match="its data is"):
        bucketflow.fit(model, {**cells, "a": cells["a"][::-1]}, workdir=tmp_path / "9", **asked)
    with pytest.raises(bucketflow.IncompatibleRunError, match="data in memory"):
        bucketflow.resume(tmp_path / "9")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda m: bucketflow.fit("satellite", {"x": [1]}), "for Bayesian networks only"),
        (lambda m: bucketflow.fit(m, {"f": [1]}), "cases name 'f'"),
        (lambda m: bucketflow.fit(m, {"a": [2]}), "state"),
        (lambda m: bucketflow.fit(m, {"a": []}), "the data have no rows"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, prior=-1), "negative or not finite"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, prior={"a": [1, 2, 3]}), r"array of shape \(2,\)"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, prior={"z": 1}), "the prior names 'z'"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, fixed=["z"]), "fixed names 'z'"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, fixed="a"), "must list names"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, tied=[["b", "c"]]), "cannot be tied"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, tied=[["b", "c"]], fixed=["b"]), "tied and fixed"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, start="none"), "unknown start 'none'"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, restarts=-1), "restarts"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, tolerance=-1), "tolerance"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, out="learnt.wcsp"), "wcsp holds costs"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, out="nowhere/learnt.bif"), "there is no folder"),
        (lambda m: bucketflow.fit(m, {"a": [0]}, progress="yes"), "not callable"),
    ],
)
def test_wrong_arguments_are_one_sentence(asked: Callable[[Model], Any], message: str) -> None:
    with pytest.raises(bucketflow.BucketflowError, match=message):
        asked(network(0))


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["fit", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def test_the_command_reads_rows_and_writes_a_model(tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "learnt.bif"
    rows.write_text("Storm,Flow,HighLevelAlarm\nyes,full,\n\nno,,sounding\n,none,sounding\nyes,full,\n")
    facts = json.loads(run("diagnosis", rows, "-o", out, "--prior", 0.5, "--iterations", 3, "--json"))
    assert (facts["rows"], facts["different_rows"], facts["iterations"], len(facts["log_likelihoods"])) == (4, 3, 3, 4)
    learnt = bucketflow.load(out)
    same = bucketflow.fit("diagnosis", rows, prior=0.5, iterations=3).model
    assert bucketflow.fit(learnt, rows, iterations=0).log_likelihood == pytest.approx(facts["log_likelihood"])
    storm = learnt.index["Storm"]
    assert [f.values.tolist() for f in learnt.functions if f.child == storm] == [
        pytest.approx(f.values, abs=1e-9) for f in same.functions if f.child == storm
    ]
    assert "log-likelihood" in run("diagnosis", rows, "-o", tmp_path / "learnt.uai", "--fixed", "Storm,Season")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Storm,Flow\nyes,full\n\nno,fulll\n", "rows.csv:4: expected states of the model, found variable 'Flow'"),
        ("Storm,Flows\nyes,full\n", "rows.csv:1: expected distinct names of variables"),
        ("Storm,Flow\nyes\n", "rows.csv:2: expected 2 cells, found 1"),
        ("Storm,Flow\n", "rows.csv: expected a header and rows of states, found no rows"),
        (
            "HighLevelAlarm,Flow\nsounding,full\n\nquiet,full\n",
            "rows.csv:4: expected a row that the tables allow, found probability 0",
        ),
    ],
)
def test_wrong_rows_name_their_line(tmp_path: Path, text: str, message: str) -> None:
    model = bucketflow.load("diagnosis")
    alarm = model.index["HighLevelAlarm"]
    names = model.state_labels("HighLevelAlarm")
    text = text.replace("quiet", str(next(name for name in names if name != "sounding")))
    k, f = next((k, f) for k, f in enumerate(model.functions) if f.child == alarm)
    table = np.zeros_like(f.values)
    np.moveaxis(table, f.scope.index(alarm), -1)[..., list(names).index("sounding")] = 1.0
    path, rows = tmp_path / "m.bif", tmp_path / "rows.csv"
    bucketflow.save(model.with_functions({k: f.changed(values=table)}), path)
    rows.write_text(text)
    found = run(path, rows, "-o", tmp_path / "out.bif", "--fixed", "HighLevelAlarm", code=2)
    assert message in found


def test_rows_beyond_the_memory_are_refused(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("Storm\n" + "yes\n" * 5000)
    with pytest.raises(bucketflow.BudgetError, match=r"the rows need more than .*, allowed 50 kB"):
        rows_of(bucketflow.load("diagnosis"), rows, 50_000)


def test_resume_continues_a_fit_of_files_and_inspect_shows_it(tmp_path: Path) -> None:
    path, rows, out = tmp_path / "m.bif", tmp_path / "rows.csv", tmp_path / "learnt.bif"
    bucketflow.save(network(3), path)
    columns = {name: column for name, column in data(network(8), 2, 50).items() if name != "d"}
    model = bucketflow.load(path)
    texts = [["" if s is None else str(model.label(model.index[name], s)) for s in c] for name, c in columns.items()]
    rows.write_text("\n".join([",".join(columns), *map(",".join, zip(*texts, strict=True))]))
    asked: dict[str, Any] = {"iterations": 6, "tolerance": 0, "seed": 3, "prior": {"a": 0.5}, "fixed": ("b",)}
    whole, folder = bucketflow.fit(path, rows, **asked), tmp_path / "run"
    with pytest.raises(bucketflow.StoppedError, match=f"continue with: bucketflow resume {folder}"):
        bucketflow.fit(path, rows, out=out, workdir=folder, progress=Stop(4), **asked)
    facts = json.loads(CliRunner().invoke(main, ["inspect", str(folder), "--json"]).stdout)
    (start,) = facts["starts"]
    assert (facts["query"], facts["status"], start["iterations"]) == ("fit", "unfinished", 3)
    assert start["log_likelihoods"] == list(whole.log_likelihoods[:3])
    assert (facts["settings"]["fixed"], facts["settings"]["data"]) == (["b"], str(rows))
    done = CliRunner().invoke(main, ["resume", str(folder)])
    assert (done.exit_code, "log-likelihood" in done.stdout) == (0, True)
    found = bucketflow.resume(folder)
    assert found.log_likelihoods == whole.log_likelihoods
    assert found.model == whole.model
    shown = CliRunner().invoke(main, ["inspect", str(folder)]).stdout
    assert "finished" in shown
    assert "6 iterations" in shown
    rows.write_text(rows.read_text() + "\n" + ",".join(column[0] for column in texts))
    refused = CliRunner().invoke(main, ["resume", str(folder)])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "its data is" in refused.stderr
