"""Kinds of queries: one row for each query."""

from __future__ import annotations

from typing import Final, Literal

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
