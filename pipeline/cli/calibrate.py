"""``bucketflow calibrate``: measure this machine, so that predictions and decisions are about it."""

from __future__ import annotations

from collections.abc import Callable

import click

Command = Callable[..., None]


def calibrate_command(guarded: Callable[[Command], Command]) -> click.Command:
    """Build the command."""

    @click.command("calibrate")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @guarded
    def calibrate(as_json: bool) -> None:
        """Measure CPU, disk and GPU, and keep the rates for later plans.

        Predictions, the choice between slices and boxes, and what runs on a GPU follow what was measured.
        """
        import json

        from ..rates.calibrate import calibrated
        from .printing.report import print_calibration

        found = calibrated()
        if as_json:
            click.echo(json.dumps(found))
        else:
            print_calibration(found)

    return calibrate
