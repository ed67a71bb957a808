"""``bucketflow draw``: a model as a picture, with posteriors in its boxes."""

from __future__ import annotations

from typing import Any

import click

from .ending import guarded
from .options import Grouped, keywords_of, load, no_check_option, options_of


@click.command(cls=Grouped)
@click.argument("file")
@click.option("-o", "--output", required=True, metavar="FILE", help="The drawing: .svg, or .html.")
@click.option("--posteriors", is_flag=True, help="Compute the posterior of every variable, and draw it in its box.")
@click.option(
    "--evidence",
    multiple=True,
    metavar="FILE|x=v,…",
    help="Observed variables, as in `marginals`: bold frames.",
)
@options_of("memory", "order", "seed")
@no_check_option
@guarded
def draw(file: str, output: str, posteriors: bool, **options: Any) -> None:
    """Draw the model in FILE: parents and children, or variables and functions; large ones as communities."""
    from ..api.marginals import marginals
    from ..drawings.svg import drawing_ending

    drawing_ending(output)
    model, _ = load(file, options)
    _, evidence, settings = keywords_of(model, options)
    if posteriors:
        drawn = marginals(model, evidence=evidence, **settings).draw()
    else:
        hard = {name: state for name, state in (evidence or {}).items() if not isinstance(state, list)}
        drawn = model.draw(evidence=hard)
    drawn.save(output)
