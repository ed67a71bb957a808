"""``bucketflow bound``: two bounds on an answer where exact elimination is too much."""

from __future__ import annotations

import sys
from typing import Any

import click

from .ending import guarded
from .options import (
    Grouped,
    asking,
    choice_option,
    graph_option,
    keep_warm,
    keywords_of,
    load,
    on_cluster,
    on_workers,
    option,
    print_answer,
    print_written,
    whole_option,
)


@click.command("bound", cls=Grouped)
@asking
@choice_option("--query", ["optimum", "partition"], "Bound the optimum, or log10 of the partition function.")
@whole_option("--z", "N", "Maximum number of variables of a mini-bucket.  [default: grows while memory and time allow]")
@option("time", "Wall seconds.  [default: 10; unlimited with --z]")
@option("disk", "Disk budget for messages.  [default: the free space]")
@option("workdir", "Folder for messages that exceed memory; an interrupted run there is continued.")
@on_workers
@option("gpus", "Join large mini-buckets on a GPU of this machine.")
@option("gpu_memory")
@graph_option
@guarded
@keep_warm
@on_cluster
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
        model, read_seconds = load(file, options)
    except DeadlineError as error:
        print_answer(Bounds(options["query"], "bounded", notes=(str(error),)), as_json)
        sys.exit(error.exit_code)
    query, evidence, rest = keywords_of(model, options)
    with status_line(as_json, "bounding"):
        found = api.bound(model, query, evidence=evidence, **rest)
    found = replace(found, seconds={"read": read_seconds, **found.seconds})
    if graph is not None:
        found.graph().save(graph)
        print_written(graph)
    print_answer(found, as_json, model.notes)
