"""Kinds of files that are not models: recognised by name or content, with advice."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from ....tasks.steps.light_dataclass import dataclass

_UNPACK = "unpack it first"
_BY_PYAGRUM = "let pyAgrum save it as .bif or .net"
_BY_GENIE = "let GeNIe save it as .xdsl"
_BY_R = "let bnlearn's write.bif or write.net save it"
_TABLES = "write its functions as tables of a .cfn, .wcsp or .uai"
_GRAPH = "its variables have no tables; write a model over it as .cfn, .wcsp or .uai"


@dataclass(frozen=True)
class Unread:
    """A kind of file that is not read as a model, and what to do instead."""

    what: str
    instead: str

    @property
    def sentence(self) -> str:
        """The description in an error message."""
        return f"{self.what}, which is not read: {self.instead}"


# By how a file begins, as no text does.
_PACKED = {
    "a zip archive": (b"PK\x03\x04",),
    "a bzip2 archive": tuple(b"BZh%d%s" % each for each in product(range(1, 10), (b"1AY&SY", b"\x17rE8P"))),
    "a Zstandard archive": (b"\x28\xb5\x2f\xfd",),
    "a 7z archive": (b"7z\xbc\xaf\x27\x1c",),
    "a RAR archive": (b"Rar!\x1a\x07",),
    "an LZ4 archive": (b"\x04\x22\x4d\x18",),
    "a file of compress (.Z)": (b"\x1f\x9d",),
    "an lzma file inside another": (b"\x5d\x00\x00",),
    "a gzip file inside another": (b"\x1f\x8b",),
    "an xz file inside another": (b"\xfd7zXZ",),
}
_BINARY = {
    Unread("an R data file", _BY_R): (
        *(b"RD%s%d\n" % each for each in product((b"X", b"A"), range(10))),
        b"X\n\x00\x00",
    ),
    Unread("an HDF5 file", _TABLES): (b"\x89HDF",),
    Unread("an SQLite database", _TABLES): (b"SQLite format 3",),
    Unread("a NumPy array", "make a model with bucketflow.Model.build"): (b"\x93NUMPY",),
    Unread("a Python pickle", "save its model in a format of text"): tuple(b"\x80%c" % each for each in b"\2\3\4\5"),
    Unread("a PDF document", _TABLES): (b"%PDF-",),
    Unread("UTF-16 text", "save it as UTF-8"): (b"\xff\xfe", b"\xfe\xff"),
}
_ARCHIVES = {
    **dict.fromkeys((".zip", ".jar"), "a zip archive"),
    **dict.fromkeys((".bz2", ".tbz", ".tbz2"), "a bzip2 archive"),
    **dict.fromkeys((".zst", ".tzst"), "a Zstandard archive"),
    **dict.fromkeys((".tar", ".tgz", ".txz"), "a tar archive"),
    ".7z": "a 7z archive",
    ".rar": "a RAR archive",
    ".lz4": "an LZ4 archive",
    ".z": "a file of compress (.Z)",
    ".br": "a Brotli file",
}
_BY_SUFFIX = {
    ".mps": Unread("a linear program", "save it as .lp"),
    ".mcnf": Unread("a MaxSAT problem with several objectives", "weigh them into one objective, as .wcnf"),
    **dict.fromkeys((".mzn", ".dzn"), Unread("a MiniZinc model", "compile it to .fzn: minizinc -c --solver std")),
    ".fg": Unread("a factor graph of libDAI", "write it as .uai, with the last variable of each table fastest"),
    ".o3prm": Unread("a relational model (O3PRM)", _BY_PYAGRUM),
    ".neta": Unread("a packed Netica network", "let Netica save it as text, .dne"),
    ".xbn": Unread("a network of Microsoft's tools", _BY_GENIE),
    **dict.fromkeys(
        (".oobn", ".hkb"), Unread("an object-oriented or compiled Hugin network", "save it as a flat .net")
    ),
    **dict.fromkeys((".rds", ".rda", ".rdata"), Unread("an R data file", _BY_R)),
    **dict.fromkeys((".col", ".gr", ".dgf", ".hgr", ".gph", ".graph", ".dot"), Unread("a graph", _GRAPH)),
    **dict.fromkeys((".td", ".tree"), Unread("a tree decomposition", _GRAPH)),
    **dict.fromkeys((".smt2", ".smt"), Unread("an SMT problem", _TABLES)),
    **dict.fromkeys((".qdimacs", ".sdimacs", ".dqdimacs"), Unread("a formula with quantifiers", _TABLES)),
    **dict.fromkeys((".nnf", ".sdd", ".vtree", ".bdd", ".ac"), Unread("a compiled circuit", "give its model instead")),
    **dict.fromkeys((".pl", ".mln", ".problog"), Unread("a logic program", _TABLES)),
    ".npz": Unread("a compiled model", "bucketflow.Compiled.load reads it"),
    ".npy": Unread("a NumPy array", "make a model with bucketflow.Model.build"),
    **dict.fromkeys((".pkl", ".pickle"), Unread("a Python pickle", "save its model in a format of text")),
    **dict.fromkeys((".csv", ".jsonl", ".tsv", ".xlsx"), Unread("a list", "bucketflow batch reads lists of queries")),
    ".md": Unread("a text for people", "give a model"),
}
# Files of the UAI evaluations other than models.
_EVIDENCE = dict.fromkeys((".evid", ".evidence", ".vevid"), "an evidence file, which goes with a model")
_BESIDE = {
    **dict.fromkeys((".map", ".query"), "a query or an answer, which goes with a model"),
    **dict.fromkeys((".pr", ".mar", ".mpe", ".mmap", ".sol"), "an answer, not a model"),
    ".ub": "an upper bound, which goes with a model, as --upper-bound",
}
# Expressions for content that is recognised regardless of the name,
_SURE = ((r"\s*<(?s:.*<)?(?:ANALYSISNOTEBOOK|BNMODEL)[\s>]", _BY_SUFFIX[".xbn"]),)
# and where its name says nothing.
_MINIZINC = r"(?:array\s*\[[^\]\n]*\]\s*of\s+)?(?:var|int|par)\b[^;\n]*:|(?:predicate|constraint|include)\s"
_LIKELY = (
    (r"(?:\s|\*[^\n]*\n)*+NAME\b[^\n]*\n(?:\*[^\n]*\n)*(?:OBJSENSE|ROWS)", _BY_SUFFIX[".mps"]),
    (r"(?:\s|c[^\n]*\n)*+p[ \t]+(?:edge|col|tw|sp|max|min|asn|td|htd)\s", _BY_SUFFIX[".col"]),
    (r"(?:\s|;[^\n]*\n)*+\((?:set-logic|declare-fun|declare-const|assert)\b", _BY_SUFFIX[".smt2"]),
    (rf"(?:\s|%[^\n]*\n)*+(?:{_MINIZINC})", _BY_SUFFIX[".mzn"]),
    (r"(?:\s|//[^\n]*\n)*+(?:import\s[\w.]+;|(?:type|interface|system)\s+\w+\s)", _BY_SUFFIX[".o3prm"]),
)


def packed_or_binary(data: bytearray, name: str) -> str | None:
    """Return a description of a file without text; None if it may be text."""
    suffix = Path(name).suffix.lower()
    own = _BY_SUFFIX.get(suffix) if b"\x00" in data else None
    packed = next((what for what, begins in _PACKED.items() if data.startswith(begins)), None)
    if packed is None and data.startswith(b"ustar", 257):  # after the name and the numbers of the first file
        packed = "a tar archive"
    if packed is not None and not (own and suffix == ".npz"):
        return f"{packed}: {_UNPACK}"
    kind = next((kind for kind, begins in _BINARY.items() if data.startswith(begins)), own)
    return None if kind is None else kind.sentence


def unread_kinds() -> dict[Unread, tuple[str, ...]]:
    """Return the known but unsupported kinds of files, with their suffixes."""
    found: dict[Unread, tuple[str, ...]] = {}
    for suffix, kind in _BY_SUFFIX.items():
        found[kind] = (*found.get(kind, ()), suffix)
    return found


def unread_by_name(suffix: str) -> str | None:
    """Return a description of a file by its suffix, if the suffix does not belong to a model."""
    if suffix in _ARCHIVES:
        return f"a file named as {_ARCHIVES[suffix]}: {_UNPACK}, or name it as what it is"
    return _BY_SUFFIX[suffix].sentence if suffix in _BY_SUFFIX else _EVIDENCE.get(suffix) or beside_a_model(suffix)


def beside_a_model(suffix: str) -> str | None:
    """Return a description of a file by its suffix, if the suffix belongs neither to a model nor to evidence."""
    return _BESIDE.get(suffix)


# Files whose suffix two formats share.
_BY_BOTH = {
    ".lp": (
        r"(?m)(?:\s|//[^\n]*\n)*+(?i:max|min)(?i:imi[sz]e)?\s*:(?!(?is:.*)^\s*(?:subject|such|st|s\.t\.)\b)(?s:.*);",
        Unread("a linear problem in lp_solve's own format", "save it in CPLEX's LP format (lp_solve -wxli)"),
    )
}


def unread_by_content(head: str, named: bool, suffix: str = "") -> str | None:
    """Return a description of a file by its beginning, if it is not a model.

    If its name is a model's, the description must be certain.
    """
    both = _BY_BOTH.get(suffix)
    if both is not None and re.match(both[0], head):
        return both[1].sentence
    kinds = _SURE if named else (*_SURE, *_LIKELY)
    return next((kind.sentence for pattern, kind in kinds if re.match(pattern, head)), None)
