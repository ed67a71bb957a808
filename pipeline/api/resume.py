"""Continuing the run in a run directory, for any query."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any, Unpack

from ...cluster.version import __version__
from ...storage.files import Place
from ...storage.run_folder import stored_plan
from ...storage.spec import StorageError
from ..answering.answer_question import solved
from ..answering.question import Question, fingerprint, question_of
from ..answering.run_folder import opened
from ..errors import FormatError, IncompatibleRunError, checks_keywords
from ..examples import file_or_example
from ..local_paths import folder_path, local_path
from ..models.model import Model
from ..models.query import QUERIES
from ..options import Options, ProofOptions, Where
from ..public_names import public
from ..results.posteriors import Marginals
from ..results.result import Result
from .progress import Asked, asked_progress
from .solve import load


@public
@checks_keywords
def resume(
    workdir: str | PathLike[str],
    *,
    model: str | PathLike[str] | None = None,
    progress: Asked = None,
    **options: Unpack[Where],
) -> Result | Marginals:
    """Continue the run in a run directory, without doing finished chunks again.

    Parameters
    ----------
    workdir : path
    model : path, optional
        The model's file, if it has moved; the directory keeps the new path.
    progress : bool or callable, optional
        As in :func:`bucketflow.solve`.
    memory : int or str, optional
        With less memory than the stored plan needs, the run is planned again, and its finished tables are removed.
    workers, scheduler, client, threads, gpus
        Where to run; see :func:`bucketflow.solve`. Everything else is as the run began, and as an optimum that is
        bounded was last asked: for as many seconds more.

    Raises
    ------
    IncompatibleRunError
        If the directory holds no run, or if the run's model file is missing or changed.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.solve("satellite", workdir="run")
    >>> bucketflow.resume("run").value == found.value
    True
    """
    folder = folder_path(workdir)
    if model is not None:
        move_model(folder, local_path(model))
    stored, question = stored_question(folder)
    if stored["plan"] is None and "effort" in stored:
        where = {"memory": stored["memory"], **options}
        chosen = Options(workdir=workdir, seed=stored["seed"], **where)
        with asked_progress(progress) as (report, watch):
            return solved(question, chosen, ProofOptions(**stored["effort"]), report, watch)
    with asked_progress(progress) as (report, _):
        return solved(question, Options(workdir=workdir, **options), progress=report)


def stored_question(folder: Place) -> tuple[dict[str, Any], Question]:
    """Return the stored plan of a run directory, and its question on the model of its file.

    Parameters
    ----------
    folder : Place
        A run directory.
    """
    try:
        stored = stored_plan(folder)
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    if stored["identity"]["query"] == "fit":
        raise IncompatibleRunError(f"{folder} holds iterations of bucketflow fit; repeat that command to continue")
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
    found = stored["identity"]
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
    return stored, question_of(_model(stored), found["query"], evidence, **asked, families=families)


def move_model(folder: Place, source: str | PathLike[str]) -> None:
    """Store where the model of a run is now.

    Raises
    ------
    FormatError
        If the file cannot be read.
    IncompatibleRunError
        If the file holds another model, or the folder is no run directory.
    """
    try:
        stored = stored_plan(folder)
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
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
