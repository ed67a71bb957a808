"""Dynamic networks: every question compared with the unrolled model, by exact enumeration; files, and refusals."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError, Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.dynamic import dynamic
from bucketflow.pipeline.dynamic.dynamic import DynamicPolicy
from bucketflow.pipeline.dynamic.walks import block_steps, from_later
from tests.exact import Weights

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Rain today depends on yesterday's; a wet lawn on both.
STATES = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
RAIN, STAYS = [0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]]
WET = [[1.0, 0.0], [0.1, 0.9]]
FIRST = Model.build("bayes", STATES, [(("rain",), RAIN), (("rain", "wet"), WET)])
LATER = Model.build(
    "bayes",
    {"rain_prev": ["no", "yes"], **STATES},
    [(("rain_prev",), [0.5, 0.5]), (("rain_prev", "rain"), STAYS), (("rain", "wet"), WET)],
)


def unrolled(first: Model, later: Model, steps: int) -> Model:
    """The network of so many steps; variables are named by their step, with ``@``."""
    variables = {f"{name}@{t}": size for t in range(steps) for name, size in zip(first.names, first.dims, strict=True)}
    functions: list[Any] = [([f"{first.names[v]}@0" for v in f.scope], f.values) for f in first.functions]
    for t in range(1, steps):
        for f in later.functions:
            names = [later.names[v] for v in f.scope]
            if later.kind == "bayes" and all(name.endswith("_prev") for name in names):
                continue
            places = [f"{n[:-5]}@{t - 1}" if n.endswith("_prev") else f"{n}@{t}" for n in names]
            functions.append((places, f.values))
    return Model.build("markov", variables, functions)


@st.composite
def slices(draw: st.DrawFn) -> tuple[Model, Model]:
    """A first slice and a transition of potentials, with zeros and values of different size."""
    dims = draw(st.sampled_from([[2], [3], [2, 2], [3, 2], [2, 2, 2]]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    zeros, spread = draw(st.sampled_from([0.0, 0.3])), draw(st.sampled_from([1.0, 30.0]))
    names = [f"x{v}" for v in range(len(dims))]
    sizes = dict(zip(names, dims, strict=True))
    both = {**sizes, **{f"{name}_prev": size for name, size in sizes.items()}}

    def functions(scopes: list[list[str]]) -> list[Any]:
        found = []
        for scope in scopes:
            shape = [both[name] for name in scope]
            values = 10.0 ** rng.uniform(-spread, 1, shape)
            found.append((scope, np.where(rng.random(shape) < zeros, 0.0, values)))
        return found

    own = draw(st.lists(st.lists(st.sampled_from(names), max_size=2, unique=True), max_size=3))
    crossing = st.lists(st.sampled_from([*both]), min_size=1, max_size=3, unique=True)
    later = [["x0_prev", names[-1]], *draw(st.lists(crossing, max_size=3))]
    return Model.build("markov", sizes, functions(own)), Model.build("markov", both, functions(later))


@st.composite
def observed(draw: st.DrawFn, first: Model, steps: int) -> dict[str, Any]:
    """States, nothing or likelihoods of some variables at each step."""
    found: dict[str, Any] = {}
    for name, size in zip(first.names, first.dims, strict=True):
        kind = draw(st.sampled_from(["none", "hard", "soft"]))
        if kind == "hard":
            found[name] = draw(st.lists(st.one_of(st.none(), st.integers(0, size - 1)), min_size=steps, max_size=steps))
        elif kind == "soft":
            rng = np.random.default_rng(draw(st.integers(0, 99)))
            found[name] = np.where(rng.random((steps, size)) < 0.2, 0.0, rng.random((steps, size)))
    return found


def findings(evidence: dict[str, Any], steps: int) -> dict[str, Any]:
    """What the first steps observe, by the names of the unrolled network."""
    return {
        f"{name}@{t}": column[t].tolist() if isinstance(column, np.ndarray) else column[t]
        for name, column in evidence.items()
        for t in range(steps)
        if isinstance(column, np.ndarray) or column[t] is not None
    }


def compare(found: bucketflow.StepMarginals, t: int, exact: Weights) -> None:
    """Whether the posteriors of a step are those of an enumeration."""
    assert found.log10_evidence[t] == pytest.approx(exact.log10_sum, rel=1e-9, abs=1e-9)
    for name in found:
        if exact.weights:
            assert found[name][t] == pytest.approx(exact.table([f"{name}@{t}"], sum), abs=1e-9)
        else:
            assert not found[name][t].any()


@given(slices(), st.integers(1, 3), st.integers(0, 2), st.booleans(), st.data())
@FEW
def test_all_questions_are_those_of_the_unrolled_network(
    pair: tuple[Model, Model], steps: int, lag: int, kept: bool, data: Any
) -> None:
    first, later = pair
    evidence = data.draw(observed(first, steps))
    network = bucketflow.dynamic(first, later)
    with DynamicPolicy.using(kept_message_bytes=1 << 20 if kept else 0, rows=2):
        smoothed = network.smoothed(evidence, steps=steps)
        filtered = network.filtered(evidence, steps=steps, lag=lag)
        path = network.path(evidence, steps=steps)
    until = [Weights(unrolled(first, later, t + 1), findings(evidence, t + 1)) for t in range(steps)]
    for t in range(steps):
        compare(smoothed, t, until[-1])
        compare(filtered, t, until[min(t + lag, steps - 1)])
    impossible = next((t for t, exact in enumerate(until) if not exact.weights), None)
    assert smoothed.impossible_step == filtered.impossible_step == path.impossible_step == impossible
    assert path.log10 == pytest.approx(until[-1].log10_best, rel=1e-9, abs=1e-9)
    if impossible is None:
        weight = until[-1].weights[tuple(path.states.reshape(-1).tolist())]
        assert until[-1].log10(weight) == pytest.approx(path.log10, rel=1e-9, abs=1e-9)
    else:
        assert len(path) == 0


def test_a_network_in_one_model_is_that_of_two() -> None:
    both = Model.build(
        "bayes",
        {f"{name}{end}": labels for end in ("_0", "_1") for name, labels in STATES.items()},
        [
            *[(("rain_0",), RAIN), (("rain_0", "wet_0"), WET)],
            *[(("rain_0", "rain_1"), STAYS), (("rain_1", "wet_1"), WET)],
        ],
    )
    evidence = {"wet": ["no", None, "yes", "no"]}
    one, two = bucketflow.dynamic(both), bucketflow.dynamic(FIRST, LATER)
    assert one.interface == two.interface == ("rain",)
    assert one.smoothed(evidence)["rain"] == pytest.approx(two.smoothed(evidence)["rain"])
    assert one.template.notes == ()
    assert two.template.notes == ("functions of rain_prev alone in the transition are not used",)


def test_many_steps_are_those_of_a_hidden_markov_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the forward and backward recursions of the textbook, with messages at checkpoints and in compiled loops."""
    rng = np.random.default_rng(1)
    seen = rng.integers(-1, 2, 700)
    likelihood = np.where(seen[:, None] < 0, 1.0, np.array(WET)[:, seen].T)
    forward = np.empty((len(seen), 2))
    logs = 0.0
    for t, here in enumerate(likelihood):
        found = (np.array(RAIN) if t == 0 else forward[t - 1] @ STAYS) * here
        logs += math.log10(found.sum())
        forward[t] = found / found.sum()
    backward = np.ones((len(seen), 2))
    for t in range(len(seen) - 2, -1, -1):
        found = np.array(STAYS) @ (backward[t + 1] * likelihood[t + 1])
        backward[t] = found / found.sum()
    both = forward * backward
    network = bucketflow.dynamic(FIRST, LATER)
    monkeypatch.setattr(dynamic, "BOTH_WAYS_STEP_CELLS", 1 << 40)
    with DynamicPolicy.using(kept_message_bytes=0, rows=100):
        smoothed, filtered = network.smoothed({"wet": seen}), network.filtered({"wet": seen})
    assert filtered["rain"] == pytest.approx(forward)
    assert filtered.log10_evidence[-1] == pytest.approx(logs)
    assert smoothed["rain"] == pytest.approx(both / both.sum(axis=1, keepdims=True))
    assert smoothed.log10_evidence == pytest.approx(logs)


def test_answers_and_evidence_are_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    network = bucketflow.dynamic(FIRST, LATER)
    seen = pandas.DataFrame({"wet": ["no", None, "yes"]})
    smoothed, path = network.smoothed(seen), network.path(seen)
    assert smoothed.to_frame()["rain=yes"].to_numpy() == pytest.approx(smoothed["rain"][:, 1])
    assert path.to_frame()["wet"].tolist() == [STATES["wet"][k] for k in path["wet"]]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 17])
def test_messages_between_checkpoints_are_few_and_made_twice_at_most(count: int) -> None:
    block = block_steps(count, 8, 0)
    made: list[int] = []

    def backward(step: int, after: Any) -> Any:
        assert (after or count) == step + 1
        made.append(step)
        return step

    found: Iterator[Any] = from_later(count, block, backward)
    assert [after or count for after in found] == list(range(1, count + 1))
    assert max(map(made.count, made), default=0) <= 2
    assert block_steps(count, 8, 8 * count) == count
    assert block * block >= count > (block - 1) ** 2


def write_slices(folder: Path) -> tuple[str, str]:
    """Two files in the interchange format."""

    def text(model: Model) -> str:
        parts = [f"variable {name} {{ type discrete [ 2 ] {{ no, yes }}; }}" for name in model.names]
        for f in model.functions:
            names = [model.names[v] for v in f.scope]
            if len(names) == 1:
                rows = f"table {', '.join(map(str, f.values))};"
            else:
                labelled = zip(("no", "yes"), f.values, strict=True)
                rows = " ".join(f"({label}) {', '.join(map(str, row))};" for label, row in labelled)
            given = f" | {names[0]}" if len(names) > 1 else ""
            parts.append(f"probability ( {names[-1]}{given} ) {{ {rows} }}")
        return "network unknown { }\n" + "\n".join(parts) + "\n"

    for name, model in (("first", FIRST), ("later", LATER)):
        (folder / f"{name}.bif").write_text(text(model))
    return str(folder / "first.bif"), str(folder / "later.bif")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["dynamic", *arguments])


@pytest.mark.parametrize("query", ["filter", "smooth", "path"])
def test_the_command_line_writes_what_python_finds(query: str, tmp_path: Path) -> None:
    files = write_slices(tmp_path)
    (tmp_path / "seen.csv").write_text("wet,rain\nno,\n,\nyes,yes\n")
    seen = {"wet": ["no", None, "yes"], "rain": [None, None, "yes"]}
    out = tmp_path / "out.csv"
    asked = [*files, "--evidence", str(tmp_path / "seen.csv"), "--steps", "4", "-o", str(out), "--json"]
    ended = run(*asked, "--query", query, *(["--lag", "1"] if query == "filter" else []))
    assert ended.exit_code == 0, ended.output
    facts = json.loads(ended.stdout)
    assert (facts["query"], facts["status"], facts["steps"]) == (query, "ok", 4)
    assert (facts["interface"], facts["interface_states"], facts["impossible_step"]) == (["rain"], 2, None)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    network = bucketflow.dynamic(FIRST, LATER)
    if query == "path":
        path = network.path(seen, steps=4)
        assert [row["rain"] for row in rows] == [STATES["rain"][k] for k in path["rain"]]
        assert [row["wet"] for row in rows] == [STATES["wet"][k] for k in path["wet"]]
        assert facts["log10"] == path.log10
        return
    found = network.smoothed(seen, steps=4) if query == "smooth" else network.filtered(seen, steps=4, lag=1)
    assert [float(row["rain=yes"]) for row in rows] == found["rain"][:, 1].tolist()
    assert [int(row["step"]) for row in rows] == [0, 1, 2, 3]
    assert facts["log10_evidence"] == found.log10_evidence[-1]


@pytest.mark.parametrize("query", ["filter", "smooth", "path"])
def test_impossible_evidence_is_an_answer_that_names_the_step(query: str, tmp_path: Path) -> None:
    (tmp_path / "seen.csv").write_text("rain,wet\n,no\nno,yes\n,no\n")
    asked = [*write_slices(tmp_path), "--evidence", str(tmp_path / "seen.csv"), "--query", query]
    ended = run(*asked, "-o", str(tmp_path / "out.jsonl"))
    assert ended.exit_code == 0
    assert ended.stdout == "infeasible  what is observed at step 1 is impossible after what came before\n"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    if query != "path":
        assert [row["status"] for row in rows] == [("ok" if query == "filter" else "impossible"), *["impossible"] * 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "3", "--query", "smooth", "--lag", "1"], "--lag goes with --query filter only"),
        (["--steps", "3", "--query", "path", "--variables", "wet"], "leave out --variables"),
        ([], "give --steps, or --evidence"),
        (["--steps", "3", "--suffixes", "_a"], "--suffixes takes two"),
        (
            ["--steps", "3", "--suffixes", "_a,_b"],
            "'rain_prev' is not a variable of a slice",
        ),
        (["--steps", "3", "--order", "a,b"], "order"),
        (["--steps", "3", "--query", "path", "--out", "x.txt"], "use .csv, .jsonl or .parquet"),
    ],
)
def test_the_command_line_refuses_in_a_sentence(arguments: list[str], said: str, tmp_path: Path) -> None:
    out = [] if "--out" in arguments else ["-o", str(tmp_path / "out.csv")]
    ended = run(*write_slices(tmp_path), *arguments, *out)
    assert ended.exit_code == 2
    assert said in ended.stderr


def test_what_makes_no_dynamic_network_is_refused() -> None:
    alone = Model.build(
        "bayes", {"rain_prev": 2, **STATES}, [(("rain_prev",), RAIN), (("rain",), RAIN), (("rain", "wet"), WET)]
    )
    with pytest.raises(ModelError, match="'rain_prev' has other states than 'rain'"):
        bucketflow.dynamic(FIRST, alone)
    same = {"rain_prev": STATES["rain"], **STATES}
    alone = Model.build("bayes", same, [(("rain_prev",), RAIN), (("rain",), RAIN), (("rain", "wet"), WET)])
    with pytest.raises(ModelError, match="no variable depends on the step before"):
        bucketflow.dynamic(FIRST, alone)
    back = [(("rain",), RAIN), (("rain", "rain_prev"), STAYS), (("rain", "wet"), WET)]
    with pytest.raises(ModelError, match="'rain_prev' has a parent of a later step"):
        bucketflow.dynamic(FIRST, Model.build("bayes", same, back))
    with pytest.raises(ModelError, match="no suffixes of names pair the variables"):
        bucketflow.dynamic(FIRST)
    with pytest.raises(ModelError, match="a cost network has none"):
        bucketflow.dynamic(Model.build("cost", {"a": 2}, []), LATER)
    with pytest.raises(ModelError, match="leave out gpus, workers, scheduler"):
        bucketflow.dynamic(FIRST, LATER, workers=2)
    network = bucketflow.dynamic(FIRST, LATER)
    with pytest.raises(ModelError, match="there are 1 steps, but evidence for 2"):
        network.filtered({"wet": ["no", "yes"]}, steps=1)
    with pytest.raises(ModelError, match="at least one step"):
        network.path()
    with pytest.raises(ModelError, match="lag is -1"):
        network.filtered(steps=2, lag=-1)
    with pytest.raises(ModelError, match="'wind', which is not a variable"):
        network.smoothed({"wind": ["no"]})


def test_an_interface_that_is_too_wide_is_refused_with_both_numbers() -> None:
    names = [f"x{k}" for k in range(20)]
    first = Model.build("markov", dict.fromkeys(names, 2), [])
    both = dict.fromkeys([*names, *(f"{name}_prev" for name in names)], 2)
    later = Model.build("markov", both, [((f"{name}_prev", name), STAYS) for name in names])
    said = r"the 20 variables between slices have 1.05e\+06 joint states, .* need 16.8 MB, allowed 10 MB"
    with pytest.raises(BudgetError, match=said):
        bucketflow.dynamic(first, later, memory="10MB")
    narrow = bucketflow.dynamic(FIRST, LATER, memory="20kB")
    with pytest.raises(BudgetError, match=r"messages between 1,000,000 steps need 832 kB at checkpoints, .* allowed"):
        narrow.smoothed(steps=1_000_000)
