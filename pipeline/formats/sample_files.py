"""Samples in files: a row of labels, or of indices where there are none, for each draw."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Final, TextIO

from ..errors import ModelError, writing
from ..results.samples import Samples
from .write import whole_file

# Draws that become Python's own numbers at a time.
_ROWS: Final = 1 << 12


def write_samples(found: Samples, path: str | PathLike[str]) -> None:
    """Write samples to a ``.csv`` or ``.jsonl`` file, which appears whole or not at all.

    Raises
    ------
    ModelError
        If the ending is another one, or the file cannot be written.
    """
    write = _WRITERS[checked_ending(path)]
    with (
        whole_file(path) as partial,
        writing(path),
        partial.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        write(found, file)


def checked_ending(path: str | PathLike[str]) -> str:
    """Return the ending of a file that samples are written to.

    Raises
    ------
    ModelError
        If it is not one of those.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _WRITERS:
        raise ModelError(f"cannot write samples to {str(path)!r}; use .csv or .jsonl")
    return suffix


def _write_csv(found: Samples, file: TextIO) -> None:
    writer = csv.writer(file)
    writer.writerow(found.names)
    for start in _starts(found):
        columns = found.states[start : start + _ROWS].T.tolist()
        named = (
            column if labels is None else [labels[state] for state in column]
            for labels, column in zip(found.model.states, columns, strict=False)
        )
        writer.writerows(zip(*named, strict=True))


def _write_lines(found: Samples, file: TextIO) -> None:
    for start in _starts(found):
        for row in found.states[start : start + _ROWS].tolist():
            file.write(json.dumps(found.model.shown(row)) + "\n")


def _starts(found: Samples) -> Iterator[int]:
    return iter(range(0, len(found), _ROWS))


_WRITERS: dict[str, Callable[[Samples, TextIO], None]] = {".csv": _write_csv, ".jsonl": _write_lines}
