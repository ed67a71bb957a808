"""Which format a file is in: by its name, or else by its content."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import FormatError, shorten
from .text.source import Source, strip_compression

_BY_SUFFIX = {
    ".wcsp": "wcsp",
    ".cfn": "cfn",
    ".json": "cfn",
    ".uai": "uai",
    ".erg": "erg",
    ".bif": "bif",
    ".bifxml": "xmlbif",
    ".xdsl": "xdsl",
    ".net": "net",
    ".cnf": "dimacs",
    ".wcnf": "dimacs",
    ".yaml": "pydcop",
    ".yml": "pydcop",
}
_KNOWN = "a .wcsp, .cfn, .uai, .erg, .bif, .bifxml, .xdsl, .net, .cnf, .wcnf, .xml or .yaml model"
# Kinds of files that are not read, by name.
_UNREAD = {
    ".dsl": "a GeNIe .dsl file (GeNIe saves .xdsl as well, pyAgrum .bif and .bifxml)",
    ".jgum": "a pyAgrum .jgum file (pyAgrum saves .bif and .bifxml as well)",
    ".bgum": "a pyAgrum .bgum file (pyAgrum saves .bif and .bifxml as well)",
    ".o3prm": "a relational model of pyAgrum (ground it, and save .bif or .bifxml)",
    ".dne": "a Netica .dne file (export it as .bif or .xdsl, with GeNIe for example)",
    ".dnet": "a Netica .dnet file (export it as .bif or .xdsl, with GeNIe for example)",
    ".neta": "a Netica .neta file (export it as .bif or .xdsl, with GeNIe for example)",
    ".opb": "a pseudo-Boolean problem",
    ".lp": "a linear program",
    ".mps": "a linear program",
    ".mzn": "a MiniZinc model",
    ".fzn": "a MiniZinc model",
}
# Tried in this order on the beginning of a file whose name says nothing.
_BY_CONTENT = (
    (re.compile(r"\s*<(?s:.*<)?BIF[\s>]"), "xmlbif"),
    (re.compile(r"\s*<(?s:.*<)?smile[\s>]"), "xdsl"),
    (re.compile(r"\s*<(?s:.*<)?instance[\s>]"), "xcsp"),
    (re.compile(r"(?:\s|c[^\n]*\n)*+p[ \t]+w?cnf\s"), "dimacs"),
    (re.compile(r"\s*\{"), "cfn"),
    (re.compile(r"\s*(?:MARKOV|BAYES)\b", re.IGNORECASE), "uai"),
    (re.compile(r"(?:\s|//[^\n]*\n)*+(?:network|variable|probability)\b"), "bif"),
    (re.compile(r"(?:\s|%[^\n]*\n)*+(?:net\s*\{|class\s+\w)"), "net"),
    (re.compile(r"(?s:.*?)^(?:domains|variables)[ \t]*:", re.MULTILINE), "pydcop"),
    (re.compile(r"\s*\S+(?:[ \t]+\d+){4}\s*\n"), "wcsp"),
    (re.compile(r"\s*\d+[ \t]*\r?\n\s*\d"), "erg"),
    (re.compile(r"\s*\S+(?:\s+\d+){4}"), "wcsp"),
)
_UNREAD_BY_CONTENT = (
    (re.compile(r"\s*<(?s:.*<)?instance\s[^>]*XCSP3"), "a constraint problem of XCSP3"),
    (re.compile(r"\s*\{\s*\"type\"\s*:\s*\"BN\""), _UNREAD[".jgum"]),
    (re.compile(r"\s*net\s+\w+\s*\{(?:\s|//[^\n]*)*(?:HEADER|CREATION|NUMSAMPLES|node\s)"), _UNREAD[".dsl"]),
    (re.compile(r"(?:\s|//[^\n]*)*bnet\s"), _UNREAD[".dne"]),
)
_HEAD_BYTES = 1 << 16


def refuse_unread(path: str | os.PathLike[str]) -> None:
    """Refuse a file that is not read, by its name alone: some are no text.

    Raises
    ------
    FormatError
        Naming what it is.
    """
    what = _UNREAD.get(Path(strip_compression(os.fspath(path))).suffix.lower())
    if what is not None and os.path.isfile(path):
        raise FormatError(os.fspath(path), None, _KNOWN, f"{what}, which is not read")


def detect_format(source: Source) -> str:
    """Return the name of a source's format, a key of the table of readers.

    Raises
    ------
    FormatError
        If the file is empty, holds evidence, or neither name nor content say what it is.
    """
    if re.search(rb"[^ \t\n\r\f\v]", source.data) is None:
        raise FormatError(source.path, None, _KNOWN, "an empty file")
    if source.suffix in (".evid", ".evidence"):
        raise FormatError(source.path, None, _KNOWN, "an evidence file, which goes with a model")
    if source.suffix in _BY_SUFFIX:
        return _BY_SUFFIX[source.suffix]
    head = source.head(_HEAD_BYTES)
    for what in [what for pattern, what in _UNREAD_BY_CONTENT if pattern.match(head)]:
        raise FormatError(source.path, None, _KNOWN, f"{what}, which is not read")
    for pattern, name in _BY_CONTENT:
        if pattern.match(head):
            return name
    raise FormatError(source.path, None, _KNOWN, f"a file that begins {shorten(head.lstrip())!r}")
