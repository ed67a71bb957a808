"""Commands about circuits: compile a model to one, check it, evaluate it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from ..errors import finite
from . import options as shared
from .assignments import print_evaluation
from .ending import guarded

if TYPE_CHECKING:
    from ..circuits.circuit_model import Circuit
    from ..circuits.making import CircuitMethod
    from ..models.model import Model
    from ..results.labeled_array import LabeledArray

_QUERIES = ("partition", "optimum", "marginals", "count", "sample")
_METHODS = ("auto", "buckets", "search")


@click.command("circuit", cls=shared.Grouped)
@shared.asking
@click.option(
    "-o",
    "--out",
    required=True,
    metavar="FILE",
    help="Circuit file: .npz, .nnf (text of c2d) or .ddnnf (text of d4).",
)
@shared.choice_option(
    "--method",
    _METHODS,
    "How to build the circuit: from buckets of an order, or from a search over clauses; auto tries both.",
)
@guarded
def circuit(file: str, as_json: bool, out: str, method: CircuitMethod, **options: Any) -> None:
    """Write the model in FILE as an arithmetic circuit.

    The circuit is smooth, deterministic and decomposable.
    """
    from ...tasks.compiler.working_time import compiling_seconds
    from ..circuits.circuit_files import circuit_ending
    from ..circuits.circuit_model import circuit as made
    from ..compiling import apart

    circuit_ending(out)  # before the model is read
    model, read_seconds = shared.load(file, options)
    _, evidence, settings = shared.keywords_of(model, options)
    start, before = time.perf_counter(), compiling_seconds()
    found = made(
        model, evidence=evidence, method=method, report=lambda price: shared.print_notes([price]), out=out, **settings
    )
    seconds, compiling = {"run": time.perf_counter() - start}, compiling_seconds() - before
    if compiling:
        seconds = apart(seconds, compiling, seconds["run"])
    graph = found.graph
    facts = {"status": "ok", "out": out, "nodes": graph.nodes, "edges": graph.edges, "bytes": graph.nbytes}
    origin = asdict(found.origin) if found.origin else {}
    click.echo(
        json.dumps({**facts, **origin, "seconds": {"read": read_seconds, **seconds}})
        if as_json
        else f"{found!r}\n{found.origin}"
    )


@click.group()
def check() -> None:
    """Check a file: `check circuit`."""


@check.command("circuit")
@click.argument("file")
@click.argument("model", required=False)
@shared.option("memory", "Memory budget of the circuit and its evaluation.  [default: most of the free memory]")
@shared.json_option
@guarded
def check_circuit_command(file: str, model: str | None, memory: str | None, as_json: bool) -> None:
    """Prove that the circuit in FILE is decomposable, smooth and deterministic, and equals MODEL.

    The exit code is 2 if it does not.
    """
    from ..circuits.circuit_check import check_circuit
    from ..circuits.circuit_model import load_circuit

    found = check_circuit(load_circuit(file, memory=memory), None if model is None else _read(model, memory))
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    else:
        click.echo("\n".join(found.lines()))
    if not found.ok:
        raise SystemExit(2)


@click.command()
@click.argument("file")
@shared.choice_option("--query", _QUERIES, "Query.")
@shared.text_option("--evidence", "FILE|x=v,…", "Observed variables, as for solve.", multiple=True)
@shared.text_option("--cases", "FILE", "A .csv file with a case in each row.")
@shared.whole_option("--samples", "N", "Number of samples.", least=0)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the samples.")
@shared.option("memory", "Memory budget of the circuit and its evaluation.  [default: most of the free memory]")
@shared.whole_option("--gpus", "1", "Evaluate on a GPU.")
@shared.text_option(
    "--assignment",
    "FILE|x=v,…",
    "Evaluate this assignment on the model in FILE: x=v pairs, or the JSON file of an answer.",
    multiple=True,
)
@shared.json_option
@guarded
def evaluate(
    file: str,
    assignment: tuple[str, ...],
    query: str,
    evidence: tuple[str, ...],
    cases: str | None,
    samples: int | None,
    seed: int,
    memory: str | None,
    gpus: int | None,
    as_json: bool,
) -> None:
    """Evaluate a circuit, or an assignment.

    A circuit gives a sum, a best assignment, marginals, a count or samples, for one case or many. With --assignment,
    FILE is a model, and the assignment is evaluated on it.
    """
    if assignment:
        if evidence or cases or samples is not None or gpus or query != "partition":
            raise click.UsageError("--assignment is evaluated on a model, and goes only with --json and --memory")
        print_evaluation(file, assignment, as_json, memory)
        return
    from ..circuits.circuit_model import load_circuit, one_case
    from ..formats.case_files import read_cases
    from ..formats.read import evidence_of

    if (samples is not None) != (query == "sample"):
        raise click.UsageError("--samples and --query sample need each other")
    if cases is not None and (evidence or query in ("sample", "count")):
        raise click.UsageError("--cases excludes --evidence, and goes with partition, optimum and marginals only")
    if query == "count" and evidence:
        raise click.UsageError("a count covers all assignments of the circuit; give --evidence when you compile it")
    found = load_circuit(file, memory=memory)
    if cases is None:
        answer = _answer(found, query, one_case(found.model, evidence_of(found.model, evidence)), samples, seed, gpus)
    else:
        # a chunk of cases at a time is in memory, beside all answers
        answers = (_answer(found, query, part, samples, seed, gpus) for part in read_cases(cases, found.model))
        answer = reduce(_joined, answers)
    if as_json:
        labels = {name: [*found.model.state_labels(name)] for name in answer.get("marginals", {})}
        states = {"states": labels} if labels else {}
        click.echo(json.dumps({"status": "ok", **answer, **states}, allow_nan=False))
        return
    for name, value in answer.items():
        if name != "marginals":
            click.echo(f"{name}  {json.dumps(value)}")
            continue
        for variable, rows in value.items():
            for line in _labelled(found.model, variable, rows).lines():
                click.echo(line)


def _joined(first: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of one chunk of cases and of the next one."""
    return {
        key: _joined(value, more[key]) if isinstance(value, dict) else [*value, *more[key]]
        for key, value in first.items()
    }


def _labelled(model: Model, variable: str, rows: list[list[float]]) -> LabeledArray:
    """Return posteriors of a variable with labels; of one case without an axis of cases."""
    import numpy as np

    from ..results.labeled_array import LabeledArray

    states = model.state_labels(variable)
    if len(rows) == 1:
        return LabeledArray(rows[0], [variable], [states])
    return LabeledArray(np.reshape(rows, (len(rows), len(states))), ["case", variable], [range(len(rows)), states])


def _answer(found: Circuit, query: str, given: Any, samples: int | None, seed: int, gpus: int | None) -> dict[str, Any]:
    """Return the answer in plain types, with null for impossible values."""
    names = found.model.own_names
    if query == "count":
        return {"count": found.count()}
    if query == "sample":
        assert samples is not None
        return {"variables": names, "samples": found.sample(samples, given, seed=seed, gpus=gpus).tolist()}
    if query == "optimum":
        logs, states = found.optimum(given, gpus=gpus)
        best = [found.model.shown(row) if row[0] >= 0 else None for row in states.tolist()]
        return {"log10": [*map(finite, logs.tolist())], "assignments": best}
    if query == "partition":
        return {"log10": [*map(finite, found.log10(given, gpus=gpus).tolist())]}
    posteriors = found.marginals(given, gpus=gpus)
    tables = {name: posteriors[name].tolist() for name in names}
    return {"log10_evidence": [*map(finite, posteriors.log10_evidence.tolist())], "marginals": tables}


def _read(path: str, memory: str | None) -> Model:
    from ..formats.read import load_named

    model = load_named(path, memory)
    shared.print_notes(model.notes)
    return model
