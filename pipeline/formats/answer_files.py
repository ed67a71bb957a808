"""Answers in files: the JSON object that commands print, or a table of commas."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ...cluster.memory import default_memory_bytes
from ..errors import FormatError, ModelError
from ..local_paths import local_path
from ..models.frames import Tabled
from ..models.model import Model
from ..written_files import whole_text
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
