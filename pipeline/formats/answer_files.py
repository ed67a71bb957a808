"""Answers and samples in files: the JSON object that commands print, or a table as CSV, TSV or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, TextIO

from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ..errors import FormatError, ModelError, writing
from ..local_paths import local_path, whole_file, whole_text
from ..models.frames import Tabled, need_pyarrow
from ..models.model import Model
from .format_policy import WRITTEN_ENTRIES, FormatPolicy
from .read import evidence_of
from .text.source import read_json


def write_answer(found: Tabled, path: str | PathLike[str]) -> None:
    """Write an answer to a ``.json`` or ``.csv`` file, which appears whole or not at all.

    Raises
    ------
    ModelError
        If the ending is another one, or the file cannot be written.
    """
    as_json = answer_ending(path) == ".json"
    with whole_text(path) as file:
        if as_json:
            file.write(found.to_json() + "\n")
        else:
            csv.writer(file).writerows(found.cells())


def answer_ending(path: str | PathLike[str]) -> str:
    """Return the ending of a file that an answer is written to.

    Raises
    ------
    ModelError
        If it is not one of those.
    """
    suffix = local_path(path).suffix.lower()
    if suffix not in (".json", ".csv"):
        raise ModelError(f"cannot write an answer to {str(path)!r}; use .json, or .csv for its table")
    return suffix


def given_assignment(model: Model, texts: Sequence[str]) -> dict[str, Any]:
    """Read states of variables: ``x=v`` pairs, files of evidence, or JSON objects with an assignment.

    Raises
    ------
    FormatError
        If a file is damaged, or holds none.
    ModelError
        If a name or a state is not one of the model.
    """
    answers = [text for text in texts if Path(text).suffix.lower() == ".json"]
    found = {name: state for path in answers for name, state in _stored_assignment(path).items()}
    for name, state in (evidence_of(model, [text for text in texts if text not in answers]) or {}).items():
        if isinstance(state, list):
            raise ModelError(f"the assignment has likelihoods of {name!r}; give its state")
        found[name] = state
    return found


def _stored_assignment(path: str) -> dict[str, Any]:
    try:
        found = read_json(path, default_memory_bytes())
        assignment = found.get("assignment", found)
        if all(isinstance(state, str | int) for state in assignment.values()):
            return dict(assignment)
    except (ValueError, AttributeError, RecursionError):
        pass
    raise FormatError(path, None, "a JSON object with an assignment", "another text")


_PARQUET: Final = ".parquet"


def write_rows(model: Model, blocks: Iterable[NDArray[Any]], path: str | PathLike[str]) -> None:
    """Write states of a model's own variables to ``.csv``, ``.jsonl`` or, with pyarrow, ``.parquet``.

    The file appears whole or not at all.

    Parameters
    ----------
    model : Model
    blocks : iterable of ndarray of int, shape (rows, variables)
        Some rows after the other, made as they are written.
    path : path

    Raises
    ------
    ModelError
        If the ending is another one, pyarrow is missing, or the file cannot be written.
    """
    suffix = checked_ending(path)
    rows = FormatPolicy.current().row_group if suffix == _PARQUET else WRITTEN_ENTRIES
    some = (block[start : start + rows] for block in blocks for start in range(0, len(block), rows))
    if suffix == _PARQUET:
        with whole_file(path) as partial, writing(path):
            _write_parquet(model, some, partial)
        return
    with whole_text(path) as file:
        _WRITERS[suffix](model, some, file)


def checked_ending(path: str | PathLike[str]) -> str:
    """Return the ending of a file that samples are written to.

    Raises
    ------
    ModelError
        If it is not one of those, or pyarrow is missing.
    """
    suffix = local_path(path).suffix.lower()
    if suffix != _PARQUET and suffix not in _WRITERS:
        raise ModelError(f"cannot write samples to {str(path)!r}; use .csv, .jsonl or .parquet")
    if suffix == _PARQUET:
        need_pyarrow()
    return suffix


def _write_csv(model: Model, blocks: Iterable[NDArray[Any]], file: TextIO) -> None:
    writer = csv.writer(file)
    writer.writerow(model.own_names)
    for states in blocks:
        named = (
            column if labels is None else [labels[state] for state in column]
            for labels, column in zip(model.states, states.T.tolist(), strict=False)
        )
        writer.writerows(zip(*named, strict=True))


def _write_lines(model: Model, blocks: Iterable[NDArray[Any]], file: TextIO) -> None:
    for states in blocks:
        for row in states.tolist():
            file.write(json.dumps(model.shown(row)) + "\n")


def _write_parquet(model: Model, blocks: Iterable[NDArray[Any]], path: Path) -> None:
    """Write a column a variable: its labels as a dictionary, else its indices; a row group a block."""
    import pyarrow
    from pyarrow import parquet

    columns = list(zip(model.own_names, model.states, strict=False))
    fields = [
        (name, pyarrow.int64() if labels is None else pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))
        for name, labels in columns
    ]
    schema = pyarrow.schema(fields)
    with parquet.ParquetWriter(path, schema) as writer:
        for states in blocks:
            arrays = [
                pyarrow.array(column, pyarrow.int64())
                if labels is None
                else pyarrow.DictionaryArray.from_arrays(
                    column.astype("int32"), pyarrow.array(labels, pyarrow.string())
                )
                for (_, labels), column in zip(columns, states.T, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


_WRITERS: dict[str, Callable[[Model, Iterable[NDArray[Any]], TextIO], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_lines,
}
