"""Continuing the run that a directory holds, whatever it asks."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Unpack

from ...storage.errors import StorageError
from ...storage.rundir import stored_plan
from ..errors import IncompatibleRunError
from ..keywords import Where
from ..results.posteriors import Marginals
from ..results.result import Result
from .solve import load, solve


def resume(
    workdir: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None, **options: Unpack[Where]
) -> Result | Marginals:
    """Continue the run in a run directory, without doing finished chunks again.

    Parameters
    ----------
    workdir : path
    workers, scheduler, client, threads, gpus
        Where to run; see :func:`bucketflow.solve`. Everything else is as the run began.

    Raises
    ------
    IncompatibleRunError
        If the directory is not that of a run whose model file is still there, unchanged.
    """
    try:
        stored = stored_plan(Path(workdir))
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    if not stored["source"]:
        raise IncompatibleRunError(f"the run in {workdir} began with a model in memory; ask the same there again")
    found = stored["identity"]
    model = load(stored["source"])
    if found["query"] not in ("marginals", "max-marginals"):
        return solve(model, found["query"], evidence=found["evidence"], progress=progress, workdir=workdir, **options)
    from .marginals import marginals

    return marginals(
        model,
        evidence={**found["evidence"], **found["likelihoods"]},
        query_vars=found["variables"],
        joint=found["joints"],
        families=found["families"],
        maximum=found["query"] == "max-marginals",
        progress=progress,
        workdir=workdir,
        **options,
    )
