"""Pages that hold everything they show, and figures in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
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
)


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
        Headings, each with labelled lines or with a figure.
    """
    verify_installed()
    from bokeh.embed import components
    from bokeh.resources import INLINE

    figures = {str(k): what for k, (_, what) in enumerate(sections) if not _is_rows(what)}
    script, divs = components(figures) if figures else ("", {})
    body = [f"<h1>{escape(title)}</h1>"]
    for k, (heading, what) in enumerate(sections):
        content = _table(what) if _is_rows(what) else divs[str(k)]
        body.append(f"<section aria-label='{escape(heading)}'><h2>{escape(heading)}</h2>{content}</section>")
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{_STYLE}</style>{INLINE.render()}"
    return f"<!DOCTYPE html><html lang='en'><head>{head}</head><body>{''.join(body)}{script}</body></html>\n"


def _is_rows(what: Any) -> bool:
    return isinstance(what, list | tuple)


def _table(rows: Rows) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows) + "</table>"


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
