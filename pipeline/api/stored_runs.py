"""The question of a run directory, and the place of its model."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

from ...cluster.version import __version__
from ...storage.files import Place
from ..answering.question import Question, fingerprint, question_of
from ..answering.run_folder import opened, run_plan
from ..errors import FormatError, IncompatibleRunError
from ..examples import file_or_example
from ..models.model import Model
from ..models.query import QUERIES
from .solve import load


def stored_question(folder: Place) -> tuple[dict[str, Any], Question]:
    """Return the stored plan of a run directory, and its question on the model of its file.

    Parameters
    ----------
    folder : Place
        A run directory.
    """
    stored = run_plan(folder)
    found = stored["identity"]
    if found["query"] == "fit":
        raise IncompatibleRunError(f"{folder} holds a fit, not a query; to see it: bucketflow inspect {folder}")
    model = stored_model(folder, stored)
    # the directories of bounds are continued by the command `bound`
    if found["query"] not in QUERIES:
        query, observed = found["query"].split()[-1], ", and the same --evidence" if found["evidence"] else ""
        again = f"bucketflow bound {stored['source']} --query {query} --workdir {folder}{observed}"
        raise IncompatibleRunError(f"{folder} holds {found['query']}; continue with: {again}")
    evidence = {**found["evidence"], **found.get("likelihoods", {})}
    asked = {"variables": found["variables"], "joint": found["joints"]} if "variables" in found else {}
    families = found.get("families", False)
    if "outer" in found:
        asked["maximize" if found["query"] == "mmap" else "project"] = found["outer"]
    return stored, question_of(model, found["query"], evidence, **asked, families=families)


def stored_model(folder: Place, stored: dict[str, Any]) -> Model:
    """Return the model of a run directory, read from its file.

    Raises
    ------
    IncompatibleRunError
        If the run began with a model in memory, or the file is missing.
    """
    if not stored["source"]:
        raise IncompatibleRunError(
            f"the run in {folder} began with a model in memory; ask the same there again, or name a file of the model: "
            f"bucketflow resume {folder} --model PATH"
        )
    if not os.path.exists(file_or_example(stored["source"])):
        raise IncompatibleRunError(
            f"{stored['source']}, the model of the run in {folder}, is not there; if it has moved: bucketflow resume "
            f"{folder} --model PATH"
        )
    return _model(stored)


def move_model(folder: Place, source: str | PathLike[str]) -> None:
    """Store where the model of a run is now.

    Raises
    ------
    FormatError
        If the file cannot be read.
    IncompatibleRunError
        If the file holds another model, or the folder is no run directory.
    """
    stored = run_plan(folder)
    model = _model({**stored, "source": os.fspath(source)})
    if fingerprint(model) != stored["identity"]["model"]:
        raise IncompatibleRunError(f"{os.fspath(source)} is not the model of the run in {folder}")
    with opened(folder) as rundir:
        rundir.write_plan({**stored, "source": model.source}, __version__)


def _model(stored: dict[str, Any]) -> Model:
    """Read the model of a run again: as it is, where it was read so when the run began."""
    source, wanted = stored["source"], stored["identity"]["model"]
    try:
        model = load(source)
        if model.kind != "bayes" or fingerprint(model) == wanted:
            return model
    except FormatError:
        model = load(source, check=False)
        if fingerprint(model) != wanted:
            raise
        return model
    unchecked = load(source, check=False)
    return unchecked if fingerprint(unchecked) == wanted else model
