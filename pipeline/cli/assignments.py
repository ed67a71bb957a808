"""Options of ``bucketflow solve`` for many assignments, and what answers them: independent samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..models.option_rows import OPTION_ROWS, options_for
from ..models.query import VALUES
from .options import Command, keywords_of, planning, print_answer

if TYPE_CHECKING:
    from ..models.model import Model

SAMPLE = "sample"
_OPTIONS: dict[str, Callable[[Command], Command]] = {
    "samples": click.option("--samples", type=click.IntRange(min=0), metavar="N", help="How many samples to draw."),
    "temperature": click.option(
        "--temperature",
        type=float,
        metavar="T",
        help="Of samples from a cost network: in proportion to exp(-cost/T); inf for all that is allowed alike.",
    ),
    "out": click.option("--out", metavar="FILE", help="File for the samples: .csv or .jsonl."),
}


def solving(command: Command) -> Command:
    """Options of `solve`: those of single values, and of many assignments."""
    for option in reversed(_OPTIONS.values()):
        command = option(command)
    return planning(command, (*VALUES, SAMPLE), "; or independent samples of assignments")


def many_asked(options: dict[str, Any]) -> dict[str, Any]:
    """Take what is asked of many assignments out of a command's options.

    Raises
    ------
    click.UsageError
        If they do not go with the query.
    """
    asked = {name: options.pop(name) for name in _OPTIONS}
    given = [f"--{name}" for name, value in asked.items() if value is not None]
    if options["query"] != SAMPLE:
        if given:
            raise click.UsageError(f"{given[0]} goes with --query sample only")
        return {}
    if outer := [name for name in ("project", "maximize") if options.pop(name) is not None]:
        raise click.UsageError(f"--{outer[0]} is not for samples, which are of all variables")
    if asked["samples"] is None or asked["out"] is None:
        raise click.UsageError("--query sample needs --samples and --out")
    proof = [name for name in options_for("proving") if options.pop(name) != OPTION_ROWS[name].default]
    if proof:
        raise click.UsageError(f"--{OPTION_ROWS[proof[0]].flag} is for optima and sums, not for samples")
    return asked


def print_samples(
    model: Model, read_seconds: float, asked: dict[str, Any], options: dict[str, Any], as_json: bool
) -> None:
    """Draw samples, write them into a file and print what was done."""
    from ..api.sample import drawn_again, sample
    from ..formats.sample_files import checked_ending, write_samples

    checked_ending(asked["out"])
    _, evidence, settings = keywords_of(model, options)
    found = sample(model, asked["samples"], evidence=evidence, temperature=asked["temperature"], **settings)
    write_samples(found, asked["out"])
    print_answer(drawn_again(found, read_seconds), as_json, model.notes)
