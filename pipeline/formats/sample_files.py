"""Samples in files: a row of labels, or of indices where there are none, for each draw."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Final, TextIO

from numpy.typing import NDArray

from ..errors import ModelError
from ..models.model import Model
from ..results.samples import Samples
from ..written_files import whole_text

# Draws that become Python's own numbers at a time.
_ROWS: Final = 1 << 12


def write_samples(found: Samples, path: str | PathLike[str]) -> None:
    """Write samples to a ``.csv`` or ``.jsonl`` file, which appears whole or not at all.

    Raises
    ------
    ModelError
        If the ending is another one, or the file cannot be written.
    """
    write_rows(found.model, (found.states[start : start + _ROWS] for start in range(0, len(found), _ROWS)), path)


def write_rows(model: Model, blocks: Iterable[NDArray[Any]], path: str | PathLike[str]) -> None:
    """Write states of a model's own variables, blocks of shape (rows, variables), as :func:`write_samples` does."""
    write = _WRITERS[checked_ending(path)]
    with whole_text(path) as file:
        write(model, blocks, file)


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


_WRITERS: dict[str, Callable[[Model, Iterable[NDArray[Any]], TextIO], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_lines,
}
