"""``bucketflow bound``: two bounds on an answer where exact elimination is too much."""

from __future__ import annotations

import sys
from typing import Any

import click

from . import options as shared
from .ending import guarded


@click.command("bound", cls=shared.Grouped)
@shared.asking
@shared.choice_option("--query", ["optimum", "partition"], "Bound the optimum, or log10 of the partition function.")
@shared.whole_option(
    "--z", "N", "Maximum number of variables of a mini-bucket.  [default: grows while memory and time allow]"
)
@shared.option("time", "Wall seconds.  [default: 10; unlimited with --z]")
@shared.option("disk", "Disk budget for messages.  [default: the free space]")
@shared.option("workdir", "Folder for messages that exceed memory; an interrupted run there is continued.")
@shared.on_workers
@shared.option("gpus", "Join large mini-buckets on a GPU of this machine.")
@shared.option("gpu_memory")
@shared.graph_option
@guarded
@shared.keep_warm
@shared.on_cluster
def bound(file: str, as_json: bool, graph: str | None, **options: Any) -> None:
    """Bound an answer from both sides by mini-buckets."""
    from dataclasses import replace

    from ..api import bound as api
    from ..api.progress import status_line
    from ..errors import DeadlineError
    from ..plans.task_graph import graph_ending
    from ..results.bounds import Bounds

    if graph is not None:
        graph_ending(graph)
    try:
        model, read_seconds = shared.load(file, options)
    except DeadlineError as error:
        shared.print_answer(Bounds(options["query"], "bounded", notes=(str(error),)), as_json)
        sys.exit(error.exit_code)
    query, evidence, rest = shared.keywords_of(model, options)
    with status_line(as_json, "bounding"):
        found = api.bound(model, query, evidence=evidence, **rest)
    found = replace(found, seconds={"read": read_seconds, **found.seconds})
    if graph is not None:
        found.graph().save(graph)
        shared.print_written(graph)
    shared.print_answer(found, as_json, model.notes)
