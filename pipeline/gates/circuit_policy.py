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
    search_seconds : float
        Nominal seconds of the search for a tree, which is made once for all evaluations.
    row_byte_seconds : float
        Nominal seconds of one byte of a join's rows, all that is done with them included: 42 ns of insurance, 26 of
        water, 16 of barley.
    circuit_byte_seconds : float
        The same of one byte that the circuit takes: a fifth, as it takes several times what a row does.
    searched_per_second : float
        Uses of literals that a search visits in a nominal second, as in sums by search.
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
    xla_cells_per_second, xla_step_seconds : float
        Seconds of XLA on a CPU for ln Z and its derivatives: per cell, from the slope over plans of 2,000 to 330,000
        cells, and per step. Too high seconds per step would join clusters unnecessarily.
    device_launch_seconds, device_cells_per_second : float
        Seconds of XLA on a data-centre GPU: per step with its way back, without its cells, and per cell of large steps.
    wider_joins : int
        Joins of orders that are compared for a device grow by this factor.
    worse_orders : int
        Number of consecutive orders without improvement that ends the comparison.
    box_entries : int
        Sets of states in the boxes of a function's zeros: 256 MB of references.
    checked_draws, least_draws : int
        Assignments that a check draws from a circuit and evaluates on the model: the first number, or as many as are
        evaluated together, but at least the second number.
    """

    wide_cells: int = 1 << 12
    search_seconds: float = 10.0
    row_byte_seconds: float = 2e-8
    circuit_byte_seconds: float = 5e-9
    searched_per_second: float = 2.0**23 / 0.3
    first_turn_seconds: float = 0.25
    batch_bytes: int = 1 << 26
    stored_edges: int = 1 << 20
    disk_margin: float = 2.0
    xla_cells_per_second: float = 1.7e8
    xla_step_seconds: float = 1e-6
    device_launch_seconds: float = 2e-5
    device_cells_per_second: float = 4e10
    wider_joins: int = 4
    worse_orders: int = 3
    box_entries: int = 1 << 25
    checked_draws: int = 16
    least_draws: int = 2
