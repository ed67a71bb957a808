"""Tuned numbers of circuits."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class CircuitPolicy(Policy):
    """Tuned numbers of circuits.

    Parameters
    ----------
    wide_cells : int
        Clauses of more cells become chains of small functions: a table has a row for each cell that is possible, and a
        clause of k literals has all of its cells but one.
    first_turn_seconds : float
        Nominal seconds of the first turn of buckets, and of the search behind it; then twice as many.
    batch_bytes : int
        Values of all nodes for the cases that are evaluated together. 1,000 cases of insurance took 3.8, 1.1, 1.0 and
        0.9 CPU-s for sums with 1, 4, 64 and 256 MiB, and 10.8, 4.2, 3.7 and 4.2 for marginals.
    stored_edges : int
        Edges of gates that are read together if a circuit is in a file: about 40 MB with the derived data.
    disk_margin : float
        A circuit is refused before writing if its predicted size is this many times the free disk. The prediction
        extrapolates the size per cell so far, and later buckets may have fewer possible cells.
    box_entries : int
        Sets of states in the boxes of a function's zeros: 256 MB of references.
    """

    wide_cells: int = 1 << 12
    first_turn_seconds: float = 0.25
    batch_bytes: int = 1 << 26
    stored_edges: int = 1 << 20
    disk_margin: float = 2.0
    box_entries: int = 1 << 25
