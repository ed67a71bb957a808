"""Figures in notebooks: values that show themselves, without the network, and that files keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import bucketflow
from bucketflow import ModelError
from bucketflow.pipeline.drawings.html import Html
from bucketflow.pipeline.results.posteriors import write_uai
from tests.full_disk import files_of_at_most
from tests.models import grid


def test_figures_show_themselves_and_load_nothing() -> None:
    result, proved = bucketflow.solve("satellite"), bucketflow.solve(grid(5, 5, 3), method="search")
    assert result.plan is not None
    figures = [result.plot(), proved.plot(), bucketflow.marginals("diagnosis").plot()]
    for figure in figures:
        text = figure._repr_html_()
        assert "<script" not in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        assert len(text) < 100_000
    ElementTree.fromstring(result.plan.plot()._repr_svg_())


def test_a_figure_is_returned_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    figure = bucketflow.solve("satellite").plot()
    assert capsys.readouterr() == ("", "")
    assert repr(figure) == "<figure: optimum: optimal; save(path) writes it>"


def test_figures_and_drawings_go_into_files(tmp_path: Path) -> None:
    result = bucketflow.solve("satellite")
    assert result.plan is not None
    result.plot().save(tmp_path / "a.html")
    result.plan.draw().save(tmp_path / "b.html")
    result.plan.draw().save(tmp_path / "b.svg")
    assert "<table" in (tmp_path / "a.html").read_text()
    assert "<svg" in (tmp_path / "b.html").read_text()
    ElementTree.parse(tmp_path / "b.svg")
    with pytest.raises(ModelError, match=r"to a \.html file"):
        result.plot().save(tmp_path / "a.png")
    with pytest.raises(ModelError, match=r"a \.svg, \.html, \.png or \.pdf file"):
        result.plan.draw().save(tmp_path / "a.jpg")
    with pytest.raises(ModelError, match="cannot write"):
        Html("").save(tmp_path / "none" / "a.html")


def test_a_full_disk_leaves_files_as_they_were(tmp_path: Path) -> None:
    """Drawings, figures, task graphs and answers alike: nothing is cut off, and nothing lies beside them."""
    result, posteriors = bucketflow.solve("satellite"), bucketflow.marginals("diagnosis")
    assert result.plan is not None
    saves: dict[str, Callable[[Path], object]] = {
        "a.html": result.plot().save,
        "b.svg": result.plan.draw().save,
        "c.json": result.plan.graph().save,
        "d.PR": lambda path: write_uai(str(path.with_suffix("")), posteriors, None),
    }
    for name, save in saves.items():
        path = tmp_path / name
        path.write_text("before")
        with files_of_at_most(4), pytest.raises(ModelError, match="cannot write"):
            save(path)
        assert path.read_text() == "before"
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(saves)
