"""The public benchmark instances: what MANIFEST.tsv lists, their evidence and their known answers."""

from __future__ import annotations

import csv
import json
import lzma
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bucketflow.pipeline.models.model import Function, Model

Query = Literal["optimum", "partition"]
Relation = Literal["=", "<=", ">="]
Evidence = str | Mapping[str, str] | None

#: Kinds of files that bucketflow reads; the manifest may add how a file was made, as in ``wcsp(generated)``.
KINDS = ("wcsp", "cfn", "uai", "bif", "hugin-net")
#: A .PR file has six significant digits, with trailing zeros dropped.
PRINTED_DIGITS = 6
#: Logarithms computed in float64 by another program, printed with ten digits.
COMPUTED = Decimal("1e-6")
_ENTRY = re.compile(
    r"(?:log10(?P<what>Z|MPE|\(\.MAP\))=)?(?P<bound><=)?"
    r"(?P<value>-?inf|infeasible|-?[\d.]+(?:e[+-]?\d+)?)(?: \((?P<source>.*)\))?"
)


@dataclass(frozen=True)
class Reference:
    """A published answer: ``ours relation value``, within a tolerance; a value of None is infeasible."""

    query: Query
    value: Decimal | None
    relation: Relation
    tolerance: Decimal
    source: str

    def agrees(self, ours: Decimal | None) -> bool:
        """Tell whether an answer agrees; an infeasible problem is no better than any bound."""
        if ours is None or self.value is None:
            return ours is None and self.value is None
        if self.relation == "<=":
            return ours <= self.value + self.tolerance
        if self.relation == ">=":
            return ours >= self.value - self.tolerance
        return abs(ours - self.value) <= self.tolerance

    def __str__(self) -> str:
        mark = {"=": "", "<=": "≤ ", ">=": "≥ "}[self.relation]
        return "infeasible" if self.value is None else f"{mark}{self.value:.10g}"


@dataclass(frozen=True)
class Question:
    """One query on one file, with what is known about its answer."""

    path: Path
    name: str
    log2_clique: float
    query: Query
    evidence: Evidence
    references: tuple[Reference, ...]


@dataclass(frozen=True)
class Correction:
    """A published answer that is wrong: the right value, or None where only the error is known."""

    name: str
    query: Query
    source: str
    value: Decimal | None
    reason: str


CORRECTIONS = (
    Correction(
        "cfn/alarm.cfn",
        "optimum",
        "",
        Decimal("3.086727"),
        "toulbar2 counts the minimum of the 4- and 5-ary tables twice; the file's own entries at its assignment sum "
        "to this",
    ),
    Correction("relational_3", "partition", ".PR", Decimal("376.7166562"), "the file differs from exact elimination"),
    Correction("sat-grid-pbl-0010", "partition", ".PR", None, "an empty clause is ignored"),
    Correction("linkage_15", "partition", ".PR", Decimal("-73.87290745"), "three exact contractions agree on this"),
    Correction("linkage_23", "optimum", ".MAP", None, "the assignment has probability 0"),
    Correction("linkage_25", "optimum", ".MAP", None, "the assignment has probability 0"),
)


def labels(model: Model, name: str, states: Any) -> Any:
    """Return the labels of states as an array of objects; of a variable without labels, the states."""
    names = model.states[model.names.index(name)]
    return np.asarray(states, object) if names is None else np.array(names, object)[states]


def grid_model(rows: int, columns: int, states: int, kind: Literal["cost", "markov"] = "cost") -> Model:
    """Return a grid with random pairwise functions, of costs or of probabilities."""
    pairs = []
    for here in range(rows * columns):
        below = here + columns
        pairs += [(here, here + 1)] * (below % columns < columns - 1) + [(here, below)] * (below < rows * columns)
    return _pairwise(rows * columns, states, pairs, kind)


def clique_model(variables: int, kind: Literal["cost", "markov"] = "cost") -> Model:
    """Return a complete graph of binary variables: its buckets are a large table and ever smaller ones."""
    return _pairwise(variables, 2, list(combinations(range(variables), 2)), kind)


def _pairwise(variables: int, states: int, pairs: list[tuple[int, int]], kind: Literal["cost", "markov"]) -> Model:
    rng = np.random.default_rng(0)
    shape = (len(pairs), states, states)
    drawn = rng.integers(0, 4, shape) if kind == "cost" else rng.random(shape)
    functions = tuple(Function(pair, values) for pair, values in zip(pairs, drawn, strict=True))
    names = tuple(f"x{v}" for v in range(variables))
    labels = tuple(map(str, range(states)))
    top = 10**6 if kind == "cost" else None
    return Model(kind, names, (states,) * variables, (labels,) * variables, functions, top=top)


def questions(folder: Path) -> Iterator[Question]:
    """Yield both queries of every instance of the manifest, known or not; costs have an optimum only."""
    with open(folder / "MANIFEST.tsv", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["kind"].removesuffix("(erg)").partition("(")[0] not in KINDS or "noisy" in row["kind"]:
                continue
            costs = row["kind"].startswith(("wcsp", "cfn"))
            asked: tuple[Query, ...] = ("optimum",) if costs else ("partition", "optimum")
            for query in asked:
                yield from _cases(folder, row, query)


def _cases(folder: Path, row: Mapping[str, str], query: Query) -> Iterator[Question]:
    """Yield a query with the evidence beside the model, and with each case of its table of posteriors."""
    name = row["path"]
    clique = float(row["log2_largest_clique"] or 0)
    path = folder / name
    stem = path.name.partition(".")[0]
    posteriors = path.parent / "ref" / f"{stem}.json.xz"
    if row["kind"] == "bif" and posteriors.exists():
        for evidence, reference in _computed_cases(posteriors, query):
            label = f"{name} | {len(evidence)}" if evidence else name
            yield Question(path, label, clique, query, evidence, (reference,))
        return
    known = tuple(_corrected(name, r) for r in parse_known(row["known_answer"]) if r.query == query)
    best = _preferred([r for r in known if r is not None])
    # The manifest says where it could not read the evidence; its answers are then those without.
    evidence = None if row["note"].startswith("PARSE") else evidence_beside(path)
    yield Question(path, name, clique, query, evidence, best)


def _computed_cases(path: Path, query: Query) -> Iterator[tuple[dict[str, str], Reference]]:
    with lzma.open(path) as file:
        cases = json.load(file)["cases"]
    key = {"partition": "log10_Pe_ve", "optimum": "log10_MPE_ve"}[query]
    for case in cases:
        yield case["evidence"], _computed(query, Decimal(repr(case[key])), "=", "numpy VE")


def evidence_beside(path: Path) -> str | None:
    """Return the evidence file that belongs to a model: its name without compression, or without any suffix."""
    plain = path.with_suffix("") if path.suffix in (".gz", ".xz") else path
    for stem in (plain, plain.with_suffix("")):
        for suffix in (".evid", ".evid.gz", ".evid.xz"):
            if (found := Path(f"{stem}{suffix}")).exists():
                return str(found)
    return None


def marginal_map_instances(folder: Path) -> Iterator[tuple[str, Path | None, Path]]:
    """Yield the name, the model and the file of outer variables of every instance of marginal MAP."""
    models = {
        path.name.split(".uai")[0]: path
        for path in sorted((folder / "uai").rglob("*.uai*"))
        if "map" not in path.suffixes[-1]
    }
    for outer in sorted((folder / "uai").glob("mmap_*/*map*")):
        name = outer.name.split(".uai.map")[0].split(".map")[0]
        yield name, models.get(name.split(".Q0")[0]), outer


def parse_known(text: str) -> list[Reference]:
    """Read the manifest's known answers; names of further reference files are skipped."""
    matches = (_ENTRY.fullmatch(part.strip()) for part in text.split(";"))
    return [_reference(m["what"], m["bound"], m["value"], m["source"] or "") for m in matches if m]


def _reference(what: str | None, bound: str | None, text: str, source: str) -> Reference:
    value = None if text in ("infeasible", "-inf") else Decimal(text)
    if what is None:
        feasible_only = bound is not None or "NOT proved" in source
        return Reference("optimum", value, "<=" if feasible_only else "=", Decimal(0), source)
    if what == "Z":
        return _printed(value, source) if source == ".PR" else _computed("partition", value, "=", source)
    if what == "MPE":
        return _computed("optimum", value, "=", source)
    return _computed("optimum", value, ">=", ".MAP")


def _computed(query: Query, value: Decimal | None, relation: Relation, source: str) -> Reference:
    return Reference(query, value, relation, COMPUTED * max(Decimal(1), abs(value or Decimal(0))), source)


def _printed(value: Decimal | None, source: str) -> Reference:
    """Allow half a unit of the last digit, and a millionth of it for the binary number that was printed."""
    digits = max(PRINTED_DIGITS, len(value.as_tuple().digits)) if value else PRINTED_DIGITS
    exponent = math.floor(math.log10(abs(value))) if value else 0
    half = Decimal(10) ** (exponent + 1 - digits) / 2
    return Reference("partition", value, "=", half * Decimal("1.000001"), source)


def _corrected(name: str, reference: Reference) -> Reference | None:
    for wrong in CORRECTIONS:
        if wrong.name in name and wrong.query == reference.query and wrong.source in reference.source:
            if wrong.value is None:
                return None
            tolerance = Decimal(0) if reference.tolerance == 0 else COMPUTED * abs(wrong.value)
            return replace(reference, value=wrong.value, tolerance=tolerance, source="corrected")
    return reference


def _preferred(references: list[Reference]) -> tuple[Reference, ...]:
    """Keep exact answers before bounds, and ten digits before six."""
    exact = [r for r in references if r.relation == "="]
    computed = [r for r in exact if r.source != ".PR"]
    return tuple(computed or exact or references)
