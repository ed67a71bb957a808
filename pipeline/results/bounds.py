"""Two bounds on an answer, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from ...tasks.steps.light_dataclass import dataclass
from ..drawings.shown import Shown
from ..errors import format_bytes, public, shown_number
from ..models.frames import Tabled
from ..preprocessing.preprocess import Query
from .proof import AskedOf, DaskWork, plain_number, shown_assignment

if TYPE_CHECKING:
    from ..minibuckets.partition import Partition
    from ..plans.task_graph import TaskGraph

    Elimination = tuple[Partition, Callable[[int], str]]

Number = int | float | Decimal
BoundStatus = Literal["optimal", "bounded", "infeasible"]


@dataclass(frozen=True)
class BoundRound:
    """One elimination with mini-buckets of a size.

    Parameters
    ----------
    variables, limit : int or None
        The size that was asked for: most variables, or most cells, of a mini-bucket.
    cells, largest : int
        Cells of all joins, and of the largest.
    exact : bool
        Whether no bucket had to be split.
    lower, upper : int, float, Decimal or None
        Bounds on the answer after the round; None for an unknown bound.
    seconds : float
        How long it took.
    disk_bytes : int
        Of messages that were on disk; 0 where all were in memory.
    way : str
        Kind of the round, in words, if it differs: another elimination order, or triangles instead of an elimination.
    """

    variables: int | None
    limit: int | None
    cells: int
    largest: int
    exact: bool
    lower: Number | None
    upper: Number | None
    seconds: float
    disk_bytes: int = 0
    way: str = ""

    @property
    def size(self) -> str:
        """The size in words."""
        if self.variables is None and self.limit is None:
            return self.way
        size = f"{self.variables} variables" if self.limit is None else f"2^{self.limit.bit_length() - 1} cells"
        return f"{size}, {self.way}" if self.way else size


@public
@dataclass(frozen=True, repr=False)
class Bounds(Shown, Tabled):
    """A lower and an upper bound on an answer.

    Parameters
    ----------
    query : {"optimum", "partition"}
    status : {"optimal", "bounded", "infeasible"}
        ``optimal`` if the assignment is proved to be best (probabilities: up to rounding), ``infeasible`` if it is
        proved that no assignment is possible.
    lower, upper : int, float, Decimal or None
        Costs of a cost network; else log10 of the best probability, or of the partition function. One is proved, the
        other what the assignment is worth: ``upper`` if the least is asked for. None where nothing is known.
    value : int, Decimal or None
        The cost of the assignment.
    log10 : float or None
        log10 of the assignment's probability.
    assignment : dict of str to str or int, or None
        The best that was found; None for a partition function, or where each that was found is forbidden.
    rounds : tuple of Round
        The bounds by the size of mini-buckets.
    seconds : dict of str to float
        Wall seconds of ``read``, ``plan`` and ``run``.
    peak_rss_bytes : int
        Largest resident size of this process.
    notes : tuple of str
        Notes for the caller, one sentence each.
    dask : DaskWork or None
        The tasks sent to the cluster, or the reason why none were sent; None if no cluster was requested.
    asked : AskedOf or None
        The model and the evidence that were asked.
    elimination : tuple or None
        Mini-buckets of the last elimination, and the names of its variables; see :meth:`graph`.

    Examples
    --------
    >>> import bucketflow
    >>> bounds = bucketflow.bound("satellite")
    >>> bounds.query, bounds.lower <= bounds.upper
    ('optimum', True)
    """

    query: Query
    status: BoundStatus
    lower: Number | None = None
    upper: Number | None = None
    value: int | Decimal | None = None
    log10: float | None = None
    assignment: dict[str, str | int] | None = None
    rounds: Sequence[BoundRound] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    notes: tuple[str, ...] = ()
    dask: DaskWork | None = None
    asked: AskedOf | None = None
    elimination: Elimination | None = field(default=None, repr=False, compare=False)

    def graph(self) -> TaskGraph:
        """Return the task graph of the last elimination: a task for each message.

        The graph is empty if no elimination was needed, and for bounds that were read from JSON.

        Examples
        --------
        >>> import bucketflow
        >>> len(bucketflow.bound("grid", z=8).graph()) > 100
        True
        """
        from ..minibuckets.bucket_elimination import message_graph
        from ..plans.task_graph import TaskGraph

        return message_graph(*self.elimination) if self.elimination else TaskGraph({}, ())

    @property
    def gap(self) -> Number | None:
        """The difference of the bounds."""
        if self.lower is None or self.upper is None:
            return None
        return self.upper - self.lower  # type: ignore[operator]

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield headings, then the bounds of each size of mini-buckets."""
        yield "size", "lower", "upper", "seconds", "exact"
        yield from ((each.size, each.lower, each.upper, each.seconds, each.exact) for each in self.rounds)

    def to_dict(self) -> dict[str, Any]:
        """Return the bounds as plain types, as ``--json`` prints them."""
        return {
            "query": self.query,
            "status": self.status,
            "lower": plain_number(self.lower),
            "upper": plain_number(self.upper),
            "gap": plain_number(self.gap),
            "value": plain_number(self.value),
            "log10": self.log10,
            "assignment": self.assignment,
            "rounds": [_plain_round(each) for each in self.rounds],
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            "peak_rss_bytes": self.peak_rss_bytes,
            **({"notes": list(self.notes)} if self.notes else {}),
            **({"dask": self.dask.to_dict()} if self.dask else {}),
            **(self.asked.to_dict() if self.asked else {}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the bounds as labelled lines for a person."""
        rows: list[tuple[str, str]] = [("query", self.query), ("status", self.status)]
        if self.status != "infeasible":
            rows += [
                ("lower", shown_number(self.lower)),
                ("upper", shown_number(self.upper)),
                ("gap", shown_number(self.gap)),
            ]
        if self.assignment is not None:
            rows.append(("assignment", shown_assignment(self.assignment)))
        rows += [
            (
                each.size,
                f"{shown_number(each.lower)} … {shown_number(each.upper)} in {each.seconds:.2f} s"
                + (f", {format_bytes(each.disk_bytes)} on disk" if each.disk_bytes else "")
                + (", nothing split" if each.exact else ""),
            )
            for each in self.rounds
        ]
        if self.dask is not None:
            rows.append(("dask", self.dask.text))
        if self.seconds:
            rows.append(("seconds", ", ".join(f"{k} {v:.3f}" for k, v in self.seconds.items())))
        return rows + [("note", text) for text in self.notes]


def relative_gap(lower: Number, upper: Number) -> float:
    """Return how far bounds are apart, as a part of the larger one."""
    largest = max(abs(float(lower)), abs(float(upper)))
    return float(upper - lower) / largest if lower < upper else 0.0  # type: ignore[operator]


def _plain_round(each: BoundRound) -> dict[str, Any]:
    return {
        "z": each.variables,
        "cells_limit": each.limit,
        "cells": each.cells,
        "largest": each.largest,
        "exact": each.exact,
        "lower": plain_number(each.lower),
        "upper": plain_number(each.upper),
        "seconds": round(each.seconds, 6),
        "disk_bytes": each.disk_bytes,
        **({"way": each.way} if each.way else {}),
    }
