"""``bucketflow marginals``: posteriors of one case of evidence, or of a file of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..models.option_rows import options_for
from .ending import guarded
from .information import information_asked, informing, print_information
from .options import (
    Grouped,
    keep_warm,
    keywords_of,
    load,
    marginal_targets,
    names,
    on_cluster,
    options_of,
    placing,
    print_answer,
)

if TYPE_CHECKING:
    from ..models.model import Model
    from ..results.posteriors import Marginals


@click.command("marginals", cls=Grouped)
@placing
@marginal_targets
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
@click.option("--uai-out", metavar="PREFIX", help="Write PREFIX.PR, PREFIX.MAR and PREFIX.MPE.")
@click.option(
    "--cases",
    metavar="CSV",
    help="CSV file of cases: variable names, then one case in each row.",
)
@options_of(*options_for("values"))
@click.option(
    "--out", metavar="FILE", help="Write the posteriors to a .json or .csv file; with --cases also .jsonl or .parquet."
)
@guarded
@keep_warm
@on_cluster
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
    model, read_seconds = load(file, options, as_json)
    _, evidence, rest = keywords_of(model, options)
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
    wanted = "all" if asked["uai_out"] else names(asked["variables"])
    joint = [names(group) for group in asked["joint"]]
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
    print_answer(found, as_json, model.notes)


def _check_folder(prefix: str) -> None:
    """Refuse files in a folder that is not there before anything is computed."""
    from os.path import isdir

    from ..errors import ModelError
    from ..local_paths import local_path

    if not isdir(local_path(prefix).parent):
        raise ModelError(f"cannot write {prefix}.MAR: there is no folder {local_path(prefix).parent}")


def _write_uai(prefix: str, found: Marginals, evidence: Any, options: dict[str, Any]) -> None:
    from pathlib import Path

    from ..api.solve import solve
    from ..errors import ModelError
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
    import json
    import time

    from ...cluster.memory import peak_rss_bytes
    from ..answering.question import split_evidence
    from ..compiled.compiled import compile_model
    from ..formats.case_files import case_writer, read_cases
    from ..results.proof import plan_figures

    start = time.perf_counter()
    compiled = compile_model(model, **options)
    hard, soft = split_evidence(model, evidence)
    compiled.set_evidence(model.named(hard | soft))
    wanted = names(variables)
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
