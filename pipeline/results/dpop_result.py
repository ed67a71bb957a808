"""The joint answer of the agents, and the cost of computing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from ...tasks.steps.light_dataclass import dataclass
from ..drawings.shown import Shown, aligned_lines
from ..errors import format_bytes, public, shown_number
from ..models.frames import Tabled
from .proof import DaskWork, plain_number, shown_assignment, work_before

if TYPE_CHECKING:
    from ..plans.task_graph import TaskGraph

DpopStatus = Literal["optimal", "bounded", "infeasible"]
Number = int | Decimal


@public
@dataclass(frozen=True)
class DpopMetrics:
    """Costs of a run: messages, bytes, seconds and constraint checks.

    Parameters
    ----------
    agents, variables : int
        Agents that own variables, and these.
    depth : int
        Edges of the longest branch of the pseudo-tree.
    width : int
        Variables of the largest separator: the induced width of the pseudo-tree.
    largest_table_cells : int
        Cells of the largest message.
    messages, message_bytes : mapping of str to int
        By phase: ``tree``, ``util``, ``context`` (requests for a message at given states), ``value``.
    largest_message_bytes : int
    link_bytes : mapping of (str, str) to int
        By sender and receiver.
    routed_bytes : Decimal
        Bytes times the cost of their route.
    nccc : int
        Non-concurrent constraint checks: look-ups in functions and messages on the longest chain.
    simulated_seconds : mapping of str to float
        Of each phase, where every agent is a computer of its own: the longest chain of computing and sending.
    computing_seconds : float
        Of all agents together.

    Examples
    --------
    >>> import bucketflow
    >>> metrics = bucketflow.dpop(bucketflow.load_dcop("meetings")).metrics
    >>> metrics.width, metrics.messages
    (6, {'tree': 12, 'util': 6, 'value': 6})
    """

    agents: int
    variables: int
    depth: int
    width: int
    largest_table_cells: int
    messages: Mapping[str, int]
    message_bytes: Mapping[str, int]
    largest_message_bytes: int
    link_bytes: Mapping[tuple[str, str], int]
    routed_bytes: Decimal
    nccc: int
    simulated_seconds: Mapping[str, float]
    computing_seconds: float

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> DpopMetrics:
        """Rebuild metrics from the dictionary that :meth:`to_dict` returned."""
        links = {(link["from"], link["to"]): link["bytes"] for link in found["links"]}
        same = ("agents", "variables", "depth", "width", "largest_table_cells", "largest_message_bytes", "nccc")
        return cls(
            **{name: found[name] for name in same},
            messages=_parts(found["messages"]),
            message_bytes=_parts(found["message_bytes"]),
            link_bytes=links,
            routed_bytes=Decimal(str(found["routed_bytes"])),
            simulated_seconds=_parts(found["simulated_seconds"]),
            computing_seconds=found["computing_seconds"],
        )

    @property
    def total_messages(self) -> int:
        """Messages of all phases."""
        return sum(self.messages.values())

    @property
    def network_load(self) -> int:
        """Bytes of all messages."""
        return sum(self.message_bytes.values())

    @property
    def simulated(self) -> float:
        """Seconds of all phases, which follow each other."""
        return sum(self.simulated_seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {
            "agents": self.agents,
            "variables": self.variables,
            "depth": self.depth,
            "width": self.width,
            "largest_table_cells": self.largest_table_cells,
            "messages": {**self.messages, "total": self.total_messages},
            "message_bytes": {**self.message_bytes, "total": self.network_load},
            "largest_message_bytes": self.largest_message_bytes,
            "links": [
                {"from": sender, "to": receiver, "bytes": count}
                for (sender, receiver), count in self.link_bytes.items()
            ],
            "routed_bytes": plain_number(self.routed_bytes),
            "nccc": self.nccc,
            "simulated_seconds": {
                **{phase: round(seconds, 9) for phase, seconds in self.simulated_seconds.items()},
                "total": round(self.simulated, 9),
            },
            "computing_seconds": round(self.computing_seconds, 9),
        }


def _parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """By phase, without their sum."""
    return {phase: part for phase, part in found.items() if phase != "total"}


@public
@dataclass(frozen=True, repr=False)
class DpopResult(Shown, Tabled):
    """An assignment that agents agreed on.

    Parameters
    ----------
    status : {"optimal", "bounded", "infeasible"}
        ``bounded`` where mini-buckets were split and the bound is not the assignment's value.
    value : int, Decimal or None
        The value of the assignment on the whole problem; None if it is forbidden.
    bound : int, Decimal or None
        No assignment is better; None where everything is forbidden.
    assignment : mapping of str to str or int, or None
        By variable; None if it is forbidden.
    by_agent : mapping of str to mapping
        The same, of each agent its own.
    parents : mapping of str to str or None
        The pseudo-tree: for each agent the one above.
    pseudo_parents : mapping of str to tuple of str
        Further ancestors that an agent shares a function with.
    order : str
        The heuristic that built the tree.
    metrics : DpopMetrics
    seconds : mapping of str to float
        Wall seconds of ``read``, ``plan`` and ``run`` here.
    peak_rss_bytes : int
        Largest resident size of this process.
    notes : tuple of str
        Notes for the caller, one sentence each.
    dask : DaskWork or None
        The tasks sent to the cluster, or the reason why none were sent; None if no cluster was requested.
    graph : TaskGraph or None
        A task for each UTIL and each VALUE message; None for a result that was read from JSON.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.dpop(bucketflow.load_dcop("meetings"))
    >>> found.value, sorted(found.by_agent)[:2]
    (67, ['ada', 'ben'])
    """

    status: DpopStatus
    value: Number | None
    bound: Number | None
    assignment: Mapping[str, str | int] | None
    by_agent: Mapping[str, Mapping[str, str | int]]
    parents: Mapping[str, str | None]
    pseudo_parents: Mapping[str, tuple[str, ...]]
    order: str
    metrics: DpopMetrics
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    notes: tuple[str, ...] = ()
    dask: DaskWork | None = None
    graph: TaskGraph | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> DpopResult:
        """Return the result that ``--json`` printed.

        Raises
        ------
        KeyError, TypeError, AttributeError
            If something is missing, or no such thing as stands there.
        """
        same = ("status", "value", "bound", "assignment", "parents", "order", "seconds", "peak_rss_bytes")
        return cls(
            **{name: found[name] for name in same},
            by_agent=found["agents"],
            pseudo_parents={name: tuple(above) for name, above in found["pseudo_parents"].items()},
            metrics=DpopMetrics.from_dict(found["metrics"]),
            notes=tuple(found.get("notes", ())),
            dask=work_before(DaskWork, found.get("dask")),
        )

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield headings, then each variable with its agent and its state."""
        yield "agent", "variable", "state"
        for agent, own in self.by_agent.items():
            yield from ((agent, name, state) for name, state in own.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain types, as ``--json`` prints it."""
        return {
            "status": self.status,
            "value": plain_number(self.value),
            "bound": plain_number(self.bound),
            "assignment": self.assignment,
            "agents": self.by_agent,
            "parents": self.parents,
            "pseudo_parents": {name: list(above) for name, above in self.pseudo_parents.items()},
            "order": self.order,
            "metrics": self.metrics.to_dict(),
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            "peak_rss_bytes": self.peak_rss_bytes,
            "notes": list(self.notes),
            **({"dask": self.dask.to_dict()} if self.dask else {}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the answer as labelled lines for a person."""
        rows: list[tuple[str, str]] = [("status", self.status)]
        if self.status != "infeasible":
            rows += [("value", shown_number(self.value)), ("bound", shown_number(self.bound))]
        if self.assignment is not None:
            rows.append(("assignment", shown_assignment(self.assignment)))
        if self.dask is not None:
            rows.append(("dask", self.dask.text))
        return rows + [("note", text) for text in self.notes]

    def metric_rows(self) -> list[tuple[str, str]]:
        """Return the metrics as labelled texts."""
        m = self.metrics
        simulated = ", ".join(f"{phase} {seconds:.6f}" for phase, seconds in m.simulated_seconds.items())
        sent = ", ".join(f"{phase} {count:,}" for phase, count in m.messages.items())
        load = ", ".join(f"{phase} {format_bytes(count)}" for phase, count in m.message_bytes.items())
        rows = [
            ("agents, variables", f"{m.agents:,}, {m.variables:,}"),
            ("pseudo-tree", f"{self.order}, depth {m.depth:,}, induced width {m.width:,}"),
            ("simulated runtime", f"{m.simulated:.6f} s ({simulated})"),
            ("computing", f"{m.computing_seconds:.6f} s by all agents"),
            ("wall time", f"{self.seconds.get('run', 0.0):.6f} s"),
            ("messages", f"{m.total_messages:,} ({sent})" if sent else "0"),
            ("network load", f"{format_bytes(m.network_load)} ({load})" if load else "0 B"),
            ("largest message", f"{format_bytes(m.largest_message_bytes)}, table of {m.largest_table_cells:,} cells"),
            ("checks (NCCC)", f"{m.nccc:,}"),
        ]
        if m.link_bytes:
            (sender, receiver), count = max(m.link_bytes.items(), key=lambda link: link[1])
            rows.append(("busiest link", f"{sender} → {receiver}, {format_bytes(count)}"))
        if m.routed_bytes != m.network_load:
            rows.append(("routed load", f"{m.routed_bytes:f} bytes times route"))
        return rows

    def lines(self) -> Iterator[str]:
        """Yield all lines of the answer and its metrics as text."""
        return aligned_lines([*self.rows(), *self.metric_rows()])
