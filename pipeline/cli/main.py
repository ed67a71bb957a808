"""The command line: all commands. Commands in modules of their own are imported on first use."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from ...cluster.version import __version__
from ..api.complete_names import complete_states
from ..models.query import options_for
from . import options as shared
from .assignments import many_asked, print_many, solving
from .ending import EXIT_CODES, UNANSWERED, Commands, guarded

if TYPE_CHECKING:
    from ..learning.fitted import FittedModel
    from ..results.posteriors import Marginals
    from ..results.result import Result

_HOMES = {
    "bound": "bound",
    "calibrate": "calibrate",
    "check": "circuits",
    "circuit": "circuits",
    "evaluate": "circuits",
    "fit": "dynamic",
    "marginals": "marginals",
    "warm": "calibrate",
    **dict.fromkeys(("completion", "man"), "manual"),
    "dpop": "dcop",
    "dynamic": "dynamic",
    "generate": "dcop",
    "batch": "batch",
    "report": "batch",
    "reproduce": "reproduce",
    "serve": "batch",
    **dict.fromkeys(("cancel", "forget", "jobs", "log", "prune", "result", "submit", "watch"), "jobs"),
}
# The sections of the help.
_GROUPS = {
    "Ask": ("solve", "marginals", "bound", "dynamic", "dpop", "evaluate", "circuit", "plan"),
    "Learn": ("fit",),
    "Look": ("info", "draw", "inspect", "report", "check", "examples", "formats"),
    "Run elsewhere": (
        *("batch", "serve", "submit", "jobs", "watch", "result", "cancel", "resume", "log", "forget", "prune"),
    ),
    "Convert and generate": ("convert", "generate"),
    "Set up and measure": ("warm", "calibrate", "reproduce", "completion", "man"),
}


@click.group(
    cls=Commands,
    homes=_HOMES,
    groups=_GROUPS,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "BUCKETFLOW"},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, prog_name="bucketflow")
@click.option(
    "--config",
    metavar="FILE",
    envvar="BUCKETFLOW_CONFIG",
    is_eager=True,
    expose_value=False,
    callback=guarded(shared.read_settings),
    help="TOML file with default options. The command line and variables such as BUCKETFLOW_MEMORY override it.  "
    "[default: ~/.config/bucketflow/config.toml]",
)
def main() -> None:
    """Exact inference for Bayesian networks, Markov networks and weighted constraint problems."""


@main.command(cls=shared.Grouped)
@solving
@shared.proving
@shared.prune
@guarded
@shared.keep_warm
@shared.on_cluster
def solve(file: str, as_json: bool, no_prune: bool, **options: Any) -> None:
    """Answer a query on the model in FILE."""
    if options.get("method") == "dense" and options.get("gpus") == "1" and not options.get("scheduler"):
        from ...cluster.cards import begin_driver

        # the driver of the GPU starts while Python imports the other modules
        begin_driver()
    from ..answering.answer_question import valued
    from ..answering.question import question_of
    from ..answering.running import timed
    from ..api.progress import progress_lines
    from ..errors import DeadlineError
    from ..options import Options, ProofOptions

    many = many_asked(options, no_prune)
    out = many["out"] if [*many] == ["out"] else None
    start = perf_counter()
    try:
        model, read_seconds = shared.load(file, options, as_json)
    except DeadlineError as error:
        if many and not out:
            raise
        from ..results.result import unread_result

        found = unread_result(options["query"], str(error), perf_counter() - start)
        shared.print_answer(found, as_json)
        _end_bounded(found)
        return
    if many and not out:
        print_many(model, read_seconds, many, options, as_json)
        return
    query, evidence, settings = shared.keywords_of(model, options)
    outer = {name: settings.pop(name) for name in ("project", "maximize")}
    how = {name: settings.pop(name) for name in options_for("proving")}
    question, effort = question_of(model, query, evidence, **outer), ProofOptions(prune=not no_prune, **how)
    with progress_lines(hidden=as_json) as progress:
        result = valued(question, Options(**settings), effort, progress)
    result = timed(result, read_seconds)
    if out:
        from ..formats.answer_files import write_answer

        write_answer(result, out)
    shared.print_answer(result, as_json, model.notes)
    _end_bounded(result)


def _end_bounded(result: Result | Marginals | FittedModel) -> None:
    """Exit where an optimum is bounded less closely than was asked."""
    proof = getattr(result, "proof", None)
    if proof is not None and not proof.close:
        sys.exit(UNANSWERED)


@main.command(cls=shared.Grouped)
@shared.planning_all
@shared.method
@shared.prune
@shared.text_option(
    "--graph", "FILE", "Write the task graph to a .svg, .html, .png, .pdf or .json file: a row for each elimination."
)
@shared.simulating
@guarded
def plan(
    file: str,
    as_json: bool,
    variables: str,
    joint: tuple[str, ...],
    no_prune: bool,
    graph: str | None,
    simulate: str | None,
    simulated: dict[str, Any],
    **options: Any,
) -> None:
    """Show what a query would cost.

    Only the preprocessing of an optimum is computed.
    """
    from ..answering.plan_preview import plan_preview
    from ..answering.question import question_of
    from ..options import Options, ProofOptions
    from ..plans.task_graph import graph_ending
    from .show_plan import SimulationOptions, plan_json, print_plan, write_graph

    if graph is not None:
        # a wrong ending is refused before the model is read
        graph_ending(graph)
    asked = None if simulate is None else SimulationOptions.of(simulate, options, simulated)
    model, _ = shared.load(file, options, as_json)
    query, evidence, settings = shared.keywords_of(model, options)
    outer = {name: settings.pop(name) for name in ("project", "maximize")}
    question = question_of(
        model, query, evidence, shared.names(variables), [shared.names(group) for group in joint], **outer
    )
    effort = ProofOptions(method=settings.pop("method"), prune=not no_prune)
    found = plan_preview(question, Options(**settings), effort)
    if graph is not None:
        write_graph(found, graph)
        shared.print_written(graph)
    if asked is not None:
        asked.show(found, as_json)
    elif as_json:
        click.echo(plan_json(found))
    else:
        print_plan(found)


@main.command(cls=shared.Grouped)
@click.argument("file", shell_complete=shared.complete_model)
@click.option("-o", "--output", required=True, metavar="FILE", help="Drawing to write: .svg, .html, .png or .pdf.")
@click.option("--posteriors", is_flag=True, help="Compute posteriors and draw them in the boxes.")
@shared.text_option(
    "--evidence",
    "FILE|x=v,…",
    "Observed variables, as in `marginals`.",
    multiple=True,
    shell_complete=complete_states(files=True),
)
@shared.options_of("memory", "order", "seed")
@shared.no_check_option
@guarded
def draw(file: str, output: str, posteriors: bool, **options: Any) -> None:
    """Draw the model in FILE, with posteriors if requested."""
    from ..api.look import draw as drawn
    from ..drawings.svg import drawing_ending

    drawing_ending(output)
    model, _ = shared.load(file, options)
    _, evidence, settings = shared.keywords_of(model, options)
    drawn(model, posteriors=posteriors, evidence=evidence, **settings).save(output)
    shared.print_written(output)


@main.command()
@click.argument("file", shell_complete=shared.complete_model)
@shared.no_check_option
@shared.json_option
@guarded
def info(file: str, no_check: bool, as_json: bool) -> None:
    """Describe the model in FILE in numbers."""
    import json

    from ..api.look import info as described
    from .show_run import print_facts

    facts = described(file, check=not no_check)
    shared.print_notes(facts.get("notes", ()))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        print_facts(facts)


@main.command("resume")
@click.argument("directory", shell_complete=shared.complete_path)
@shared.text_option("--model", "PATH", "The model's file, if it has moved.", shell_complete=shared.complete_path)
@shared.options_of("memory", "workers", "scheduler", "gpus")
@shared.json_option
@guarded
@shared.on_cluster
def resume_command(directory: str, model: str | None, as_json: bool, **options: Any) -> None:
    """Continue the run in DIRECTORY. A job is submitted again, unless --workers or --gpus is given.

    With less --memory than its plan needs, the run is planned again.
    """
    from ..jobs.resume import resume
    from .jobs import resumed_job

    here = options["workers"] or options["gpus"] or options.get("client")
    if not here and resumed_job(directory, options["scheduler"], options["memory"], model):
        return
    result = resume(directory, model=model, progress=not as_json, **options)
    shared.print_answer(result, as_json)
    _end_bounded(result)


@main.command()
@click.argument("directory", shell_complete=shared.complete_path)
@shared.json_option
@guarded
def inspect(directory: str, as_json: bool) -> None:
    """Show the progress of the run in DIRECTORY."""
    import json

    from ..local_paths import folder_path
    from .show_run import print_run, run_facts

    facts = run_facts(folder_path(directory))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        print_run(facts)


@main.command()
@click.argument("source", shell_complete=shared.complete_model)
@click.argument("target", shell_complete=shared.complete_path)
@shared.text_option("--agents", "FILE", "YAML or JSON file with the variables that each agent owns.")
@shared.no_check_option
@guarded
def convert(source: str, target: str, agents: str | None, no_check: bool) -> None:
    """Write the model in SOURCE in another format.

    TARGET ends in .uai, .bif, .net, .wcsp, .cfn, .xml (XCSP 2.1) or .yaml (pyDCOP).

    Of a problem of agents a .wcsp or .cfn gets a file beside it, NAME.agents.yaml, that says who owns what.
    """
    from ..api.look import convert as converted

    shared.print_notes(converted(source, target, agents=agents, check=not no_check))
    shared.print_written(target)


@main.command()
@guarded
def examples() -> None:
    """List the example models; their names work in place of files."""
    from .show_run import print_examples

    print_examples()


@main.command("formats")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
@shared.json_option
def formats_command(as_json: bool, markdown: bool) -> None:
    """List the file formats that bucketflow reads and writes."""
    import json

    from ..formats.registry import formats, markdown_table, unread_formats
    from .show_run import print_formats

    if as_json and markdown:
        raise click.UsageError("--json and --markdown are two forms of one table")
    if as_json:
        click.echo(json.dumps({"formats": formats(), "unread": unread_formats()}))
    elif markdown:
        click.echo(markdown_table())
    else:
        print_formats()
