"""``bucketflow dpop``: a distributed problem, solved by its agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .ending import guarded
from .options import Grouped, complete_model, complete_path, json_option, option, print_notes

if TYPE_CHECKING:
    from ..results.dpop_result import DpopResult


_HEURISTICS = "cheapest, planned, most-connected, max-degree, most-constrained, given"


@click.command("dpop", cls=Grouped)
@click.argument("file", shell_complete=complete_model)
@click.option("--agents", metavar="FILE", help="A list of the variables that each agent owns, in YAML or JSON.")
@click.option(
    "--order",
    default="cheapest",
    show_default=True,
    metavar="NAME|a,b,…",
    help=f"Of the pseudo-tree: {_HEURISTICS}, or names of agents.",
)
@option("seed", "Seed of the search for a planned tree.")
@click.option("--z", type=click.IntRange(min=1), metavar="N", help="Most variables of a mini-bucket (ADPOP): bounds.")
@click.option(
    "--memory",
    metavar="SIZE",
    help="Most bytes of a message's table, by going through cut variables (MB-DPOP).  [default: no limit]",
)
@click.option(
    "--latency", type=click.FloatRange(min=0), default=0.0, metavar="S", help="Simulated seconds that a message takes."
)
@click.option("--bandwidth", metavar="SIZE", help="Bytes that a link carries in a second.  [default: no limit]")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Cores of an agent.")
@option("workers", "Local Dask worker processes for agents.")
@option("scheduler")
@option("gpus", "Run large joins on a GPU of this machine.")
@json_option
@guarded
def dpop(file: str, agents: str | None, as_json: bool, **options: Any) -> None:
    """Solve the distributed problem in FILE by its agents' messages: DPOP, ADPOP or MB-DPOP."""
    import time
    from dataclasses import replace

    from ..agents.dpop import dpop as solve
    from ..api.solve import load_dcop
    from ..options import parse_size
    from .progress import status_line

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
    print_notes(found.notes)
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


@click.command("generate")
@click.argument("kind", type=click.Choice(["random", "grid", "scale-free", "coloring", "meetings"]))
@click.argument("target", shell_complete=complete_path)
@click.option(
    "--variables", type=int, default=10, show_default=True, metavar="N", help="Number of variables, or of meetings."
)
@click.option(
    "--domain",
    type=int,
    default=5,
    show_default=True,
    metavar="D",
    help="Number of states, colours or times of a variable.",
)
@click.option(
    "--density",
    type=float,
    default=0.3,
    show_default=True,
    metavar="P1",
    help="Share of all pairs that have a function, or of all agents that attend a meeting.",
)
@click.option(
    "--tightness",
    type=float,
    default=0.0,
    show_default=True,
    metavar="P2",
    help="Share of the entries of a function that are forbidden.",
)
@click.option("--cost", type=int, metavar="C", help="Costs are 0 to C.  [default: 100; of conflicts 1]")
@click.option(
    "--links", type=int, default=2, show_default=True, metavar="M", help="Links of a new node of a scale-free graph."
)
@click.option("--agents", type=int, default=5, show_default=True, metavar="N", help="Number of agents who meet.")
@option("seed", "Seed of the random numbers.")
@guarded
def generate(kind: str, target: str, cost: int | None, **options: Any) -> None:
    """Write a random problem of KIND to TARGET, a .yaml, .xml, .wcsp or .cfn file (.gz and .xz too)."""
    from ..formats.write import save
    from ..models.random_dcops import generate as made

    options["cost"] = cost if cost is not None else 1 if kind == "coloring" else 100
    for note in save(made(kind, **options), target):  # type: ignore[arg-type]
        click.echo(f"bucketflow: note: {note}", err=True)
