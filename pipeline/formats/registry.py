"""The formats of models: a row for each, the table that lists them, and the choice by a file's name and content."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ...tasks.steps.light_dataclass import dataclass
from ..errors import FormatError, UnreadableError, public, shorten
from ..models.dcop import Dcop
from ..models.model import Model
from .text.source import BINARY, Source, beginning, strip_compression
from .text.unread import unread_by_content, unread_by_name, unread_kinds
from .text.written_words import WrittenFile

# Bytes of a file's beginning that tell its format.
_HEAD_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Format:
    """A format of models: how its files are known, read and written.

    Functions are named as ``module:function`` of this folder, and imported when a file needs them.

    Parameters
    ----------
    name : str
        In sentences about files whose name and content contradict each other.
    reader : str
        From a :class:`~.text.source.Source` to a model or a distributed problem.
    suffixes : tuple of str
        Of its files and of no others.
    shared : tuple of str
        Suffixes of its files, and suffixes that it shares with other formats or kinds. For a shared suffix, the content
        decides.
    signature : str
        Pattern for the beginning of files that no file of another format has; empty if there is none.
    beginnings : tuple of str
        Weaker patterns, for files whose name says nothing. All first ones are tried before all second ones.
    model : str
        Pattern that tells models from other files of the shared suffixes; the signature if it is empty.
    writer : str
        From a model, or a distributed problem where agents are kept, to a
        :class:`~.text.written_words.WrittenFile`; empty if the format is not written.
    keeps : frozenset of {"names", "agents"}
        Parts of a problem that a written file keeps, in addition to its functions.
    about : str
        Purpose and supported features, in Markdown, for tables of formats.
    """

    name: str
    reader: str
    suffixes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    signature: str = ""
    beginnings: tuple[str, ...] = ()
    model: str = ""
    writer: str = ""
    keeps: frozenset[str] = frozenset()
    about: str = ""

    def read(self, source: Source) -> Model | Dcop:
        """Read a model, or a distributed problem."""
        try:
            found: Model | Dcop = _function(self.reader)(source)
        except RecursionError:
            raise FormatError(source.path, None, "brackets nested less deeply", "too many of them") from None
        return found

    def write(self, problem: Model | Dcop) -> WrittenFile:
        """Return the content of a file for a problem."""
        written: WrittenFile = _function(self.writer)(problem)
        return written

    def has_signature(self, head: str) -> bool:
        """Whether a file begins as only files of this format do."""
        return self.signature != "" and _begins(self.signature, head)

    def is_likely(self, head: str, tier: int) -> bool:
        """Whether a file begins as files of this format do, by its pattern of a tier."""
        return tier < len(self.beginnings) and _begins(self.beginnings[tier], head)


def _function(place: str) -> Callable[..., Any]:
    module, function = place.split(":")
    found: Callable[..., Any] = getattr(import_module(f".{module}", __package__), function)
    return found


def _begins(pattern: str, head: str) -> bool:
    return re.compile(pattern, re.MULTILINE).match(head) is not None


#: All formats, in the order in which weak patterns are tried: a new one needs its row, its reader, and its elements in
#: ``tests/pipeline/formats/test_elements.py``.
FORMATS = (
    Format(
        "JSON, as a .cfn is",
        "cfn:read_cfn",
        suffixes=(".cfn",),
        shared=(".json",),
        signature=r'\s*\{(?!(?s:.*)"GumJsonVersion"\s*:)',
        model=r"\s*\{(?s:.*?)[\"']?(?:variables|functions)[\"']?\s*:",
        writer="cfn:cfn_file",
        keeps=frozenset({"names"}),
        about="JSON; tables, tuples, default costs, shared tables and [global cost "
        "functions](docs/global-functions.md) as in toulbar2, decimals exact",
    ),
    Format(
        "a model of the UAI format (.uai)",
        "uai:read_uai",
        suffixes=(".uai",),
        signature=r"\s*(?i:MARKOV|BAYES)\b",
        writer="uai:uai_file",
        about="MARKOV and BAYES; all dialects of `.evid`; the order in which pgmpy lists tables is recognised",
    ),
    Format(
        "a model of natural logarithms (.LG)",
        "uai:read_uai",
        suffixes=(".LG",),
        about="as `.uai`, of natural logarithms",
    ),
    Format(
        "a network of the interchange format (.bif)",
        "bayesian.bif:read_bif",
        suffixes=(".bif",),
        signature=r"(?:\s|//[^\n]*\n)*+(?:(?:network|variable)\b[^{};\n]*\{|probability\s*\()",
        beginnings=(r"(?:\s|//[^\n]*\n)*+(?:network|variable|probability)\b",),
        writer="bayesian.network_files:bif_file",
        keeps=frozenset({"names"}),
        about="interchange format 0.15: rows or whole tables, labels as bnlearn writes them",
    ),
    Format(
        "XMLBIF (.bifxml)",
        "bayesian.bayesian_xml:read_xmlbif",
        suffixes=(".bifxml", ".xmlbif"),
        shared=(".xml",),
        signature=r"\s*<(?s:.*<)?BIF[\s>]",
        about="XMLBIF 0.3, full tables",
    ),
    Format(
        "a GeNIe network (.xdsl)",
        "bayesian.bayesian_xml:read_xdsl",
        suffixes=(".xdsl",),
        shared=(".xml",),
        signature=r"\s*<(?s:.*<)?smile[\s>]",
        about="GeNIe: nodes with full tables, functions of their parents, noisy maxima",
    ),
    Format(
        "a Hugin network (.net)",
        "bayesian.hugin:read_hugin",
        suffixes=(".net",),
        signature=r"(?:\s|%[^\n]*\n)*+net\s*\{",
        beginnings=(r"(?:\s|%[^\n]*\n)*+(?:net\s*\{|class\s+\w)",),
        writer="bayesian.network_files:net_file",
        keeps=frozenset({"names"}),
        about="Hugin: discrete chance nodes, tables of probabilities or counts",
    ),
    Format(
        "a network of aGrUM (.jgum)",
        "bayesian.agrum_json:read_jgum",
        suffixes=(".jgum", ".bgum"),
        signature=r'\s*\{(?s:.*)"GumJsonVersion"\s*:',
        about="networks that aGrUM saves: tables, noisy-OR and noisy-AND, aggregators",
    ),
    Format(
        "a network of GeNIe or aGrUM (.dsl)",
        "bayesian.block_networks:read_dsl",
        suffixes=(".dsl",),
        signature=r"(?:\s|//[^\n]*\n)*+net\s+[^\s{]+\s*\{",
        about="GeNIe's and aGrUM's: tables, truth tables, noisy maxima",
    ),
    Format(
        "a Netica network (.dne)",
        "bayesian.block_networks:read_dne",
        suffixes=(".dne", ".dnet"),
        signature=r"\s*//\s*~->\[DNET|(?:\s|//[^\n]*\n)*+bnet\s+\w+\s*\{",
        about="Netica: tables and functions; equations once Netica made tables of them",
    ),
    Format(
        "a network of Microsoft's tools (.dsc)",
        "bayesian.bif:read_dsc",
        suffixes=(".dsc",),
        signature=r"(?:\s|//[^\n]*\n)*+belief\s+network\b",
        about="Microsoft's, as bnlearn writes it",
    ),
    Format(
        "DIMACS clauses (.cnf or .wcnf)",
        "dimacs:read_dimacs",
        suffixes=(".cnf", ".wcnf"),
        signature=r"(?:\s|c[^\n]*\n)*+p[ \t]+\w*cnf\+?\s",
        beginnings=(r"(?:\s|c[^\n]*\n)*+h(?:[ \t]+-?\d+)*[ \t]+0[ \t]*\r?\n",),
        about="DIMACS: clauses, weights of literals as in model counting, Cachet and miniC2D, weighted MaxSAT "
        "with `p wcnf` or lines `h`, decimals exact; projections (`c p show`, `c ind`)",
    ),
    Format(
        "a pseudo-Boolean problem (.opb or .wbo)",
        "linear.opb:read_opb",
        suffixes=(".opb", ".wbo"),
        # The repetition is not possessive: before Python 3.11.5 a possessive repetition fails if a lookahead inside it
        # fails.
        signature=r"(?:\s|\*(?!\s*#variable=)[^\n]*\n)*(?:\*\s*#variable=|(?:min|max|soft)\s*:)",
        about="pseudo-Boolean: products of literals, constraints hard or at a cost",
    ),
    Format(
        "a linear problem of integers (.lp)",
        "linear.lp:read_lp",
        suffixes=(".lp",),
        signature=r"(?:\s|\\[^\n]*\n)*+(?i:minimi[sz]e|maximi[sz]e)\s*:?\s*\n",
        about="CPLEX's: bounded integers, linear and quadratic objective and constraints",
    ),
    Format(
        "a quadratic pseudo-Boolean problem (.qpbo)",
        "linear.toulbar2_problems:read_qpbo",
        suffixes=(".qpbo", ".bqp"),
        beginnings=(r"\s*-?\d+[ \t]+-?\d+[ \t]*\r?\n\s*\d+[ \t]+\d+[ \t]+-?[\d.]+[ \t]*\r?\n",),
        about="toulbar2's quadratic problems of 0 and 1, or 1 and -1",
    ),
    Format(
        "a pedigree (.pre)",
        "linear.toulbar2_problems:read_pedigree",
        suffixes=(".pre",),
        beginnings=(r"\s*(?:\d+[ \t]+){6}\d+[ \t]*\r?\n",),
        about="toulbar2's pedigrees of one locus: the fewest genotypings that are wrong",
    ),
    Format(
        "photographs of SPOT 5 (.spot)",
        "linear.toulbar2_problems:read_spot",
        suffixes=(".spot",),
        about="SPOT 5's photographs: profits, cameras, tuples that are forbidden, the recorder's capacity",
    ),
    Format(
        "photographs of an agile satellite (.bep)",
        "linear.toulbar2_problems:read_bep",
        suffixes=(".bep",),
        beginnings=(r"#[^\n]*\bbep\b",),
        about="toulbar2's photographs of an agile satellite: when each is taken, with delays between every two",
    ),
    Format(
        "XCSP (.xml)",
        "dcop.xcsp:read_xcsp",
        shared=(".xml",),
        signature=r"\s*<(?s:.*<)?instance(?=[\s>])(?![^>]*XCSP3)",
        writer="dcop.xcsp:xcsp_file",
        keeps=frozenset({"names", "agents"}),
        about="XCSP 2.1 as FRODO has it, XDisCSP: soft and hard relations of agents, allDifferent",
    ),
    Format(
        "XCSP3 (.xml)",
        "xcsp3.xcsp3:read_xcsp3",
        shared=(".xml",),
        signature=r"\s*<(?s:.*<)?instance\s[^>]*XCSP3",
        about="XCSP3, core: integers, tables, expressions, sums, counts, extremes, elements, automata, orders, "
        "circuits, schedules, packing; an objective",
    ),
    Format(
        "FlatZinc (.fzn)",
        "flatzinc.flatzinc:read_flatzinc",
        suffixes=(".fzn",),
        about="MiniZinc's compiled models: integers and booleans, sums, tables, elements, counts, circuits, schedules, "
        "reified comparisons, an objective",
    ),
    Format(
        "a problem of pyDCOP (.yaml)",
        "dcop.pydcop:read_pydcop",
        shared=(".yaml", ".yml"),
        beginnings=(r"(?s:.*?)^(?:domains|variables)[ \t]*:",),
        model=r"(?s:.*?)^(?:domains|variables)[ \t]*:",
        writer="dcop.pydcop:pydcop_file",
        keeps=frozenset({"names", "agents"}),
        about="pyDCOP: intention (evaluated, never run), extension, agents and what they cost",
    ),
    Format(
        "a cost network (.wcsp)",
        "wcsp:read_wcsp",
        suffixes=(".wcsp",),
        beginnings=(r"\s*\S+(?:[ \t]+\d+){4}\s*\n", r"\s*\S+(?:\s+\d+){4}"),
        writer="wcsp:wcsp_file",
        about="default costs, shared functions, [global cost functions](docs/global-functions.md), interval domains",
    ),
    Format(
        "a Markov network without a header (.erg)",
        "uai:read_erg",
        suffixes=(".erg",),
        beginnings=(r"\s*\d+[ \t]*\r?\n\s*\d",),
        about="Markov and Bayesian networks of the first evaluations",
    ),
)
_SUFFIXES = tuple(dict.fromkeys(suffix for form in FORMATS for suffix in (*form.suffixes, *form.shared)))
_KNOWN = "a model in a format that `bucketflow formats` lists"
# Pairs of formats whose names are interchangeable: JSON is YAML, and only the name marks logarithms.
_ALIKE = {
    ("a problem of pyDCOP (.yaml)", "JSON, as a .cfn is"),
    ("a model of natural logarithms (.LG)", "a model of the UAI format (.uai)"),
}


def _called(suffix: str) -> tuple[Format, ...]:
    """Return the formats whose files may have a suffix, in lower case."""
    return tuple(form for form in FORMATS if suffix in map(str.lower, (*form.suffixes, *form.shared)))


def is_model(path: Path) -> bool:
    """Whether a file is called as models are, and where other files are too, begins as they do."""
    suffix = Path(strip_compression(path.name)).suffix.lower()
    forms = _called(suffix)
    if not any(suffix in form.shared for form in forms):
        return bool(forms)
    begins = beginning(path, _HEAD_BYTES)
    return begins is None or any(_begins(form.model or form.signature, begins) for form in forms)


def detect_format(source: Source) -> Format:
    """Return the format of a source.

    Raises
    ------
    FormatError
        If the file is empty or of a kind that is not read, if its name and its content contradict each other, or if
        neither says what it is.
    """
    if re.search(rb"[^ \t\n\r\f\v]", source.data) is None:
        raise UnreadableError(source.path, "the file is empty")
    head, forms = source.head(_HEAD_BYTES), _called(source.suffix)
    named = forms[0] if len(forms) == 1 else None
    if named is not None and source.suffix in BINARY:  # their first bytes are a length, and mean nothing as text
        return named
    if what := unread_by_name(source.suffix) or unread_by_content(head, named is not None, source.suffix):
        raise UnreadableError(source.path, f"this is {what}")
    if named is None:
        return _by_content(source, head)
    if named.is_likely(head, 0):  # a .wcsp may have any name on its first line
        return named
    found = _signed(head) or named
    if found is not named and (named.name, found.name) not in _ALIKE:
        expected = f"what the name {source.suffix} says"
        raise FormatError(source.path, None, expected, f"{found.name}: name the file as what it is")
    return named


def _signed(head: str) -> Format | None:
    """Return the format whose signature a file has."""
    return next((form for form in FORMATS if form.has_signature(head)), None)


def _by_content(source: Source, head: str) -> Format:
    tiers = range(max(len(form.beginnings) for form in FORMATS))
    likely = (form for tier in tiers for form in FORMATS if form.is_likely(head, tier))
    found = _signed(head) or next(likely, None)
    if found is not None:
        return found
    root = re.match(r"\s*(?:<[?!](?s:.*?)>\s*)*<(\w[\w:.-]*)", head)
    begins = f"XML of <{shorten(root[1])}>" if root else f"a file that begins {shorten(head.lstrip())!r}"
    raise FormatError(source.path, None, _KNOWN, begins)


def known_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that are read."""
    return _SUFFIXES


def written_suffixes() -> str:
    """Name the suffixes of files that are written."""
    found = [suffix for form in FORMATS if form.writer for suffix in (form.suffixes or form.shared)[:1]]
    return f"{', '.join(found[:-1])} or {found[-1]}"


def written_format(suffix: str) -> Format | None:
    """Return the format in which files with a suffix, in lower case, are written; None if none is."""
    return next((form for form in _called(suffix) if form.writer), None)


_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@public
def formats() -> list[dict[str, Any]]:
    """Return one row for each model format, in the order of recognition.

    Returns
    -------
    list of dict
        ``suffixes`` of its files, whether the format is ``read`` and ``written``, and ``about``: its purpose.

    Examples
    --------
    >>> import bucketflow
    >>> [row["suffixes"][0] for row in bucketflow.formats()][:3]
    ['.cfn', '.uai', '.LG']
    """
    return [
        {
            "suffixes": list(_suffixes(form)),
            "read": True,
            "written": bool(form.writer),
            "about": _LINK.sub(r"\1", form.about).replace("`", ""),
        }
        for form in FORMATS
    ]


def unread_formats() -> list[dict[str, Any]]:
    """Return one row for each known but unsupported kind of file: suffixes, description, alternative."""
    return [
        {"suffixes": list(suffixes), "what": kind.what, "instead": kind.instead}
        for kind, suffixes in unread_kinds().items()
    ]


def markdown_table() -> str:
    """Return the table of formats as Markdown, for the site."""
    rows = ["| format | read | written | what for |", "|---|---|---|---|"]
    for form in FORMATS:
        named = ", ".join(f"`{suffix}`" for suffix in _suffixes(form))
        rows.append(f"| {named} | yes | {'yes' if form.writer else 'no'} | {form.about} |")
    return "\n".join(rows)


def _suffixes(form: Format) -> tuple[str, ...]:
    return form.suffixes or form.shared
