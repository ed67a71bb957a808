"""Pages that hold everything they show: readable on a phone, on paper, in the dark and by ear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from .html import STYLE, Rows, grid, labelled

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
