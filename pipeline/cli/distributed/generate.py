"""``bucketflow generate``: a random distributed problem as a file."""

from __future__ import annotations

from typing import Any

import click

from ..ending import guarded


@click.command("generate")
@click.argument("kind", type=click.Choice(["random", "grid", "scale-free", "coloring", "meetings"]))
@click.argument("target")
@click.option("--variables", type=int, default=10, show_default=True, metavar="N", help="|X|, or meetings.")
@click.option("--domain", type=int, default=5, show_default=True, metavar="D", help="|D|: states, colours, times.")
@click.option(
    "--density", type=float, default=0.3, show_default=True, metavar="P1", help="Part of all pairs; of all agents."
)
@click.option("--tightness", type=float, default=0.0, show_default=True, metavar="P2", help="Part that is forbidden.")
@click.option("--cost", type=int, metavar="C", help="Costs are 0 to C.  [default: 100; of conflicts 1]")
@click.option("--links", type=int, default=2, show_default=True, metavar="M", help="Of a new node (scale-free).")
@click.option("--agents", type=int, default=5, show_default=True, metavar="N", help="Of meetings.")
@click.option("--seed", type=int, default=0, show_default=True)
@guarded
def generate(kind: str, target: str, cost: int | None, **options: Any) -> None:
    """Write a random problem of KIND to TARGET, a .yaml, .xml, .wcsp or .cfn file (.gz and .xz too)."""
    from ...formats.writers import save
    from ...generators.problems import generate as made

    options["cost"] = cost if cost is not None else 1 if kind == "coloring" else 100
    for note in save(made(kind, **options), target):  # type: ignore[arg-type]
        click.echo(f"bucketflow: note: {note}", err=True)
