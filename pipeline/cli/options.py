"""Options that several commands share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from ..api.complete_names import complete_names, complete_states
from ..models.query import BUDGET, OPTION_ROWS, PLACE, PLAN, PROOF, QUERIES, VALUES, options_for, options_in
from .ending import say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..learning.fitted import FittedModel
    from ..models.model import Model
    from ..results.bounds import Bounds
    from ..results.posteriors import Marginals
    from ..results.result import Result
    from ..results.samples import Samples


Command = Callable[..., None]

# Options from the environment and from a file, where the command line does not give them.

#: Other environment variables of options, in addition to ``BUCKETFLOW_NAME``: the names that Dask uses.
OTHER_VARIABLES = {"scheduler": "DASK_SCHEDULER_ADDRESS"}
# Options of the place of a run exclude each other. The command line overrides places given by the environment or a
# file.
_PLACES = ("workers", "scheduler", "gpus")
# Every command has these, beside the options of rows.
_LOGS = ("log", "log_level", "metrics")
_GIVEN_BEFORE = (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)


def variables_of(name: str) -> list[str]:
    """Return the variables of the environment that an option is read from."""
    return [f"BUCKETFLOW_{name.upper()}", *filter(None, [OTHER_VARIABLES.get(name)])]


def give_way(context: click.Context, cluster: object) -> None:
    """Leave out where to run, as the environment or a file has it, if the command line says another place."""
    given = {name: context.get_parameter_source(name) for name in _PLACES}
    said = cluster is not None or ParameterSource.COMMANDLINE in given.values()
    for name, source in given.items():
        if said and source in _GIVEN_BEFORE:
            context.params[name] = None


def default_path() -> Path:
    """Return where the file of options of a user is."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bucketflow" / "config.toml"


def read_settings(context: click.Context, _: object, given: str | None) -> str | None:
    """Use the options in a TOML file as defaults: the options of all commands, and one table for each command with
    options of its own.

    Raises
    ------
    BucketflowError
        If the file cannot be read, or has a name that is no option.
    """
    from ..local_paths import local_path

    path = local_path(given) if given else default_path()
    if given or path.is_file():
        context.default_map = _defaults(context, path)
    return given


def _defaults(context: click.Context, path: Path) -> dict[str, Any]:
    import tomllib

    from ..errors import FormatError, unreadable

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise FormatError(str(path), None, "options in TOML", str(error)) from None
    group = context.command
    assert isinstance(group, click.Group)
    tables = {name: table for name, table in found.items() if isinstance(table, dict)}
    shared = _named(path, {name: value for name, value in found.items() if name not in tables}, [*OPTION_ROWS, *_LOGS])
    made = {name: dict(shared) for name in group.list_commands(context)}
    for name, table in tables.items():
        command = group.get_command(context, name) if name in made else None
        if command is None:
            raise _unknown(path, name, [*made])
        made[name] |= _named(path, table, [param.name or "" for param in command.params])
    return made


def _named(path: Path, options: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    """Return options by the names of parameters."""
    named = {name.replace("-", "_"): value for name, value in options.items()}
    for name in named:
        if name not in known:
            raise _unknown(path, name, known)
    return named


def _unknown(path: Path, name: str, known: list[str]) -> Exception:
    from ..errors import FormatError, meant

    return FormatError(str(path), None, "names of options or commands", f"{name!r}{meant(name, known)}")


# Options of commands.


def complete_path(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a path by itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_model(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of examples beside paths."""
    from click.shell_completion import CompletionItem

    from ..examples import examples

    named = [CompletionItem(each.name, help=each.title) for each in examples() if each.name.startswith(incomplete)]
    return [*named, *complete_path(context, param, incomplete)]


class Text(click.types.StringParamType):
    """A text that is not blank: an option such as ``--out "$FILE"`` must not be passed over if FILE is empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("the text is empty.", param, ctx)
        return text


def text_option(flag: str, metavar: str, help: str, **more: Any) -> Callable[[Command], Command]:
    """Return an option that takes a text that is not blank."""
    return click.option(flag, type=Text(), metavar=metavar, help=help, **more)


def whole_option(flag: str, metavar: str, help: str, *, least: int = 1, **more: Any) -> Callable[[Command], Command]:
    """Return an option that takes an integer of at least ``least``; the help shows its default."""
    return click.option(flag, type=click.IntRange(min=least), metavar=metavar, help=help, **_default(more))


def number_option(flag: str, metavar: str | None, help: str, **more: Any) -> Callable[[Command], Command]:
    """Return an option that takes a number of at least 0; the help shows its default."""
    return click.option(flag, type=click.FloatRange(min=0), metavar=metavar, help=help, **_default(more))


def choice_option(flag: str, choices: Sequence[str], help: str) -> Callable[[Command], Command]:
    """Return an option that takes one of several words, by default the first one."""
    kind = click.Choice(choices)
    return click.option(flag, type=kind, default=choices[0], show_default=True, help=help)


def _default(more: dict[str, Any]) -> dict[str, Any]:
    return {"show_default": True, **more} if "default" in more else more


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
graph_option = text_option(
    "--graph", "FILE", "Write the graph of all messages to a .svg, .html, .png, .pdf or .json file."
)
no_check_option = click.option(
    "--no-check",
    is_flag=True,
    help="Accept a Bayesian network with cycles, or with rows that do not sum to 1.",
)


def option(name: str, help: str | None = None) -> Callable[..., Any]:
    """Return the option of a row, with a help of the command's own if one is given."""
    row = OPTION_ROWS[name]
    kinds: dict[str, Any] = {
        "choice": click.Choice(row.choices),
        "whole": int if row.least is None else click.IntRange(min=row.least),
        "number": click.FloatRange(min=0),
    }
    variables = variables_of(row.name)
    if row.kind == "flag":
        return click.option(f"--{row.flag}", is_flag=True, help=help or row.help, envvar=variables)
    shown: dict[str, Any] = {} if row.default is None else {"default": row.default, "show_default": True}
    kind = kinds.get(row.kind) or Text()
    if row.metavar == "DIR":
        shown["shell_complete"] = complete_path
    return click.option(
        f"--{row.flag}", type=kind, metavar=row.metavar, help=help or row.help, envvar=variables, **shown
    )


def options_of(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in the order of its help."""
    return partial(with_options, [option(name) for name in names])


def with_options(options: Iterable[Callable[..., Any]], command: Command) -> Command:
    """Add options to a command, in the order of its help."""
    for each in reversed([*options]):
        command = each(command)
    return command


def planning(command: Command, queries: tuple[str, ...] = VALUES, more: str = "") -> Command:
    """Options that `solve` and `plan` share."""
    query = choice_option(
        "--query",
        queries,
        (
            "Best assignment, log10 of the partition function, the number of possible assignments, or marginal MAP"
            f"{more}."
        ),
    )
    project = text_option(
        "--project",
        "x,y,…|FILE",
        "Count or sum over assignments of these variables only (projection).",
        shell_complete=complete_names(files=True),
    )
    maximize = text_option(
        "--maximize",
        "x,y,…|FILE",
        "Variables of --query mmap: names, or a .query or .map file with indices.",
        shell_complete=complete_names(files=True),
    )
    return placing(query(project(maximize(options_of(*options_for("values"))(command)))))


def placing(command: Command) -> Command:
    """Add the options of every command that plans: query, planning, and where to run."""
    return asking(options_of(*options_for("planning"))(command))


def asking(command: Command) -> Command:
    """Options of every command that answers something: the model, its evidence, the order and the memory."""
    evidence = text_option(
        "--evidence",
        "FILE|x=v,…",
        (
            "Observed variables: a file, or x=v pairs; repeatable. v is a label (quote labels with commas: "
            'x="a,b"), an index from 0, or a likelihood for each state: x=[0.2,0.8].'
        ),
        multiple=True,
        shell_complete=complete_states(files=True),
    )
    planned = [option(name) for name in options_for("answering")]
    return click.argument("file", shell_complete=complete_model)(
        with_options([evidence, *planned, no_check_option, json_option], command)
    )


method = option("method")
# Options of commands that run on one machine by default, and send messages to workers.
on_workers = options_of("workers", "scheduler", "tasks", "dashboard", "dask_report")
proving = options_of(*options_for("proving"))


def prune(command: Command) -> Command:
    return click.option("--no-prune", is_flag=True, help="Skip the preprocessing of optima.")(command)


def marginal_targets(command: Command) -> Command:
    """Options that name variables."""
    variables = text_option(
        "--variables",
        "a,b",
        "Variables to compute marginals of.",
        shell_complete=complete_names(),
        default="all",
        show_default=True,
    )
    return variables(
        text_option(
            "--joint",
            "a,b,c",
            "Also compute the joint distribution of these variables; repeatable.",
            multiple=True,
            shell_complete=complete_names(),
        )(command)
    )


def planning_all(command: Command) -> Command:
    """Add the options of `plan`: the options of `solve` and the targets of `marginals`."""
    command = planning(command, tuple(QUERIES), "; or what the command `marginals` computes")
    return marginal_targets(command)


# Conversion of a command's arguments: the model, keywords for the Python functions, and notes.


def load(file: str, options: dict[str, Any], hidden: bool = False) -> tuple[Model, float]:
    """Read a model file or an example as a command's options say, and print its notes.

    The seconds that reading takes are subtracted from the option ``time``, if it is given.

    Returns
    -------
    model : Model
    seconds : float
        Wall seconds of reading.

    Raises
    ------
    DeadlineError
        If the time ends before the file is read.
    """
    import time

    from ..api.progress import status_line
    from ..api.solve import load
    from ..formats.text.source import reading_within

    start, given = time.perf_counter(), options.get("time")
    with status_line(hidden, "reading"), reading_within(given):
        read = _readers[-1] if _readers else load
        model = read(file, memory=options["memory"], check=not options.pop("no_check"))
    print_notes(model.notes)
    seconds = time.perf_counter() - start
    if given is not None:
        options["time"] = max(given - seconds, 0.0)
    return model, seconds


# Readers of models that replace `load` while a server runs commands.
_readers: list[Callable[..., Model]] = []


@contextmanager
def reading_by(read: Callable[..., Model]) -> Iterator[None]:
    """Let commands read models so until the block ends."""
    _readers.append(read)
    try:
        yield
    finally:
        _readers.pop()


def print_notes(notes: Iterable[str], printed: Iterable[str] = ()) -> None:
    """Print notes on standard error, each once, without notes printed before."""
    before = set(printed)
    for note in dict.fromkeys(notes):
        if note not in before:
            say(f"note: {note}", logging.INFO)


def print_written(path: object) -> None:
    """Say on a terminal that a file was written; programs that read standard error need no such line."""
    if sys.stderr.isatty():
        click.echo(f"wrote {path}", err=True)


def print_answer(
    found: Result | Marginals | Bounds | Samples | FittedModel, as_json: bool, printed: Iterable[str] = ()
) -> None:
    """Print an answer. Its notes go to standard error, without notes printed before."""
    print_notes(found.notes, printed)
    if as_json:
        click.echo(found.to_json())
    else:
        print_lines(replace(found, notes=()).lines())


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines of an answer: all of them into a pipe or a file, the first ones on a terminal."""
    from ..drawings.shown import shortened

    terminal = sys.stdout.isatty()
    for line in shortened(lines, "--json, or a pipe such as `| less`, shows all") if terminal else lines:
        click.echo(line)


def keywords_of(model: Model, options: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """Split the command's options into query, evidence and the keywords of the Python functions."""
    from ..formats.read import evidence_of

    query = options.pop("query", "")
    evidence = evidence_of(model, options.pop("evidence"))
    order = options["order"]
    if order not in _order_names():
        options["order"] = [name.strip() for name in order.split(",")]
    return query, evidence, options


def _order_names() -> tuple[str, ...]:
    from ..orders.tried_orders import OrderName

    return get_args(OrderName)


def names(text: str) -> list[str] | str:
    """Read names of variables, or that all are meant."""
    return text if text == "all" else [name.strip() for name in text.split(",")]


# ``--cluster``: a cluster that one of Dask's deployers starts for it.

_option = text_option(
    "--cluster",
    "FILE|NAME",
    "Start the cluster that a YAML file, or bucketflow.clusters.NAME in Dask's configuration, describes.",
)


def on_cluster(command: Command) -> Command:
    """Give a command the option, and the client of the cluster in place of it."""

    @_option
    @wraps(command)
    def run(*args: Any, cluster: str | None, **options: Any) -> None:
        if cluster is None:
            command(*args, **options)
            return
        if options.get("scheduler") or options.get("workers"):
            raise click.UsageError("--cluster starts a cluster; leave out --scheduler and --workers")
        from ...cluster.address import ClusterError
        from ...cluster.deployed import deployed_client
        from ..errors import BucketflowError

        try:
            with deployed_client(cluster) as client:
                command(*args, **options, client=client)
        except ClusterError as error:
            raise BucketflowError(str(error)) from None

    return run


# ``--keep-warm``: a server that keeps models between commands, and is started for it.


def keep_warm(command: Command) -> Command:
    """Give a command the option, to let a server run it where there is one."""

    @click.option(
        "--keep-warm",
        is_flag=True,
        help="Answer through a background server that caches models, and start it if needed. It stops by itself, "
        "or by `bucketflow serve --stop`.",
    )
    @wraps(command)
    def run(*, keep_warm: bool, **options: Any) -> None:
        if not keep_warm or not _ran_warm(command.__name__, options):
            command(**options)

    return run


def _ran_warm(name: str, options: dict[str, Any]) -> bool:
    """Let a server run a command, and print what it prints; return False where this process has to run it."""
    from ..errors import BucketflowError
    from ..server.warm_client import answered_warm

    if any(options.get(place) for place in ("workers", "scheduler", "cluster")):
        raise click.UsageError("--keep-warm asks a server on this machine; leave out --workers, --scheduler, --cluster")
    if any(isinstance(value, str) and _is_of_this_process(value) for value in _words(options)):
        return False
    printed = False
    try:
        for event in answered_warm(name, options):
            printed |= not event.keys() & {"stopped"}
            if _replayed(event):
                return True
    except (ConnectionError, TimeoutError, ValueError):
        pass
    if printed:
        raise BucketflowError("the server that caches models ended during the answer; run the command again")
    return False


def _words(options: dict[str, Any]) -> Iterator[Any]:
    for value in options.values():
        yield from value if isinstance(value, tuple) else (value,)


def _is_of_this_process(name: str) -> bool:
    """Whether a name is a pipe or device, such as a shell makes for <(...), which another process does not have."""
    from os.path import exists, isdir, isfile

    return exists(name) and not isfile(name) and not isdir(name)


def _replayed(event: dict[str, Any]) -> bool:
    """Do in this process what a command did in the server; return whether it ended."""
    for name in ("stdout", "stderr"):
        if name in event:
            click.echo(event[name], nl=False, err=name == "stderr")
    if "usage" in event:
        raise click.UsageError(event["usage"])
    if "os_error" in event:
        raise OSError(*event["os_error"])
    if event.get("exit"):
        sys.exit(event["exit"])
    return "exit" in event


# Help whose options stand under what they are about.

# Options of ``plan --simulate`` about the simulated workers.
_SIMULATED = (
    *("worker_memory", "worker_threads", "bandwidth", "storage_bandwidth", "worker_start", "losses"),
    *("gpus_per_worker", "timeline"),
)
_GROUPS = {
    "Question": (
        *("query", "evidence", "project", "maximize", "variables", "joint", "max_marginals", "cases", "entropy"),
        *("mutual", "conditional", "voi", "relevant", "sensitivity", "conflict", "derivatives", "samples"),
        *("temperature", "steps", "lag", "suffixes", "best", "within", "diverse", "all_optimal", "no_check"),
    ),
    PROOF: (*options_in(PROOF), "no_prune", "z"),
    **{group: options_in(group) for group in (PLAN, BUDGET)},
    PLACE: (*options_in(PLACE), "cluster", "keep_warm"),
    "Simulation": ("simulate", *_SIMULATED),
}


class Grouped(click.Command):
    """A command with many options, grouped in its help."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command where the command line says, if the environment or a file says it too."""
        give_way(ctx, ctx.params.get("cluster"))
        return super().invoke(ctx)

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return names and help of the options by group; the last group holds the remaining options."""
        records = {param.name or "": param.get_help_record(ctx) for param in self.get_params(ctx)}
        grouped = {name for names in _GROUPS.values() for name in names}
        groups = {**_GROUPS, "Options": tuple(name for name in records if name not in grouped)}
        rows = {title: [row for name in names if (row := records.get(name))] for title, names in groups.items()}
        return {title: found for title, found in rows.items() if found}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group."""
        for title, rows in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(rows)


# Options of ``plan --simulate``.


def simulating(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a simulation to a command, which gets them as the keyword ``simulated``."""

    @text_option("--simulate", "workers=N,…", "Predict the run on N workers, without running it.")
    @text_option("--worker-memory", "SIZE", "Memory limit of a simulated worker.")
    @click.option("--worker-threads", type=click.IntRange(min=1), help="Threads of a simulated worker.  [default: 1]")
    @text_option("--bandwidth", "RATE", "Link of each simulated worker.  [default: 1GB/s]")
    @text_option(
        "--storage-bandwidth",
        "RATE",
        "Storage that all simulated workers share.  [default: the rate of this machine's disk]",
    )
    @number_option("--worker-start", None, "Seconds until a simulated worker takes tasks.")
    @number_option("--losses", None, "Losses of each simulated worker in an hour.")
    @click.option("--gpus-per-worker", type=click.IntRange(min=1), help="GPUs of each simulated worker; with --gpus.")
    @text_option("--timeline", "FILE", "Draw the last simulated run: .svg, .html, .png or .pdf.")
    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        simulated = {name: value for name in _SIMULATED if (value := options.pop(name)) is not None}
        if simulated and options["simulate"] is None:
            given = "--" + next(iter(simulated)).replace("_", "-")
            raise click.UsageError(f"{given} describes simulated workers; give --simulate workers=N too")
        command(*args, simulated=simulated, **options)

    return run
