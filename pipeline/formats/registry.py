"""Which format a file is in: by its name and its content, which must not contradict each other."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import FormatError, shorten
from .text.source import Source, beginning, strip_compression
from .text.unread import unread_by_content, unread_by_name

_BY_SUFFIX = {
    ".wcsp": "wcsp",
    ".cfn": "cfn",
    ".json": "cfn",
    ".uai": "uai",
    ".lg": "uai",
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
# Names of other files too, so that only what they begin with says whether they are models.
_SHARED = {
    ".json": re.compile(r"\s*\{(?s:.*?)[\"']?(?:variables|functions)[\"']?\s*:"),
    ".yaml": re.compile(r"(?s:.*?)^(?:domains|variables)[ \t]*:", re.MULTILINE),
    ".xml": re.compile(r"\s*<(?s:.*<)?(?:BIF|smile|instance)[\s>]"),
}
_SHARED[".yml"] = _SHARED[".yaml"]
#: How files of models are called, packed or not.
MODEL_SUFFIXES = frozenset([*_BY_SUFFIX, ".xml", ".xmlbif"])
_KNOWN = "a .wcsp, .cfn, .uai, .LG, .erg, .bif, .bifxml, .xdsl, .net, .cnf, .wcnf, .xml or .yaml model"
# What no file of another format begins with.
_SURE = (
    (re.compile(r"\s*<(?s:.*<)?BIF[\s>]"), "xmlbif"),
    (re.compile(r"\s*<(?s:.*<)?smile[\s>]"), "xdsl"),
    (re.compile(r"\s*<(?s:.*<)?instance[\s>]"), "xcsp"),
    (re.compile(r"(?:\s|c[^\n]*\n)*+p[ \t]+\w*cnf\+?\s"), "dimacs"),
    (re.compile(r"\s*\{"), "cfn"),
    (re.compile(r"\s*(?:MARKOV|BAYES)\b", re.IGNORECASE), "uai"),
    (re.compile(r"(?:\s|//[^\n]*\n)*+(?:(?:network|variable)\b[^{};\n]*\{|probability\s*\()"), "bif"),
    (re.compile(r"(?:\s|%[^\n]*\n)*+net\s*\{"), "net"),
)
# Tried in this order on the beginning of a file whose name says nothing.
_LIKELY = (
    *_SURE,
    (re.compile(r"(?:\s|c[^\n]*\n)*+h(?:[ \t]+-?\d+)*[ \t]+0[ \t]*\r?\n"), "dimacs"),
    (re.compile(r"(?:\s|//[^\n]*\n)*+(?:network|variable|probability)\b"), "bif"),
    (re.compile(r"(?:\s|%[^\n]*\n)*+(?:net\s*\{|class\s+\w)"), "net"),
    (re.compile(r"(?s:.*?)^(?:domains|variables)[ \t]*:", re.MULTILINE), "pydcop"),
    (re.compile(r"\s*\S+(?:[ \t]+\d+){4}\s*\n"), "wcsp"),
    (re.compile(r"\s*\d+[ \t]*\r?\n\s*\d"), "erg"),
    (re.compile(r"\s*\S+(?:\s+\d+){4}"), "wcsp"),
)
_SHOWN = {
    "xmlbif": "XMLBIF (.bifxml)",
    "xdsl": "a GeNIe network (.xdsl)",
    "xcsp": "XCSP (.xml)",
    "dimacs": "DIMACS clauses (.cnf or .wcnf)",
    "cfn": "JSON, as a .cfn is",
    "uai": "a model of the UAI format (.uai)",
    "bif": "a network of the interchange format (.bif)",
    "net": "a Hugin network (.net)",
}
# JSON is YAML.
_ALIKE = {("pydcop", "cfn")}
_HEAD_BYTES = 1 << 16


def is_model(path: Path) -> bool:
    """Whether a file is called as models are, and where other files are too, begins as they do."""
    suffix = Path(strip_compression(path.name)).suffix.lower()
    if suffix not in _SHARED:
        return suffix in MODEL_SUFFIXES
    begins = beginning(path, _HEAD_BYTES)
    return begins is None or _SHARED[suffix].match(begins) is not None


def detect_format(source: Source) -> str:
    """Return the name of a source's format, a key of the table of readers.

    Raises
    ------
    FormatError
        If the file is empty or of a kind that is not read, if its name and its content contradict each other, or if
        neither says what it is.
    """
    if re.search(rb"[^ \t\n\r\f\v]", source.data) is None:
        raise FormatError(source.path, None, _KNOWN, "an empty file")
    head, named = source.head(_HEAD_BYTES), _BY_SUFFIX.get(source.suffix)
    if what := unread_by_name(source.suffix) or unread_by_content(head, named is not None):
        raise FormatError(source.path, None, _KNOWN, what)
    if named is None:
        return _by_content(source, head)
    found = next((name for pattern, name in _SURE if pattern.match(head)), named)
    if found != named and (named, found) not in _ALIKE:
        expected = f"what the name {source.suffix} says"
        raise FormatError(source.path, None, expected, f"{_SHOWN[found]}: name the file as what it is")
    return named


def _by_content(source: Source, head: str) -> str:
    for pattern, name in _LIKELY:
        if pattern.match(head):
            return name
    root = re.match(r"\s*(?:<[?!](?s:.*?)>\s*)*<(\w[\w:.-]*)", head)
    begins = f"XML of <{shorten(root[1])}>" if root else f"a file that begins {shorten(head.lstrip())!r}"
    raise FormatError(source.path, None, _KNOWN, begins)
