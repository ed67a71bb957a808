"""Tables of papers beside ours, on a stand-in paper whose answers brute force knows."""

from __future__ import annotations

import json
import math
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.drawings.pages import Grid, page
from bucketflow.pipeline.examples import example_path
from bucketflow.pipeline.reproduce.comparison import ComparedRow, ComparedTable, Comparison, compared, listing, write
from bucketflow.pipeline.reproduce.experiments import Measured
from bucketflow.pipeline.reproduce.papers import PAPERS, Instances, PaperRow, paper, read_paper
from bucketflow.pipeline.reproduce.timed_call import Ended, within
from tests.models import brute_optimum


def cycle() -> Model:
    """Seven variables of four states around a cycle, with random costs."""
    rng = np.random.default_rng(3)
    names = [f"v{k}" for k in range(7)]
    functions = [([names[k], names[(k + 1) % 7]], rng.integers(1, 50, (4, 4))) for k in range(7)]
    return Model.build("cost", dict.fromkeys(names, 4), functions)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Instances: one at its place, packed, and one anywhere under its name."""
    (tmp_path / "data" / "deep" / "er").mkdir(parents=True)
    bucketflow.save(cycle(), tmp_path / "data" / "cycle.wcsp.gz")
    bucketflow.save(cycle(), tmp_path / "data" / "deep" / "er" / "other.wcsp")
    (tmp_path / "data" / "net.bif").write_bytes(Path(example_path("diagnosis")).read_bytes())
    return tmp_path / "data"


def stand_in(path: Path, **more: Any) -> Path:
    """A paper's file about these instances, with published figures that are made up."""
    best = int(brute_optimum(cycle(), {}))  # type: ignore[arg-type]
    common = {"source": "made up", "missing": ["seconds of the abacus"]}
    optima = [
        {"instance": "cycle", "files": ["cycle.wcsp"], "answer": best, "published": {"gpu_s": 80.0, "range": [2, 3]}},
        {"instance": "other", "files": ["wcsp/other.wcsp"], "answer": best + 1},
        {"instance": "gone", "files": ["gone.wcsp", "lost.wcsp"], "published": {"gpu_s": 1.5}},
    ]
    columns = {"gpu_s": "abacus s", "range": "both"}
    bounds = [{"instance": "cycle", "files": ["cycle.wcsp"], "answer": best}]
    networks = [{"instance": "net", "files": ["net.bif"], "published": {"gpu_ms": 5}}]
    tables = [
        {"title": "Optima", "kind": "optimum", "columns": columns, "against": "gpu_s", **common, "rows": optima},
        {"title": "Bounds", "kind": "bound", "columns": {}, **common, "z": [1, 3], "rows": bounds},
        {
            **{"title": "Networks", "kind": "propagation", "columns": {"gpu_ms": "slate ms"}, "against": "gpu_ms"},
            **{**common, "rows": networks},
        },
        {
            **{"title": "Agents", "kind": "agents", "columns": {}, **common},
            "series": [{"kind": "grid", "variables": [4, 9], "domain": [3], "z": [None, 2], "tightness": [0.2]}],
        },
    ]
    about = {
        "paper": "On <counting>",
        "device": "abacus",
        "claims": ["faster than fingers"],
        "apart": "Ours has no beads.",
    }
    path.write_text(json.dumps({**about, "tables": tables, **more}))
    return path


@pytest.fixture
def found(tmp_path: Path, folder: Path) -> Comparison:
    said: list[str] = []
    result = compared(read_paper(stand_in(tmp_path / "abacus.json")), Instances(folder), None, None, said.append)
    assert said[0] == "Optima: cycle"
    assert said[3:5] == ["Bounds: cycle, z=1", "Bounds: cycle, z=3"]
    return result


def column(table: ComparedTable, heading: str) -> list[str]:
    """The cells under a heading, which may say first whose figures they are."""
    (place,) = [k for k, name in enumerate(table.columns) if name.partition(": ")[2] == heading or name == heading]
    return [cells[place] for cells in table.cells]


def test_columns_say_whose_figures_they_are(found: Comparison) -> None:
    assert {"theirs: abacus s", "theirs: both", "ours: optimum", "ours: CPU s"} <= {*found.tables[0].columns}


def test_optima_are_checked_and_compared(found: Comparison) -> None:
    table, best = found.tables[0], int(brute_optimum(cycle(), {}))  # type: ignore[arg-type]
    assert column(table, "optimum") == [f"{best}", f"{best}", ""]
    assert column(table, "known") == [f"{best}", f"{best + 1}", ""]
    assert column(table, "checked") == ["right", "WRONG", "no file"]
    assert column(table, "abacus s") == ["80", "", "1.5"]
    assert column(table, "both") == ["2–3", "", ""]
    ours = table.rows[0].measured("cpu")
    assert ours is not None
    assert column(table, "paper / CPU") == [f"{80 / ours.seconds:.3g}", "", ""]
    assert "ours: GPU s" not in table.columns
    assert found.wrong == ["other"]
    assert table.reasons == ["gone: no file gone.wcsp or lost.wcsp was found"]


def test_bounds_enclose_the_optimum(found: Comparison) -> None:
    table, best = found.tables[1], int(brute_optimum(cycle(), {}))  # type: ignore[arg-type]
    assert column(table, "z") == ["1", "3"]
    assert column(table, "checked") == ["right", "right"]
    lowest, highest = (int(text) for text in column(table, "lower"))
    assert lowest <= highest == best
    assert column(table, "lower / optimum") == [f"{lowest / best:.3g}", f"{highest / best:.3g}"]


def test_propagations_are_in_milliseconds(found: Comparison) -> None:
    table = found.tables[2]
    ours = table.rows[0].measured("cpu")
    assert ours is not None
    assert column(table, "CPU ms") == [f"{1000 * ours.seconds:.3g}"]
    assert column(table, "paper / CPU") == [f"{0.005 / ours.seconds:.3g}"]
    assert column(table, "checked") == ["right"]


def test_agents_solve_problems_that_are_drawn(found: Comparison) -> None:
    table = found.tables[3]
    assert column(table, "agents") == ["4", "4", "9", "9"]
    assert column(table, "z") == ["", "2", "", "2"]
    assert column(table, "checked") == ["right"] * 4
    for row in table.rows:
        drawn = bucketflow.generate(**row.row.problem)
        metrics = bucketflow.dpop(drawn, z=row.row.z).metrics
        assert row.ours is not None
        assert row.ours.figures["load"] == metrics.network_load
        assert row.ours.figures["messages"] == metrics.total_messages
        assert row.row.problem["tightness"] == 0.2


def test_what_was_found_is_kept(found: Comparison, tmp_path: Path) -> None:
    write(found, tmp_path / "a.json", tmp_path / "a.html")
    write(found, None, tmp_path / "a.md")
    kept = json.loads((tmp_path / "a.json").read_text())
    assert (kept["paper"], kept["device"], kept["time"]) == ("abacus", "abacus", None)
    first = kept["tables"][0]["rows"][0]
    assert first["published"] == {"gpu_s": 80.0, "range": [2, 3]}
    assert first["ours"]["cpu"]["seconds"] == found.tables[0].rows[0].ended["cpu"].found.seconds
    html = (tmp_path / "a.html").read_text()
    assert "On &lt;counting&gt;" in html
    assert html.count("<tr><th scope='col'>instance</th>") == 4
    assert "<td>WRONG</td>" in html
    lines = (tmp_path / "a.md").read_text().splitlines()
    assert "- no result: gone: no file gone.wcsp or lost.wcsp was found" in lines
    assert next(line for line in lines if line.startswith("| cycle | ")).split(" | ")[2] == "80"


def test_rows_may_be_left_out(tmp_path: Path) -> None:
    whole = read_paper(stand_in(tmp_path / "abacus.json"))
    assert [len(table.rows) for table in whole.only((), 1).tables] == [1, 1, 1, 1]
    assert [table.title for table in whole.only(("cycle",), None).tables] == ["Optima", "Bounds"]
    with pytest.raises(ModelError, match="abacus has no instance 'x'; there are cycle, other, gone, net, grid"):
        whole.only(("x",), None)


def gpu_row(*, on_device: bool) -> ComparedRow:
    """A row that a GPU was allowed to answer."""
    ended = {place: Ended(Measured(0.5, {"answer": 3}, True, on_device and place == "gpu")) for place in ("cpu", "gpu")}
    return ComparedRow(PaperRow("a", (), 3, {"gpu_s": 2.0}), ended)


def test_a_column_of_gpus_has_no_seconds_of_cores(tmp_path: Path) -> None:
    about = read_paper(stand_in(tmp_path / "abacus.json")).tables[0]
    table = ComparedTable(about, (gpu_row(on_device=False), gpu_row(on_device=True)))
    assert column(table, "GPU s") == ["cores", "0.5"]
    assert column(table, "paper / GPU") == ["", "4"]
    assert column(table, "CPU / GPU") == ["", "1"]


def test_a_terminal_shows_few_columns(tmp_path: Path, found: Comparison) -> None:
    for table in found.tables:
        first = table.first_columns
        assert first[0] == "instance"
        assert first[-1] == "checked"
        assert {*first} < {*table.columns}
        rows = [first, *table.under(first)]
        assert sum(2 + max(map(len, cells)) for cells in zip(*rows, strict=True)) <= 80
    short, whole = found.to_markdown(every=False), found.to_markdown()
    assert "| theirs: abacus s |" in short
    assert "both" not in short
    assert "| theirs: both |" in whole


@pytest.mark.parametrize(("arguments", "all_columns"), [((), False), (("--columns", "all"), True)])
def test_piped_output_is_markdown(tmp_path: Path, arguments: tuple[str, ...], all_columns: bool) -> None:
    spot54(tmp_path, 37)
    command = ["reproduce", "cube", "--only", "54", "--data", str(tmp_path), "--time", "60", *arguments]
    done = CliRunner().invoke(main, command)
    heads = [line for line in done.stdout.splitlines() if line.startswith("| instance | ")]
    assert len(heads) == 1
    assert ("| ours: by |" in heads[0]) == all_columns
    assert "| ours: CPU s |" in heads[0]


@pytest.mark.parametrize("text", ["{}", "[]", "x", '{"paper": 1, "tables": [{"kind": "odd"}]}'])
def test_other_files_are_no_papers(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ModelError, match=r"p\.json is not a paper"):
        read_paper(tmp_path / "p.json")


@pytest.mark.parametrize("name", PAPERS)
def test_papers_that_ship_are_whole(name: str) -> None:
    found = paper(name)
    for table in found.tables:
        assert table.source
        assert table.missing
        assert table.rows
        assert len({(row.instance, row.z) for row in table.rows}) == len(table.rows)
        used = {key for row in table.rows for key in row.published}
        assert used == set(table.columns)
        assert table.against is None or table.against in table.columns
        for row in table.rows:
            assert bool(row.files) != bool(row.problem)
            assert all(not Path(file).is_absolute() and Path(file).suffix not in (".gz", ".xz") for file in row.files)
    assert listing([found])[0] == (name, found.title)
    assert len(listing([found])) == 1 + len(found.tables)


def test_published_figures_have_the_ratios_that_the_paper_prints() -> None:
    """Those of Gottoli & Pettenuzzo, table 2, printed there beside the milliseconds."""
    printed = {
        ("cpu_ms", "gpu_ms"): (0.765, 0.353, 1.351, 0.532, 1.086, 1.796, 1.316),
        ("scatt_cpu_ms", "scatt_gpu_ms"): (11.8, 6.0, 14.194, 8.429, 16.6, None, 14.417),
        ("marg_cpu_ms", "marg_gpu_ms"): (8.0, None, 12.6, 4.361, None, None, 4.1),
    }
    (table,) = paper("gottoli").tables
    for (above, below), ratios in printed.items():
        for row, ratio in zip(table.rows, ratios, strict=True):
            if ratio is not None:  # some that it prints are not those of its milliseconds
                numerator, denominator = row.published[above], row.published[below]
                assert numerator / denominator == pytest.approx(ratio, abs=1.5e-3), row.instance  # type: ignore[operator]


def test_calls_end_when_their_time_is_over() -> None:
    assert within(0.2, partial, time.sleep, 60) == Ended(reason="> 0.2 s")
    assert within(60, partial, os._exit, 3) == Ended(reason="ended with code 3")
    assert within(60, partial, math.factorial, 5) == Ended(120)
    assert within(None, partial, math.factorial, 5) == Ended(120)
    refused = Ended(reason="refused: unknown kind 'x'; one of random, grid, scale-free, coloring, meetings")
    assert within(None, partial, bucketflow.generate, "x") == within(60, partial, bucketflow.generate, "x") == refused


def test_folders_of_instances_are_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no folder of instances"):
        Instances(tmp_path / "none")
    assert Instances(None).path(paper("cube").tables[0].rows[0]) is None


def test_pages_of_cells_need_no_figures() -> None:
    text = page("t", [("cells", Grid(("a<", "b"), (("1", "2&"),)))])
    assert "<th scope='col'>a&lt;</th><th scope='col'>b</th>" in text
    assert "<td>1</td><td>2&amp;</td>" in text
    assert "<script" not in text


def spot54(folder: Path, cost: int) -> None:
    """A model under the name of a paper's instance."""
    (folder / "wcsp" / "spot5").mkdir(parents=True)
    model = Model.build("cost", {"a": 2, "b": 2}, [(["a", "b"], [[cost, cost + 5], [cost + 3, cost + 9]])])
    bucketflow.save(model, folder / "wcsp" / "spot5" / "54.wcsp")


@pytest.mark.parametrize(("cost", "code", "checked"), [(37, 0, "right"), (36, 1, "WRONG")])
def test_the_command(tmp_path: Path, cost: int, code: int, checked: str) -> None:
    spot54(tmp_path, cost)
    command = ["reproduce", "cube", "--only", "54", "--only", "42b", "--data", str(tmp_path)]
    done = CliRunner().invoke(main, [*command, "--time", "60", "--out", str(tmp_path / "a.json")])
    assert done.exit_code == code, done.output
    assert "42b: no file wcsp/spot5/42b.wcsp was found" in done.output
    assert "not available: seconds of the sequential version" not in done.output
    assert ("not the known answer: 54" in done.output) == bool(code)
    rows = json.loads((tmp_path / "a.json").read_text())["tables"][0]["rows"]
    assert [row["checked"] for row in rows] == [checked, "no file"]
    assert rows[0]["ours"]["core"]["figures"]["answer"] == cost


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
    assert "not available: seconds of the sequential version" in " ".join(listed.split())
