"""``bucketflow dynamic``: a network that repeats from step to step, filtered, smoothed, or its most likely path.

``bucketflow fit``: the tables of a Bayesian network from rows of data, some of whose cells may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..api.complete_names import complete_names
from ..errors import counted, finite, logarithm
from . import options as shared
from .ending import guarded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..dynamic.dynamic import DynamicNetwork


@click.command("dynamic", cls=shared.Grouped)
@click.argument("initial")
@click.argument("transition", required=False)
@shared.choice_option(
    "--query",
    ["filter", "smooth", "path"],
    "filter: posteriors given earlier steps. smooth: given all steps. path: the most likely states.",
)
@shared.whole_option("--steps", "N", "Number of steps.  [default: the rows of --evidence]")
@shared.text_option("--evidence", "CSV", "CSV file: variable names, then a row for each step; blank means unobserved.")
@shared.whole_option("--lag", "K", "For filter: use observations of up to K later steps.", least=0)
@shared.text_option("--variables", "a,b", "Variables to compute.", default="all", show_default=True)
@shared.text_option(
    "--suffixes",
    "A,B",
    "Name suffixes of the previous and the current step.  [default: _0,_1 or _prev, or [0],[1] or 0,t]",
)
@click.option("-o", "--out", required=True, metavar="FILE", help="File for the answer: .csv, .jsonl, .parquet.")
@shared.options_of("order", "order_time", "tree", "seed", "memory")
@shared.no_check_option
@shared.json_option
@guarded
def dynamic(
    initial: str, transition: str | None, suffixes: str | None, no_check: bool, as_json: bool, **options: Any
) -> None:
    """Answer a query for each step of a dynamic network.

    TRANSITION contains the variables of a step, and the variables of the previous step with a suffix in their names.
    Without TRANSITION, INITIAL contains both.
    """
    import time

    from ...cluster.memory import peak_rss_bytes
    from ..api.solve import load
    from ..dynamic.dynamic import dynamic as made

    asked = {name: options.pop(name) for name in ("query", "steps", "evidence", "lag", "variables", "out")}
    _verify(asked)
    start = time.perf_counter()
    # INITIAL alone contains both steps
    models = [load(file, memory=options["memory"], check=not no_check) for file in (initial, transition) if file]
    read = time.perf_counter()
    network = made(*models, suffixes=_suffixes(suffixes), **options)
    shared.print_notes(network.template.notes)
    found = _written_path(network, asked) if asked["query"] == "path" else _written_posteriors(network, asked)
    facts = {
        "query": asked["query"],
        "status": "ok" if found["impossible_step"] is None else "infeasible",
        **found,
        "out": asked["out"],
        "interface": list(network.interface),
        "interface_states": network.template.message_cells,
        "seconds": {"read": round(read - start, 6), "run": round(time.perf_counter() - read, 6)},
        "peak_rss_bytes": peak_rss_bytes(),
        **({"notes": list(network.template.notes)} if network.template.notes else {}),
    }
    click.echo(json.dumps(facts, allow_nan=False) if as_json else _line(facts))


def _verify(asked: dict[str, Any]) -> None:
    """Refuse options of another query.

    Raises
    ------
    click.UsageError
    """
    if asked["lag"] is not None and asked["query"] != "filter":
        raise click.UsageError("--lag goes with --query filter only")
    if asked["query"] == "path" and asked["variables"] != "all":
        raise click.UsageError("--query path gives the states of all variables; leave out --variables")
    if asked["steps"] is None and asked["evidence"] is None:
        raise click.UsageError("give --steps, or --evidence with a row for each step")


def _suffixes(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    before, comma, now = text.partition(",")
    if not comma:
        raise click.UsageError(f"--suffixes takes two, as _0,_1 or _prev, not {text!r}")
    return before.strip(), now.strip()


def _written_posteriors(network: DynamicNetwork, asked: dict[str, Any]) -> dict[str, Any]:
    """Write posteriors as they are computed, and return a summary."""
    from ..formats.case_files import case_writer

    wanted = {"steps": asked["steps"], "variables": shared.names(asked["variables"])}
    if asked["query"] == "smooth":
        blocks = network.smoothed_blocks(asked["evidence"], **wanted)
    else:
        blocks = network.filtered_blocks(asked["evidence"], lag=asked["lag"] or 0, **wanted)
    count, last, impossible = 0, float("-inf"), None
    with case_writer(asked["out"], network.template.slice, "step") as write:
        for block in blocks:
            write(block)
            count += len(block.log10_evidence)
            last, impossible = float(block.log10_evidence[-1]), block.impossible_step
    return {"steps": count, "log10_evidence": finite(last), "impossible_step": impossible}


def _written_path(network: DynamicNetwork, asked: dict[str, Any]) -> dict[str, Any]:
    """Write states as they are computed, and return a summary."""
    from ..formats.answer_files import checked_ending, write_rows

    checked_ending(asked["out"])
    found: dict[str, Any] = {"steps": 0}

    def blocks() -> Iterator[NDArray[Any]]:
        for block in network.path_blocks(asked["evidence"], steps=asked["steps"]):
            found["steps"] += len(block)
            found.update(log10=finite(block.log10), impossible_step=block.impossible_step)
            yield block.states

    write_rows(network.template.slice, blocks(), asked["out"])
    return found


def _line(facts: dict[str, Any]) -> str:
    """Say in a line what was found."""
    if facts["impossible_step"] is not None:
        return f"infeasible  what is observed at step {facts['impossible_step']:,} is impossible after what came before"
    log10 = facts["log10"] if facts["query"] == "path" else facts["log10_evidence"]
    return f"{counted(facts['steps'], 'step')} in {facts['out']}, log10 {logarithm(log10)}"


@click.command("fit", cls=shared.Grouped)
@click.argument("file", shell_complete=shared.complete_model)
@click.argument("data", shell_complete=shared.complete_path)
@click.option("-o", "--out", required=True, metavar="FILE", help="File for the learnt model: .bif, .net, .uai.")
@shared.number_option("--prior", None, "Pseudo-counts added to the counts of each joint state.", default=0.0)
@shared.number_option(
    "--equivalent-sample",
    "ROWS",
    "Pseudo-counts of this many rows for each table, spread evenly (BDeu).",
    default=0.0,
    show_default=False,
)
@shared.text_option("--fixed", "a,b", "Variables whose tables stay as they are.", shell_complete=complete_names())
@shared.text_option(
    "--tied", "a,b", "Variables that share one table; repeatable.", multiple=True, shell_complete=complete_names()
)
@shared.choice_option("--start", ["model", "uniform", "random"], "Tables of the first iteration.")
@shared.whole_option("--restarts", "N", "Further starts, from random tables.", least=0, default=0, show_default=False)
@shared.whole_option("--iterations", "N", "Maximum number of iterations of each start.", least=0, default=100)
@shared.number_option(
    "--tolerance", "T", "Stop when an iteration raises the log-likelihood by at most T for each row.", default=1e-6
)
@shared.options_of("order", "order_time", "tree", "seed", "memory", "gpu_memory", "workers", "scheduler", "gpus")
@shared.option("workdir", "Folder that keeps each finished iteration; an interrupted run in it continues.")
@shared.no_check_option
@shared.json_option
@guarded
@shared.on_cluster
def fit(file: str, data: str, as_json: bool, fixed: str | None, tied: tuple[str, ...], **options: Any) -> None:
    """Learn the tables of the Bayesian network in FILE from the rows of DATA.

    DATA is a CSV file: variable names, then a row for each case. An empty cell is missing, and a variable without a
    column is hidden.
    """
    from dataclasses import replace

    from ..learning.fitting import fit as fitted

    model, read_seconds = shared.load(file, options, as_json)
    groups = [_listed(group) for group in tied]
    found = fitted(model, data, fixed=_listed(fixed), tied=groups, progress=not as_json, **options)
    found = replace(found, seconds={**found.seconds, "read": read_seconds + found.seconds["read"]})
    shared.print_answer(found, as_json, model.notes)
    shared.print_written(options["out"])


def _listed(names: str | None) -> list[str]:
    return [] if names is None else [name.strip() for name in names.split(",")]
