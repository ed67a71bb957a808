"""Lists of questions: CSV, JSON lines, YAML, or a folder of models."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from glob import glob, has_magic
from hashlib import file_digest, sha256
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Any, ClassVar

from ..errors import FormatError, ModelError, shorten
from ..examples import file_or_example
from ..models.query import QUERIES

# A question of a batch: one row of its list, and what it is known by.


@dataclass(frozen=True)
class Row:
    """A question.

    Parameters
    ----------
    number : int
        In the list, from 1.
    name : str
        What the list calls it.
    model : str
        Path of the file.
    query : str
    evidence : str, mapping or None
        A file, ``x=v`` pairs, or name → state (or likelihoods, for marginals).
    memory : str or None
    order_time, time : float or None
        Seconds for the search of orders, and until an optimum is left between its bounds.
    priority : int
        Higher ones are answered first.
    problem : str
        What is wrong with the row itself; it is not asked then.
    check : bool
        Whether a Bayesian network has to be one.
    """

    number: int
    name: str
    model: str
    query: str = "optimum"
    evidence: str | Mapping[str, Any] | None = None
    memory: str | None = None
    order_time: float | None = None
    time: float | None = None
    priority: int = 0
    problem: str = ""
    check: bool = True

    @property
    def settings(self) -> tuple[str, str | None, float | None, float | None]:
        """What rows have to agree in to share a tree."""
        return self.query, self.memory, self.order_time, self.time

    def shown_evidence(self) -> str:
        """Return the evidence as text."""
        if self.evidence is None:
            return ""
        return self.evidence if isinstance(self.evidence, str) else json.dumps(self.evidence)

    def key(self) -> str:
        """Return a hash of all that the answer depends on: bytes of the model, evidence, options.

        Raises
        ------
        FormatError
            If a file cannot be read.
        """
        evidence = self.evidence
        if isinstance(evidence, str) and isfile(evidence):
            evidence = hash_of(evidence)
        asked = [hash_of(self.model), self.query, evidence, self.memory, self.order_time, self.time]
        asked += [] if self.check else ["unchecked"]
        return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def wrong(self, problem: str) -> Row:
        """The row with what is wrong with it."""
        return replace(self, problem=problem)


def hash_of(path: str) -> str:
    """Return a hash of a file's bytes, read again where the file was touched.

    Raises
    ------
    FormatError
        If it cannot be read.
    """
    try:
        status = Path(path).stat()
        return _hashed(path, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError) as error:  # a NUL in a name is a ValueError
        raise FormatError(path, None, "a file", getattr(error, "strerror", None) or str(error)) from None


@lru_cache(maxsize=100_000)
def _hashed(path: str, mtime_ns: int, size: int) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


_KNOWN = ("model", "query", "evidence", "memory", "order-time", "time", "name", "priority")
_MODELS = (".wcsp", ".cfn", ".uai", ".erg", ".bif", ".bifxml", ".xmlbif", ".xdsl", ".net", ".cnf", ".wcnf")
_PACKED = (".gz", ".xz")
# What is not text in a list in YAML, and how it begins.
_YAML_KINDS = (
    ("int", "[-+]?(?:0|[1-9][0-9]*)", [*"-+0123456789"]),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", ["<"]),
)


def read_manifest(path: str | os.PathLike[str], query: str = "optimum") -> list[Row]:
    """Read the questions of a batch; ``query`` is that of rows that name none.

    Raises
    ------
    FormatError
        If the list itself cannot be read. What is wrong with one row is kept in it.
    """
    place = Path(path)
    if isdir(place):
        files = sorted(p for p in place.rglob("*") if is_model(p) and p.is_file())
        if not files:
            raise FormatError(str(path), None, "models in the folder", "none")
        return [Row(k, str(file.relative_to(place)), str(file), query) for k, file in enumerate(files, 1)]
    rows: list[Row] = []
    for line, entry in _entries(place):
        for row in _rows(str(path), line, entry, place.parent, query):
            number = len(rows) + 1
            rows.append(replace(row, number=number, name=row.name or str(number)))
    return rows


def is_model(path: Path) -> bool:
    """Whether a file is named as models are, packed or not."""
    name = path.name.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    return name.endswith(_MODELS)


def _entries(path: Path) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Rows as mappings, with their lines."""
    kind = path.suffix.lower()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            if kind in (".yaml", ".yml"):
                yield from _yaml_entries(str(path), file.read())
            elif kind in (".jsonl", ".ndjson", ".json"):
                yield from _json_entries(str(path), file)
            elif kind == ".csv":
                yield from _csv_entries(str(path), csv.DictReader(file, restkey=None))
            else:
                raise FormatError(str(path), None, "a folder, or a list in .csv, .jsonl or .yaml", repr(path.name))
    except OSError as error:
        raise FormatError(str(path), None, "a list of questions", error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise FormatError(str(path), None, "text in UTF-8", "other bytes") from None


def _csv_entries(path: str, reader: csv.DictReader[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        if twice := [name for k, name in enumerate(names) if name in names[:k]]:
            raise FormatError(path, reader.line_num, "different columns", f"{twice[0]!r} twice")
        for entry in reader:
            if None in entry:
                raise FormatError(path, reader.line_num, f"{len(names)} cells", "more")
            yield reader.line_num, {name.strip(): cell.strip() for name, cell in entry.items() if cell and cell.strip()}
    except csv.Error as error:
        raise FormatError(path, reader.line_num, "comma-separated values", str(error)) from None


def _json_entries(path: str, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FormatError(path, number, "a JSON object", str(error)) from None
            yield number, _mapping(path, number, entry)


def _yaml_entries(path: str, text: str) -> Iterator[tuple[None, Mapping[str, Any]]]:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Reads what is no whole number as text: yes, 12:30 and 010 are labels of states."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    for tag, pattern, beginnings in _YAML_KINDS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), beginnings)
    try:
        entries = yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FormatError(path, None, "YAML", " ".join(str(error).split())) from None
    if not isinstance(entries, list):
        raise FormatError(path, None, "a list of questions", type(entries).__name__)
    for entry in entries:
        yield None, _mapping(path, None, entry)


def _mapping(path: str, line: int | None, entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        found = repr(entry)[:40] if isinstance(entry, str) else type(entry).__name__
        raise FormatError(path, line, "names with values, such as model and query", found)
    return entry


def _rows(path: str, line: int | None, entry: Mapping[str, Any], base: Path, query: str) -> Iterator[Row]:
    """Rows of an entry, without numbers and perhaps names: several where the model is a pattern."""
    entry = {str(name).replace("_", "-"): value for name, value in entry.items() if value is not None}
    unknown = [name for name in entry if name not in _KNOWN]
    if unknown:
        raise FormatError(path, line, f"columns among {', '.join(_KNOWN)}", repr(unknown[0]))
    if "model" not in entry:
        raise FormatError(path, line, "a column 'model'", ", ".join(entry) or "nothing")
    pattern, problem = str(entry["model"]), ""
    files = sorted(glob(str(base / pattern), recursive=True)) if has_magic(pattern) else [_file(base, pattern)]
    try:
        what = _settings(entry, base, query)
    except ModelError as error:
        what, problem = {}, str(error)
    for file in files or [pattern]:
        problem = problem or ("" if files else f"no file fits {pattern!r}")
        name = str(entry.get("name", ""))
        if len(files) > 1:
            yield Row(0, f"{name} {Path(file).name}".strip(), file, problem=problem, **what)
        else:
            yield Row(0, name, file, problem=problem, **what)


def _file(base: Path, name: str) -> str:
    return str(base / name) if exists(base / name) else os.fspath(file_or_example(name))


def _settings(entry: Mapping[str, Any], base: Path, query: str) -> dict[str, Any]:
    query = str(entry.get("query", query))
    if query not in QUERIES:
        raise ModelError(f"unknown query {query!r}; one of {', '.join(QUERIES)}")
    evidence = _evidence(entry.get("evidence"))
    if isinstance(evidence, str) and isfile(base / evidence):
        evidence = str(base / evidence)
    return {
        "query": query,
        "evidence": evidence,
        "memory": None if "memory" not in entry else str(entry["memory"]),
        "order_time": _number(entry, "order-time"),
        "time": _number(entry, "time"),
        "priority": int(_number(entry, "priority") or 0),
    }


def _evidence(given: Any) -> Any:
    """Check that evidence is text, or a state or a list of likelihoods by name."""
    if not (given is None or isinstance(given, str | dict)):
        raise ModelError(f"evidence is a file, x=1,y=yes or states by name; found {type(given).__name__}")
    for name, finding in given.items() if isinstance(given, dict) else ():
        values = finding if isinstance(finding, list) else [finding]
        if not (isinstance(name, str) and all(isinstance(value, str | int | float) for value in values)):
            raise ModelError(f"evidence on {shorten(repr(name))} is no state and no list of likelihoods")
    return given


def _number(entry: Mapping[str, Any], name: str) -> float | None:
    try:
        return float(entry[name]) if name in entry else None
    except (TypeError, ValueError):
        raise ModelError(f"{name} is {entry[name]!r}; it must be a number") from None
