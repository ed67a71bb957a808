"""Tuned numbers of proofs: lengths of turns, when provers start and give up, and their limits. Pure."""

from __future__ import annotations

from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

# A smaller part of the gap, or of the cells, is not worth another or a longer turn, another preparation or another
# network.
NOTABLE_SHARE: Final = 0.02
# A prover begins anew in a network that has this many times fewer cells; otherwise it continues in the old network. A
# tree for a sweep is searched again if its order has this many times fewer cells.
SMALLER_RATIO: Final = 2
# Local search, the messages of diagrams that serve every cut-off, and assignments that wait for the proof of their rank
# take at most one part in this many of the memory.
# A prover that holds more between two turns leaves too little to others.
MEMORY_PART: Final = 4
# CPU seconds of a time slice that is long enough to plan a sweep, to sweep a network early, or to improve a known
# assignment.
LONG_TURN_SECONDS: Final = 0.5
# Russian dolls and the interpreter do not look at networks of more cells.
SEARCHED_CELLS: Final = 1 << 20
# Below this memory, freed pages are returned to the system, which takes milliseconds.
SCARCE_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class ProverPolicy(Policy):
    """Numbers of the portfolio and of its provers, in the order of a proof (``tests/bench/peers.py --optimum``).

    Parameters
    ----------
    first_turn_seconds : float
        CPU seconds of the first round, for each prover; each round takes twice as long as the one before.
    glances : tuple[tuple[int, float], tuple[int, float]]
        Cells that the first preparations touch, and CPU seconds of the short search after each: easy networks
        need no more.
    glance_most_cells : int
        Networks of more cells are not laid out for a short search.
    first_preparation_work : int
        Cells that preparation touches before a tree is searched for the first early sweep, where there is a cut-off:
        that sweep of c432 took 0.12 CPU-s, and preparation proves it in 0.02. 50-18-5 and pedigree9, without a cut-off,
        took 0.03-0.08 more, and cap131, for which no tree is searched, 0.05.
    order_seconds : float
        An order, or a tree of a short sweep, is searched for at least this many CPU seconds.
    search_nodes : int
        Nodes that are explored depth first below each open node, the one of the least bound first.
    cluster_cells : tuple[int, int]
        Cells of a cluster, round by round; clusters of the first round are not grown beyond the cycles through
        one variable.
    cluster_gap_share : float
        Clusters that closed less than this part of the gap are not enlarged, and their costs are of no use to
        others.
    late_from_seconds : float
        Triangles and subtrees have their first turn in rounds of this many CPU seconds.
    agreement_assignments : int
        Costs of assignments of the shared variables are found out where at most this many are left.
    cut_least_variables : int
        Networks of fewer variables are not cut.
    dolls_soft_share : float
        Functions that are no sums of costs of single values are at most this share of all.
    diagram_quick_edges : int
        Where eliminations make more edges than this, the next one should cost not much more than the last.
    trail_least_bytes : int
        Back-pointers of fewer bytes are kept whole.
    device_least_rows : int
        Rounds of at least this many rows run on a device, if there is one.
    device_least_join_cells : int
        They do where their joins have at least this many cells.
    neighbourhood_least_variables : int
        Variables that are free at first and at least.
    """

    first_turn_seconds: float = 0.25
    glances: tuple[tuple[int, float], tuple[int, float]] = ((30_000_000, 0.1), (100_000_000, 0.15))
    glance_most_cells: int = 1 << 19
    first_preparation_work: int = 1_000_000
    order_seconds: float = 0.1
    search_nodes: int = 1024
    cluster_cells: tuple[int, int] = (1 << 9, 1 << 12)
    cluster_gap_share: float = 0.25
    late_from_seconds: float = 1.0
    agreement_assignments: int = 1 << 12
    cut_least_variables: int = 40
    dolls_soft_share: float = 0.05
    diagram_quick_edges: int = 300_000
    trail_least_bytes: int = 1 << 22
    device_least_rows: int = 1_000_000
    device_least_join_cells: int = 1 << 20
    neighbourhood_least_variables: int = 8
