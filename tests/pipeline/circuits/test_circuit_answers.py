"""Answers of circuits: posteriors carry labels, files of cases are read a chunk at a time, checks heed memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats import case_files

MODEL = bucketflow.Model.build(
    "bayes",
    {"rain": ["no", "yes"], "wet": ["dry", "damp", "soaked"]},
    [(["rain"], [0.8, 0.2]), (["rain", "wet"], [[0.9, 0.1, 0.0], [0.1, 0.3, 0.6]])],
)


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    bucketflow.circuit(MODEL).save(tmp_path / "circuit.npz")
    return tmp_path / "circuit.npz"


def run(*arguments: Any) -> str:
    found = CliRunner().invoke(main, [str(each) for each in arguments])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_posteriors_of_cases_and_steps_have_labels() -> None:
    found = bucketflow.circuit(MODEL).marginals([{"wet": "damp"}, {}])
    assert found["rain"].variables == ("case", "rain")
    assert found["rain"][:, "yes"] == pytest.approx([0.06 / 0.14, 0.2])
    assert np.array_equal(found["rain"][1, "no"], np.asarray(found["rain"])[1, 0])
    compiled = bucketflow.compile(MODEL).marginals_batch([{"wet": "damp"}, {}])
    assert compiled["wet"][0, "damp"] == pytest.approx(1.0)
    chain = bucketflow.Model.build(
        "bayes",
        {"s_0": ["a", "b"], "s_1": ["a", "b"]},
        [(["s_0"], [0.5, 0.5]), (["s_0", "s_1"], [[0.9, 0.1], [0.2, 0.8]])],
    )
    steps = bucketflow.dynamic(chain).filtered(steps=3)
    assert steps["s"].variables == ("step", "s")
    assert steps["s"][2, "a"] == pytest.approx(1.0 - steps["s"][2, "b"])


def test_evaluations_print_labels(circuit: Path) -> None:
    lines = run("evaluate", circuit, "--query", "marginals", "--evidence", "wet=damp").splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("  ")][:2] == [["no", "0.5714"], ["yes", "0.4286"]]
    found = json.loads(run("evaluate", circuit, "--query", "marginals", "--json"))
    assert found["states"] == {"rain": ["no", "yes"], "wet": ["dry", "damp", "soaked"]}


@pytest.mark.parametrize("query", ["partition", "optimum", "marginals"])
def test_cases_are_read_a_chunk_at_a_time(
    circuit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("wet\n" + "damp\ndry\nsoaked\n\n" * 3)
    whole = json.loads(run("evaluate", circuit, "--query", query, "--cases", path, "--json"))
    sizes: list[int] = []
    original = case_files.read_cases

    def chunks(name: str, model: Any, *more: Any) -> Any:
        assert not more, "the whole file is one chunk"
        for cases in original(name, model, 5):
            sizes.append(cases.count)
            yield cases

    monkeypatch.setattr(case_files, "read_cases", chunks)
    assert json.loads(run("evaluate", circuit, "--query", query, "--cases", path, "--json")) == whole
    assert sizes == [5, 5, 2]
    assert len(whole["log10_evidence" if query == "marginals" else "log10"]) == 12


def test_checks_heed_memory(circuit: Path) -> None:
    assert "smooth" in run("check", "circuit", circuit, "--memory", "1GB")
    found = CliRunner().invoke(main, ["check", "circuit", str(circuit), "--memory", "1kB"])
    assert found.exit_code == 3  # refused by a budget
    assert "allowed 1 kB" in found.stderr
    assert found.stderr.count("\n") == 1
