"""Continuing the run in a run directory, for any query, and for the iterations of a fit."""

from __future__ import annotations

from os import PathLike
from typing import Unpack

from ..answering.answer_question import solved
from ..api.progress import Asked, asked_progress
from ..api.stored_runs import move_model, stored_question
from ..errors import checks_keywords, public
from ..learning.fit_folder import stored_fit
from ..learning.fitted import FittedModel
from ..learning.fitting import resumed_fit
from ..local_paths import folder_path, local_path
from ..options import Options, ProofOptions, Where
from ..results.posteriors import Marginals
from ..results.result import Result


@public
@checks_keywords
def resume(
    workdir: str | PathLike[str],
    *,
    model: str | PathLike[str] | None = None,
    progress: Asked = None,
    **options: Unpack[Where],
) -> Result | Marginals | FittedModel:
    """Continue the run in a run directory, without doing finished chunks or iterations again.

    Parameters
    ----------
    workdir : path
    model : path, optional
        The model's file, if it has moved; the directory keeps the new path.
    progress : bool or callable, optional
        As in :func:`bucketflow.solve`; for a run of :func:`bucketflow.fit` as there.
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
    if (fit := stored_fit(folder)) is not None:
        return resumed_fit(folder, fit, progress, **options)
    stored, question = stored_question(folder)
    if stored["plan"] is None and "effort" in stored:
        where = {"memory": stored["memory"], **options}
        chosen = Options(workdir=workdir, seed=stored["seed"], **where)
        with asked_progress(progress) as report:
            return solved(question, chosen, ProofOptions(**stored["effort"]), report)
    with asked_progress(progress) as report:
        return solved(question, Options(workdir=workdir, **options), progress=report)
