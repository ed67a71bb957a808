"""The commands for jobs, from ``submit`` to ``prune``: runs that a cluster drives by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..errors import IncompatibleRunError, format_bytes, printable
from ..models.query import options_for
from . import options as shared
from .ending import UNANSWERED, guarded, say

if TYPE_CHECKING:
    from ..jobs.job import Job


_COLUMNS = ("job", "model", "query", "state", "done", "for", "workers", "peak")

_scheduler = shared.text_option("--scheduler", "ADDR", "The scheduler of JOB, if JOB is an id.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command("submit", cls=shared.Grouped)
@shared.planning_all
@shared.proving
@shared.prune
@shared.options_of(*options_for("jobs"))
@guarded
def submit(file: str, as_json: bool, no_prune: bool, **options: Any) -> None:
    """Submit a query on the model in FILE as a job to a cluster."""
    from ..answering.question import question_of
    from ..jobs.submit import submitted
    from ..options import Options, ProofOptions

    if options["workers"]:
        raise click.UsageError("a job runs on the workers of --scheduler; --most-workers limits how many")
    model, _ = shared.load(file, options)
    query, evidence, rest = shared.keywords_of(model, options)
    variables, joint = shared.names(rest.pop("variables")), [shared.names(group) for group in rest.pop("joint")]
    outer = {name: rest.pop(name) for name in ("project", "maximize")}
    effort = ProofOptions(prune=not no_prune, **{name: rest.pop(name) for name in options_for("proving")})
    job = submitted(question_of(model, query, evidence, variables, joint, **outer), Options(**rest), effort)
    _print_submitted(job, as_json)


def _print_submitted(job: Job, as_json: bool) -> None:
    from .show_run import print_rows

    record = job.record
    facts = {"job": record.id, "directory": str(job.folder), "scheduler": record.scheduler}
    if as_json:
        click.echo(json.dumps({**facts, "price": dict(record.price)}))
        return
    print_rows([*record.price.items(), *facts.items(), ("watch", f"bucketflow watch {job.folder}")])


@click.command("jobs")
@click.argument("place", metavar="[DIR]", required=False, shell_complete=shared.complete_path)
@shared.text_option("--scheduler", "ADDR", "List the jobs of this scheduler.")
@_json
@guarded
def jobs(place: str | None, scheduler: str | None, as_json: bool) -> None:
    """List the jobs in a folder, or of a scheduler."""
    from ..jobs.job import jobs as found

    facts = []
    for job in found(place, scheduler=scheduler):
        try:
            facts.append(job.facts)
        except IncompatibleRunError as error:  # the others are shown all the same
            say(str(error))
    if as_json:
        click.echo(json.dumps([fact.to_dict() for fact in facts]))
    elif facts:
        _print_table(facts)
    else:
        click.echo("no jobs")


@click.command("watch")
@click.argument("job", shell_complete=shared.complete_path)
@_scheduler
@guarded
def watch(job: str, scheduler: str | None) -> None:
    """Show the progress of JOB until it ends.

    Ctrl-C stops the display, not the job.
    """
    found = _found(job, scheduler)
    with _leaving(found):
        _watch(found)


@click.command("result")
@click.argument("job", shell_complete=shared.complete_path)
@_scheduler
@click.option("--wait", is_flag=True, help="Wait for the answer.")
@_json
@guarded
def result(job: str, scheduler: str | None, wait: bool, as_json: bool) -> None:
    """Print the answer of JOB."""
    found = _found(job, scheduler)
    with _leaving(found):
        _print_result(found, wait, as_json)


@click.command("cancel")
@click.argument("job", shell_complete=shared.complete_path)
@_scheduler
@guarded
def cancel(job: str, scheduler: str | None) -> None:
    """Stop JOB within seconds; `resume` continues it."""
    found = _found(job, scheduler)
    click.echo(f"{found.id} {found.cancel()}")


@click.command("forget")
@click.argument("job", shell_complete=shared.complete_path)
@_scheduler
@guarded
def forget(job: str, scheduler: str | None) -> None:
    """Forget JOB, which ended: its record and log are removed. The answer in its run directory stays."""
    from ..jobs.job import forget as forgotten

    click.echo(f"{forgotten(job, scheduler)} forgotten")


@click.command("prune")
@click.argument("place", metavar="[DIR]", required=False, shell_complete=shared.complete_path)
@shared.text_option("--scheduler", "ADDR", "Forget jobs of this scheduler.")
@shared.text_option("--older", "AGE", "Forget the jobs that ended longer ago, e.g. 30d or 12h.", required=True)
@guarded
def prune(place: str | None, scheduler: str | None, older: str) -> None:
    """Forget the jobs in a folder, or of a scheduler, that ended before a time."""
    from ..jobs.job import parse_age
    from ..jobs.job import prune as pruned

    for name in pruned(parse_age(older), place, scheduler):
        click.echo(f"{name} forgotten")


@click.command("log")
@click.argument("job", shell_complete=shared.complete_path)
@_scheduler
@guarded
def log(job: str, scheduler: str | None) -> None:
    """Print the events of JOB, one JSON object a line."""
    for line in _found(job, scheduler).log():
        click.echo(json.dumps(line))


def resumed_job(directory: str, scheduler: str | None, memory: str | None, model: str | None) -> bool:
    """Hand the job of a run directory to its cluster again; whether there is one."""
    from ...storage.run_folder import JobDir
    from ..local_paths import folder_path

    if not JobDir(folder_path(directory)).holds_job():
        return False
    found = _found(directory, None).resume(scheduler=scheduler, memory=memory, model=model)
    click.echo(f"{found.id} {found.status}")
    return True


def _found(job: str, scheduler: str | None) -> Job:
    from ..jobs.job import find_job

    return find_job(job, scheduler)


@contextmanager
def _leaving(job: Job) -> Iterator[None]:
    """Tell a user who stops waiting for a job that the job goes on."""
    try:
        yield
    except KeyboardInterrupt:
        record = job.record
        if record.state not in ("waiting", "running"):
            raise
        ways = f"bucketflow watch {job.folder} shows it, bucketflow cancel {job.folder} stops it"
        raise KeyboardInterrupt(f"job {record.id} is {record.state} and continues; {ways}") from None


def _print_table(facts: list[Any]) -> None:
    from ..results.remaining_time import duration
    from .show_run import fitted, show

    rows = [
        (
            fact.id,
            printable(fact.model.rpartition("/")[2], 30),
            fact.query,
            fact.state,
            fact.done(),
            duration(fact.running_seconds) if fact.since else "",
            str(fact.workers or ""),
            format_bytes(fact.peak_bytes) if fact.peak_bytes else "",
        )
        for fact in facts
    ]
    spare, figures = ("peak", "workers", "query", "for", "model", "done"), ("for", "workers", "peak")
    show(fitted("jobs", _COLUMNS, rows, spare, figures))


def _watch(job: Job) -> None:
    """Draw the bar that ``solve`` draws on a terminal; elsewhere print each new state, and a line every ten seconds."""
    from ..api.progress import Lines, is_drawn, progress_lines
    from ..results.remaining_time import ClosingBounds

    lines, drawn, state = Lines(click.echo), is_drawn(hidden=False), ""
    with progress_lines(hidden=not drawn) as draw:

        def look(job: Job) -> None:
            nonlocal state
            facts, progress = job.facts, job.progress
            if draw is None:
                lines.say(f"{facts.id} {facts.state} {facts.done()}", now=facts.state != state)
                state = facts.state
            elif progress.swept.planned and facts.state == "running":
                draw(progress.swept)
            else:
                known = progress.bounds.lower is not None or progress.bounds.upper is not None
                draw(progress.bounds if known else ClosingBounds(None, None, f"{facts.id} {facts.state}"))

        record = job.wait(seen=look)
    if drawn:
        facts = job.facts
        click.echo(f"{facts.id} {facts.state} {facts.done()}")
    if record.message:
        click.echo(record.message)
    sys.exit(0 if record.state == "finished" else record.exit_code)


def _print_result(job: Job, wait: bool, as_json: bool) -> None:
    if not wait:
        record = job.standing()
        if record.state in ("waiting", "running"):
            say(f"job {record.id} is {record.state}; wait for it with --wait")
            sys.exit(UNANSWERED)
    job.finished()
    answer = job.answer()
    if as_json:
        shared.print_notes(answer.get("notes", ()))
        click.echo(json.dumps(answer))
    else:
        shared.print_answer(job.result(), as_json)
    proof = answer.get("proof")
    if proof and not _is_close(proof):
        sys.exit(UNANSWERED)


def _is_close(proof: dict[str, Any]) -> bool:
    from ..results.proof import Proof

    return Proof(**proof).close
