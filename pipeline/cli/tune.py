"""``bucketflow tune``: learn launches from measured steps, and print how good each way of choosing them is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from .ending import guarded
from .options import json_option

if TYPE_CHECKING:
    from ..tuning.launch_tuning import Tuning


@click.command("tune")
@click.option("--gpus", type=int, metavar="1", help="Learn launches of this machine's GPU.  [default: of its cores]")
@click.option("--minutes", type=float, default=3.0, show_default=True, metavar="M", help="Measure for so long.")
@click.option("--threads", type=int, metavar="N", help="Threads to compare with one.  [default: all cores]")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Of the steps that are drawn.")
@json_option
@guarded
def tune(gpus: int | None, minutes: float, threads: int | None, seed: int, as_json: bool) -> None:
    """Learn from measured steps which kernels to launch, and what they take.

    Steps are run by every launch that they can have; regressions are fitted to most of them and compared with today's
    rules on the others. The best one is kept for later plans on this machine, where it is no worse.
    """
    from ..tuning.launch_tuning import tune as learn

    found = learn(gpus=gpus, minutes=minutes, threads=threads, seed=seed)
    if as_json:
        click.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        print_tuning(found)


def print_tuning(found: Tuning) -> None:
    """Print what was measured, how good each way is on the steps held out, and what was decided."""
    from .show_run import print_rows, show, table

    low, high = found.interval
    print_rows(
        [
            ("launches on", found.device),
            ("steps", f"{found.steps:,} measured, {found.held_out:,} of them held out"),
            ("chosen among", ", ".join(found.launches)),
        ]
    )
    shown = table("on the steps held out", "")
    for column in ("RSS", "deviance²", "missed", "gain", "mean gain", "of best"):
        shown.add_column(column, justify="right", no_wrap=True)
    for each in found.scores:
        figures = (f"{each.residual_squares:.3g}", f"{each.squared_deviance:.3g}", f"{each.miss_rate:.0%}")
        times = (f"{value:.3f}" for value in (each.gain, each.mean_gain, each.of_best))
        shown.add_row(each.name + (" (best)" if each.name == found.winner else ""), *figures, *times)
    show(shown)
    print_rows([("decided", found.text), *([("kept in", found.path)] if found.stored else [])])
    if found.predicts:
        print_rows([("interval", f"nine of ten steps took {low:.2f} to {high:.2f} times what was predicted")])
