"""Figures in notebooks: drawn without the network, shown once, and nothing is printed below them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline import pages
from tests.models import grid

pytestmark = [
    pytest.mark.skipif(find_spec("bokeh") is None, reason="bokeh is not installed"),
    pytest.mark.filterwarnings("ignore"),
]


class Notebook:
    """What stands in for a kernel: it keeps what is displayed."""

    def __init__(self) -> None:
        self.shell = SimpleNamespace(execution_count=1, kernel=None)
        self.outputs: list[dict[str, Any]] = []

    def run(self, cell: Any) -> list[dict[str, Any]]:
        """Run a cell, display what it ends with as IPython does, and return its outputs."""
        self.shell.execution_count += 1
        self.outputs = []
        found = cell()
        if found is not None:
            found._ipython_display_()
        return self.outputs


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    from bokeh.io.state import curstate

    made, ipython, display = Notebook(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: made.shell  # type: ignore[attr-defined]
    display.publish_display_data = lambda data, *_, **__: made.outputs.append(data)  # type: ignore[attr-defined]
    for name, module in (("ipykernel", ModuleType("ipykernel")), ("IPython", ipython), ("IPython.display", display)):
        monkeypatch.setitem(sys.modules, name, module)
    pages._load_scripts.cache_clear()
    yield made
    pages._load_scripts.cache_clear()
    curstate().reset()


def scripts(output: dict[str, Any]) -> str:
    return str(output.get("application/javascript", ""))


def test_scripts_are_in_the_notebook_once(notebook: Notebook) -> None:
    result = bucketflow.solve(bucketflow.load("satellite"))
    loading, *figure = notebook.run(result.plot)
    assert "js_urls = [];" in scripts(loading)
    assert len(scripts(loading)) > 500_000
    assert len(figure) == 2
    assert "http" not in scripts(figure[1])
    assert result.plan is not None
    assert len(notebook.run(result.plan.plot)) == 2


def test_a_figure_is_shown_once_in_its_cell_and_again_where_a_later_one_ends_with_it(notebook: Notebook) -> None:
    proved = bucketflow.solve(grid(5, 5, 3), method="search")
    kept: list[Any] = []
    assert len(notebook.run(lambda: kept.append(proved.plot()))) == 3  # the scripts too
    assert len(notebook.run(lambda: kept[0])) == 2
    assert len(notebook.run(bucketflow.marginals(bucketflow.load("diagnosis")).plot)) == 2


def test_elsewhere_a_figure_is_only_returned() -> None:
    figure = bucketflow.solve(bucketflow.load("satellite")).plot()
    assert figure.renderers
    assert not hasattr(figure, "_ipython_display_")
