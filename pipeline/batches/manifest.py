"""Lists of questions: CSV, JSON lines, YAML, or a folder of models."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from glob import glob, has_magic
from hashlib import file_digest, sha256
from os.path import exists, getsize, isdir, isfile
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from ...cluster.memory import default_memory_bytes
from ..errors import MOST_NAMED, FormatError, ModelError, UnreadableError, json_fault, printable, shorten, unreadable
from ..examples import file_or_example
from ..formats.registry import is_model, known_suffixes
from ..formats.text.source import Source, read_source
from ..formats.text.yaml import Dialect, YamlNode, read_tree, shown
from ..local_paths import local_path
from ..models.findings import is_missing
from ..models.frames import need_pyarrow
from ..models.model import Model
from ..models.query import COLUMN_ROWS, QUERIES
from ..options import parse_size

Manifest = str | os.PathLike[str] | Any
"""A file, a folder, a data frame, or a list of mappings."""
Entry = tuple[int | None, Mapping[str, Any] | FormatError]
"""The line of a row, where it has one, and its cells by column, or why the line is no row."""

# A question of a batch: one row of its list, and what it is known by.


@dataclass(frozen=True)
class Row:
    """A question.

    Parameters
    ----------
    number : int
        In the list, from 1.
    name : str
        Its name in the list.
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
        The row's own fault; a faulty row is not answered.
    check : bool
        Whether a Bayesian network has to be one.
    project, maximize : str, tuple of str or None
        Variables to project a count on, and variables of marginal MAP: a file, ``x,y``, or names.
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
    project: str | tuple[str, ...] | None = None
    maximize: str | tuple[str, ...] | None = None

    @property
    def settings(self) -> tuple[Any, ...]:
        """Return the settings that rows must share to use one tree: the query, all options, and the variables."""
        return self.query, *(getattr(self, row.name) for row in COLUMN_ROWS), *self.named

    @property
    def named(self) -> tuple[Any, ...]:
        """Return the projection variables and the variables of marginal MAP; () if there are neither."""
        return () if self.project is None and self.maximize is None else (self.project, self.maximize)

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
        query, *own = self.settings
        own[len(COLUMN_ROWS) :] = map(_content, self.named)
        asked = [hash_of(self.model), query, _content(self.evidence), *own]
        asked += [] if self.check else ["unchecked"]
        return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def wrong(self, problem: str) -> Row:
        """Return the row with its fault."""
        return replace(self, problem=problem)


def _content(given: Any) -> Any:
    """Return a hash of a file's bytes, or the value itself if it is not a file."""
    return hash_of(given) if isinstance(given, str) and isfile(given) else given


def hash_of(path: str) -> str:
    """Return a hash of a file's bytes, read again where the file was touched.

    Raises
    ------
    FormatError
        If it cannot be read.
    """
    try:
        status = Path(path).stat()
        if not (S_ISREG(status.st_mode) or S_ISDIR(status.st_mode)):  # which may have no end
            raise UnreadableError(path, "this is a device or a pipe; give the path of a file")
        return _hashed(path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
    except (OSError, ValueError) as error:  # a NUL in a name is a ValueError
        raise unreadable(path, error) from None


@lru_cache(maxsize=100_000)
def _hashed(path: str, *_: int) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


COLUMNS = ("model", "query", "evidence", "project", "maximize", *(row.flag for row in COLUMN_ROWS), "name", "priority")
# Aliases and merged dictionaries are read; what is no whole number is text, and how numbers and the rest begin.
_YAML = Dialect(
    aliases=True,
    kinds=(
        ("int", "[-+]?(?:0|[1-9][0-9]*)", tuple("-+0123456789")),
        ("null", "~|null|Null|NULL|", ("~", "n", "N", "")),
        ("merge", "<<", ("<",)),
    ),
)
# Rows ahead of or behind all others.
_MOST_PRIORITY = 10**9


def read_manifest(
    path: Manifest,
    query: str = "optimum",
    results: Path | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> list[Row]:
    """Read the questions of a batch.

    Parameters
    ----------
    path : path, data frame, or sequence of mappings
        A list, or a folder of models.
    query : str
        That of rows that name none.
    results : Path, optional
        The folder of the batch, which is not looked at for models.
    note : callable
        Called with a sentence about what of a folder is no question.

    Raises
    ------
    FormatError
        If the list itself cannot be read. The fault of a single row is stored in the row.
    ModelError
        If the query is none.
    """
    _query(query)
    if not isinstance(path, str | os.PathLike):
        return _numbered("the list", _given_entries(path), Path(), query)
    place = local_path(path)
    if isdir(place):
        return [
            Row(k, str(file.relative_to(place)), str(file), query)
            for k, file in enumerate(_models(place, results, note), 1)
        ]
    return _numbered(str(path), _entries(place), place.parent, query, keep_bad=True)


SaveText = Callable[[str, str], str]
"""Returns the path of a file that has a text, in the format of a suffix."""


def read_lines(lines: Iterable[str], base: Path, query: str, save_text: SaveText) -> list[Row]:
    """Read queries from a request: JSON lines with the columns of a list.

    In place of ``model`` they may have ``text``, a model itself, and ``format``, the suffix of such files.

    Parameters
    ----------
    lines : iterable of str
    base : Path
        Where relative paths are seen from.
    query : str
        That of rows that name none.
    save_text : callable

    Raises
    ------
    FormatError
        If a line is not a query. The fault of its columns is stored in the row.
    ModelError
        If the query is none.
    """
    _query(query)
    what = "the request"
    return _numbered(what, ((k, _saved(what, k, row, save_text)) for k, row in _json_entries(what, lines)), base, query)


def _saved(
    path: str, line: int | None, entry: Mapping[str, Any] | FormatError, save_text: SaveText
) -> Mapping[str, Any]:
    """Return a row whose model is a file in place of a text."""
    if isinstance(entry, FormatError):
        raise entry
    if not entry.keys() & {"text", "format"}:
        return entry
    text, suffix = entry.get("text"), f".{str(entry.get('format', '')).removeprefix('.')}"
    if "model" in entry or not isinstance(text, str):
        raise FormatError(
            path, line, "either a column 'model', or a text in 'text' and its 'format'", "both or neither"
        )
    if suffix not in (known := known_suffixes()):
        raise FormatError(path, line, f"a column 'format' among {', '.join(known)}", shorten(repr(suffix)))
    rest = {name: value for name, value in entry.items() if name not in ("text", "format")}
    return {**rest, "model": save_text(text, suffix)}


def _numbered(path: str, entries: Iterable[Entry], base: Path, query: str, keep_bad: bool = False) -> list[Row]:
    """Read the rows of all entries; files are seen from a folder.

    A line that is no row becomes a row with a problem if ``keep_bad`` and another line is a row. Otherwise it is an
    error.
    """
    rows: list[Row] = []
    bad = list[FormatError]()
    for line, entry in entries:
        try:
            if isinstance(entry, FormatError):
                raise entry
            found = list(_rows(path, line, entry, base, query))
        except FormatError as error:
            if not keep_bad:
                raise
            bad.append(error)
            found = [Row(0, "", "", query, problem=str(error))]
        for row in found:
            number = len(rows) + 1
            problem = row.problem and f"row {number}, {row.problem}"
            rows.append(replace(row, number=number, name=row.name or str(number), problem=problem))
    if bad and len(bad) == len(rows):
        raise bad[0]
    return rows


def _models(place: Path, results: Path | None, note: Callable[[str], object]) -> list[Path]:
    """Return the models in a folder, in the order of their names; say which files are none."""
    models: list[Path] = []
    others: list[Path] = []
    for file in sorted(place.rglob("*")):
        inside = file.relative_to(place)
        hidden = any(part.startswith(".") for part in inside.parts)
        if not hidden and file.is_file() and not (results and file.resolve().is_relative_to(results.resolve())):
            (models if is_model(file) else others).append(inside)
    if not models:
        raise UnreadableError(str(place), "this folder holds no models; `bucketflow formats` lists the file formats")
    if others:
        names = ", ".join(printable(str(other)) for other in others[:MOST_NAMED]) + (
            ", ..." if len(others) > MOST_NAMED else ""
        )
        what = "1 file is not a model" if len(others) == 1 else f"{len(others)} files are not models"
        note(f"{printable(str(place), 200)}: {what}, and were skipped: {names}")
    return [place / inside for inside in models]


def _given_entries(given: Any) -> Iterator[Entry]:
    """Rows of a data frame or of a list of mappings, without cells that say nothing; a model is its file."""
    records = given.to_dict("records") if hasattr(given, "columns") else given
    if not isinstance(records, Iterable) or isinstance(records, Mapping):
        raise ModelError(f"a batch is a file, a folder, a data frame or a list of mappings, not {type(given).__name__}")
    for entry in records:
        cells = _mapping("the list", None, entry)
        yield None, {name: _plain_cell(cell) for name, cell in cells.items() if not is_missing(cell)}


def _plain_cell(cell: Any) -> Any:
    """Return a cell as a list in a file has it."""
    if isinstance(cell, Model):
        if not cell.source:
            raise ModelError("a row of a batch has a model in memory; save it to a file, and give the path")
        return cell.source
    if isinstance(cell, os.PathLike):
        return os.fspath(cell)
    if isinstance(cell, Mapping):
        return {str(name): _plain_cell(part) for name, part in cell.items()}
    return cell.tolist() if hasattr(cell, "tolist") else list(cell) if isinstance(cell, tuple) else cell


def _entries(path: Path) -> Iterator[Entry]:
    """Rows as mappings, with their lines."""
    kind = path.suffix.lower()
    if isfile(path) and not getsize(path):
        raise UnreadableError(str(path), "the file is empty")
    if kind in (".parquet", ".arrow", ".feather", ".ipc"):
        yield from _arrow_entries(path)
        return
    if kind in (".yaml", ".yml"):
        yield from _yaml_entries(read_source(path, default_memory_bytes()))
        return
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            if kind in (".jsonl", ".ndjson", ".json"):
                yield from _json_entries(str(path), file)
            elif kind == ".csv":
                yield from _csv_entries(str(path), csv.DictReader(file, restkey=None))
            else:
                raise FormatError(
                    str(path), None, "a folder, or a list in .csv, .jsonl, .yaml, .parquet or .arrow", repr(path.name)
                )
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def _arrow_entries(path: Path) -> Iterator[Entry]:
    """Rows of a table in Parquet or Arrow; cells without a value, also within structs, say nothing."""
    need_pyarrow("reading")
    import pyarrow.feather
    import pyarrow.parquet

    try:
        if path.suffix.lower() == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            table = pyarrow.feather.read_table(path)
        for number, entry in enumerate(table.to_pylist(maps_as_pydicts="strict"), 1):
            yield number, _filled_cells(entry)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise unreadable(path, error) from None
    except (OSError, pyarrow.ArrowException, KeyError) as error:
        fault = f"this is not a table in Parquet or Arrow, or it is damaged ({shorten(str(error))})"
        raise UnreadableError(str(path), fault) from None


def _filled_cells(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _filled_cells(cell) if isinstance(cell, dict) else cell
        for name, cell in entry.items()
        if cell is not None
    }


def _csv_entries(path: str, reader: csv.DictReader[str]) -> Iterator[Entry]:
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        _check_columns(path, max(reader.line_num, 1), names)
        if twice := [name for k, name in enumerate(names) if name in names[:k]]:
            raise FormatError(path, reader.line_num, "different columns", f"{twice[0]!r} twice")
        for entry in reader:
            if None in entry:
                yield reader.line_num, FormatError(path, reader.line_num, f"{len(names)} cells", "more")
                continue
            yield reader.line_num, {name.strip(): cell.strip() for name, cell in entry.items() if cell and cell.strip()}
    except csv.Error as error:
        raise FormatError(path, reader.line_num, "comma-separated values", str(error)) from None


def _json_entries(path: str, lines: Iterable[str]) -> Iterator[Entry]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, _mapping(path, number, json.loads(line))
            except FormatError as error:
                yield number, error
            except (ValueError, RecursionError) as error:
                yield number, FormatError(path, number, "a JSON object", json_fault(error))


def _yaml_entries(source: Source) -> Iterator[Entry]:
    path, root = source.path, read_tree(source, _YAML)
    if not isinstance(root.value, list):
        raise FormatError(path, root.line, "a list of questions", shown(root))
    for part in root.value:
        try:
            yield part.line, _mapping(path, part.line, _plain(part))
        except FormatError as error:
            yield part.line, error


def _plain(part: YamlNode) -> Any:
    """Return a part of YAML as Python's own values; aliases of all parts together stand for not too many."""
    if isinstance(part.value, list):
        return [_plain(each) for each in part.value]
    if isinstance(part.value, dict):
        return {str(name): _plain(each) for name, each in part.value.items()}
    return part.value


def _mapping(path: str, line: int | None, entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        found = shorten(repr(entry)) if isinstance(entry, str) else type(entry).__name__
        found = "null" if entry is None else found
        raise FormatError(path, line, "names with values, such as model and query", found)
    return entry


def _rows(path: str, line: int | None, entry: Mapping[str, Any], base: Path, query: str) -> Iterator[Row]:
    """Rows of an entry, without numbers and perhaps names: several where the model is a pattern."""
    entry = {str(name).replace("_", "-"): value for name, value in entry.items() if value is not None}
    _check_columns(path, line, entry)
    what, faults = _settings(entry, base, query)
    pattern = str(what.pop("model"))
    try:
        local_path(pattern)
        files = sorted(glob(str(base / pattern), recursive=True)) if has_magic(pattern) else [_file(base, pattern)]
    except ModelError as error:
        files = []
        faults.append(f"column 'model': {error}")
    except ValueError:  # no file can have such a name
        files = []
    if not files:
        faults.append(f"column 'model': no file fits {shorten(pattern)!r}")
    name, problem = what.pop("name"), "".join(faults[:1])
    for file in files or [pattern]:
        own = f"{name} {Path(file).name}".strip() if len(files) > 1 else name
        yield Row(0, own, file, problem=problem, **what)


def _check_columns(path: str, line: int | None, names: Iterable[str]) -> None:
    known = [name.replace("_", "-") for name in names]
    unknown = [name for name in known if name not in COLUMNS]
    if unknown:
        raise FormatError(path, line, f"columns among {', '.join(COLUMNS)}", repr(unknown[0]))
    if "model" not in known:
        raise FormatError(path, line, "a column 'model'", ", ".join(known) or "nothing")


def _file(base: Path, name: str) -> str:
    return str(base / name) if exists(base / name) else os.fspath(file_or_example(name))


def _settings(entry: Mapping[str, Any], base: Path, query: str) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of an entry, and its faults, each as a phrase with the column."""
    faults: list[str] = []

    def read(column: str, reader: Callable[[Any], Any], default: Any = None) -> Any:
        try:
            return reader(entry[column]) if column in entry else default
        except ModelError as error:
            faults.append(f"column {column!r}: {error}")
            return default

    what = {column: read(column, _text, "") for column in ("model", "name")}
    what["query"] = read("query", _text, query)
    read("query", _query)
    what["evidence"] = read("evidence", lambda given: _evidence(given, base))
    for column in ("project", "maximize"):
        what[column] = read(column, lambda given: _names(given, base))
    for row in COLUMN_ROWS:
        what[row.name] = read(row.flag, _size if row.kind == "size" else _seconds)
    what["priority"] = read("priority", _priority, 0)
    return what, faults


def _text(value: Any) -> str:
    if isinstance(value, list | dict):
        raise ModelError(f"a text is expected, found a {'list' if isinstance(value, list) else 'dictionary'}")
    return str(value)


def _query(value: Any) -> str:
    """Check that a query is one."""
    if _text(value) not in QUERIES:
        raise ModelError(f"unknown query {shorten(_text(value))!r}; one of {', '.join(QUERIES)}")
    return str(value)


def _size(value: Any) -> str:
    parse_size(_text(value))
    return str(value)


def _evidence(given: Any, base: Path) -> Any:
    """Check that evidence is text, or a state or a list of likelihoods by name; a file is seen from the list."""
    if isinstance(given, str):
        return str(base / given) if isfile(base / given) else given
    if not isinstance(given, dict):
        raise ModelError(f"evidence must be a file, x=1,y=yes or states by name; found {type(given).__name__}")
    for name, finding in given.items():
        values = finding if isinstance(finding, list) else [finding]
        if not all(isinstance(value, str | int | float) for value in values):
            raise ModelError(f"evidence on {shorten(repr(name))} is neither a state nor a list of likelihoods")
    return given


def _names(given: Any, base: Path) -> str | tuple[str, ...]:
    """Check that variables are text or a list of names; a file is seen from the list."""
    if isinstance(given, list):
        return tuple(map(_text, given))
    if not isinstance(given, str):
        raise ModelError(f"variables must be a file, x,y or a list of names; found {type(given).__name__}")
    return str(base / given) if isfile(base / given) else given


def _seconds(value: Any) -> float:
    found = _number(value)
    if found < 0:
        raise ModelError(f"a number of seconds is expected, found {shorten(repr(value))}")
    return found


def _priority(value: Any) -> int:
    found = _number(value)
    if found != int(found) or abs(found) > _MOST_PRIORITY:
        raise ModelError(f"a whole number is expected, found {shorten(repr(value))}")
    return int(found)


def _number(value: Any) -> float:
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ModelError(f"a number is expected, found {shorten(_text(value))!r}")
    return found
