"""The command line: options, commands, and how they end."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ... import __version__
from ..errors import BucketflowError
from ..query_kinds import QUERIES, VALUES
from .clusters import on_cluster, scheduler_option, workers_option
from .grouped import Grouped
from .marginals import marginal_targets, marginals_command, names
from .signals import terminable

if TYPE_CHECKING:
    from ..models.model import Model
    from ..results.posteriors import Marginals
    from ..results.result import Result

_STOPPED, _BOUNDED = 130, 4
_EXIT_CODES = (
    "Exit codes: 0 answered (infeasible is an answer), 2 bad input or usage, 3 refused because of a budget, "
    "4 stopped but resumable, or bounded only, 130 Ctrl-C, 143 SIGTERM, 1 a bug."
)
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """End expected failures as one sentence and their exit code, and Ctrl-C and SIGTERM without a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        codes: list[int] = []
        try:
            with terminable(codes):
                command(*args, **kwargs)
        except BucketflowError as error:
            _end(str(error), error.exit_code)
        except MemoryError:
            _end("out of memory; give a smaller --memory or --gpu-memory, so that the plan fits", 3)
        except KeyboardInterrupt:
            _end("stopped", codes[0] if codes else _STOPPED)

    return run


def _end(sentence: str, code: int) -> NoReturn:
    with suppress(OSError):  # nobody reads standard error: the code remains
        click.echo(f"bucketflow: {sentence}", err=True)
    sys.exit(code)


class _Commands(click.Group):
    """Commands whose output may go to a full device; what else is written names its file."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            with suppress(OSError):  # what could not be written is not tried again at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _end(f"cannot write {error.filename or 'to standard output'}: {error.strerror}", 2)


def _with(options: list[Callable[..., Any]], command: Callable[..., None]) -> Callable[..., None]:
    """Give a command options, which its help shows in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def _planning(command: Callable[..., None], queries: tuple[str, ...] = VALUES, more: str = "") -> Callable[..., None]:
    """Options that `solve` and `plan` share."""
    query = click.option(
        "--query",
        type=click.Choice(queries),
        default="optimum",
        show_default=True,
        help=f"Best assignment, log10 of the partition function, or the number of possible assignments{more}.",
    )
    device = click.option(
        "--gpu-memory",
        metavar="SIZE",
        help="Budget for a GPU's memory.  [default: most of what is free, up to --memory]",
    )
    return _placing(query(_gpus(device(command))))


def _gpus(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--gpus", metavar="all|N", help="Run large steps on GPUs: of this machine, or of the workers of --scheduler."
    )(command)


def _placing(command: Callable[..., None]) -> Callable[..., None]:
    """Options of every command that plans: those of a question, how to plan and where to run."""
    options = [
        click.option(
            "--tree",
            type=click.Choice(["refined", "bucket", "junction"]),
            default="refined",
            show_default=True,
            help="Improve the order's tree, or take its buckets or cliques as they are.",
        ),
        workers_option,
        scheduler_option,
        click.option(
            "--fit",
            type=click.Choice(["auto", "slice", "spill", "refuse"]),
            default="auto",
            show_default=True,
            help="What to do with a plan that does not fit memory: condition, use the disk, neither.",
        ),
        click.option(
            "--representation",
            type=click.Choice(["auto", "dense", "rows"]),
            default="auto",
            show_default=True,
            help="Tables of all cells, of the rows that are possible only, or rows where those prove few.",
        ),
        click.option("--disk", metavar="SIZE", help="Budget for tables on disk.  [default: what is free]"),
        click.option("--workdir", metavar="DIR", help="Run directory; an interrupted run there is continued."),
    ]
    return _asking(_with(options, command))


def _asking(command: Callable[..., None]) -> Callable[..., None]:
    """Options of every command that answers something: the model, its evidence, the order and the memory."""
    options = [
        click.option(
            "--evidence",
            multiple=True,
            metavar="FILE|x=v,…",
            help="Observed variables: a file, or x=v pairs; may be repeated. v is a label, or else an index from 0.",
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            help="Budget for the model and its tables, e.g. 4GB; Python and compiled code take up to 200 MB beside "
            "it.  [default: most of what is free, in a container or batch job of its limit]",
        ),
        click.option(
            "--order",
            default="auto",
            show_default=True,
            metavar="NAME|x,y,…",
            help="auto, min-fill, weighted-min-fill, min-size, min-degree, mixed, or variable names.",
        ),
        click.option("--order-time", type=click.FloatRange(min=0), metavar="S", help="CPU seconds for the search."),
        click.option("--seed", type=int, default=0, show_default=True, help="Of the search for orders."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ]
    return click.argument("file")(_with(options, command))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(__version__, prog_name="bucketflow")
def main() -> None:
    """Exact inference on discrete graphical models, by bucket elimination."""


def _proving(command: Callable[..., None]) -> Callable[..., None]:
    """Options of how an optimum is proved, and how far."""
    options = [
        click.option(
            "--method",
            type=click.Choice(["auto", "dense", "rows", "diagram", "search"]),
            default="auto",
            show_default=True,
            help="How an optimum is proved, or a sum found, where sweeping every cell would take long.",
        ),
        click.option("--upper-bound", metavar="C", help="Only an optimum at least as good interests."),
        click.option("--time", type=click.FloatRange(min=0), metavar="S", help="After so long the best, with bounds."),
        click.option("--gap", type=click.FloatRange(min=0), metavar="G", help="Bounds may differ by this part."),
    ]
    return _with(options, command)


def _prune(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--no-prune", is_flag=True, help="Remove no states or entries of an optimum that is not quick beforehand."
    )(command)


@main.command(cls=Grouped)
@_planning
@_proving
@_prune
@_guarded
@on_cluster
def solve(file: str, as_json: bool, no_prune: bool, **options: Any) -> None:
    """Answer a query on the model in FILE."""
    from ..api.answering.running import timed
    from ..api.bounding.optima.optimum import solved
    from ..api.questions import question_of
    from ..options import Effort, Options
    from .printing.progress import progress_lines

    model, read_seconds = _load(file, options["memory"])
    query, evidence, settings = _settings(model, options)
    proving = {name: settings.pop(name) for name in ("method", "upper_bound", "time", "gap")}
    question, effort = question_of(model, query, evidence), Effort(prune=not no_prune, **proving)
    with progress_lines(hidden=as_json) as (progress, watch):
        result = solved(question, Options(**settings), effort, progress, watch)
    result = timed(result, read_seconds)
    click.echo(result.to_json() if as_json else repr(result))
    _end_bounded(result)


def _end_bounded(result: Result | Marginals) -> None:
    """Exit where an optimum is bounded less closely than was asked."""
    proof = getattr(result, "proof", None)
    if proof is not None and not proof.close:
        sys.exit(_BOUNDED)


def _planning_all(command: Callable[..., None]) -> Callable[..., None]:
    """Options of `plan`: those of `solve`, and what `marginals` is asked."""
    command = _planning(command, tuple(QUERIES), "; or what the command `marginals` computes")
    return marginal_targets(command)


@main.command(cls=Grouped)
@_planning_all
@_prune
@_guarded
def plan(file: str, as_json: bool, query_vars: str, joint: tuple[str, ...], no_prune: bool, **options: Any) -> None:
    """Show what a query would cost; only what preparation removes of an optimum is computed."""
    from ..api.bounding.optima.remainder import outlook
    from ..api.questions import question_of
    from ..options import Options
    from .printing.plan import plan_json, print_plan

    model, _ = _load(file, options["memory"])
    query, evidence, settings = _settings(model, options)
    question = question_of(model, query, evidence, names(query_vars), [names(group) for group in joint])
    found = outlook(question, Options(**settings), prune=not no_prune)
    if as_json:
        click.echo(plan_json(found))
    else:
        print_plan(found)


@main.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_guarded
def info(file: str, as_json: bool) -> None:
    """Describe the model in FILE, and its agents where it has some."""
    import json

    from ..examples import file_or_example
    from ..formats import load_any
    from .printing.report import facts_of, print_facts

    facts = facts_of(load_any(file_or_example(file)))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        print_facts(facts)


@main.command("resume")
@click.argument("directory")
@workers_option
@scheduler_option
@_gpus
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_guarded
@on_cluster
def resume_command(directory: str, as_json: bool, **options: Any) -> None:
    """Continue the run in DIRECTORY; a job goes to its cluster again, unless --workers or --gpus are given."""
    from ..api.resume import resume
    from .printing.progress import progress_bar
    from .unattended.jobs import resumed_job

    here = options["workers"] or options["gpus"] or options.get("client")
    if not here and resumed_job(directory, options["scheduler"]):
        return
    with progress_bar(hidden=as_json) as progress:
        result = resume(directory, progress=progress, **options)
    click.echo(result.to_json() if as_json else repr(result))
    _end_bounded(result)


@main.command()
@click.argument("directory")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_guarded
def inspect(directory: str, as_json: bool) -> None:
    """Show how far the run in DIRECTORY is."""
    import json
    from pathlib import Path

    from .printing.inspect import run_facts
    from .printing.report import print_run

    facts = run_facts(Path(directory))
    if as_json:
        click.echo(json.dumps(facts))
    else:
        print_run(facts)


@main.command()
@click.argument("source")
@click.argument("target")
@click.option("--agents", metavar="FILE", help="Of a problem of agents: a list of its variables for each.")
@_guarded
def convert(source: str, target: str, agents: str | None) -> None:
    """Write the model in SOURCE to TARGET: .uai, .wcsp, .cfn, .xml (XCSP 2.1) or .yaml (pyDCOP), also .gz and .xz.

    Of a problem of agents a .wcsp or .cfn gets a file beside it, NAME.agents.yaml, that says who owns what.
    """
    from ..api.solve import load_dcop
    from ..examples import file_or_example
    from ..formats import load_any
    from ..formats.writers import save

    model = load_any(file_or_example(source)) if agents is None else load_dcop(source, agents=agents)
    for note in save(model, target):
        click.echo(f"bucketflow: note: {note}", err=True)


@main.command()
@_guarded
def examples() -> None:
    """List the models that ship with bucketflow; their names work in place of files."""
    from .printing.report import print_examples

    print_examples()


def _load(file: str, memory: str | None = None) -> tuple[Model, float]:
    """Read a model file or an example within a budget, say what answers leave out; return the seconds it took too."""
    import time

    from ..api.solve import load_noted

    start = time.perf_counter()
    model, notes = load_noted(file, memory)
    for note in notes:
        click.echo(f"bucketflow: note: {note}", err=True)
    return model, time.perf_counter() - start


def _settings(model: Model, options: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """Split the command's options into query, evidence and the keywords of the Python functions."""
    from ..evidence.texts import evidence_of

    query = options.pop("query", "")
    evidence = evidence_of(model, options.pop("evidence"))
    order = options["order"]
    if order not in _order_names():
        options["order"] = [name.strip() for name in order.split(",")]
    return query, evidence, options


def _order_names() -> tuple[str, ...]:
    from typing import get_args

    from ..search.orders import OrderName

    return get_args(OrderName)


def _register() -> None:
    """Add the commands that have files of their own."""
    from .bound import bound_command
    from .calibrate import calibrate_command
    from .distributed.dpop import dpop_command
    from .distributed.generate import generate_command
    from .unattended.batch import batch_command
    from .unattended.jobs import job_commands, submit_command
    from .unattended.report import report_command
    from .warm import warm_command

    main.add_command(batch_command(_guarded))
    main.add_command(report_command(_guarded))
    main.add_command(bound_command(_asking, _guarded, _load, _settings))
    main.add_command(calibrate_command(_guarded))
    main.add_command(submit_command(lambda c: _planning_all(_proving(_prune(c))), _guarded, _load, _settings))
    for command in job_commands(_guarded):
        main.add_command(command)
    main.add_command(dpop_command(_guarded))
    main.add_command(generate_command(_guarded))
    main.add_command(warm_command(_guarded))
    main.add_command(marginals_command(_placing, _guarded, _load, _settings))


_register()
