"""Building a circuit: from buckets or from a search, which take turns until one of them completes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import BudgetError, ModelError, format_bytes
from ..gates.circuit import CircuitGraph, CircuitPolicy
from ..gates.circuit_leaves import CircuitMaker
from ..gates.stored_gates import StoredGates
from ..gates.traced_circuit import TracedCircuit
from ..models.model import Model
from ..options import Options
from ..preprocessing.preprocess import reduce_model
from ..preprocessing.wide_tables import with_links
from .bucket_circuit import BucketCircuit

CircuitMethod = Literal["auto", "buckets", "search"]


@dataclass(frozen=True)
class CircuitOrigin:
    """The source of a circuit, and its predicted costs.

    Parameters
    ----------
    method : {"buckets", "search"}
    most_bytes : int
        Predicted bytes and seconds for all cells of the buckets.
    most_seconds : float
        How long they would take, on a nominal core.
    decisions : int
        Of the search, as far as it went.
    """

    method: str
    most_bytes: int
    most_seconds: float
    decisions: int = 0

    def __str__(self) -> str:
        made = (
            "made from buckets" if self.method == "buckets" else f"made from a search of {self.decisions:,} decisions"
        )
        return f"{made}; {price(self.most_bytes, self.most_seconds)}"


def price(most_bytes: int, most_seconds: float) -> str:
    """Return a text about the costs of the buckets' cells."""
    return f"dense buckets would take {format_bytes(most_bytes)} and {most_seconds:.3g} s"


def made_circuit(
    model: Model,
    evidence: Mapping[int, int],
    options: Options,
    method: CircuitMethod,
    report: Callable[[str], None] | None,
    folder: Path | None = None,
) -> tuple[CircuitGraph, CircuitOrigin]:
    """Build a circuit: buckets and a search take turns, each twice as long as the last.

    So neither takes longer than four times what it takes alone. Turns end by nominal seconds, not by a clock: the
    circuit is the same on any machine.

    Parameters
    ----------
    model : Model
    evidence : mapping
        The state of each observed variable.
    options : Options
    method : {"auto", "buckets", "search"}
        The search has no turn by itself where a model is neither clauses nor mostly zero.
    report : callable or None
        Told what buckets take at most, in a sentence, once a turn was not enough.
    folder : Path, optional
        Where gates go that do not fit memory.

    Raises
    ------
    ModelError
        If the search is asked for a model that makes too many clauses.
    BudgetError
        If the circuit does not fit in memory from any source.
    """
    every = range(len(model.dims))
    linked = with_links(model, CircuitPolicy.current().wide_cells)
    disks = [None if folder is None else StoredGates(folder / method) for method in ("buckets", "search")]
    buckets = BucketCircuit(reduce_model(linked, "partition", evidence, every), options, disks[0])
    search = TracedCircuit(reduce_model(model, "partition", evidence, every), options, disks[1])
    if method == "search" and search.formula is None:
        raise ModelError("a search cannot build a circuit of this model: its functions give too many clauses")
    ways: list[CircuitMaker] = [way for way in (buckets, search) if method in ("auto", way.method)]
    seconds, refusals = CircuitPolicy.current().first_turn_seconds, list[str]()
    if buckets.most_seconds > seconds:  # before an order is searched for them
        ways.reverse()
    while ways:
        for way in tuple(ways):
            if method == "auto" and not way.suits:
                continue
            way.reserved_bytes = sum(other.held_bytes for other in ways if other is not way)
            try:
                found = way.run(seconds)
            except BudgetError as error:
                ways.remove(way)
                refusals.append(f"by {way.method}: {error}")
                continue
            if found is not None:
                scopes = _scopes_of(model, way.network.model, np.unique(found.parameters[0]).tolist())
                origin = CircuitOrigin(way.method, buckets.most_bytes, buckets.most_seconds, search.decisions)
                return replace(found, scopes=scopes), origin
        ways = [way for way in ways if way.suits or method != "auto"]
        if report is not None:
            report(price(buckets.most_bytes, buckets.most_seconds))
            report = None
        seconds = 2 * seconds if len(ways) > 1 else math.inf
    raise BudgetError("; ".join(refusals))


def _scopes_of(model: Model, linked: Model, functions: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the scopes of functions that no chain stands for."""
    own, known = model.functions, linked.functions
    return {f: own[f].scope for f in functions if f < len(own) and own[f].scope == known[f].scope}
