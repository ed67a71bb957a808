"""``bucketflow marginals``: posteriors of one case of evidence or of a file of cases, and measures of information."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ..api.complete_names import complete_names, complete_states
from ..errors import ModelError, finite, rounded_sum
from ..models.query import options_for
from . import options as shared
from .ending import guarded

if TYPE_CHECKING:
    from ..compiled.compiled import Compiled
    from ..models.model import Model
    from ..results.parameter_slopes import Sensitivity
    from ..results.posteriors import Marginals


def _measure(metavar: str, complete: Callable[..., Any], help: str, multiple: bool = False) -> dict[str, Any]:
    return {"multiple": multiple, "metavar": metavar, "shell_complete": complete, "help": help}


# Options that ask what variables tell of each other.
_OPTIONS: dict[str, dict[str, Any]] = {
    "entropy": _measure("a,b", complete_names(), "Entropy of these variables together, in bits.", True),
    "mutual": _measure(
        "a,b:c[|d]", complete_names(",:|"), "Mutual information of two sets, given a third, in bits.", True
    ),
    "conditional": _measure("a|b,c", complete_names(",|"), "The conditional distribution P(a | b, c).", True),
    "voi": _measure("x", complete_names(""), "Value of information of each variable for x, in bits."),
    "relevant": _measure("x", complete_names(""), "Effect of each finding on x, if removed and if alone, in bits."),
    "sensitivity": _measure(
        "x=v", complete_states(), "The posterior of a state as a function of each parameter of the network."
    ),
    "conflict": {"is_flag": True, "help": "Degree to which the findings contradict each other."},
}
informing = partial(shared.with_options, [click.option(f"--{name}", **given) for name, given in _OPTIONS.items()])


def information_asked(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options for measures of information from a command's options; return {} if none is given."""
    asked = {name: options.pop(name) for name in _OPTIONS}
    return asked if any(asked.values()) else {}


def print_information(
    model: Model, evidence: Any, asked: dict[str, Any], options: dict[str, Any], as_json: bool
) -> None:
    """Answer what is asked on a compiled model, and print it."""
    from ..compiled.compiled import compile_model
    from ..formats.read import split_evidence

    told = _sensitivity(model, evidence, asked, options) if asked["sensitivity"] else None
    found: dict[str, Any] = {}
    if any(value for name, value in asked.items() if name != "sensitivity"):
        compiled = compile_model(model, **options)
        hard, soft = split_evidence(model, evidence)
        compiled.set_evidence(model.named(hard | soft))
        found = _found(compiled, asked)
    if told is not None:
        shared.print_notes(told.notes, model.notes)
    if as_json:
        found |= {} if told is None else {"sensitivity": told.to_dict()}
        click.echo(json.dumps({"status": "ok", **found}, allow_nan=False))
        return
    shared.print_lines(chain(_lines(model, found), () if told is None else told.lines()))


def _sensitivity(model: Model, evidence: Any, asked: dict[str, Any], options: dict[str, Any]) -> Sensitivity:
    """Answer ``--sensitivity``; its text is read as evidence is."""
    from ..api.sensitivity import sensitivity
    from ..formats.read import split_evidence

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
            "log10": finite(conflict.log10),
            "findings": {name: finite(log10) for name, log10 in conflict.findings.items()},
            "log10_evidence": finite(conflict.log10_evidence),
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


@click.command("marginals", cls=shared.Grouped)
@shared.placing
@shared.marginal_targets
@click.option(
    "--max-marginals",
    "max_marginals",
    is_flag=True,
    help="Compute max-marginals: the value of the best assignment with each state.",
)
@click.option(
    "--derivatives", is_flag=True, help="Also compute d ln Z / d entry for each table entry; printed with --json."
)
@informing
@shared.text_option("--uai-out", "PREFIX", "Write PREFIX.PR, PREFIX.MAR and PREFIX.MPE.")
@shared.text_option("--cases", "CSV", "CSV file of cases: variable names, then one case in each row.")
@shared.options_of(*options_for("values"))
@shared.text_option(
    "--out", "FILE", "Write the posteriors to a .json or .csv file; with --cases also .jsonl or .parquet."
)
@guarded
@shared.keep_warm
@shared.on_cluster
def marginals(file: str, as_json: bool, cases: str | None, out: str | None, **options: Any) -> None:
    """Compute the posterior of every variable."""
    if cases is not None and out is None:
        raise click.UsageError("--cases needs --out, a file for the posteriors")
    wanted = information_asked(options)
    if out is not None and cases is None:
        from ..formats.answer_files import answer_ending

        # a wrong ending is refused before the model is read
        answer_ending(out)
        if wanted:
            raise click.UsageError("--out writes posteriors, not information measures")
    model, read_seconds = shared.load(file, options, as_json)
    _, evidence, rest = shared.keywords_of(model, options)
    asked = {key: rest.pop(key) for key in ("variables", "joint", "max_marginals", "uai_out", "derivatives")}
    tables = [name for name in ("joint", "max_marginals", "uai_out", "derivatives") if asked[name]]
    if wanted:
        if cases or tables or asked["variables"] != "all":
            raise click.UsageError(
                "--entropy, --mutual, --conditional, --voi, --relevant, --sensitivity and --conflict cannot be "
                "combined with "
                "--cases, --variables, --joint, --max-marginals, --uai-out and --derivatives"
            )
        print_information(model, evidence, wanted, rest, as_json)
    elif cases is not None and out is not None:
        if tables:
            others = "--joint, --max-marginals, --uai-out or --derivatives"
            raise click.UsageError(f"--cases goes with --variables only, not with {others}")
        _answer_cases(model, evidence, asked["variables"], cases, out, as_json, rest)
    else:
        _answer_one(model, evidence, {**asked, "out": out}, read_seconds, as_json, rest)


def _answer_one(
    model: Model, evidence: Any, asked: dict[str, Any], read_seconds: float, as_json: bool, options: dict[str, Any]
) -> None:
    """Print the marginals of one case, and write them if asked.

    Parameters
    ----------
    model : Model
    evidence : Findings
    asked : dict
        Variables, joints, the kind of marginals, and paths of results.
    read_seconds : float
    as_json : bool
    options : dict
        Keywords of :func:`bucketflow.marginals`.
    """
    from ..answering.running import timed
    from ..api.marginals import marginals

    if asked["uai_out"]:
        _check_folder(asked["uai_out"])
    # a file of UAI marginals lists all variables
    wanted = "all" if asked["uai_out"] else shared.names(asked["variables"])
    joint = [shared.names(group) for group in asked["joint"]]
    found = marginals(
        model,
        evidence=evidence,
        variables=wanted,
        joint=joint,
        max_marginals=asked["max_marginals"],
        derivatives=asked["derivatives"],
        progress=not as_json,
        **options,
    )
    found = timed(found, read_seconds)
    if asked["uai_out"]:
        _write_uai(asked["uai_out"], found, evidence, options)
    if asked["out"]:
        from ..formats.answer_files import write_answer

        write_answer(found, asked["out"])
    shared.print_answer(found, as_json, model.notes)


def _check_folder(prefix: str) -> None:
    """Refuse files in a folder that is not there before anything is computed."""
    from os.path import isdir

    from ..local_paths import local_path

    if not isdir(local_path(prefix).parent):
        raise ModelError(f"cannot write {prefix}.MAR: there is no folder {local_path(prefix).parent}")


def _write_uai(prefix: str, found: Marginals, evidence: Any, options: dict[str, Any]) -> None:
    from pathlib import Path

    from ..api.solve import solve
    from ..results.posteriors import write_uai

    if found.max_marginals:
        raise ModelError("--uai-out writes sums, not max-marginals")
    if options["workdir"] is not None:
        options = {**options, "workdir": Path(options["workdir"]) / "optimum"}
    write_uai(prefix, found, solve(found.model, evidence=evidence, **options).assignment)


def _answer_cases(
    model: Model, evidence: Any, variables: str, cases: str, out: str, as_json: bool, options: dict[str, Any]
) -> None:
    """Write the posteriors of each case of a file, one block of cases in memory at a time.

    Parameters
    ----------
    model : Model
    evidence : Findings
        Common to all cases.
    variables : str
        Names of variables with commas between, or "all".
    cases, out : str
        Paths of the cases and of the posteriors.
    as_json : bool
    options : dict
        Keywords of :func:`bucketflow.compile`.
    """
    import time

    from ...cluster.memory import peak_rss_bytes
    from ..compiled.compiled import compile_model
    from ..formats.case_files import case_writer, read_cases
    from ..formats.read import split_evidence
    from ..results.proof import plan_figures

    start = time.perf_counter()
    compiled = compile_model(model, **options)
    hard, soft = split_evidence(model, evidence)
    compiled.set_evidence(model.named(hard | soft))
    wanted = shared.names(variables)
    count = impossible = 0
    with case_writer(out, model) as write:
        for chunk in read_cases(cases, model):
            # blocks of cases are read, answered and written in turn, so files may exceed memory
            for block in compiled.batches(chunk, wanted):
                write(block)
                count += len(block.log10_evidence)
                impossible += int((~block.possible).sum())
    seconds = time.perf_counter() - start
    facts = {
        "status": "ok",
        "cases": count,
        "impossible": impossible,
        "out": out,
        "plan": plan_figures(compiled.plan),
        "seconds": {"run": round(seconds, 6)},
        "peak_rss_bytes": peak_rss_bytes(),
        **({"notes": list(model.notes)} if model.notes else {}),
    }
    click.echo(json.dumps(facts) if as_json else f"{count} cases, {impossible} of them impossible, in {out}")
