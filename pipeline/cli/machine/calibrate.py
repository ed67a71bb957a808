"""``bucketflow calibrate``: measure this machine, so that predictions and decisions are about it."""

from __future__ import annotations

import click

from ..ending import guarded
from ..options import json_option


@click.command("calibrate")
@json_option
@guarded
def calibrate(as_json: bool) -> None:
    """Measure CPU, disk and GPU, and keep the rates for later plans.

    Predictions, the choice between slices and boxes, and what runs on a GPU follow what was measured.
    """
    import json

    from ...rates.calibrate import calibrated
    from ..printing.report import print_calibration

    found = calibrated()
    if as_json:
        click.echo(json.dumps(found))
    else:
        print_calibration(found)
