"""Drawings as SVG: the only writer of it. They follow a dark page, and say in words what they show.

CairoSVG, from the extra ``draw``, writes a drawing as PNG or PDF.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.util import find_spec
from os import PathLike
from typing import Final

from ...cluster.version import install_hint
from ...tasks.steps.light_dataclass import dataclass
from ..errors import BucketflowError, ModelError, shorten, writing
from ..local_paths import local_path, whole_file, whole_text

#: Endings of the files that CairoSVG writes.
RENDERED = (".png", ".pdf")


def check_renderer(ending: str) -> None:
    """Check that files with an ending can be written.

    Raises
    ------
    BucketflowError
        If the ending needs CairoSVG, which is not installed.
    """
    if ending in RENDERED and find_spec("cairosvg") is None:
        raise BucketflowError(f"a {ending} file is written by CairoSVG, which is not installed: {install_hint('draw')}")


def rendered(text: str, ending: str) -> bytes:
    """Return an SVG as the bytes of a PNG or PDF file, in light colours.

    Raises
    ------
    BucketflowError
        If CairoSVG or its library cairo is not installed.
    """
    check_renderer(ending)
    try:
        from cairosvg import svg2pdf, svg2png  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except OSError as error:  # the package is there, and the shared library is not
        why = "CairoSVG needs the library cairo, which is not installed (Debian: libcairo2, Homebrew: cairo)"
        raise BucketflowError(f"a {ending} file cannot be written: {why}") from error
    source = light(text).encode()
    if ending == ".png":
        # twice the pixels of the drawing, so that 10-pixel labels stay readable on screens of high density
        return bytes(svg2png(bytestring=source, scale=2, background_color="white"))
    return bytes(svg2pdf(bytestring=source, background_color="white"))


def light(text: str) -> str:
    """Return an SVG whose style has its light colours in place of variables, which CairoSVG does not know.

    Examples
    --------
    >>> light("svg.bf{--ink:#222;fill:var(--ink)}@media(prefers-color-scheme:dark){svg.bf{--ink:#eee}}")
    'svg.bf{--ink:#222;fill:#222}'
    """
    text = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", text, count=1)
    colours = dict(re.findall(r"(--\w+):(#\w+)", text.partition("}")[0]))
    return re.sub(r"var\((--\w+)\)", lambda name: colours.get(name[1], "#000"), text)


_ENDINGS: Final = (".svg", ".html", *RENDERED)

# From small to large.
_RAMP: Final = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
_STYLE: Final = (
    "svg.bf{--ink:#222;--soft:#666;--line:#999;--paper:#fff;--bar:#4c78a8;--other:#c85200;--seen:#ffe9b8;"
    "background:var(--paper)}"
    "@media(prefers-color-scheme:dark){svg.bf{--ink:#eee;--soft:#aaa;--line:#888;--paper:#1b1b1b;--bar:#7fa8d9;"
    "--other:#ff9d4d;--seen:#5c4a14}}"
    ".bf text{font:12px system-ui,sans-serif;fill:var(--ink)}.bf .title{font-size:15px;font-weight:600}"
    ".bf .label{font-size:10px}.bf .small{font-size:11px}.bf .soft{fill:var(--soft)}"
    ".bf line,.bf path{stroke:var(--line);fill:none}"
    ".bf .through{stroke-dasharray:4 3}.bf circle{stroke:var(--line);stroke-width:.6}"
    ".bf .box{fill:var(--paper);stroke:var(--line)}.bf .seen{stroke:var(--other);stroke-width:2.5}"
    ".bf .back{fill:var(--other)}.bf .bar{fill:var(--bar)}.bf .one{stroke:var(--bar);stroke-width:2}"
    ".bf .two{stroke:var(--other);stroke-width:2;"
    "stroke-dasharray:7 3}.bf .disk{stroke:var(--other);stroke-width:2.5}.bf .device{stroke:#2a9d3a;stroke-width:2.5}"
)
#: Pixels of a line of text with the space below it. Sizes in drawings are multiples of it.
LINE: Final = 20
#: Pixels that a character takes, about.
CHARACTER: Final = 0.33 * LINE
#: Pixels around a drawing.
MARGIN: Final = 0.8 * LINE
#: Characters of a label.
LABEL_CHARACTERS: Final = 22


@dataclass(frozen=True, repr=False)
class Svg:
    """A drawing: notebooks show it, :meth:`save` writes it.

    Parameters
    ----------
    text : str
        All of the SVG.
    title : str
    """

    text: str
    title: str = ""

    def _repr_svg_(self) -> str:
        return self.text

    @property
    def markup(self) -> str:
        """Return the markup for a page."""
        return self.text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<drawing: {self.title or 'untitled'}; save(path) writes it>"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the drawing to a ``.svg``, ``.png`` or ``.pdf`` file, or a page with it to ``.html``.

        Raises
        ------
        ModelError
            If the name ends in anything else, or the file cannot be written.
        BucketflowError
            If a ``.png`` or ``.pdf`` file is requested and CairoSVG, from the extra ``draw``, is not installed.
        """
        ending = drawing_ending(path)
        if ending in RENDERED:
            content = rendered(self.text, ending)
            with whole_file(path) as partial, writing(path):
                partial.write_bytes(content)
            return
        with whole_text(path) as file:
            file.write(self.text if ending == ".svg" else page_of(self.text, self.title))


def drawing_ending(path: str | PathLike[str]) -> str:
    """Return the ending of a drawing's file, after a check that such files can be written.

    Raises
    ------
    ModelError
        If the ending is not one of .svg, .html, .png and .pdf.
    BucketflowError
        If CairoSVG is missing for .png or .pdf.
    """
    ending = local_path(path).suffix.lower()
    if ending not in _ENDINGS:
        raise ModelError(f"a drawing is written to a .svg, .html, .png or .pdf file, not to {str(path)!r}")
    check_renderer(ending)
    return ending


def page_of(markup: str, title: str) -> str:
    """Return a page that holds one figure and needs no network."""
    style = "body{margin:1rem}svg{max-width:100%;height:auto}:root{color-scheme:light dark}"
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'/><title>{escape(title)}</title>"
    body = f"<body><main>{markup}</main></body>"
    return f"<!DOCTYPE html><html lang='en'><head>{head}<style>{style}</style></head>{body}</html>\n"


class Canvas:
    """A drawing, element by element; texts are escaped."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "") -> None:
        """Write a line of text whose base line starts at a place, is centred on it, or ends at it."""
        more = _classed(kind) + (f" text-anchor='{anchor}'" if anchor else "")
        self._parts.append(f"<text{more} x='{x:.1f}' y='{y:.1f}'>{escape(words)}</text>")

    def line(self, ends: Sequence[float], kind: str = "", width: float | None = None, title: str = "") -> None:
        """Draw a line between two ends, ``x1, y1, x2, y2``."""
        x1, y1, x2, y2 = ends
        more = _classed(kind) + (f" style='stroke-width:{width:.1f}'" if width else "")
        self._parts.append(_with_title(f"<line{more} x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'", title))

    def path(self, commands: str, kind: str = "", more: str = "") -> None:
        """Draw a path."""
        self._parts.append(f"<path{_classed(kind)} d='{commands}'{more}/>")

    def rect(self, box: Sequence[float], kind: str = "", fill: str = "", title: str = "", rounded: float = 0) -> None:
        """Draw a rectangle, ``x, y, width, height``."""
        x, y, width, height = box
        more = _classed(kind) + (f" style='fill:{fill}'" if fill else "") + (f" rx='{rounded}'" if rounded else "")
        place = f"x='{x:.1f}' y='{y:.1f}' width='{max(width, 0):.1f}' height='{max(height, 0):.1f}'"
        self._parts.append(_with_title(f"<rect{more} {place}", title))

    def circle(self, x: float, y: float, radius: float, fill: str, title: str = "", kind: str = "") -> None:
        """Draw a circle."""
        place = f"cx='{x:.1f}' cy='{y:.1f}' r='{radius:.1f}'"
        self._parts.append(_with_title(f"<circle{_classed(kind)} {place} fill='{fill}'", title))

    def group(self, kind: str, inside: Canvas) -> None:
        """Add the elements of another canvas as one group."""
        self._parts.append(f"<g class='{kind}'>{''.join(inside._parts)}</g>")

    def svg(self, width: float, height: float, title: str, told: str = "") -> Svg:
        """Return the drawing, with a description in words for readers who cannot see it."""
        size = f"width='{width:.0f}' height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}'"
        words = f"<title>{escape(title)}</title>" + (f"<desc>{escape(told)}</desc>" if told else "")
        marker = (
            "<defs><marker id='bf-end' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='7' markerHeight='7' "
            "orient='auto-start-reverse'><path d='M0 0L8 4L0 8z' style='fill:#888;stroke:none'/></marker></defs>"
        )
        head = f"<svg xmlns='http://www.w3.org/2000/svg' class='bf' {size} role='img' aria-label='{escape(title)}'>"
        return Svg(f"{head}{words}<style>{_STYLE}</style>{marker}{''.join(self._parts)}</svg>\n", title)


def _classed(kind: str) -> str:
    return f" class='{kind}'" if kind else ""


def _with_title(begun: str, title: str) -> str:
    """Close an element, with its tooltip inside."""
    name = begun[1:].split(" ", 1)[0]
    return f"{begun}><title>{escape(title)}</title></{name}>" if title else f"{begun}/>"


def colour_of(share: float) -> str:
    """Return the colour of a share between 0 and 1."""
    at = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    k = min(int(at), len(_RAMP) - 2)
    mixed = [round(a + (b - a) * (at - k)) for a, b in zip(_RAMP[k], _RAMP[k + 1], strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)


def drawn_ramp(canvas: Canvas, x: float, y: float, ends: str) -> None:
    """Draw what colours mean, from small to large."""
    for k in range(40):
        canvas.rect((x + 5 * k, y, 5, 10), fill=colour_of(k / 39))
    canvas.text(x + 208, y + 9, ends)


def legend_words(canvas: Canvas, x: float, y: float, words: str) -> float:
    """Write words of a legend; return where the next entry begins."""
    canvas.text(x, y + 4, words)
    return x + CHARACTER * len(words) + 22


def text_width(words: Iterable[str], most: int) -> float:
    """Return the approximate width of the longest label, each shortened to ``most`` characters."""
    return CHARACTER * max((len(shorten(word, most)) for word in words), default=0)
