"""``bucketflow dpop``: a distributed problem, solved by its agents."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from . import options as shared
from .ending import guarded, say

if TYPE_CHECKING:
    from ..results.dpop_result import DpopResult


_HEURISTICS = "cheapest, planned, most-connected, max-degree, most-constrained, given"


@click.command("dpop", cls=shared.Grouped)
@click.argument("file", shell_complete=shared.complete_model)
@shared.text_option("--agents", "FILE", "YAML or JSON file with the variables that each agent owns.")
@shared.text_option(
    "--order",
    "NAME|a,b,…",
    f"Order of the pseudo-tree: {_HEURISTICS}, or names of agents.",
    default="cheapest",
    show_default=True,
)
@shared.option("seed", "Seed of the search for a planned tree.")
@shared.whole_option("--z", "N", "Maximum number of variables of a mini-bucket (ADPOP); gives bounds.")
@shared.text_option("--memory", "SIZE", "Maximum size of a message (MB-DPOP).  [default: no limit]")
@shared.number_option("--latency", "S", "Simulated seconds of each message.", default=0.0, show_default=False)
@shared.text_option("--bandwidth", "SIZE", "Simulated bytes a second of each link.  [default: no limit]")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Cores of an agent.")
@shared.on_workers
@shared.option("gpus", "Run large joins on a GPU of this machine.")
@shared.graph_option
@shared.json_option
@guarded
@shared.on_cluster
def dpop(file: str, agents: str | None, graph: str | None, as_json: bool, **options: Any) -> None:
    """Solve a distributed problem by its agents' messages.

    The algorithm is DPOP, ADPOP (--z) or MB-DPOP (--memory).
    """
    import time
    from dataclasses import replace

    from ..agents.dpop import dpop as solve
    from ..api.progress import status_line
    from ..api.solve import load_dcop
    from ..options import parse_size
    from ..plans.task_graph import graph_ending

    if graph is not None:
        graph_ending(graph)
    start = time.perf_counter()
    problem = load_dcop(file, agents=agents)
    read_seconds = time.perf_counter() - start
    if options["order"] not in _HEURISTICS.split(", "):
        options["order"] = [name.strip() for name in options["order"].split(",")]
    if (bandwidth := options.pop("bandwidth")) is not None:
        options["bandwidth"] = parse_size(bandwidth)
    with status_line(as_json, "passing messages"):
        found = solve(problem, **options)
    found = replace(found, seconds={"read": read_seconds, **found.seconds})
    shared.print_notes(found.notes)
    if graph is not None and found.graph is not None:
        found.graph.save(graph)
        shared.print_written(graph)
    if as_json:
        click.echo(found.to_json())
    else:
        _print(replace(found, notes=()))


def _print(found: DpopResult) -> None:
    from .show_run import print_rows, show, table

    print_rows(found.rows())
    figures = table("what it cost", "")
    figures.add_column("", overflow="fold")
    figures.show_header = False
    for label, text in found.metric_rows():
        figures.add_row(label, text)
    show(figures)


# ``bucketflow generate``: a random distributed problem as a file.


def _number(name: str, default: float, metavar: str, help: str) -> Callable[[shared.Command], shared.Command]:
    return click.option(f"--{name}", type=type(default), default=default, show_default=True, metavar=metavar, help=help)


@click.command("generate")
@click.argument("kind", type=click.Choice(["random", "grid", "scale-free", "coloring", "meetings"]))
@click.argument("target", shell_complete=shared.complete_path)
@_number("variables", 10, "N", "Number of variables, or of meetings.")
@_number("domain", 5, "D", "Number of states, colours or times of a variable.")
@_number("density", 0.3, "P1", "Fraction of variable pairs with a function, or of agents at each meeting.")
@_number("tightness", 0.0, "P2", "Fraction of forbidden entries in a function.")
@click.option("--cost", type=int, metavar="C", help="Costs range from 0 to C.  [default: 100; for coloring 1]")
@_number("links", 2, "M", "Links of each new node in a scale-free graph.")
@_number("agents", 5, "N", "Number of agents.")
@shared.option("seed", "Seed of the random numbers.")
@guarded
def generate(kind: str, target: str, cost: int | None, **options: Any) -> None:
    """Write a random problem of KIND to TARGET.

    TARGET ends in .yaml, .xml, .wcsp or .cfn, perhaps with .gz or .xz.
    """
    from ..api.progress import status_line
    from ..formats.write import save
    from ..models.random_dcops import generate as made

    options["cost"] = cost if cost is not None else 1 if kind == "coloring" else 100
    with status_line(False, "generating") as status:
        problem = made(kind, **options)  # type: ignore[arg-type]
        status.say(f"writing {len(problem.model.functions):,} functions")
        notes = save(problem, target)
    for note in notes:
        say(f"note: {note}", logging.INFO)
