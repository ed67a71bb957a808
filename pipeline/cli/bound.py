"""``bucketflow bound``: two bounds on an answer where exact elimination is too much."""

from __future__ import annotations

from typing import Any

import click

from .ending import guarded
from .options import Grouped, asking, keep_warm, keywords_of, load, option, print_answer


@click.command("bound", cls=Grouped)
@asking
@click.option(
    "--query",
    type=click.Choice(["optimum", "partition"]),
    default="optimum",
    show_default=True,
    help="Best assignment, or log10 of the partition function.",
)
@click.option(
    "--z",
    type=click.IntRange(min=1),
    metavar="N",
    help="Most variables of a mini-bucket.  [default: growing while memory and time allow]",
)
@option("time", "Wall seconds.  [default: 10, without end where --z is given]")
@option("disk", "Budget for messages on disk.  [default: what is free]")
@option("workdir", "Folder for messages that exceed memory; an interrupted run there is continued.")
@option("gpus", "Join large mini-buckets on a GPU of this machine.")
@option("gpu_memory")
@guarded
@keep_warm
def bound(file: str, as_json: bool, **options: Any) -> None:
    """Enclose an answer on the model in FILE between two bounds, by mini-bucket elimination."""
    from dataclasses import replace

    from ..api import bound as api
    from ..api.progress import status_line

    model, read_seconds = load(file, options)
    query, evidence, rest = keywords_of(model, options)
    with status_line(as_json, "bounding"):
        found = api.bound(model, query, evidence=evidence, **rest)
    found = replace(found, seconds={"read": read_seconds, **found.seconds})
    print_answer(found, as_json, model.notes)
