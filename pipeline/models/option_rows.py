"""What can be asked of planning, running and proving: a row for each option, which commands, jobs and batches read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from .query import Fit, Method, Representation, TaskSize, TreeKind

Kind = Literal["text", "size", "whole", "number", "choice", "flag"]
Commands = Literal["answering", "planning", "values", "proving", "jobs", "none"]
"""Commands that have an option: all that answer, those that plan, those of single values, of optima, or of jobs."""
PROOF, PLAN, BUDGET, PLACE = "Optima that are not quick, and bounds", "Plan", "Budgets", "Where it runs"
"""Groups of options: the sections of a command's help."""


@dataclass(frozen=True)
class OptionRow:
    """An option.

    Parameters
    ----------
    name : str
        As a keyword in Python, and as a field of :class:`~.options.Options` or :class:`~.options.ProofOptions`.
    group : str
    kind : {"text", "size", "whole", "number", "choice", "flag"}
        What it takes, which is checked when options are made: a size in bytes, a whole number, a number that is at
        least 0, one of ``choices``, or nothing.
    help : str
        For the command line.
    metavar : str, optional
    choices : tuple of str
    least : int, optional
        The least whole number.
    default : str or int, optional
    unit : str
        What a number must be, for messages.
    commands : str
        Which commands have it.
    stored : bool
        Whether a job keeps it; where a run is driven is told again when it is resumed.
    column : bool
        Whether rows of a batch may have their own.
    """

    name: str
    group: str
    kind: Kind
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    default: str | int | None = None
    unit: str = ""
    commands: Commands = "planning"
    stored: bool = True
    column: bool = False

    @property
    def flag(self) -> str:
        """Its name on the command line, and in the lists of batches."""
        return self.name.replace("_", "-")


_ROWS: Final = (
    OptionRow(
        *("method", PROOF, "choice", "How an optimum is proved, or a sum found, where sweeping every cell takes long."),
        choices=get_args(Method),
        default="auto",
        commands="proving",
    ),
    OptionRow(
        "upper_bound", PROOF, "text", "Search only for optima that are at least as good as C.", "C", commands="proving"
    ),
    OptionRow(
        *("time", PROOF, "number", "After S seconds, answer with the best so far, between two bounds.", "S"),
        unit="a number of seconds",
        column=True,
        commands="proving",
    ),
    OptionRow(
        *("gap", PROOF, "number", "Answer as soon as the bounds differ by at most this part, e.g. 0.01.", "G"),
        unit="a part such as 0.01",
        commands="proving",
    ),
    OptionRow(
        *("order", PLAN, "text", "auto, min-fill, weighted-min-fill, min-size, min-degree, mixed, or variable names."),
        metavar="NAME|x,y,…",
        default="auto",
        commands="answering",
    ),
    OptionRow(
        *("order_time", PLAN, "number", "CPU seconds for the search for an order.", "S"),
        unit="a number of seconds",
        column=True,
        commands="answering",
    ),
    OptionRow(
        *("tree", PLAN, "choice", "Improve the order's tree, or take its buckets or cliques as they are."),
        choices=get_args(TreeKind),
        default="refined",
    ),
    OptionRow("seed", PLAN, "whole", "Seed of the search for orders.", "N", least=0, default=0, commands="answering"),
    OptionRow(
        *("fit", PLAN, "choice"),
        help="What to do with a plan that does not fit memory: condition, use the disk, neither; store leaves all "
        "tables in --workdir, for whoever wants to look.",
        choices=get_args(Fit),
        default="auto",
    ),
    OptionRow(
        *("representation", PLAN, "choice"),
        help="Tables of all cells, of the rows that are possible only, or rows where those prove few.",
        choices=get_args(Representation),
        default="auto",
    ),
    OptionRow(
        *("memory", BUDGET, "size"),
        help="Budget for the model and its tables, e.g. 4GB; Python and compiled code take up to 200 MB beside it.  "
        "[default: most of what is free, in a container or batch job of its limit]",
        metavar="SIZE",
        column=True,
        commands="answering",
    ),
    OptionRow(
        *("keep_tables", BUDGET, "size"),
        help="Keep tables of at least SIZE in --workdir, as Zarr arrays, for whoever wants to look; 0 for all.",
        metavar="SIZE",
    ),
    OptionRow("disk", BUDGET, "size", "Budget for tables on disk.  [default: what is free]", "SIZE"),
    OptionRow(
        *("gpu_memory", BUDGET, "size"),
        help="Budget for a GPU's memory.  [default: most of what is free, up to --memory]",
        metavar="SIZE",
        commands="values",
    ),
    OptionRow("threads", PLACE, "whole", "Threads of this process.", "N", least=1, commands="none"),
    OptionRow("workers", PLACE, "whole", "Local Dask worker processes.", "N", least=1, stored=False),
    OptionRow("scheduler", PLACE, "text", "A running Dask scheduler, e.g. tcp://host:8786.", "ADDR", stored=False),
    OptionRow(
        *("tasks", PLACE, "choice", "What workers get: parts that are worth a task, or each step as a Dask future."),
        choices=get_args(TaskSize),
        default="auto",
    ),
    OptionRow(
        *("dashboard", PLACE, "flag", "Serve Dask's page of --workers on this machine, and print its address."),
        stored=False,
    ),
    OptionRow(
        *("gpus", PLACE, "text"),
        help="Run large steps on GPUs: of this machine, or of the workers of --scheduler.",
        metavar="all|N",
        commands="values",
    ),
    OptionRow("most_workers", PLACE, "whole", "Keep at most N workers busy.", "N", least=1, commands="jobs"),
    OptionRow("priority", PLACE, "whole", "Jobs of a higher priority go first.", "N", default=0, commands="jobs"),
    OptionRow(
        *("workdir", PLACE, "text", "Run directory; an interrupted run there is continued.", "DIR"), stored=False
    ),
)
OPTION_ROWS: Final = {row.name: row for row in _ROWS}


def options_for(commands: Commands) -> tuple[str, ...]:
    """Return the names of the options that some commands have, in the order of their rows."""
    return tuple(row.name for row in _ROWS if row.commands == commands)


def options_in(group: str) -> tuple[str, ...]:
    """Return the names of the options of a group, in the order of their rows."""
    return tuple(row.name for row in _ROWS if row.group == group)


COLUMN_ROWS: Final = tuple(sorted((row for row in _ROWS if row.column), key=lambda row: row.name))
"""Options of which rows of a batch may have their own; hashes of questions list them in this order."""
