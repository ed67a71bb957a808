"""Tables of papers beside ours, on a stand-in paper whose answers brute force knows."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import BucketflowError, Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cli.show_run import fitted, show
from bucketflow.pipeline.drawings.html import Grid, page
from bucketflow.pipeline.examples import example_path
from bucketflow.pipeline.reproduce.comparison import (
    ComparedRow,
    ComparedTable,
    Comparison,
    Ended,
    compared,
    listing,
    within,
    write,
)
from bucketflow.pipeline.reproduce.experiments import INFEASIBLE, Measured, mean_of
from bucketflow.pipeline.reproduce.paper_tables import PAPERS, paper
from bucketflow.pipeline.reproduce.papers import Instances, Paper, PaperRow, PaperTable, Ratio, Way
from tests.models import brute_optimum


def cycle() -> Model:
    """Seven variables of four states around a cycle, with random costs."""
    rng = np.random.default_rng(3)
    names = [f"v{k}" for k in range(7)]
    functions = [([names[k], names[(k + 1) % 7]], rng.integers(1, 50, (4, 4))) for k in range(7)]
    return Model.build("cost", dict.fromkeys(names, 4), functions)


BEST = int(brute_optimum(cycle(), {}))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Instances: one at its place, packed, and one anywhere under its name."""
    (tmp_path / "data" / "deep" / "er").mkdir(parents=True)
    bucketflow.save(cycle(), tmp_path / "data" / "cycle.wcsp.gz")
    bucketflow.save(cycle(), tmp_path / "data" / "deep" / "er" / "other.wcsp")
    (tmp_path / "data" / "net.bif").write_bytes(Path(example_path("diagnosis")).read_bytes())
    return tmp_path / "data"


ANY = Way("any", "optimum", {"answer": "optimum", "seconds": "any engine s"})
WIDTH = Way("width", "width", {"width": "w*"})
CORE = Way("core", "optimum", {"seconds": "one core s"}, {"method": "dense", "threads": 1})
GPU = Way("gpu", "optimum", {"seconds": "one GPU s"}, {"method": "dense"}, gpu=True)
Z = Way("z", "bound", {"lower": "lower", "quality": "lower / optimum", "seconds": "one core s"})
NET = Way("net", "propagation", {"cliques": "cliques", "seconds": "one core ms"}, {"tree": "junction", "threads": 1})
AGENTS = Way("agents", "agents", {"agents": "agents", "load": "network load", "seconds": "DPOP s"})


def optima() -> PaperTable:
    """Optima of three instances, of which one is missing and one has another known optimum."""
    rows = (
        PaperRow("cycle", {"instance": "cycle", "hand s": 80.0, "oom": "oom"}, ("cycle.wcsp",), BEST),
        PaperRow("other", {"instance": "other", "hand s": None, "oom": 1234}, ("wcsp/other.wcsp",), BEST + 1),
        PaperRow("gone", {"instance": "gone", "hand s": 1.50001, "oom": "–"}, ("gone.wcsp", "lost.wcsp")),
    )
    ratios = (Ratio("hand / one core", "hand s", "core"), Ratio("core / GPU", "core", "gpu"))
    first = "instance | theirs: hand s | ours: one core s | checked"
    return PaperTable(
        "Optima", ("instance", "hand s", "oom"), rows, (ANY, WIDTH, CORE, GPU), ratios, first, ("by hand",)
    )


def stand_in() -> Paper:
    """A paper about these instances, with published figures that are made up."""
    cycles = tuple(PaperRow("cycle", {}, ("cycle.wcsp",), BEST, z=z, extra=z > 1) for z in (1, 3))
    network = PaperRow("net", {"network": "net", "slate ms": 5}, ("net.bif",))
    slate = Ratio("slate / ours", "slate ms", "net")
    grid = {"kind": "grid", "variables": 4, "domain": 3, "tightness": 0.2}
    point = PaperRow("n=2", {"n": 2, "hand s": 1}, problem=grid)
    tables = (
        optima(),
        PaperTable("Bounds", (), cycles, (Z,), first="instance | z | ours: lower | checked"),
        PaperTable("Networks", ("network", "slate ms"), (network,), (NET,), (slate,)),
        PaperTable("Agents", ("n", "hand s"), (point, point), (ANY, AGENTS)),
        PaperTable("Text", ("statement", "value"), (PaperRow("a", {"statement": "a", "value": "9 to 10"}),)),
    )
    return Paper("abacus", "On <counting>", "abacus", ("faster than fingers",), "Ours has no beads.", tables)


@pytest.fixture
def found(folder: Path) -> Comparison:
    said: list[str] = []
    result = compared(stand_in(), Instances(folder), None, None, said.append)
    assert said[0] == "Optima: cycle"
    assert said[3:5] == ["Bounds: cycle, z=1", "Bounds: cycle, z=3"]
    return result


def column(table: ComparedTable, heading: str) -> list[str]:
    """The cells under a heading."""
    return [cells[0] for cells in table.under([heading])]


def test_theirs_and_ours_have_columns_of_their_own(found: Comparison) -> None:
    heads = [*found.tables[0].columns]
    ours = ["ours: optimum", "ours: any engine s", "ours: w*", "ours: one core s", "hand / one core", "missing file"]
    assert heads == ["instance", "theirs: hand s", "theirs: oom", *ours, "checked"]
    assert column(found.tables[0], "theirs: hand s") == ["80.0", "", "1.50001"]
    assert column(found.tables[0], "missing file") == ["", "", "gone.wcsp"]
    assert column(found.tables[0], "theirs: oom") == ["oom", "1,234", "–"]


def test_optima_are_checked_and_compared(found: Comparison) -> None:
    table = found.tables[0]
    assert column(table, "ours: optimum") == [f"{BEST}", f"{BEST}", ""]
    assert column(table, "checked") == ["right", "WRONG", "no file"]
    assert column(table, "ours: w*") == ["2", "2", ""]  # a cycle
    ours = table.rows[0].measured("core")
    assert ours is not None
    ratio = 80 / ours.figures["seconds"]
    assert column(table, "hand / one core") == [f"{ratio:,.0f}", "", ""]
    assert found.wrong == ["other"]
    assert table.reasons == ["no file: gone.wcsp or lost.wcsp"]


def test_bounds_enclose_the_optimum(found: Comparison) -> None:
    table = found.tables[1]
    assert column(table, "z") == ["1", "3"]
    assert column(table, "checked") == ["right", "right"]
    lowest, highest = (int(text) for text in column(table, "ours: lower"))
    assert lowest <= highest == BEST
    assert column(table, "ours: lower / optimum") == [f"{lowest / BEST:.3g}", f"{highest / BEST:.3g}"]


def test_propagations_are_in_milliseconds(found: Comparison) -> None:
    table = found.tables[2]
    ours = table.rows[0].measured("net")
    assert ours is not None
    assert column(table, "ours: one core ms") == [f"{1000 * ours.figures['seconds']:.3g}"]
    assert column(table, "slate / ours") == [f"{0.005 / ours.figures['seconds']:.3g}"]
    assert column(table, "ours: cliques") == [
        str(bucketflow.plan("diagnosis", "marginals", tree="junction").junction_tree.nodes)
    ]
    assert column(table, "checked") == ["right"]


def test_random_points_are_means_of_problems_that_all_ways_solve(found: Comparison) -> None:
    table = found.tables[3]
    assert column(table, "ours: agents") == ["4"] * 2
    assert column(table, "checked") == ["right"] * 2
    assert table.rows[0].ended["agents"] is table.rows[1].ended["agents"]  # a point that is repeated runs once
    drawn = [bucketflow.generate("grid", variables=4, domain=3, tightness=0.2, seed=seed) for seed in range(3)]
    runs = [bucketflow.dpop(each) for each in drawn]
    ours = table.rows[0].measured("agents")
    assert ours is not None
    assert ours.figures["load"] == pytest.approx(np.mean([each.metrics.network_load for each in runs]))
    assert ours.answers == tuple(INFEASIBLE if each.status == "infeasible" else each.value for each in runs)


def test_missing_gpus_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketflow.cluster.gpus.visible_gpus", lambda: [])
    with pytest.raises(BucketflowError, match="--gpus 1: this machine has 0"):
        compared(stand_in(), Instances(folder), "1", None, lambda text: None)


def test_tables_of_gpus_alone_need_a_gpu(folder: Path) -> None:
    table = PaperTable("Device", (), (PaperRow("cycle", {}, ("cycle.wcsp",)),), (GPU,))
    assert compared(replace(stand_in(), tables=(table,)), Instances(folder), None, None, lambda text: None).tables == ()


def measured(*answers: Any, bounds: tuple[tuple[Any, Any], ...] = (), right: bool | None = None) -> Ended:
    return Ended(Measured({"seconds": 1.0}, answers, bounds, right))


@pytest.mark.parametrize(
    ("ended", "known", "checked"),
    [
        ([measured(3)], None, ""),
        ([measured(3)], 3, "right"),
        ([measured(3)], 4, "WRONG"),
        ([measured(3, 5), measured(3, 5)], None, "right"),
        ([measured(3, 5), measured(3, 6)], None, "WRONG"),
        ([measured(3), measured(bounds=((2, 3),))], None, "right"),
        ([measured(bounds=((4, 5),))], 3, "WRONG"),
        ([measured(bounds=((1, 2),))], 3, "WRONG"),
        ([measured(bounds=((1, None),))], 3, "right"),
        ([measured(bounds=((1, 2),))], None, ""),
        ([measured(INFEASIBLE), measured(bounds=((None, None),))], None, "right"),
        ([measured(INFEASIBLE), measured(bounds=((1, 2),))], None, "WRONG"),
        ([measured(right=True)], None, "right"),
        ([measured(right=False)], None, "WRONG"),
        ([Ended(reason="> 4 s")], 3, ""),
    ],
)
def test_answers_are_checked_by_each_other(ended: list[Ended], known: int | None, checked: str) -> None:
    row = PaperRow("a", answer=known)
    assert ComparedRow(row, {str(k): each for k, each in enumerate(ended)}).checked == checked


def test_means_keep_all_answers() -> None:
    parts = [Measured({"seconds": 1.0, "by": "a"}, (3,)), Measured({"seconds": 2.0, "by": "b"}, (4,))]
    assert mean_of(parts) == Measured({"seconds": 1.5, "by": "a, b", "drawn": 2}, (3, 4))
    assert mean_of(parts[:1]) is parts[0]
    assert mean_of([parts[0], Measured({"seconds": 1.0, "by": None})]).figures == {"seconds": 1.0, "drawn": 2}


def test_results_are_stored(found: Comparison, tmp_path: Path) -> None:
    write(found, tmp_path / "a.json", tmp_path / "a.html")
    write(found, None, tmp_path / "a.md")
    stored = json.loads((tmp_path / "a.json").read_text())
    assert (stored["paper"], stored["device"], stored["time"]) == ("abacus", "abacus", None)
    first = stored["tables"][0]["rows"][0]
    assert first["published"] == {"instance": "cycle", "hand s": 80.0, "oom": "oom"}
    assert first["ours"]["core"]["figures"] == found.tables[0].rows[0].ended["core"].found.figures
    html = (tmp_path / "a.html").read_text()
    assert "On &lt;counting&gt;" in html
    assert html.count("<tr><th scope='col'>") == 5
    assert "<td>WRONG</td>" in html
    lines = (tmp_path / "a.md").read_text().splitlines()
    assert "- no figure: no file: gone.wcsp or lost.wcsp" in lines
    assert "- note: by hand" in lines
    assert next(line for line in lines if line.startswith("| cycle | ")).split(" | ")[1] == "80.0"


def test_rows_may_be_left_out() -> None:
    whole = stand_in()
    assert [len(table.rows) for table in whole.only(sample=1).tables] == [1, 1, 1, 1, 1]
    assert [len(table.rows) for table in whole.only(every=False).tables] == [3, 1, 1, 2, 1]
    assert [len(table.rows) for table in whole.only(("cycle",), every=False).tables] == [1, 2]
    assert [table.title for table in whole.only(table="ound").tables] == ["Bounds"]
    with pytest.raises(ModelError, match="abacus has no instance 'x'; there are cycle, other, gone, net, n=2, a"):
        whole.only(("x",))
    with pytest.raises(ModelError, match="abacus has no table 'zz'; its tables are 'Optima', 'Bounds'"):
        whole.only(table="zz")


def gpu_row(*, on_device: bool) -> ComparedRow:
    """A row that a GPU was allowed to answer."""
    ended = {"core": Ended(Measured({"seconds": 2.0})), "gpu": Ended(Measured({"seconds": 0.5}, on_device=on_device))}
    return ComparedRow(optima().rows[0], ended)


def test_a_column_of_gpus_has_no_seconds_of_cores() -> None:
    table = ComparedTable(optima(), (gpu_row(on_device=False), gpu_row(on_device=True)))
    assert column(table, "ours: one GPU s") == ["cores", "0.5"]
    assert column(table, "core / GPU") == ["", "4"]


@pytest.mark.parametrize("name", PAPERS)
def test_a_terminal_shows_columns_that_fit(name: str, monkeypatch: Any, capsys: Any) -> None:
    """With the longest cells of ours, all first columns of all tables fit 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    figures = {"seconds": 123.4, "width": 15.33, "agent width": 15.33, "load": 123456789, "answer": 459106}
    figures |= {"lower": 459106, "upper": 459106, "quality": 0.123, "ratio": 0.123, "preprocessing": 1.234}
    figures |= {"cliques": 1044, "most": 38400000, "mean": 512044, "separator": 2400000, "drawn": 3, "by": "x"}
    for each in paper(name).tables:
        others = {key: 1.234 for way in each.ways for key in way.shown}
        longest = Ended(Measured(others | figures, (), (), True, True))
        rows = tuple(ComparedRow(row, {way.name: longest for way in each.ways}) for row in each.rows)
        table = ComparedTable(each, rows)
        headings = table.first_columns
        show(fitted(each.title, headings, table.under(headings), headings[1:-1]))
        shown = capsys.readouterr().out.splitlines()
        assert max(map(len, shown)) <= 80, each.title
        assert not any("not shown" in line for line in shown), each.title
        assert table.first_columns == each.first.split(" | "), each.title


@pytest.mark.parametrize("name", PAPERS)
def test_papers_are_whole(name: str) -> None:
    found = paper(name)
    launches = [way for table in found.tables for way in table.ways if way.experiment == "launches"]
    for table in found.tables:
        assert table.rows
        assert len({way.name for way in table.ways}) == len(table.ways)
        ways = {way.name for way in table.ways}
        for ratio in table.ratios:
            assert ratio.below in ways
            assert ratio.above in (*ways, *table.columns)
        for row in table.rows:
            assert len(row.files) == 0 or not row.problem
            assert (
                not table.ways or row.files or row.problem or all(way.problem or way in launches for way in table.ways)
            )
            assert all(not Path(file).is_absolute() and Path(file).suffix not in (".gz", ".xz") for file in row.files)
    assert listing([found])[0] == (name, found.title)
    assert len(listing([found])) == 1 + len(found.tables)


def test_published_figures_have_the_ratios_that_the_paper_prints() -> None:
    """Those of Gottoli & Pettenuzzo, table 2, printed there beside the milliseconds."""
    (table,) = paper("gottoli").tables
    columns = ("speed-up", "CPU ms", "GPU ms"), ("scatt. speed-up", "CPU scatt. ms", "GPU scatt. ms")
    for speed_up, above, below in columns:
        for row in table.rows:
            if (row.instance, speed_up) == ("munin1", "scatt. speed-up"):
                continue  # it prints 10.86, although 3425 / 295 is 11.61
            numerator, denominator, printed = (float(row.published[key] or 0) for key in (above, below, speed_up))
            assert numerator / denominator == pytest.approx(printed, abs=1.5e-3), row.instance


def once(call: Callable[..., Any], *arguments: Any) -> list[Callable[[], Any]]:
    """One call."""
    return [partial(call, *arguments)]


def several(count: int) -> list[Callable[[], Any]]:
    """Quick calls, and then a slow one."""
    return [*(partial(abs, k) for k in range(count)), partial(time.sleep, 60)]


def test_calls_end_when_their_time_is_over() -> None:
    assert within(0.2, once, time.sleep, 60) == [Ended(reason="> 0.2 s")]
    assert within(5, several, 2) == [Ended(0), Ended(1), Ended(reason="> 5 s")]
    assert within(60, once, os._exit, 3) == [Ended(reason="ended with code 3")]
    assert within(60, once, math.factorial, 5) == [Ended(120)]
    assert within(None, once, math.factorial, 5) == [Ended(120)]
    refused = [Ended(reason="refused: unknown kind 'x'; one of random, grid, scale-free, coloring, meetings")]
    assert within(None, once, bucketflow.generate, "x") == within(60, once, bucketflow.generate, "x") == refused


def test_other_models_under_the_name_of_an_instance_are_refused(folder: Path) -> None:
    row = PaperRow("cycle", {"instance": "cycle", "n": 8}, ("cycle.wcsp",), BEST)
    table = PaperTable("Optima", ("instance", "n"), (row,), (CORE,))
    found = compared(replace(stand_in(), tables=(table,)), Instances(folder), None, None, lambda text: None)
    (reason,) = found.tables[0].reasons
    assert reason.startswith("cycle (core): refused: ")
    assert reason.endswith("cycle.wcsp.gz has 7 variables, but the instance of the paper has 8")
    assert found.tables[0].rows[0].checked == ""


def test_folders_of_instances_exist(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no folder of instances"):
        Instances(tmp_path / "none")
    assert Instances(None).path("wcsp/spot5/54.wcsp") is None


def test_pages_of_cells_need_no_figures() -> None:
    text = page("t", [("cells", Grid(("a<", "b"), (("1", "2&"),)))])
    assert "<th scope='col'>a&lt;</th><th scope='col'>b</th>" in text
    assert "<td>1</td><td>2&amp;</td>" in text
    assert "<script" not in text


def spot54(folder: Path, cost: int) -> None:
    """A model under the name of a paper's instance, with as many variables."""
    (folder / "wcsp" / "spot5").mkdir(parents=True)
    model = Model.build(
        "cost",
        {"a": 2, "b": 2} | {f"free{k}": 2 for k in range(65)},
        [(["a", "b"], [[cost, cost + 5], [cost + 3, cost + 9]])],
    )
    bucketflow.save(model, folder / "wcsp" / "spot5" / "54.wcsp")


@pytest.mark.parametrize(("cost", "code", "checked"), [(37, 0, "right"), (36, 1, "WRONG")])
def test_the_command(tmp_path: Path, cost: int, code: int, checked: str) -> None:
    spot54(tmp_path, cost)
    command = ["reproduce", "cube", "--only", "54", "--only", "42b", "--data", str(tmp_path)]
    done = CliRunner().invoke(main, [*command, "--time", "60", "--out", str(tmp_path / "a.json")])
    assert done.exit_code == code, done.output
    assert "no file: wcsp/spot5/42b.wcsp or wcsp/spot5_orig/42b.wcsp" in done.output
    assert ("not the known answer: 54" in done.output) == bool(code)
    rows = json.loads((tmp_path / "a.json").read_text())["tables"][0]["rows"]
    assert [row["checked"] for row in rows] == [checked, "no file"]
    assert rows[0]["ours"]["core"]["answers"] == [cost]


@pytest.mark.parametrize(("arguments", "all_columns"), [((), False), (("--columns", "all"), True)])
def test_piped_output_is_markdown(tmp_path: Path, arguments: tuple[str, ...], all_columns: bool) -> None:
    spot54(tmp_path, 37)
    command = ["reproduce", "cube", "--only", "54", "--data", str(tmp_path), "--time", "60", *arguments]
    done = CliRunner().invoke(main, command)
    heads = [line for line in done.stdout.splitlines() if line.startswith("| instance | ")]
    assert len(heads) == 1
    assert ("| ours: engine |" in heads[0]) == all_columns
    assert "| ours: one core, dense s |" in heads[0]
    assert "GPU s" not in heads[0].replace("theirs: GPU s", "")


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    def said(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["reproduce", *arguments])
        return done.exit_code, done.output

    assert said("tubes") == (2, f"bucketflow: no paper 'tubes'; one of {', '.join(PAPERS)}\n")
    assert said("cube", "--data", str(tmp_path / "none"))[0] == 2
    assert said("cube", "--page", "x.pdf") == (2, "bucketflow: a page is written to a file .html or .md, not 'x.pdf'\n")
    assert said("tubes", "--list") == said("tubes")
    for unused in (("--page", "x.html"), ("cube", "--list", "--page", "x.html")):
        code, told = said(*unused)
        assert code == 2
        assert told.endswith("--page applies to a single paper: give its NAME, and leave out --list\n")
    code, listed = said("--list")
    assert code == 0
    assert all(name in listed for name in PAPERS)
    assert "Table 10: SPOT5: 24 rows, 426 published numbers" in " ".join(listed.split())
