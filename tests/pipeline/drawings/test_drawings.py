"""Pictures of models, plans and proofs: what is in them, that nothing overlaps, and that texts are escaped."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.drawings import network_layouts
from bucketflow.pipeline.drawings.charts import lines, table
from bucketflow.pipeline.drawings.html import bars
from bucketflow.pipeline.drawings.network_picture import edge_routes
from bucketflow.pipeline.drawings.shown import DisplayPolicy
from bucketflow.pipeline.drawings.svg import Svg, light
from tests.models import grid

Pair = tuple[float, float]

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn: Svg) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(drawn.text).iter(f"{SVG}text")]


def elements(drawn: Svg, name: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawn.text).findall(f"{SVG}{name}")
    return [each for each in found if kind in (each.get("class") or "").split() or not kind]


def test_a_network_has_its_posteriors_in_its_boxes() -> None:
    found = bucketflow.marginals("diagnosis", evidence="Storm=yes")
    drawn = found.draw()
    said = texts(drawn)
    assert set(found) <= set(said)
    assert f"{100 * found['Season'][0]:.1f}%" in said
    assert len(elements(drawn, "rect", "box")) == len(found)
    assert len(elements(drawn, "rect", "seen")) == 1
    assert len(elements(drawn, "rect", "bar")) == sum(map(len, found.values()))
    edges = sum(len(f.scope) - 1 for f in found.model.functions)
    assert len(elements(drawn, "path")) == edges
    bare = found.model.draw(evidence={"Storm": "yes"})
    assert "Storm = yes" in texts(bare)
    with pytest.raises(ModelError, match="max-marginals are not distributions"):
        bucketflow.marginals("diagnosis", max_marginals=True).draw()
    with pytest.raises(ModelError, match="did you mean 'Storm'"):
        found.model.draw(evidence={"Strom": 1})


def test_costs_are_drawn_as_variables_and_functions() -> None:
    model = bucketflow.load("satellite")
    drawn = model.draw()
    scopes = [f.scope for f in model.functions]
    assert len(elements(drawn, "rect", "box")) == 40
    assert len(elements(drawn, "rect", "bar")) == sum(len(scope) > 2 for scope in scopes)
    binary = {scope for scope in scopes if len(scope) == 2}
    assert len(elements(drawn, "path")) == len(binary) + sum(len(s) for s in scopes if len(s) > 2)


def test_large_models_are_drawn_as_communities(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bucketflow.load("fields")
    networkx_is_there = True
    try:
        import networkx  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        networkx_is_there = False
    if networkx_is_there:
        with DisplayPolicy.using(network_nodes=100):
            said = texts(model.draw())
        assert sum(int(text.split()[0]) for text in said if text.endswith(" variables")) == 210
        with DisplayPolicy.using(network_nodes=100, communities=3):
            assert len(elements(model.draw(), "rect", "box")) == 3
    monkeypatch.setattr("bucketflow.pipeline.drawings.network_picture.find_spec", lambda name: None)
    with (
        DisplayPolicy.using(network_nodes=100),
        pytest.raises(bucketflow.BucketflowError, match=r"by its communities, and finding them needs networkx: .*draw"),
    ):
        model.draw()


@pytest.mark.parametrize("directed", [True, False])
def test_boxes_do_not_overlap(directed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    sizes = {str(k): (40.0 + 60 * rng.random(), 20.0 + 40 * rng.random()) for k in range(40)}
    edges = [(str(rng.integers(k)), str(k)) for k in range(1, 40)] + [("3", "20"), ("5", "30")]
    for names in ("", "networkx"):
        monkeypatch.setattr(network_layouts, "find_spec", lambda name, names=names: name == names or None)
        places = network_layouts.placed(sizes, edges, directed)
        for a, b in combinations(sizes, 2):
            apart = [abs(places[a][k] - places[b][k]) >= (sizes[a][k] + sizes[b][k]) / 2 - 1.0 for k in range(2)]
            assert any(apart), (a, b)
        if directed:
            assert all(places[a][1] < places[b][1] for a, b in edges)
        if names == "" and not pytest.importorskip("networkx"):
            break


def test_circles_of_edges_have_places_too() -> None:
    sizes = dict.fromkeys("abc", (40.0, 20.0))
    assert network_layouts.placed(sizes, [("a", "b"), ("b", "c"), ("c", "a")], True).keys() == sizes.keys()
    assert network_layouts.placed({}, [], True) == {}


def runs_through(a: Pair, b: Pair, box: tuple[Pair, Pair]) -> bool:
    """Whether the line between two points runs through the inside of a box, by small steps."""
    (x, y), (width, height) = box
    steps = np.linspace(0, 1, 400)
    across, down = a[0] + steps * (b[0] - a[0]) - x, a[1] + steps * (b[1] - a[1]) - y
    return bool(((np.abs(across) < width / 2) & (np.abs(down) < height / 2)).any())


@pytest.mark.parametrize("directed", [True, False])
def test_edges_do_not_run_through_boxes(directed: bool) -> None:
    rng = np.random.default_rng(5)
    sizes = {str(k): (50.0 + 60 * rng.random(), 20.0 + 40 * rng.random()) for k in range(30)}
    pairs = {(min(a, b), max(a, b)) for a, b in rng.integers(30, size=(60, 2)).tolist() if a != b}
    edges = [(str(a), str(b)) for a, b in pairs]
    places = network_layouts.placed(sizes, edges, directed)
    routes = edge_routes(places, sizes, edges)
    assert [*routes] == edges
    assert any(routes.values())
    for (a, b), bends in routes.items():
        points = [places[a], *bends, places[b]]
        boxes = [(places[name], sizes[name]) for name in sizes if name not in (a, b)]
        assert not any(runs_through(p, q, box) for p, q in pairwise(points) for box in boxes)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 5), (4, 3), (12, 12)])
def test_grids_are_drawn_as_grids(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    names = [str(k) for k in rng.permutation(rows * columns)]
    cells = {(r, c): names[r * columns + c] for r in range(rows) for c in range(columns)}
    edges = [(cells[r, c], cells[r + 1, c]) for r in range(rows - 1) for c in range(columns)]
    edges += [(cells[r, c + 1], cells[r, c]) for r in range(rows) for c in range(columns - 1)]
    rng.shuffle(edges)
    sizes = dict.fromkeys(rng.permutation(names), (40.0, 26.0))
    found = network_layouts.grid_cells(list(sizes), edges)
    assert len({*found.values()}) == rows * columns
    assert all(sum(abs(p - q) for p, q in zip(found[a], found[b], strict=True)) == 1 for a, b in edges)
    places = network_layouts.placed(sizes, edges, False)
    assert len({x for x, _ in places.values()}) in (rows, columns)
    if rows * columns > 4:
        assert network_layouts.grid_cells(list(sizes), edges[1:]) == {}
        assert network_layouts.grid_cells(list(sizes), [*edges, (cells[0, 0], cells[rows - 1, columns - 1])]) == {}


def test_networks_that_are_no_grids_have_no_cells() -> None:
    ring = [(str(k), str((k + 1) % 8)) for k in range(8)]
    assert network_layouts.grid_cells([str(k) for k in range(8)], ring) == {}
    assert network_layouts.grid_cells(["a", "b"], []) == {}
    apart = [("0", "1"), ("1", "3"), ("3", "2"), ("2", "0"), ("4", "5")]
    assert network_layouts.grid_cells([str(k) for k in range(6)], apart) == {}


def test_names_are_escaped() -> None:
    odd = "<b>&'"
    model = Model.build("bayes", {odd: [odd, "b"]}, [((odd,), [0.25, 0.75])])
    found = bucketflow.marginals(model)
    assert odd in texts(found.draw())
    for shown in (found, model, bucketflow.solve(model), found.plot()):
        assert odd not in shown._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()


def test_everything_public_shows_itself(tmp_path: Path) -> None:
    model = Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), [[3, 1], [2, 5]])], top=5)
    (tmp_path / "list.csv").write_text("model\nsatellite\nnowhere.uai\n")
    proof = bucketflow.solve(grid(5, 5, 3), method="search").proof
    assert proof is not None
    every: list[Any] = [
        model,
        model.evaluate({"a": 0, "b": 1}),
        proof,
        bucketflow.plan(model),
        bucketflow.solve(model),
        bucketflow.bound(model),
        bucketflow.sample(model, 2, temperature=1.0),
        bucketflow.marginals("diagnosis"),
        bucketflow.compile("diagnosis").marginals_batch({"Storm": ["yes"]}),
        bucketflow.load_dcop("meetings"),
        bucketflow.dpop(bucketflow.load_dcop("meetings")),
        bucketflow.batch(tmp_path / "list.csv", tmp_path / "out"),
    ]
    for shown in every:
        html = shown._repr_html_()
        assert "<table>" in html
        assert "http" not in html
        assert len(html) < 40_000
        assert "object at 0x" not in repr(shown)
    assert "object at 0x" not in repr(bucketflow.best(model, 1))
    assert ">2</td>" in every[-1]._repr_html_()
    ElementTree.fromstring(re.search(r"<svg.*?</svg>", proof.draw().markup, re.DOTALL)[0])  # type: ignore[index]


def test_bars_say_numbers_and_their_scale() -> None:
    few = bars("t", ["a", "b"], {"s": [1.0, 2.0]}, "seconds").markup
    assert "logarithm" not in few
    assert ">1</td>" in few
    assert "width:50.00%" in few
    many = bars("t", ["a", "b", "c"], {"s": [1e-3, 1.0, 0.0]}, "seconds").markup
    assert "by the logarithm" in many
    assert "width:0.00%" in many


def test_a_trivial_first_bound_does_not_flatten_the_others() -> None:
    history = [(0.0, -1e6), (1.0, 10.0), (2.0, 12.0), (3.0, 13.0)]
    drawn = lines("t", {"at least": history}, "seconds", "cost")
    assert any("beyond the axis" in text for text in texts(drawn))
    assert "12" in texts(drawn)
    assert "0" in texts(drawn)


def test_long_tables_say_what_they_leave_out() -> None:
    with DisplayPolicy.using(table_rows=10):
        shown = table({"a": list(range(25))}, sparks="a").markup
    assert shown.count("<tr>") == 11
    assert "the first 10 rows of 25" in shown
    assert "<button>a</button>" in shown


def test_the_command_draws(tmp_path: Path) -> None:
    def run(*args: str) -> Any:
        return CliRunner().invoke(main, ["draw", *args])

    path = tmp_path / "a.svg"
    assert run("diagnosis", "-o", str(path), "--posteriors", "--evidence", "Storm=yes").exit_code == 0
    assert "100.0%" in path.read_text()
    assert run("satellite", "-o", str(tmp_path / "b.html")).exit_code == 0
    assert "<svg" in (tmp_path / "b.html").read_text()
    for args, message in (
        (("diagnosis", "-o", "a.gif"), "a drawing is written to a .svg, .html, .png or .pdf file"),
        (("diagnosis", "-o", str(tmp_path / "no" / "a.svg")), "cannot write"),
        (("satellite", "-o", str(path), "--posteriors"), "cost network"),
    ):
        done = run(*args)
        assert done.exit_code == 2
        assert message in done.output


@pytest.mark.parametrize(("ending", "begin"), [("png", b"\x89PNG\r\n"), ("pdf", b"%PDF-")])
def test_models_and_plans_are_written_as_png_and_pdf(ending: str, begin: bytes, tmp_path: Path) -> None:
    pytest.importorskip("cairosvg", exc_type=ImportError)
    commands = (["draw", "diagnosis", "-o"], ["plan", "diagnosis", "--query", "marginals", "--graph"])
    for k, command in enumerate(commands):
        path = tmp_path / f"{k}.{ending}"
        done = CliRunner().invoke(main, [*command, str(path)])
        assert done.exit_code == 0, done.output
        assert path.read_bytes().startswith(begin)
        assert len(path.read_bytes()) > 5_000


def test_drawings_for_other_programs_have_colours_in_place_of_variables() -> None:
    text = bucketflow.draw("diagnosis").text
    plain = light(text)
    assert "var(" in text
    assert "var(" not in plain
    assert "@media" not in plain
    assert "fill:#4c78a8" in plain
    assert plain.count("<rect") == text.count("<rect")
    ElementTree.fromstring(plain)


@pytest.mark.parametrize("args", [("draw", "diagnosis", "-o"), ("plan", "diagnosis", "--graph")])
def test_without_cairosvg_one_sentence_says_what_to_install(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketflow.pipeline.drawings.svg.find_spec", lambda name: None)
    done = CliRunner().invoke(main, [*args, str(tmp_path / "a.png")])
    assert done.exit_code != 0
    assert "a .png file is written by CairoSVG, which is not installed: pip install" in done.output
    assert "[draw]" in done.output
    assert not list(tmp_path.iterdir())
