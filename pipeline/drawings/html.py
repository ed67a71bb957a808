"""Answers in notebooks, and bars and tables of pages: small, escaped, with the colours of the page. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from os import PathLike
from typing import Any, Final

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError, short_number
from ..local_paths import local_path, whole_text
from .svg import page_of

# Axes and bars are logarithmic if the largest value is this many times the least.
LOG_RATIO: Final = 100.0

Rows = Sequence[tuple[str, str]]

#: Colours are the colours of the surrounding page, so that they suit dark pages.
STYLE: Final = (
    ".bf table{border-collapse:collapse;margin:.3em 0}.bf th,.bf td{text-align:left;padding:.1em .9em .1em 0;"
    "vertical-align:top;font-weight:400;background:none}.bf th{font-weight:600}.bf td.n{text-align:right;"
    "font-variant-numeric:tabular-nums;white-space:nowrap}.bf i.b{display:inline-block;height:.75em;"
    "background:#4c78a8;opacity:.85;min-width:1px}.bf i.b2{background:#c85200}.bf .track{display:inline-block;"
    "width:10em;text-align:left}.bf .seen th::after{content:' ● observed';font-weight:400;color:#c85200}"
    ".bf td{overflow-wrap:anywhere}.bf progress{width:14em}"
)


@dataclass(frozen=True, repr=False)
class Html:
    """A part of a page: notebooks show it, :meth:`save` writes a page of it."""

    markup: str
    title: str = ""

    def _repr_html_(self) -> str:
        return f"<div class='bf'><style>{STYLE}</style>{self.markup}</div>"

    def __repr__(self) -> str:
        return f"<figure: {self.title or 'untitled'}; save(path) writes it>"

    def save(self, path: str | PathLike[str]) -> None:
        """Write a page to a ``.html`` file.

        Raises
        ------
        ModelError
            If the name ends in anything else, or the file cannot be written.
        """
        if local_path(path).suffix.lower() != ".html":
            raise ModelError(f"a figure is written to a .html file, not to {str(path)!r}")
        with whole_text(path) as file:
            file.write(page_of(self._repr_html_(), self.title))


def shown_rows(rows: Rows) -> str:
    """Return labelled lines as notebooks show them."""
    return Html(labelled(rows))._repr_html_()


def labelled(rows: Rows) -> str:
    """Return labelled lines as a table."""
    lines = (f"<tr><th scope='row'>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in rows)
    return f"<table>{''.join(lines)}</table>"


def grid(headings: Sequence[str], cells: Sequence[Sequence[Any]], kind: str = "grid") -> str:
    """Return cells under headings; numbers stand at the right."""
    heads = "".join(f"<th scope='col'>{escape(text)}</th>" for text in headings)
    lines = ("".join(cell(value) for value in line) for line in cells)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table class='{kind}'><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def cell(value: Any) -> str:
    """Return a cell of a table; numbers stand at the right."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<td class='n'>{number_text(value)}</td>" if number else f"<td>{escape(str(value))}</td>"


def number_text(value: float) -> str:
    """Write a number as bars and cells have it; what is not known is empty."""
    return "" if value != value else short_number(value)


def bar(share: float, second: bool = False) -> str:
    """Return a bar of a part of its track, which those who listen do not hear: a number stands beside it."""
    width = 100 * min(max(share, 0.0), 1.0)
    colour = "b b2" if second else "b"
    return f"<span class='track' aria-hidden='true'><i class='{colour}' style='width:{width:.2f}%'></i></span>"


def shares(values: Sequence[float]) -> tuple[list[float], bool]:
    """Return how long bars are, and whether that is by the logarithm: where values span decades."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    low, high = min(finite, default=1.0), max(finite, default=1.0)
    if high < LOG_RATIO * low:
        return [value / high if math.isfinite(value) else 0.0 for value in values], False
    span = math.log(high / low)
    found = [0.05 + 0.95 * math.log(v / low) / span if math.isfinite(v) and v > 0 else 0.0 for v in values]
    return found, True


def bars(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], unit: str) -> Html:
    """Return a table with a bar and a number for each name, beside each other where there are several series."""
    every = [value for values in series.values() for value in values]
    found, logarithmic = shares(every)
    lengths = iter(found)
    own = {label: [next(lengths) for _ in values] for label, values in series.items()}
    scale = f"{unit}, bars by the logarithm" if logarithmic else unit
    heads = "".join(f"<th scope='col' colspan='2'>{escape(label)}</th>" for label in series)
    head = f"<thead><tr><th scope='col'></th>{heads}</tr></thead>" if len(series) > 1 else ""
    lines = []
    for k, name in enumerate(names):
        cells = "".join(
            f"<td class='n'>{number_text(values[k])}</td><td>{bar(own[label][k], second=j % 2 == 1)}</td>"
            for j, (label, values) in enumerate(series.items())
        )
        lines.append(f"<tr><th scope='row'>{escape(name)}</th>{cells}</tr>")
    caption = f"<caption>{escape(title)} ({escape(scale)})</caption>"
    return Html(f"<table class='bars'>{caption}{head}<tbody>{''.join(lines)}</tbody></table>", title)


def below(*figures: Any) -> Html:
    """Put figures below each other."""
    return Html("".join(figure.markup for figure in figures), figures[0].title if figures else "")


_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1100px;"
    "padding:1rem;color:#222;background:#fff}h1{font-size:1.5rem;margin:.5rem 0;overflow-wrap:anywhere}"
    "h2{font-size:1.15rem;margin:2rem 0 .5rem}section{overflow-x:auto}svg{max-width:100%;height:auto}"
    "caption{text-align:left;color:#555;padding-bottom:.3rem}.bf th{white-space:nowrap}"
    "table.grid td.n{text-align:right}table.grid th,table.grid td{border-bottom:1px solid #8884;font-size:13px}"
    "th button{font:inherit;font-weight:600;background:none;border:0;padding:0;cursor:pointer;color:inherit;"
    "text-decoration:underline dotted}details{margin:.3rem 0}.told{color:#555}"
    "@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}caption,.told{color:#b5b5b5}}"
    "@media(max-width:600px){.bf .track{width:5em}.bf th,.bf td{padding-right:.5em}.bf th{white-space:normal}}"
    "@media print{body{max-width:none;color:#000;background:#fff}section{overflow:visible}tr,svg{break-inside:avoid}"
    "h2{break-after:avoid}th button{text-decoration:none}}"
)
# A click, or a key, sorts the rows of a table by a column; once more the other way round.
_SORT: Final = (
    "for(const b of document.querySelectorAll('th button'))b.onclick=()=>{const h=b.parentNode,t=h.closest('table'),"
    "k=[...h.parentNode.children].indexOf(h),d=h.getAttribute('aria-sort')==='ascending'?-1:1;"
    "for(const o of h.parentNode.children)o.removeAttribute('aria-sort');"
    "h.setAttribute('aria-sort',d>0?'ascending':'descending');const v=r=>{const c=r.children[k].textContent,"
    "n=parseFloat(c.replace(/,/g,''));return isNaN(n)?c:n};const y=t.tBodies[0];"
    "[...y.rows].sort((p,q)=>{const a=v(p),c=v(q);return(typeof a===typeof c?(a<c?-1:a>c?1:0):typeof a<'s'?-1:1)*d})"
    ".forEach(r=>y.append(r))}"
)


@dataclass(frozen=True)
class Grid:
    """Cells under headings."""

    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


def page(title: str, sections: Sequence[tuple[str, Rows | Any]]) -> str:
    """Return a page that needs no network.

    Parameters
    ----------
    title : str
    sections : sequence
        Headings, each with labelled lines, with cells or with a figure.
    """
    body = [f"<h1>{escape(title)}</h1>"]
    for heading, what in sections:
        content = labelled(what) if isinstance(what, list | tuple) else _content(what)
        body.append(f"<section aria-label='{escape(heading)}'><h2>{escape(heading)}</h2>{content}</section>")
    script = f"<script>{_SORT}</script>" if any("<button" in part for part in body) else ""
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width,initial-scale=1'>"
    head += f"<title>{escape(title)}</title><style>{STYLE}{_STYLE}</style>"
    main = f"<main class='bf'>{''.join(body)}</main>"
    return f"<!DOCTYPE html><html lang='en'><head>{head}</head><body>{main}{script}</body></html>\n"


def _content(what: Any) -> str:
    return grid(what.headings, what.cells) if isinstance(what, Grid) else str(what.markup)
