"""Write a drawing as PNG or PDF with CairoSVG, from the extra ``draw``."""

from __future__ import annotations

import re
from importlib.util import find_spec

from ...cluster.version import install_hint
from ..errors import BucketflowError

#: Endings of the files that CairoSVG writes.
RENDERED = (".png", ".pdf")
# Pixels of a PNG for each pixel of the drawing, so that 10-pixel labels stay readable on screens of high density.
_SCALE = 2.0


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
        return bytes(svg2png(bytestring=source, scale=_SCALE, background_color="white"))
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
