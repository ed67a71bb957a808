"""Pages that hold everything they show, and figures in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.util import find_spec
from typing import Any

from ..cluster.version import install_hint
from .errors import BucketflowError

Rows = Sequence[tuple[str, str]]
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem;color:#222}"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}"
    "th{text-align:left;font-weight:600;padding:.1rem 1.5rem .1rem 0;vertical-align:top;white-space:nowrap}"
    "td{padding:.1rem 0;overflow-wrap:anywhere}"
    "table.grid td{padding:.1rem 1.5rem .1rem 0;text-align:right}table.grid td:first-child{text-align:left}"
)


@dataclass(frozen=True)
class Grid:
    """Cells under headings."""

    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


def verify_installed() -> None:
    """Make sure that figures can be drawn.

    Raises
    ------
    BucketflowError
        If bokeh is not installed.
    """
    if find_spec("bokeh") is None:
        raise BucketflowError(f"figures need bokeh: {install_hint('report')}")


def page(title: str, sections: Sequence[tuple[str, Rows | Any]]) -> str:
    """Return a page that needs no network.

    Parameters
    ----------
    title : str
    sections : sequence
        Headings, each with labelled lines, with cells or with a figure.
    """
    figures = {str(k): what for k, (_, what) in enumerate(sections) if not isinstance(what, list | tuple | Grid)}
    resources, script, divs = _drawn(figures) if figures else ("", "", {})
    body = [f"<h1>{escape(title)}</h1>"]
    for k, (heading, what) in enumerate(sections):
        content = divs[str(k)] if str(k) in figures else _grid(what) if isinstance(what, Grid) else _table(what)
        body.append(f"<section aria-label='{escape(heading)}'><h2>{escape(heading)}</h2>{content}</section>")
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{_STYLE}</style>{resources}"
    return f"<!DOCTYPE html><html lang='en'><head>{head}</head><body>{''.join(body)}{script}</body></html>\n"


def _drawn(figures: dict[str, Any]) -> tuple[str, str, dict[str, str]]:
    """Return what figures need in a page, the script that draws them, and where each is drawn."""
    verify_installed()
    from bokeh.embed import components
    from bokeh.resources import INLINE

    script, divs = components(figures)
    return INLINE.render(), script, divs


def _table(rows: Rows) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows) + "</table>"


def _grid(what: Grid) -> str:
    heads = "".join(f"<th>{escape(text)}</th>" for text in what.headings)
    lines = ("".join(f"<td>{escape(text)}</td>" for text in line) for line in what.cells)
    return f"<table class='grid'><tr>{heads}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def shown(figure: Any) -> Any:
    """Show a figure where a notebook runs, and return it; its name is not printed below it."""
    import sys

    if "ipykernel" in sys.modules:
        _show_in_notebook(figure)
        cell = _cell()
        # Bokeh reserves other names; a later cell that ends with the figure shows it again
        figure._ipython_display_ = lambda: None if _cell() == cell else _show_in_notebook(figure)
    return figure


def _show_in_notebook(figure: Any) -> None:
    from bokeh.io import show

    _load_scripts()
    show(figure)


@cache
def _load_scripts() -> None:
    """Put what draws figures into the notebook itself, once: it may be read where there is no network."""
    from bokeh.io import output_notebook
    from bokeh.resources import Resources

    output_notebook(Resources(mode="inline", components=["bokeh"]), hide_banner=True)


def _cell() -> Any:
    """Return the number of the cell that runs."""
    from IPython import get_ipython  # type: ignore[import-not-found,unused-ignore]

    return getattr(get_ipython(), "execution_count", None)
