"""Pages about what commands print with ``--json``: all of them, and damaged ones as one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.drawings import charts
from bucketflow.pipeline.report.report import ANSWER, ShapeError, report
from tests.models import grid

pytestmark = [
    pytest.mark.skipif(find_spec("bokeh") is None, reason="bokeh is not installed"),
    pytest.mark.filterwarnings("ignore"),
]

# What may stand where something else belongs.
STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, float("nan"), float("inf"), 10**400, "x", "", "\ud800"),
    *([], {}, [1], ["a"], [[]], [None], {"a": 1}, {"a": None}, {"": {"": []}}),
)


@cache
def printed(*args: str) -> Any:
    """What a command prints."""
    done = CliRunner().invoke(main, [*args, "--json"])
    assert done.exit_code in (0, 4), done.output
    return json.loads(done.stdout)


@cache
def small(kind: str) -> Any:
    """A small object of each kind whose page is not only labelled lines."""
    if kind == "marginals":
        model = bucketflow.Model.build("markov", {"a": 2, "b": ["no", "yes"]}, [(["a", "b"], [[1.0, 2.0], [3.0, 4.0]])])
        return bucketflow.marginals(model, joint=[["a", "b"]]).to_dict()
    if kind == "bound":
        return json.loads(bucketflow.bound(grid(3, 3, 2), z=2).to_json())
    if kind == "dpop":
        return bucketflow.dpop(bucketflow.generate("random", variables=4, domain=2, seed=4)).to_dict()
    return json.loads(bucketflow.solve(grid(3, 3, 2), method="search").to_json())


def written(folder: Path, found: Any) -> Path:
    (folder / "found.json").write_text(json.dumps(found))
    return folder / "found.json"


def headings(page: Path) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page.read_text())


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("plan", "satellite"), ["Question", "Plan", "Impossible", "Removed", "Strategy", "Strategy: offers"]),
        (("plan", "fields"), ["Question", "Strategy", "Strategy: offers", "Prepared"]),
        (
            ("plan", "diagnosis", "--query", "marginals"),
            ["Question", "Plan", "Impossible", "Removed", "Strategy", "Strategy: offers"],
        ),
        (("info", "meetings"), ["Model"]),
        (("marginals", "diagnosis"), ["Answer", "Network", "Marginals", "Origin"]),
        (
            ("plan", "diagnosis", "--query", "partition"),
            ["Question", "Plan", "Impossible", "Removed", "Strategy", "Strategy: offers"],
        ),
        (("bound", "grid", "--z", "2"), ["Answer", "Convergence", "Origin"]),
        (("solve", "diagnosis", "--best", "10"), ["Answer", "Assignments", "Origin"]),
        (("marginals", "diagnosis", "--voi", "WetWellLevel"), ["Answer", "Value of information"]),
        (
            ("marginals", "diagnosis", "--sensitivity", "Season=winter"),
            ["Answer", "Sensitivity", "Sensitivity: parameters"],
        ),
        (("marginals", "diagnosis", "--conditional", "Flow"), ["Answer", "Flow"]),
        (("formats",), ["Formats", "Unread"]),
        (("dpop", "meetings"), ["Answer", "Metrics", "Pseudo-tree", "Agents", "Load by link"]),
        (("solve", "satellite"), ["Answer", "Origin"]),
    ],
)
def test_what_commands_print(tmp_path: Path, command: tuple[str, ...], shown: list[str]) -> None:
    found = printed(*command)
    report(written(tmp_path, found), tmp_path / "page.html")
    assert headings(tmp_path / "page.html") == shown


def test_a_page_of_a_plan_has_its_figures(tmp_path: Path) -> None:
    found = printed("plan", "satellite")
    report(written(tmp_path, found), tmp_path / "page.html")
    text = re.sub(r"<(script|style).*?</\1>", "", (tmp_path / "page.html").read_text(), flags=re.DOTALL)
    plain = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    assert f"width {found['plan']['width']} " in plain
    assert f"seconds {found['plan']['seconds']:.6g} " in plain
    assert "sliced none" in plain


def test_no_page_shows_python(tmp_path: Path) -> None:
    """Neither dictionaries nor empty lists."""
    (tmp_path / "list.csv").write_text("model\nsatellite\n")
    bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")
    report(tmp_path / "out", tmp_path / "batch.html")
    pages = [tmp_path / "batch.html"]
    for k, command in enumerate((("plan", "fields"), ("plan", "satellite"), ("info", "meetings"), ("formats",))):
        pages.append(tmp_path / f"page{k}.html")
        report(written(tmp_path, printed(*command)), pages[-1])
    for path in pages:
        text = re.sub(r"<(script|style).*?</\1>", "", path.read_text(), flags=re.DOTALL)
        plain = unescape(re.sub(r"<[^>]*>", " ", text))
        assert not re.search(r"\{'|\[\]|\['|\bNone\b", plain), path


def test_circuits_and_evaluations_have_pages(tmp_path: Path) -> None:
    circuit = str(tmp_path / "circuit.npz")
    commands = (("circuit", "diagnosis", "-o", circuit), ("check", "circuit", circuit), ("evaluate", circuit))
    counted = ("evaluate", circuit, "--query", "count")
    for command in (*commands, counted):
        report(written(tmp_path, printed(*command)), tmp_path / "page.html")
        assert headings(tmp_path / "page.html")[0] in ("Circuit", "Check of a circuit", "Answer")


def test_bounds_that_are_found_once_are_lines_of_some_length(tmp_path: Path) -> None:
    report(written(tmp_path, printed("bound", "grid", "--z", "2")), tmp_path / "page.html")
    paths = re.findall(r"M([\d.]+) [\d.]+(?:H[\d.]+V[\d.]+)*H([\d.]+)", (tmp_path / "page.html").read_text())
    assert len(paths) == 2
    assert all(float(end) - float(begin) > 100 for begin, end in paths)


def test_ticks_of_an_axis_have_different_texts() -> None:
    for low, high in ((-1.4116291, -1.4116290), (53.57, 53.570001), (1e9, 1e9 + 3), (2.0, 2.0), (0.0, 1.0)):
        texts = [text for _, text in charts._Axis([low, high], 0.0, 100.0).labels()]
        assert len({*texts}) == len(texts) > 1


def test_runs_batches_and_jobs(tmp_path: Path) -> None:
    bucketflow.solve(bucketflow.load("satellite"), workdir=tmp_path / "run")
    (tmp_path / "list.csv").write_text("model\nsatellite\n")
    job = {"id": "a-1", "state": "running", "share": 0.5, "peak_bytes": 2_000, "lower": None}
    for found, shown in (
        (printed("inspect", str(tmp_path / "run")), "Run"),
        (printed("batch", str(tmp_path / "list.csv"), "--out", str(tmp_path / "out")), "Batch"),
        ([job, {**job, "id": "a-2"}], "Jobs"),
        ({"job": "a-1", "directory": "/runs/a", "price": {"width": "8"}}, "Job"),
    ):
        report(written(tmp_path, found), tmp_path / "page.html")
        assert headings(tmp_path / "page.html")[0] == shown


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in an object; of lists the first members."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, member in inside:
        yield from places(member, (*at, key))


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """The object with another value at a place; left out where that is ``...``."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(at) == 1 and new is ...:
        del copy[at[0]]
    elif len(at) == 1:
        copy[at[0]] = new
    else:
        copy[at[0]] = changed(copy[at[0]], at[1:], new)
    return copy


@pytest.mark.parametrize(
    ("kind", "every"), [("solve", 97), ("marginals", 37), ("bound", 37), ("dpop", 211), ("plan", 7)]
)
def test_whatever_is_damaged_is_one_sentence(tmp_path: Path, kind: str, every: int) -> None:
    """A value of another type somewhere, or a name that is missing: a page, or what is wrong and where."""
    good = printed("plan", "fields") if kind == "plan" else small(kind)
    cases = [(at, new) for at in places(good) for new in (*STRANGE, ...) if at or new is not ...]
    refused: list[str] = []
    for at, new in cases[::every]:
        path = written(tmp_path, changed(good, at, new))
        try:
            report(path, tmp_path / "page.html")
        except bucketflow.FormatError as error:
            refused.append(str(error))
    assert all(text.startswith(f"{tmp_path}/found.json: expected ") and "\n" not in text for text in refused)
    assert len(refused) > (0 if kind == "plan" else len(cases) // every // 4)


@pytest.mark.parametrize(
    ("at", "new", "sentence"),
    [
        (("seconds", "run"), "x", 'expected a number for seconds.run, found "x"'),
        (("seconds",), 3, "expected names with values for seconds, found 3"),
        (("peak_rss_bytes",), ..., "expected peak_rss_bytes, found nothing"),
        (("notes",), "a note", 'expected a list for notes, found "a note"'),
        (("proof", "history"), [[1, 2]], "expected a list of 3 for proof.history[0], found [1, 2]"),
        (("proof", "tried"), {"rows": True}, "expected a number for proof.tried.rows, found true"),
        (("assignment",), {"x0": 1.5}, "expected a state for assignment.x0, found 1.5"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(at: tuple[str, ...], new: Any, sentence: str) -> None:
    ANSWER(small("solve"), "")
    with pytest.raises(ShapeError, match=re.escape(sentence)):
        ANSWER(changed(small("solve"), at, new), "")


def test_a_damaged_summary_of_a_batch_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("model\nsatellite\n")
    bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")
    good = (tmp_path / "out" / "summary.csv").read_text(), (tmp_path / "out" / "summary.json").read_text()
    refused: list[str] = []
    damaged = (
        (good[0], "[]"),
        (good[0], "3"),
        (good[0], "{"),
        ("", good[1]),
        ("row\n1\n", good[1]),
        (good[0].replace("\n1,", "\none,"), good[1]),
    )
    for table, summary in damaged:
        (tmp_path / "out" / "summary.csv").write_text(table)
        (tmp_path / "out" / "summary.json").write_text(summary)
        try:
            report(tmp_path / "out", tmp_path / "page.html")
        except bucketflow.BucketflowError as error:
            refused.append(str(error))
    assert len(refused) >= 4
    assert all(text.startswith(f"{tmp_path / 'out'} cannot be read: ") for text in refused)
