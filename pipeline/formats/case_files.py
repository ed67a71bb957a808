"""Files of cases: read in chunks, answered in blocks, written as they come, so that any number of them fits."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..errors import FormatError, ModelError, UnreadableError, unreadable, writing
from ..local_paths import local_path, whole_file
from ..models.cases import Cases, states_of
from ..models.findings import finding_vector, likelihood
from ..models.frames import need_pyarrow
from ..models.model import Model
from ..results.posteriors import CaseMarginals

Write = Callable[[CaseMarginals], None]


def read_cases(path: str | PathLike[str], model: Model, chunk_rows: int = 1 << 16) -> Iterator[Cases]:
    """Read a CSV file: a header of variable names, then one case a row; empty cells are unobserved.

    A cell is a state, or a list of likelihoods such as ``[0.2 0.8]``.

    Raises
    ------
    FormatError
        If the file is missing, names an unknown variable or state, or has a row of another length.
    """
    try:
        with local_path(path).open(newline="", encoding="utf-8-sig") as file:
            yield from _chunks(csv.reader(file), str(path), model, chunk_rows)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except csv.Error as error:
        raise FormatError(str(path), None, "a CSV file of cases", str(error)) from None


def _chunks(rows: Any, path: str, model: Model, chunk_rows: int) -> Iterator[Cases]:
    header = [name.strip() for name in next(rows, [])]
    if not header:
        raise UnreadableError(path, "the first line is empty; give the names of the variables there")
    for name in header:
        if name not in model.index or header.count(name) > 1:
            raise FormatError(path, 1, "distinct names of variables of the model", repr(name))
    none_yet = True
    numbered = _numbered(rows, len(header))
    while (chunk := list(islice(numbered, chunk_rows))) or none_yet:
        none_yet = False
        for line, row in chunk:
            if len(row) != len(header):
                raise FormatError(path, line, f"{len(header)} cells", str(len(row)))
        columns = list(zip(*(row for _, row in chunk), strict=True)) if chunk else [()] * len(header)
        lines = [line for line, _ in chunk]
        named = zip(header, columns, strict=True)
        yield Cases(
            len(chunk), {model.index[name]: _states(path, model, name, column, lines) for name, column in named}
        )


def _numbered(rows: Any, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the cases with the line on which each ends.

    An empty line is nothing, or a case that leaves the only variable unobserved.
    """
    for row in rows:
        if row or columns == 1:
            yield rows.line_num, row or [""]


def line_of_case(path: str | PathLike[str], case: int) -> int | None:
    """Return the line of a case of a file, by its number from 0; None if the file has changed."""
    with local_path(path).open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        columns = len(next(rows, []))
        found = next(islice(_numbered(rows, columns), case, None), None)
    return None if found is None else found[0]


def _states(path: str, model: Model, name: str, cells: tuple[str, ...], lines: list[int]) -> Any:
    """Turn the cells of a column into states or likelihoods; an error names the line of the first wrong cell."""
    variable, cells = model.index[name], tuple([cell.strip() for cell in cells])
    soft = any(_is_soft(model, variable, cell) for cell in cells)

    def read(some: tuple[str, ...]) -> Any:
        return (
            np.array([_likelihoods(model, variable, cell) for cell in some])
            if soft
            else states_of(model, variable, some)
        )

    try:
        return read(cells)
    except ModelError:
        for cell, line in zip(cells, lines, strict=True):
            try:
                read((cell,))
            except ModelError as error:
                raise FormatError(path, line, "states of the model", str(error)) from None
        raise


def _is_soft(model: Model, variable: int, cell: str) -> bool:
    """Whether a cell lists likelihoods, such as ``[0.2, 0.8]``, and is no label."""
    return cell.startswith("[") and cell.endswith("]") and cell not in (model.states[variable] or ())


def _likelihoods(model: Model, variable: int, cell: str) -> Any:
    """Return a likelihood a state for a cell of a column in which some cells list them."""
    if _is_soft(model, variable, cell):
        return likelihood(model, variable, cell[1:-1].replace(",", " ").split())
    return finding_vector(model, variable, cell) if cell else np.ones(model.dims[variable])


@contextmanager
def case_writer(path: str | PathLike[str], model: Model, row: str = "case") -> Iterator[Write]:
    """Open a file for posteriors by its ending: ``.csv``, ``.jsonl`` or, with pyarrow, ``.parquet``.

    The file takes the place of another only when all cases are answered. A row a case: its number, under the name
    ``row``, ``ok`` or ``impossible``, log10 of the evidence, and the posteriors.

    Raises
    ------
    ModelError
        If the ending is another one, pyarrow is missing, or the file cannot be written.
    """
    suffix = local_path(path).suffix.lower()
    if suffix != ".parquet" and suffix not in _TEXT:
        raise ModelError(f"cannot write cases to {str(path)!r}; use .csv, .jsonl or .parquet")
    opened = _parquet if suffix == ".parquet" else _text
    with whole_file(path) as partial, opened(path, partial, model, row) as write:
        yield write


@contextmanager
def _text(path: str | PathLike[str], partial: Path, model: Model, row: str) -> Iterator[Write]:
    with writing(path):
        file = partial.open("w", newline="", encoding="utf-8", errors="backslashreplace")
    try:
        yield _checked(_TEXT[Path(path).suffix.lower()](file, model, row), path)
    finally:
        with writing(path):
            file.close()


def _checked(write: Write, path: str | PathLike[str]) -> Write:
    """Return a writer of blocks whose failures are one sentence."""

    def checked(block: CaseMarginals) -> None:
        with writing(path):
            write(block)

    return checked


def _csv_writer(file: TextIO, model: Model, name: str) -> Write:
    writer = csv.writer(file)
    count = 0

    def write(block: CaseMarginals) -> None:
        nonlocal count
        if count == 0:
            writer.writerow([name, "status", "log10_evidence", *column_names(model, block)])
        numbers = np.concatenate([block.log10_evidence[:, None], *block.tables.values()], axis=1).tolist()
        for row, possible in zip(numbers, block.possible.tolist(), strict=True):
            head = [count, "ok", row[0]] if possible else [count, "impossible", ""]
            writer.writerow([*head, *row[1:]])
            count += 1

    return write


def _jsonl_writer(file: TextIO, model: Model, name: str) -> Write:
    count = 0

    def write(block: CaseMarginals) -> None:
        nonlocal count
        tables = {name: table.tolist() for name, table in block.items()}
        for k, (log10, possible) in enumerate(zip(block.log10_evidence.tolist(), block.possible.tolist(), strict=True)):
            found = {
                name: count,
                "status": "ok" if possible else "impossible",
                "log10_evidence": log10 if possible else None,
                "marginals": {name: table[k] for name, table in tables.items()},
            }
            file.write(json.dumps(found, allow_nan=False) + "\n")
            count += 1

    return write


_TEXT: dict[str, Callable[[TextIO, Model, str], Write]] = {".csv": _csv_writer, ".jsonl": _jsonl_writer}


@contextmanager
def _parquet(path: str | PathLike[str], partial: Path, model: Model, row: str) -> Iterator[Write]:
    """Yield a function that appends a block of posteriors to a Parquet file.

    Parameters
    ----------
    path : path
        Name that errors show.
    partial : Path
        File that is written, and renamed once it is complete.
    model : Model
    row : str
        Name of the column of case numbers.
    """
    need_pyarrow()
    import pyarrow
    from pyarrow import parquet

    count = 0
    opened: list[Any] = []

    def write(block: CaseMarginals) -> None:
        nonlocal count
        possible = block.possible
        columns: dict[str, Any] = {
            row: np.arange(count, count + len(possible)),
            "status": np.where(possible, "ok", "impossible").tolist(),
            "log10_evidence": pyarrow.array(block.log10_evidence, mask=~possible),
        }
        numbers = (column for table in block.values() for column in table.T)
        columns |= dict(zip(column_names(model, block), numbers, strict=True))
        table = pyarrow.table(columns)
        if not opened:
            # the first block tells the columns
            opened.append(parquet.ParquetWriter(partial, table.schema))
        opened[0].write_table(table)
        count += len(possible)

    try:
        yield _checked(write, path)
    finally:
        with writing(path):
            for writer in opened:
                writer.close()


def column_names(model: Model, block: CaseMarginals) -> list[str]:
    """Return ``variable=state`` for every number of a case."""
    return [f"{name}={model.label(v, s)}" for name in block for v in [model.index[name]] for s in range(model.dims[v])]
