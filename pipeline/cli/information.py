"""Options of ``bucketflow marginals`` for measures of information, and the functions that answer them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ..api.complete_names import complete_names, complete_states
from ..errors import rounded_sum
from .options import Command, print_lines, print_notes

if TYPE_CHECKING:
    from ..compiled.compiled import Compiled
    from ..models.model import Model
    from ..results.parameter_slopes import Sensitivity

_OPTIONS: dict[str, Callable[[Command], Command]] = {
    "entropy": click.option(
        "--entropy",
        multiple=True,
        metavar="a,b",
        shell_complete=complete_names(),
        help="Entropy of these variables together, in bits.",
    ),
    "mutual": click.option(
        "--mutual",
        multiple=True,
        metavar="a,b:c[|d]",
        shell_complete=complete_names(",:|"),
        help="Mutual information of two sets, given a third, in bits.",
    ),
    "conditional": click.option(
        "--conditional",
        multiple=True,
        metavar="a|b,c",
        shell_complete=complete_names(",|"),
        help="The conditional distribution P(a | b, c).",
    ),
    "voi": click.option(
        "--voi",
        metavar="x",
        shell_complete=complete_names(""),
        help="Value of information of each variable for x, in bits.",
    ),
    "relevant": click.option(
        "--relevant",
        metavar="x",
        shell_complete=complete_names(""),
        help="Effect of each finding on x, if removed and if alone, in bits.",
    ),
    "sensitivity": click.option(
        "--sensitivity",
        metavar="x=v",
        shell_complete=complete_states(),
        help="The posterior of a state as a function of each parameter of the network.",
    ),
    "conflict": click.option("--conflict", is_flag=True, help="Degree to which the findings contradict each other."),
}


def informing(command: Command) -> Command:
    """Options of `marginals` that ask what variables tell of each other."""
    for option in reversed(_OPTIONS.values()):
        command = option(command)
    return command


def information_asked(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options for measures of information from a command's options; return {} if none is given."""
    asked = {name: options.pop(name) for name in _OPTIONS}
    return asked if any(asked.values()) else {}


def print_information(
    model: Model, evidence: Any, asked: dict[str, Any], options: dict[str, Any], as_json: bool
) -> None:
    """Answer what is asked on a compiled model, and print it."""
    from ..answering.question import split_evidence
    from ..compiled.compiled import compile_model

    told = _sensitivity(model, evidence, asked, options) if asked["sensitivity"] else None
    found: dict[str, Any] = {}
    if any(value for name, value in asked.items() if name != "sensitivity"):
        compiled = compile_model(model, **options)
        hard, soft = split_evidence(model, evidence)
        compiled.set_evidence(model.named(hard | soft))
        found = _found(compiled, asked)
    if told is not None:
        print_notes(told.notes, model.notes)
    if as_json:
        found |= {} if told is None else {"sensitivity": told.to_dict()}
        click.echo(json.dumps({"status": "ok", **found}, allow_nan=False))
        return
    print_lines(chain(_lines(model, found), () if told is None else told.lines()))


def _sensitivity(model: Model, evidence: Any, asked: dict[str, Any], options: dict[str, Any]) -> Sensitivity:
    """Answer ``--sensitivity``; its text is read as evidence is."""
    from ..answering.question import split_evidence
    from ..api.sensitivity import sensitivity

    text = asked["sensitivity"]
    states, likelihoods = split_evidence(model, text) if "=" in text else ({}, {})
    if len(states) != 1 or likelihoods:
        raise click.UsageError(f"--sensitivity takes one state, as x=v, not {text!r}")
    ((variable, state),) = states.items()
    return sensitivity(model, model.names[variable], model.label(variable, state), evidence=evidence, **options)


def _found(compiled: Compiled, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the requested measures in plain types, with null for undefined or infinite values."""
    found: dict[str, Any] = {}
    if asked["entropy"]:
        sets = [_names(text) for text in asked["entropy"]]
        found["entropy"] = [{"variables": names, "bits": compiled.entropy(names)} for names in sets]
    if asked["mutual"]:
        found["mutual_information"] = [_mutual(compiled, text) for text in asked["mutual"]]
    if asked["conditional"]:
        found["conditional"] = [_conditional(compiled, text) for text in asked["conditional"]]
    if asked["voi"]:
        found["value_of_information"] = {"of": asked["voi"], "bits": compiled.value_of_information(asked["voi"])}
    if asked["relevant"]:
        rows = compiled.relevant_findings(asked["relevant"])
        found["relevant_findings"] = {"of": asked["relevant"], "findings": [asdict(row) for row in rows]}
    if asked["conflict"]:
        conflict = compiled.conflict()
        found["conflict"] = {
            "log10": _finite(conflict.log10),
            "findings": {name: _finite(log10) for name, log10 in conflict.findings.items()},
            "log10_evidence": _finite(conflict.log10_evidence),
        }
    return found


def _mutual(compiled: Compiled, text: str) -> dict[str, Any]:
    sets, _, given = text.partition("|")
    first, colon, second = sets.partition(":")
    if not (colon and first.strip() and second.strip()):
        raise click.UsageError(f"--mutual takes two sets, as a,b:c or a,b:c|d, not {text!r}")
    parts = _names(first), _names(second), _names(given)
    return {**dict(zip(("first", "second", "given"), parts, strict=True)), "bits": compiled.mutual_information(*parts)}


def _conditional(compiled: Compiled, text: str) -> dict[str, Any]:
    from ..results.posteriors import plain_table

    wanted, _, given = text.partition("|")
    names, others = _names(wanted), _names(given)
    table = compiled.conditional(names, others)
    states = {name: list(compiled.model.state_labels(name)) for name in [*others, *names]}
    return {"given": others, "variables": names, "table": plain_table(table), "states": states}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _lines(model: Model, found: dict[str, Any]) -> list[str]:
    """Return the measures as printable lines.

    Parameters
    ----------
    model : Model
    found : dict
        Measures by name, as in the JSON answer.
    """
    lines = [
        f"entropy  {', '.join(each['variables'])}  {rounded_sum(each['bits'])} bits"
        for each in found.get("entropy", ())
    ]
    for each in found.get("mutual_information", ()):
        given = f" given {', '.join(each['given'])}" if each["given"] else ""
        sets = f"{', '.join(each['first'])} and {', '.join(each['second'])}{given}"
        lines.append(f"mutual information  {sets}  {rounded_sum(each['bits'])} bits")
    for each in found.get("conditional", ()):
        given = f" given {', '.join(each['given'])}" if each["given"] else ""
        lines += [f"conditional  {', '.join(each['variables'])}{given}", *_table_lines(model, each)]
    # each measure prints only if it was requested
    if told := found.get("value_of_information"):
        lines.append(f"value of information of {told['of']}, bits")
        lines += [f"  {name}  {rounded_sum(bits)}" for name, bits in told["bits"].items()]
    if told := found.get("relevant_findings"):
        lines.append(f"findings that matter to {told['of']}, bits")
        for each in told["findings"]:
            omitted, alone = rounded_sum(each["omitted_bits"]), rounded_sum(each["alone_bits"])
            lines.append(f"  {each['finding']}  {omitted} without it, {alone} alone")
        if not told["findings"]:
            lines.append("  there are no findings")
    if told := found.get("conflict"):
        shown = "the findings exclude each other" if told["log10"] is None else f"log10 {rounded_sum(told['log10'])}"
        lines.append(f"conflict  {shown}")
    return lines


def _table_lines(model: Model, each: dict[str, Any]) -> list[str]:
    """Return a conditional table with the labels of its states; a row of impossible states has nan."""
    import numpy as np

    from ..results.labeled_array import labelled

    return [*labelled(model, [*each["given"], *each["variables"]], np.array(each["table"], np.float64)).lines()]
