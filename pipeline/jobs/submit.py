"""Handing a question to a cluster: planned and priced here, driven there."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Unpack

from ...cluster.address import ClusterError
from ...cluster.connect import verify_shared
from ...storage.files import Place
from ...storage.run_folder import JobDir
from ..answering.answer_question import is_bounded
from ..answering.question import Findings, Names, Question, Variables, question_of
from ..answering.run_folder import RunFolder, check_space, run_folder, used_bytes
from ..answering.running import planned_in
from ..errors import BucketflowError, ModelError, checks_keywords, public
from ..formats.read import GivenModel, given_model
from ..machine.resources import connected
from ..options import Method, Options, ProofOptions, Sharing
from .driver import hand_over, new_key
from .job import Job
from .record import Record, kept_effort, kept_options, write_record

#: Engines of sums that no plan stands for, by the method that asks for them.
_ENGINES = {"diagram": "decision diagrams", "search": "a search with cached components", "ganak": "Ganak"}


@public
@checks_keywords
def submit(
    model: GivenModel,
    query: str = "optimum",
    *,
    evidence: Findings = None,
    variables: Names = "all",
    joint: Iterable[Names] = (),
    families: bool = False,
    project: Variables = None,
    maximize: Variables = None,
    method: Method = "auto",
    upper_bound: float | int | str | None = None,
    time: float | None = None,
    gap: float | None = None,
    prune: bool = True,
    **options: Unpack[Sharing],
) -> Job:
    """Plan a query here and hand it to a Dask cluster, which drives it without this process.

    Parameters
    ----------
    model : Model or path
        A file that the workers see under the same path; a Model must come from a file.
    query : str
        A query of :func:`bucketflow.solve`, or ``"marginals"`` or ``"max-marginals"``.
    scheduler, client
        The cluster.
    workdir : path or URL
        The run directory, in a file system that this process and all workers share, or in an object store.
    priority : int, optional
        Of two jobs on one cluster the tasks of that with the higher priority go first; equal ones take turns.
    most_workers : int, optional
        Most workers that are kept busy.

    Raises
    ------
    BudgetError
        If no acceptable plan fits; nothing is handed over then.
    BucketflowError
        If there is no such cluster, or a worker does not have the package, its version, the file or the directory.

    Examples
    --------
    >>> import bucketflow
    >>> from distributed import Client
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     job = bucketflow.submit("satellite", client=client, workdir="run")
    ...     answer = job.result(timeout=60)
    >>> answer.value
    49
    """
    effort = ProofOptions(method=method, upper_bound=upper_bound, time=time, gap=gap, prune=prune)
    model = given_model(model, options.get("memory"))
    question = question_of(model, query, evidence, variables, joint, families, project=project, maximize=maximize)
    return submitted(question, Options(**options), effort)


def submitted(question: Question, options: Options, effort: ProofOptions) -> Job:
    """Hand over a question; see :func:`submit`."""
    if options.folder is None:
        raise ModelError("a job needs a --workdir, in a file system that all workers share or in an object store")
    if not options.remote:
        raise ModelError("a job needs a running cluster: give its --scheduler")
    if not question.model.source:
        raise ModelError("a job needs a model that the workers can read: save it to a file, and load that")
    folder, given = options.folder.absolute(), options.client
    with connected(given, options.scheduler) as client:
        hand_over(client, _recorded(question, replace(options, client=client, workdir=folder), effort, folder))
    return Job(folder, given)


def _recorded(question: Question, options: Options, effort: ProofOptions, folder: Place) -> JobDir:
    """Write plan and record into the run directory."""
    job = JobDir(folder)
    if job.holds_job() and (state := Job(folder, options.client).status) in ("waiting", "running"):
        raise BucketflowError(f"a job in {folder} is {state}; wait for it, cancel it, or use another --workdir")
    with run_folder(question, folder) as opened:
        assert opened is not None
        price = _price(opened, question, options, effort)
        _verify_seen(options.client, folder, question.model.source)
        name = f"{_stem(question.model.source)}-{uuid.uuid4().hex[:6]}"
        write_record(
            job,
            Record(
                name,
                question.model.source,
                question.query,
                options.client.scheduler.address,
                new_key(name),
                kept_options(options),
                kept_effort(effort),
                price,
                submitted=time.time(),
            ),
        )
    return job


def _stem(source: str) -> str:
    return os.path.basename(source).split(".")[0][:40] or "model"


def _price(folder: RunFolder, question: Question, options: Options, effort: ProofOptions) -> dict[str, str]:
    """Plan, store the plan, and return its cost; refuse a plan that does not fit."""
    effort.refuse_for(question.query)
    if folder.stored_plan is None and is_bounded(question, options.without_folder(), effort):
        folder.keep_question(options, effort)
        return {"way": "bounds prove the optimum in one process; --time ends with an interval"}
    if question.asked is None and question.query != "optimum" and effort.method in _ENGINES:
        folder.keep_question(options, effort)
        return {"way": f"{_ENGINES[effort.method]}, in one process"}
    plan = planned_in(folder, options).plan
    if plan is not None and plan.spill is not None:
        check_space(folder.path, plan, used_bytes(folder.path))
    return {} if plan is None else dict(plan.rows())


def _verify_seen(client: Any, folder: Place, source: str) -> None:
    verify_shared(client, folder)
    for worker, seen in client.run(os.path.exists, source, on_error="return").items():
        if seen is not True:
            raise ClusterError(f"worker {worker} does not see {source}; put the model where all workers have it")
