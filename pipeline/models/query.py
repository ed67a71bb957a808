"""Kinds of queries, and the options of planning, running and proving: one row for each.

Commands, jobs and batches share the rows of options.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from ...tasks.steps.light_dataclass import dataclass

Query = Literal["optimum", "partition", "count"]
"""Queries that one upward sweep answers."""
ValueQuery = Literal["optimum", "partition", "count", "mmap"]
"""Queries with a single value."""


@dataclass(frozen=True)
class QueryKind:
    """A query as users name it.

    Parameters
    ----------
    name : str
    swept : {"optimum", "partition", "count"}
        The query of the upward sweep.
    both_ways : bool
        Whether beliefs of variables are asked for, by a sweep back, instead of one value.
    left : str
        The query of the named variables after all other variables are eliminated, if it differs.
    not_of_costs : str
        Why it is not asked of cost networks, if it is not.
    """

    name: str
    swept: Query
    both_ways: bool = False
    left: str = ""
    not_of_costs: str = ""


_ROWS: Final = (
    QueryKind("optimum", "optimum"),
    QueryKind(
        "partition",
        "partition",
        not_of_costs="a cost network has no partition function; ask for its optimum or count",
    ),
    QueryKind("count", "count"),
    QueryKind(
        "mmap",
        "partition",
        left="optimum",
        not_of_costs="a cost network has no sums to maximise; ask for its optimum",
    ),
    QueryKind(
        "marginals",
        "partition",
        both_ways=True,
        not_of_costs="a cost network has no marginal probabilities; ask for its max-marginals",
    ),
    QueryKind("max-marginals", "optimum", both_ways=True),
)
QUERIES: Final = {row.name: row for row in _ROWS}
VALUES: Final = tuple(row.name for row in _ROWS if not row.both_ways)


# Names of the plan options that a caller may choose.

TreeKind = Literal["refined", "bucket", "junction"]
Representation = Literal["auto", "dense", "rows"]
Fit = Literal["auto", "slice", "spill", "store", "refuse"]
"""What to do with a plan that does not fit in memory."""
Method = Literal["auto", "dense", "rows", "diagram", "search", "ganak"]
"""How an optimum is proved, or a sum is found."""
TaskSize = Literal["auto", "steps"]
"""Work sent to workers as one task: parts large enough for a task, or each step of the sweeps."""


Kind = Literal["text", "size", "whole", "number", "choice", "flag"]
Commands = Literal["answering", "planning", "values", "proving", "jobs", "none"]
"""The commands that have an option: `answering` covers all that answer, `values` solve and marginals."""
PROOF, PLAN, BUDGET, PLACE = "Proofs and limits", "Plan", "Budgets", "Where it runs"
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
        Kind of the values, checked when options are built: a size in bytes, an integer, a number that is at least 0,
        one of ``choices``, or no value.
    help : str
        For the command line.
    metavar : str, optional
    choices : tuple of str
    least : int, optional
        The least whole number.
    default : str or int, optional
    unit : str
        Requirement on a number, for messages.
    commands : str
        Which commands have it.
    stored : bool
        Whether a job stores the option. The place of a run is given again when it is resumed.
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


_OPTIONS: Final = (
    OptionRow(
        *("method", PROOF, "choice", "How to prove an optimum or compute a sum if a sweep over all cells takes long."),
        choices=get_args(Method),
        default="auto",
        commands="proving",
    ),
    OptionRow(
        "upper_bound",
        PROOF,
        "text",
        "Search only for assignments that are at least as good as C.",
        "C",
        commands="proving",
    ),
    OptionRow(
        *("time", PROOF, "number", "After S seconds, return the best assignment so far, with a bound.", "S"),
        unit="a number of seconds",
        column=True,
        commands="proving",
    ),
    OptionRow(
        *("gap", PROOF, "number", "Stop when the bounds differ by at most this fraction, e.g. 0.01.", "G"),
        unit="a fraction such as 0.01",
        commands="proving",
    ),
    OptionRow(
        *(
            "order",
            PLAN,
            "text",
            "Elimination order: auto, min-fill, weighted-min-fill, min-size, min-degree, mixed, or names.",
        ),
        metavar="NAME|x,y,…",
        default="auto",
        commands="answering",
    ),
    OptionRow(
        *("order_time", PLAN, "number", "CPU seconds for the search for an elimination order.", "S"),
        unit="a number of seconds",
        column=True,
        commands="answering",
    ),
    OptionRow(
        *("tree", PLAN, "choice", "Refine the tree of the order, or use its buckets or cliques."),
        choices=get_args(TreeKind),
        default="refined",
    ),
    OptionRow("seed", PLAN, "whole", "Seed of the search for orders.", "N", least=0, default=0, commands="answering"),
    OptionRow(
        *("fit", PLAN, "choice"),
        help="If a plan exceeds the memory: slice (condition on variables), spill (tables on disk) or refuse. "
        "store: keep all tables in --workdir for inspection.",
        choices=get_args(Fit),
        default="auto",
    ),
    OptionRow(
        *("representation", PLAN, "choice"),
        help="dense: tables with all cells. rows: sparse tables with the possible rows only.",
        choices=get_args(Representation),
        default="auto",
    ),
    OptionRow(
        *("memory", BUDGET, "size"),
        help="Memory budget for the model and its tables, e.g. 4GB. Python and compiled code need up to 200 MB more.  "
        "[default: most of the free memory, or of the limit of a container or batch job]",
        metavar="SIZE",
        column=True,
        commands="answering",
    ),
    OptionRow(
        *("keep_tables", BUDGET, "size"),
        help="Keep tables of at least SIZE in --workdir as Zarr arrays, for inspection; 0 keeps all.",
        metavar="SIZE",
    ),
    OptionRow("disk", BUDGET, "size", "Disk budget for tables.  [default: the free space]", "SIZE"),
    OptionRow(
        *("gpu_memory", BUDGET, "size"),
        help="Memory budget of a GPU.  [default: most of its free memory, up to --memory]",
        metavar="SIZE",
        commands="values",
    ),
    OptionRow("threads", PLACE, "whole", "Threads of this process.", "N", least=1, commands="none"),
    OptionRow("workers", PLACE, "whole", "Local Dask worker processes.", "N", least=1, stored=False),
    OptionRow("scheduler", PLACE, "text", "A running Dask scheduler, e.g. tcp://host:8786.", "ADDR", stored=False),
    OptionRow(
        *(
            "tasks",
            PLACE,
            "choice",
            "Size of the tasks for workers: auto (large parts of a plan), or steps (each step is a Dask future).",
        ),
        choices=get_args(TaskSize),
        default="auto",
    ),
    OptionRow(
        *("dashboard", PLACE, "flag", "Serve Dask's dashboard of the local workers, and print its address."),
        stored=False,
    ),
    OptionRow(
        *("dask_report", PLACE, "text", "Write Dask's report of the tasks on workers to an .html file."),
        metavar="FILE",
        stored=False,
    ),
    OptionRow(
        *("gpus", PLACE, "text"),
        help="Use GPUs of this machine, or of the workers of --scheduler.",
        metavar="all|N",
        commands="values",
    ),
    OptionRow("most_workers", PLACE, "whole", "Keep at most N workers busy.", "N", least=1, commands="jobs"),
    OptionRow(
        "priority", PLACE, "whole", "Priority of the job; higher numbers go first.", "N", default=0, commands="jobs"
    ),
    OptionRow(
        *(
            "workdir",
            PLACE,
            "text",
            "Run directory: a folder, or a URL such as s3://BUCKET/FOLDER. An interrupted run in it continues.",
            "DIR",
        ),
        stored=False,
    ),
)
OPTION_ROWS: Final = {row.name: row for row in _OPTIONS}


def options_for(commands: Commands) -> tuple[str, ...]:
    """Return the names of the options that some commands have, in the order of their rows."""
    return tuple(row.name for row in _OPTIONS if row.commands == commands)


def options_in(group: str) -> tuple[str, ...]:
    """Return the names of the options of a group, in the order of their rows."""
    return tuple(row.name for row in _OPTIONS if row.group == group)


COLUMN_ROWS: Final = tuple(sorted((row for row in _OPTIONS if row.column), key=lambda row: row.name))
"""Options that a row of a batch can set; hashes of questions list them in this order."""
