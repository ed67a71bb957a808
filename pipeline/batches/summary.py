"""The outcome of a batch: one result per row, a table of them, and figures for the user."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...storage.files import Place
from ...storage.run_folder import BatchDir
from ..drawings.html import shown_rows
from ..errors import encodable, printable, public
from ..formats.format_policy import FormatPolicy
from ..models.frames import imported_pandas
from .manifest import Row

# Rows without an answer that are named, and how much is said of each.
_NAMED, _LONGEST = 20, 300
_COLUMNS = {
    "row": int,
    "name": str,
    "model": str,
    "query": str,
    "evidence": str,
    "status": str,
    "answer": str,
    "value": str,
    "log10": float,
    "lower": str,
    "upper": str,
    "seconds": float,
    "reused": bool,
    "message": str,
    "key": str,
}

_ANSWERED = {"row": int, "name": str, "query": str, "variable": str, "state": str}
_MARGINAL_COLUMNS, _ASSIGNMENT_COLUMNS = {**_ANSWERED, "index": int, "value": float}, _ANSWERED

# Of a summary, how many rows ended how.
_COUNTS = ("rows", "answered", "bounded", "refused", "failed", "stopped", "reused")
# Fields of a row that results omit.
_NOT_SHOWN = ("number", "problem", "check")


@dataclass(frozen=True)
class RowOutcome:
    """A row and what became of it.

    Parameters
    ----------
    row : Row
    key : str
        Empty where a file could not be read.
    record : mapping
        ``status`` (answered, bounded, refused, failed or stopped), and ``answer`` or ``message``.
    reused : bool
        Whether it was answered by an earlier run of the batch.
    """

    row: Row
    key: str
    record: Mapping[str, Any]
    reused: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the line of the results."""
        row = {name: value for name, value in asdict(self.row).items() if name not in _NOT_SHOWN and value}
        return {"row": self.row.number, **row, "key": self.key, "reused": self.reused, **_without_key(self.record)}

    def cells(self) -> dict[str, Any]:
        """Return the row of the table."""
        answer = self.record.get("answer") or {}
        proof = answer.get("proof") or {}
        found = {
            "row": self.row.number,
            "name": encodable(self.row.name),
            "model": encodable(self.row.model),
            "query": encodable(self.row.query),
            "evidence": encodable(self.row.shown_evidence()),
            "status": self.record["status"],
            "answer": answer.get("status"),
            "value": _text(answer.get("value")),
            "log10": answer.get("log10", answer.get("log10_evidence")),
            "lower": _text(proof.get("lower")),
            "upper": _text(proof.get("upper")),
            "seconds": self.record.get("wall_seconds"),
            "reused": self.reused,
            "message": _text(self.record.get("message")),
            "key": self.key,
        }
        assert list(found) == list(_COLUMNS)
        return found


def _without_key(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("key", "query", "question")}


def _text(value: Any) -> str | None:
    return None if value is None else encodable(str(value))


@public
@dataclass(frozen=True)
class BatchSummary:
    """The outcome of a batch.

    Parameters
    ----------
    rows, answered, bounded, refused, failed, stopped : int
        Rows, and how many ended so; each row once.
    reused : int
        Answered by an earlier run of the batch.
    seconds : float
    out : str
        The folder with the results.
    notes : tuple of str
        Notes about files in a folder of models that are no queries, one sentence each.
    unanswered : tuple of str
        Which rows failed or were refused, and why; the first of them.

    Examples
    --------
    >>> import bucketflow
    >>> with open("questions.csv", "w") as file:
    ...     _ = file.write("model,query\\nsatellite,optimum\\n")
    >>> summary = bucketflow.batch("questions.csv", "results")
    >>> summary.answered, summary.failed
    (1, 0)
    """

    rows: int
    answered: int
    bounded: int
    refused: int
    failed: int
    stopped: int
    reused: int
    seconds: float
    out: str
    notes: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """4 stopped, else 5 some rows failed, else 3 some were refused, else 0."""
        if self.stopped:
            return 4
        return 5 if self.failed else 3 if self.refused else 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        told = {"notes": list(self.notes), "unanswered": list(self.unanswered)}
        return {**asdict(self), **told, "exit_code": self.exit_code}

    def to_frame(self) -> Any:
        """Return the table of all rows, ``summary.csv``, as a pandas data frame.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        return imported_pandas().read_csv(Path(self.out) / "summary.csv")

    def _repr_html_(self) -> str:
        counts = [(name, f"{getattr(self, name):,}") for name in _COUNTS if getattr(self, name)]
        left = [("without an answer", text) for text in self.unanswered]
        return shown_rows([*counts, ("seconds", f"{self.seconds:.1f}"), ("results", encodable(self.out)), *left])

    def __str__(self) -> str:
        counts = [(self.answered, "answered"), (self.bounded, "between bounds"), (self.refused, "refused")]
        counts += [(self.failed, "failed"), (self.stopped, "stopped, run the batch again")]
        told = ", ".join(f"{count:,} {what}" for count, what in counts if count)
        before = f" ({self.reused:,} by an earlier run)" if self.reused else ""
        return f"{self.rows:,} rows: {told or 'none'}{before}, {self.seconds:.1f} s; {encodable(self.out)}/summary.csv"


def summary_of(outcomes: Sequence[RowOutcome], seconds: float, out: Place, notes: tuple[str, ...] = ()) -> BatchSummary:
    """Count how rows ended."""
    counts = Counter(outcome.record["status"] for outcome in outcomes)
    ends = {name: counts[name] for name in ("answered", "bounded", "refused", "failed", "stopped")}
    ends["reused"] = sum(outcome.reused for outcome in outcomes)
    left = tuple(_unanswered(outcomes))
    return BatchSummary(len(outcomes), **ends, seconds=round(seconds, 3), out=str(out), notes=notes, unanswered=left)


def _unanswered(outcomes: Sequence[RowOutcome]) -> Iterator[str]:
    """Say which rows failed or were refused, one line each; how many more where there are many."""
    left = [outcome for outcome in outcomes if outcome.record["status"] in ("failed", "refused")]
    for outcome in left[:_NAMED]:
        row, record = outcome.row, outcome.record
        called = "" if row.name == str(row.number) else f" ({printable(row.name)})"
        why = printable(record.get("message") or "", _LONGEST).removeprefix(f"row {row.number}, ")
        yield f"row {row.number}{called} {'failed' if record['status'] == 'failed' else 'was refused'}: {why}"
    if len(left) > _NAMED:
        yield f"{len(left) - _NAMED} more rows failed or were refused"


def write_results(folder: BatchDir, outcomes: Sequence[RowOutcome], summary: BatchSummary) -> None:
    """Write ``results.jsonl``, ``summary.csv`` and ``summary.json``, and with pyarrow the tables in Parquet.

    These are ``summary.parquet``, and in long form, a line for each number, ``marginals.parquet`` and
    ``assignments.parquet``.
    """
    folder.write("results.jsonl", "".join(json.dumps(outcome.to_dict()) + "\n" for outcome in outcomes).encode())
    table = [outcome.cells() for outcome in outcomes]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(_COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    folder.write("summary.csv", text.getvalue().encode())
    folder.write("summary.json", (json.dumps(summary.to_dict(), indent=1) + "\n").encode())
    if find_spec("pyarrow") is not None:
        folder.write("summary.parquet", _parquet((tuple(cells.values()) for cells in table), _COLUMNS))
        folder.write("marginals.parquet", _parquet(_marginal_lines(outcomes), _MARGINAL_COLUMNS))
        folder.write("assignments.parquet", _parquet(_assignment_lines(outcomes), _ASSIGNMENT_COLUMNS))


def _marginal_lines(outcomes: Sequence[RowOutcome]) -> Iterator[tuple[Any, ...]]:
    """Yield a line for each state of each variable of each answer."""
    for outcome in outcomes:
        answer = outcome.record.get("answer") or {}
        shared = outcome.row.number, encodable(outcome.row.name), outcome.row.query
        for variable, values in (answer.get("marginals") or {}).items():
            named = *shared, encodable(variable)
            for k, (state, value) in enumerate(zip(answer["states"][variable], values, strict=True)):
                yield *named, encodable(str(state)), k, value


def _assignment_lines(outcomes: Sequence[RowOutcome]) -> Iterator[tuple[Any, ...]]:
    """Yield a line for each variable of the assignment of each answer."""
    for outcome in outcomes:
        answer = outcome.record.get("answer") or {}
        shared = outcome.row.number, encodable(outcome.row.name), outcome.row.query
        for variable, state in (answer.get("assignment") or {}).items():
            yield *shared, encodable(variable), encodable(str(state))


def _parquet(lines: Iterator[Sequence[Any]], columns: Mapping[str, type]) -> bytes:
    """Return lines, each with a cell a column, as a file in Parquet, a group of rows at a time."""
    import pyarrow
    import pyarrow.parquet

    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    written = io.BytesIO()
    with pyarrow.parquet.ParquetWriter(written, schema) as writer:
        while part := list(islice(lines, FormatPolicy.current().row_group)):
            cells = zip(columns.values(), zip(*part, strict=True), strict=True)
            arrays = [_column(column, kind, kinds[kind]) for kind, column in cells]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
    return written.getvalue()


def _column(cells: Sequence[Any], kind: type, arrow: Any) -> Any:
    """Return an array of pyarrow with some cells, where None is missing.

    The array is made from bytes: from Python values, pyarrow imports pandas if it is installed, which takes longer than
    a small batch.
    """
    import pyarrow

    parts: list[Any] = [None]
    if None in cells:
        parts = [np.packbits([cell is not None for cell in cells], bitorder="little")]
        cells = [kind() if cell is None else cell for cell in cells]
    if kind is str:
        whole = "".join(cells)
        texts = cells if whole.isascii() else [cell.encode() for cell in cells]
        ends = np.zeros(len(cells) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, texts), np.int32, len(cells)), out=ends[1:])
        parts += [ends, whole.encode()]
    elif kind is bool:
        parts.append(np.packbits(cells, bitorder="little"))
    else:
        parts.append(np.array(cells, np.dtype(kind)))
    buffers = [None if part is None else pyarrow.py_buffer(part) for part in parts]
    return pyarrow.Array.from_buffers(arrow, len(cells), buffers)
