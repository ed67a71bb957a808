"""Options of ``bucketflow solve`` for many assignments, and what answers them: independent samples, the best."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..models.query import OPTION_ROWS, VALUES, options_for
from . import options as shared

if TYPE_CHECKING:
    from ..models.model import Model

SAMPLE = "sample"
# Without a number of one's own no more are listed.
_MOST_LISTED = 100_000
_OF_SAMPLES = ("samples", "temperature")
_OPTIONS: dict[str, Callable[[shared.Command], shared.Command]] = {
    "samples": shared.whole_option("--samples", "N", "Number of samples.", least=0),
    "temperature": click.option(
        "--temperature",
        type=float,
        metavar="T",
        help="Temperature of samples from a cost network: weights exp(-cost/T); inf draws uniformly.",
    ),
    "best": shared.whole_option("--best", "M", "List the M best assignments, in order."),
    "diverse": shared.whole_option("--diverse", "D", "List assignments that differ pairwise in at least D variables."),
    "within": shared.text_option(
        "--within", "D", "List all assignments within D of the optimal cost, or of its log10 probability."
    ),
    "all_optimal": click.option("--all-optimal", is_flag=True, default=None, help="Count and list all optima."),
    "out": shared.text_option(
        "--out", "FILE", "Write the answer to a .json or .csv file; samples to .csv, .jsonl or .parquet."
    ),
}


def solving(command: shared.Command) -> shared.Command:
    """Add the options of `solve`: options for a single answer, and options for many assignments."""
    return shared.planning(
        shared.with_options(_OPTIONS.values(), command), (*VALUES, SAMPLE), "; or independent samples of assignments"
    )


def many_asked(options: dict[str, Any], no_prune: bool) -> dict[str, Any]:
    """Remove the options for many assignments from a command's options, check them, and return them.

    Parameters
    ----------
    options : dict
        Options of the command; the options of many assignments are removed from it.
    no_prune : bool
        Whether --no-prune was given.

    Raises
    ------
    click.UsageError
        If it does not go together.
    """
    asked = {name: options.pop(name) for name in _OPTIONS}
    given = [name for name, value in asked.items() if value is not None and name != "out"]
    query, what = options["query"], "samples" if options["query"] == SAMPLE else "the best assignments"
    for name in given:
        goes_with = SAMPLE if name in _OF_SAMPLES else "optimum"
        if query != goes_with:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with --query {goes_with} only")
    if query == SAMPLE and not (asked["samples"] is not None and asked["out"]):
        raise click.UsageError("--query sample needs --samples and --out")
    if asked["all_optimal"] and asked["within"] is not None:
        raise click.UsageError("--all-optimal means --within 0; leave out --within")
    if asked["diverse"] and asked["best"] is asked["within"] is None:
        raise click.UsageError("--diverse goes with --best or --within")
    if asked["out"] and query != SAMPLE:
        from ..formats.answer_files import answer_ending

        answer_ending(asked["out"])
    if not given:
        return {"out": asked["out"]} if asked["out"] else {}
    if outer := [name for name in ("project", "maximize") if options.pop(name) is not None]:
        raise click.UsageError(f"--{outer[0]} does not apply to {what}, which cover all variables")
    if query == SAMPLE:
        asked["upper_bound"] = options.pop("upper_bound")
    # options that prove a single optimum would have no effect here
    proving = [name for name in options_for("proving") if name != ("upper_bound" if query == SAMPLE else "time")]
    flags = [OPTION_ROWS[name].flag for name in proving if options.pop(name) != OPTION_ROWS[name].default]
    if flags := [*flags, *["no-prune"] * no_prune]:
        raise click.UsageError(f"--{flags[0]} is for a single optimum or sum, not for {what}")
    return asked


def print_many(
    model: Model, read_seconds: float, asked: dict[str, Any], options: dict[str, Any], as_json: bool
) -> None:
    """Answer a query for many assignments, and print the answer."""
    query, evidence, settings = shared.keywords_of(model, options)
    answer = _print_samples if query == SAMPLE else _print_best
    answer(model, read_seconds, asked, {"evidence": evidence, **settings}, as_json)


def _print_samples(
    model: Model, read_seconds: float, asked: dict[str, Any], settings: dict[str, Any], as_json: bool
) -> None:
    """Draw samples, write them into a file and print what was done."""
    from ..api.sample import drawn_again, sample

    given = {name: asked[name] for name in ("temperature", "upper_bound", "out")}
    found = sample(model, asked["samples"], **given, **settings)
    shared.print_answer(drawn_again(found, read_seconds), as_json, model.notes)


def _print_best(
    model: Model, read_seconds: float, asked: dict[str, Any], settings: dict[str, Any], as_json: bool
) -> None:
    """Print the best assignments: each as soon as it is found, or all of them as JSON.

    Parameters
    ----------
    model : Model
    read_seconds : float
    asked : dict
        Options of many assignments.
    settings : dict
        Keywords of :func:`bucketflow.best`.
    as_json : bool
    """
    from ..api.best import best

    within = 0 if asked["all_optimal"] else asked["within"]
    most = asked["best"] or _MOST_LISTED
    found = best(
        model, most, within=within, count_optimal=bool(asked["all_optimal"]), diverse=asked["diverse"], **settings
    )
    found.seconds = {"read": read_seconds, **found.seconds}
    shared.print_notes(found.notes, model.notes)
    listed = 0
    if asked["out"]:
        from ..formats.answer_files import write_answer

        write_answer(found, asked["out"])
        click.echo(json.dumps({"status": "ok", "out": asked["out"]}) if as_json else f"written to {asked['out']}")
        return
    if as_json:
        shown = found.to_dict()
        listed = len(shown["assignments"])
        click.echo(json.dumps(shown, allow_nan=False))
    else:
        shared.print_lines(found.lines())
        listed = found.listed
        if not listed:
            click.echo("infeasible")
    if listed >= _MOST_LISTED and not asked["best"]:
        shared.print_notes([f"the first {_MOST_LISTED:,} are listed; --best M lists more"])


def print_evaluation(file: str, assignment: tuple[str, ...], as_json: bool, memory: str | None) -> None:
    """Print what a given assignment is worth on the model in a file, or what forbids it."""
    from ..formats.answer_files import given_assignment

    model, _ = shared.load(file, {"memory": memory, "no_check": False}, as_json)
    found = model.evaluate(given_assignment(model, assignment))
    if as_json:
        click.echo(found.to_json())
    else:
        shared.print_lines(found.lines())
