"""What ``--evidence`` may list: labels with commas and blanks, in quotes or where they are clear, and likelihoods."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.read import evidence_of


def with_labels(**labels: list[str] | int) -> Model:
    functions = [((name,), np.ones(own if isinstance(own, int) else len(own))) for name, own in labels.items()]
    return Model.build("markov", labels, functions)


def indices_of(model: Model, texts: list[str]) -> dict[str, Any]:
    """Read evidence, and turn the labels of states into their indices."""
    found = evidence_of(model, texts) or {}
    return {n: f if isinstance(f, list) else model.state_index(model.index[n], f) for n, f in found.items()}


MODEL = with_labels(
    **{
        "dose": ["(0,1.5]", "(1.5,3]", "more"],
        "y": ["a", "b c", "a,b"],
        "z": 3,
        "p,q": ["on", "off"],
        "r=s": ["1", "0"],
    },
    **{"w": ["[0.2,0.8]", 'say "x"'], "v": 2},
)

READ: list[tuple[str, dict[str, Any]]] = [
    ("dose=(1.5,3]", {"dose": 1}),
    ("dose=(1.5,3],y=a", {"dose": 1, "y": 0}),
    (' dose = "(1.5,3]" , y = "b c" ', {"dose": 1, "y": 1}),
    ("y=b c,z=2", {"y": 1, "z": 2}),
    ("z=2,dose=(0,1.5],v=1,", {"z": 2, "dose": 0, "v": 1}),
    ('"p,q"=off,v=0', {"p,q": 1, "v": 0}),
    ("p,q=off", {"p,q": 1}),
    ("r=s=0", {"r=s": 1}),
    ('y="a,b"', {"y": 2}),
    ("dose=2", {"dose": 2}),
    ("dose=[0.2,0.3,0.5]", {"dose": [0.2, 0.3, 0.5]}),
    ("dose=[0.2, 0.3 0.5],z=[1 2 3],v=1", {"dose": [0.2, 0.3, 0.5], "z": [1, 2, 3], "v": 1}),
    ("w=[0.2,0.8]", {"w": 0}),
    ("w=[0.2, 0.8]", {"w": [0.2, 0.8]}),
    ('w="say ""x"""', {"w": 1}),
    ('w=say "x"', {"w": 1}),
]


@pytest.mark.parametrize(("text", "expected"), READ, ids=[text for text, _ in READ])
def test_lists_are_read(text: str, expected: dict[str, Any]) -> None:
    assert indices_of(MODEL, [text]) == expected


WRONG = [
    ("x=1", "evidence names 'x', which is not a variable of the model"),
    ("z=7", "'z' has no state '7'"),
    ("z", "is neither a file nor a list"),
    ("z=1,y", "has 'y' where x=v is expected"),
    ("z=1,=3", "has '=3' where x=v is expected"),
    ('y="a,b', "has a quote that is not closed"),
    ("z=[1,2]", "the likelihood of 'z' has 2 values for 3 states"),
    ("z=[1,2,-3]", "the likelihood of 'z' has a value that is negative or not finite"),
    ("z=[1,2,x]", "is not a list like x=1, y=yes or z=[0.2, 0.8]"),
    ("z=1,z=2", "'z' is observed in two different states"),
    ("z=1,z=[1,1,1]", "names 'z' twice"),
    ("z=[1,1,1],z=[1,1,1]", "names 'z' twice"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        evidence_of(MODEL, [text])


def test_what_can_be_read_in_several_ways_is_refused() -> None:
    model = with_labels(x=["a", "a,y=b"], y=["b", "c"])
    with pytest.raises(ModelError, match=r"can be read in several ways, .*put names and labels with commas in quotes"):
        evidence_of(model, ["x=a,y=b"])
    assert indices_of(model, ['x="a,y=b"']) == {"x": 1}
    assert indices_of(model, ['x="a",y=b']) == {"x": 0, "y": 0}


def test_quoted_lists_of_any_names_and_labels_come_back() -> None:
    rng = random.Random(4)
    letters = 'ab ,="[]1.'
    for _ in range(200):
        words = sorted({"".join(rng.choices(letters, k=rng.randint(1, 5))).strip() or "n" for _ in range(6)})
        names = {f"{word}": sorted({*rng.sample(words, min(len(words), 2)), "0", "q"}) for word in words}
        model = with_labels(**names)
        states = {name: rng.randrange(len(labels)) for name, labels in names.items()}
        text = ",".join(f"{quoted(name)}={quoted(names[name][state])}" for name, state in states.items())
        assert indices_of(model, [text]) == states


def quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def test_long_lists_take_one_look_at_each_place() -> None:
    count = 3000
    model = with_labels(**{f"x{k}": ["a", "b"] for k in range(count)})
    text = ",".join(f"x{k}=b" for k in range(count))
    assert indices_of(model, [text]) == {f"x{k}": 1 for k in range(count)}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "doses.bif"
    path.write_text(
        'network doses {}\nvariable dose { type discrete [ 2 ] { "(0,1.5]", "(1.5,3]" }; }\n'
        "variable cured { type discrete [ 2 ] { yes, no }; }\n"
        "probability ( dose ) { table 0.25, 0.75; }\n"
        'probability ( cured | dose ) { ("(0,1.5]") 0.5, 0.5; ("(1.5,3]") 0.9, 0.1; }\n'
    )
    return path


def printed(*arguments: Any) -> Any:
    found = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.parametrize("evidence", ["dose=(1.5,3]", 'dose="(1.5,3]"', "dose=[0,1]"])
def test_labels_with_commas_on_the_command_line(file: Path, evidence: str) -> None:
    assert printed("marginals", file, "--evidence", evidence)["marginals"]["cured"] == pytest.approx([0.9, 0.1])
    assert 10 ** printed("solve", file, "--query", "partition", "--evidence", evidence)["log10"] == pytest.approx(0.75)


def test_soft_evidence_on_the_command_line(file: Path) -> None:
    asked = ["--evidence", "dose=[0.2,0.6],cured=no"]
    joint = {"(0,1.5]": 0.25 * 0.5 * 0.2, "(1.5,3]": 0.75 * 0.1 * 0.6}
    assert 10 ** printed("solve", file, "--query", "partition", *asked)["log10"] == pytest.approx(sum(joint.values()))
    best = printed("solve", file, *asked)
    assert 10 ** best["log10"] == pytest.approx(max(joint.values()))
    assert best["assignment"] == {"dose": "(1.5,3]", "cured": "no"}
    bounds = printed("bound", file, *asked)
    assert bounds["lower"] <= best["log10"] <= bounds["upper"]
    posterior = printed("marginals", file, *asked)["marginals"]["dose"]
    assert posterior == pytest.approx([p / sum(joint.values()) for p in joint.values()])
    assert printed("plan", file, *asked)["query"] == "optimum"


def test_counts_refuse_soft_evidence_by_name(file: Path) -> None:
    found = CliRunner().invoke(main, ["solve", str(file), "--query", "count", "--evidence", "dose=[1,2]"])
    assert found.exit_code == 2
    assert found.output == (
        "bucketflow: a count takes no likelihoods, and 'dose' has no state [1.0, 2.0]; observe a state instead\n"
    )
    cost = Model.build("cost", {"a": 2}, [(("a",), [1, 2])])
    for ask in (bucketflow.solve, bucketflow.bound):
        with pytest.raises(
            ModelError, match=r"a cost network takes no likelihoods, and 'a' has no state \[0\.5, 0\.5\]"
        ):
            ask(cost, evidence={"a": [0.5, 0.5]})


def test_batches_take_both(file: Path, tmp_path: Path) -> None:
    rows = [
        {"model": str(file), "query": "partition", "evidence": "dose=(1.5,3],cured=no"},
        {"model": str(file), "query": "partition", "evidence": {"dose": [0.2, 0.6]}},
        {"model": str(file), "query": "optimum", "evidence": "dose=[0.2,0.6]"},
        {"model": str(file), "query": "count", "evidence": "dose=[0.2,0.6]"},
    ]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = bucketflow.batch(tmp_path / "list.jsonl", tmp_path / "out")
    found = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [row["status"] for row in found] == ["answered"] * 3 + ["failed"]
    powers = [10 ** row["answer"]["log10"] for row in found[:3]]
    assert powers == pytest.approx([0.075, 0.25 * 0.2 + 0.75 * 0.6, 0.75 * 0.9 * 0.6])
    assert "a count takes no likelihoods" in found[3]["message"]
    assert summary.exit_code == 5


def test_cases_take_both(file: Path, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text('dose,cured\n"(1.5,3]",\n"[0.2, 0.6]",no\n,yes\n[1 1],no\n')
    asked = ["--cases", tmp_path / "cases.csv", "--out", tmp_path / "found.jsonl"]
    assert printed("marginals", file, *asked)["cases"] == 4
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    expected = [0.75, 0.25 * 0.5 * 0.2 + 0.75 * 0.1 * 0.6, 0.25 * 0.5 + 0.75 * 0.9, 0.25 * 0.5 + 0.75 * 0.1]
    assert [10 ** row["log10_evidence"] for row in rows] == pytest.approx(expected)
    again = printed("marginals", file, "--evidence", "dose=[0.2,0.6]", *asked[:2], "--out", tmp_path / "two.jsonl")
    assert again["cases"] == 4


def test_all_pairs_of_findings_agree_in_text_and_in_python(file: Path) -> None:
    model = bucketflow.load(file)
    doses: list[Any] = [None, "(0,1.5]", [0.3, 0.4]]
    cures: list[Any] = [None, "yes", [2.0, 0.0]]
    for dose, cured in itertools.product(doses, cures):
        given = {name: value for name, value in (("dose", dose), ("cured", cured)) if value is not None}
        text = ",".join(f"{name}={value}" for name, value in given.items())
        by_text = bucketflow.solve(model, "partition", evidence=evidence_of(model, [text] if text else []))
        assert by_text.log10 == bucketflow.solve(model, "partition", evidence=given).log10
