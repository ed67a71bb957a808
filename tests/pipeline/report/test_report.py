"""Pages about runs, batches and answers: they hold what they show, and need no network."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import ModelError
from bucketflow.pipeline.answering.bound_listeners import History
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.drawings import charts
from bucketflow.pipeline.drawings.html import Html
from bucketflow.pipeline.drawings.svg import Svg
from bucketflow.pipeline.report.report import report
from bucketflow.pipeline.results.bounds import Bounds
from bucketflow.pipeline.results.dpop_result import DpopResult
from bucketflow.storage import ledger
from tests.full_disk import files_of_at_most
from tests.models import grid


@pytest.fixture(scope="module")
def spilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that had its tables on disk."""
    folder = tmp_path_factory.mktemp("runs")
    bucketflow.save(grid(9, 9, 4), folder / "grid.wcsp")
    model = bucketflow.load(folder / "grid.wcsp")
    plan = bucketflow.plan(model, tree="bucket")
    assert plan is not None
    options: dict[str, Any] = {"tree": "bucket", "fit": "spill", "memory": plan.peak_bytes // 4, "method": "dense"}
    bucketflow.solve(model, workdir=folder / "run", **options)
    return folder / "run"


STEPS = ["Steps: predicted and measured", "All steps"]


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an optimum on which bounds closed."""
    folder = tmp_path_factory.mktemp("proved")
    bucketflow.save(grid(6, 6, 3), folder / "grid.wcsp")
    bucketflow.solve(bucketflow.load(folder / "grid.wcsp"), method="search", workdir=folder / "run")
    return folder / "run"


def headings(page: Path) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page.read_text())


def test_a_run(spilled: Path, tmp_path: Path) -> None:
    report(spilled, tmp_path / "page.html")
    page = tmp_path / "page.html"
    shown = ["Question", "Answer", "Plan", "Tree", "Predicted and measured", *STEPS, "Work", "Timeline", "Origin"]
    assert headings(page) == shown
    text = page.read_text()
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=['\"]?http", text)
    assert "eliminates x" in text


@pytest.mark.parametrize("fit", ["refuse", "slice"])
def test_steps_of_runs_in_memory(tmp_path: Path, fit: str) -> None:
    """Every step is there, as often as it was done, with what was predicted and what it took."""
    bucketflow.save(grid(7, 7, 4), tmp_path / "grid.wcsp")
    model = bucketflow.load(tmp_path / "grid.wcsp")
    plan = bucketflow.plan(model)
    assert plan is not None
    memory = plan.peak_bytes // 3 if fit == "slice" else None
    done = bucketflow.solve(model, fit=fit, memory=memory, workdir=tmp_path / "run", method="dense").plan
    assert done is not None
    report(tmp_path / "run", tmp_path / "page.html")
    assert set(STEPS) < set(headings(tmp_path / "page.html"))
    told: list[Any] = [receipt.steps for receipt in ledger.load(tmp_path / "run" / "tables").values()]
    told = told or [json.loads((tmp_path / "run" / "result.json").read_text())["steps"]]
    times = Counter({int(node): 0 for steps in told for node in steps})
    for steps in told:
        times.update({int(node): often for node, (_, often) in steps.items()})
    assert times == {s.node: 1 if k < done.variant_from else done.slices for k, s in enumerate(done.steps)}
    assert all(seconds > 0 for steps in told for seconds, _ in steps.values())


def test_bounds_over_time(proved: Path, tmp_path: Path) -> None:
    report(proved, tmp_path / "page.html")
    assert "Convergence" in headings(tmp_path / "page.html")
    history = json.loads((proved / "result.json").read_text())["proof"]["history"]
    assert history == sorted(history, key=lambda point: point[0])
    lower, upper = ([point[k] for point in history if point[k] is not None] for k in (1, 2))
    assert (lower, upper) == (sorted(lower), sorted(upper, reverse=True))
    answer = bucketflow.solve(grid(6, 6, 3), method="dense").value
    assert lower[-1] == upper[-1] == answer
    found = bucketflow.solve(grid(6, 6, 3), method="search")
    assert (found.plot().markup.count("<svg"), found.plot().markup.count("<caption")) == (1, 1)
    (tmp_path / "bound.json").write_text(bucketflow.bound(grid(6, 6, 3), z=2).to_json())
    report(tmp_path / "bound.json", tmp_path / "bound.html")
    assert headings(tmp_path / "bound.html") == ["Answer", "Convergence"]


def test_bounds_go_on_where_an_earlier_run_ended(tmp_path: Path) -> None:
    history = History([(1.5, 3, None)])
    history.begun -= 1.0
    for lower, total in [(4, None), (4, None), (5, 9)]:
        history.add(lower, total)
    found = history.points(lambda least: Bounds("optimum", "bounded", lower=least))
    assert [point[1:] for point in found] == [(3, None), (4, None), (5, 9)]
    assert found[1][0] >= 2.5
    for lower in range(10_000):
        history.add(lower, None)
    many = history.points(lambda least: Bounds("optimum", "bounded", upper=-least))
    assert len(many) < 250
    assert many[-1][1:] == (None, -9999)


def test_a_run_whose_model_is_gone(spilled: Path, tmp_path: Path) -> None:
    shutil.copytree(spilled, tmp_path / "run")
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["source"]
    hidden = Path(plan["source"])
    hidden.rename(hidden.with_suffix(".hidden"))
    try:
        report(tmp_path / "run", tmp_path / "page.html")
    finally:
        hidden.with_suffix(".hidden").rename(hidden)
    assert "not shown" in (tmp_path / "page.html").read_text()


def test_answers_and_batches(tmp_path: Path) -> None:
    found = bucketflow.marginals(bucketflow.load("diagnosis"))
    (tmp_path / "answer.json").write_text(found.to_json())
    report(tmp_path / "answer.json", tmp_path / "answer.html")
    assert headings(tmp_path / "answer.html") == ["Answer", "Network", "Marginals", "Origin"]
    (tmp_path / "list.csv").write_text("model,query\nsatellite,\nnowhere.uai,\n")
    bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")
    report(tmp_path / "out", tmp_path / "batch.html")
    assert headings(tmp_path / "batch.html") == ["Summary", "Models", "Rows"]


@pytest.mark.parametrize(
    "question", ["--entropy Flow", "--mutual Flow:Storm", "--relevant Flow", "--conflict", "--conditional Flow|Storm"]
)
def test_every_measure_has_a_page(question: str, tmp_path: Path) -> None:
    asked = ["marginals", "diagnosis", *question.split(), "--evidence", "WetWellLevel=high", "--json"]
    (tmp_path / "a.json").write_text(CliRunner().invoke(main, asked).stdout)
    report(tmp_path / "a.json", tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "{'" not in text
    assert ("Flow=reduced" in text) == ("conditional" in question)


def test_marginals_show_the_network_and_end_with_the_path(tmp_path: Path) -> None:
    found = bucketflow.marginals("diagnosis", evidence={"Storm": "yes"})
    (tmp_path / "a.json").write_text(found.to_json())
    report(tmp_path / "a.json", tmp_path / "a.html")
    assert headings(tmp_path / "a.html") == ["Answer", "Network", "Marginals", "Origin"]
    text = (tmp_path / "a.html").read_text()
    assert "26 variables" in text
    assert "The first" not in text
    gone = found.to_dict()
    gone["model"]["source"] = str(tmp_path / "gone.bif")
    (tmp_path / "a.json").write_text(json.dumps(gone))
    report(tmp_path / "a.json", tmp_path / "a.html")
    assert headings(tmp_path / "a.html") == ["Answer", "Marginals", "Origin"]


def test_answers_of_agents(tmp_path: Path) -> None:
    problem = bucketflow.generate("random", variables=9, domain=3, seed=4)
    found = bucketflow.dpop(problem)
    assert any(found.pseudo_parents.values())
    (tmp_path / "a.json").write_text(found.to_json())
    assert DpopResult.from_dict(json.loads(found.to_json())).metric_rows() == found.metric_rows()
    report(tmp_path / "a.json", tmp_path / "a.html")
    assert headings(tmp_path / "a.html") == ["Answer", "Metrics", "Pseudo-tree", "Agents", "Load by link"]
    text = (tmp_path / "a.html").read_text()
    assert all(f"<title>{name}</title>" in text for name in found.parents)
    (sender, parent), *_ = [(child, above) for child, above in found.parents.items() if above is not None]
    links = found.metrics.link_bytes
    assert f"{sender} - {parent}: {links[sender, parent] + links[parent, sender]:,} bytes" in text
    assert "class='through'" in text  # dashed
    assert "checks (NCCC)" in text


def test_damaged_answers_of_agents_are_refused(tmp_path: Path) -> None:
    found = bucketflow.dpop(bucketflow.generate("grid", variables=4, domain=2, seed=1)).to_dict()
    first, second, *_ = found["parents"]
    parents = dict.fromkeys(found["parents"], first) | {first: second}  # a circle, and no root
    for damaged in ({"metrics": {}}, {"parents": {"a": "b"}}, {"parents": parents}, {"pseudo_parents": []}):
        (tmp_path / "a.json").write_text(json.dumps({**found, **damaged}))
        with pytest.raises(bucketflow.FormatError, match="a damaged one"):
            report(tmp_path / "a.json", tmp_path / "a.html")


@pytest.mark.parametrize(("text", "found"), [("{", "something else"), ("{}", "other JSON"), ("[3]", "other JSON")])
def test_what_is_no_answer_is_refused(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "answer.json").write_text(text)
    with pytest.raises(bucketflow.FormatError, match=found):
        report(tmp_path / "answer.json", tmp_path / "page.html")
    with pytest.raises(bucketflow.BucketflowError, match="not a run directory"):
        report(tmp_path, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_figures_of_answers_and_plans() -> None:
    result = bucketflow.solve(bucketflow.load("grid"))
    assert result.plan is not None
    figures: list[Html | Svg] = [result.plot(), result.plan.plot(), bucketflow.marginals("diagnosis").plot()]
    assert all("<svg" in figure.markup or "class='b'" in figure.markup for figure in figures)
    assert doctest.testmod(charts).failed == 0


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
@pytest.mark.parametrize(("run", "figures"), [("spilled", 2), ("proved", 1)])
def test_a_browser_draws_it(run: str, figures: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What is drawn is in the page, without the network and, but for sorting, without scripts."""
    report(request.getfixturevalue(run), tmp_path / "page.html")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom"]
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    command = [
        "chromium",
        *options,
        offline,
        f"--user-data-dir={tmp_path / 'profile'}",
        (tmp_path / "page.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert len(re.findall(r"<svg ", done.stdout)) == figures
    assert (tmp_path / "page.html").stat().st_size < 1_000_000


def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bucketflow", "report", str(tmp_path), "-o", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    answer, page = tmp_path / "answer.json", tmp_path / "page.html"
    answer.write_text(json.dumps(bucketflow.solve(bucketflow.load("satellite")).to_dict()))
    with files_of_at_most(100), pytest.raises(ModelError, match=f"cannot write {page}: file too large"):
        report(answer, page)
    assert list(tmp_path.iterdir()) == [answer]
