"""Tuned numbers of searches for orders and trees. Pure."""

from __future__ import annotations

from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

# Number of cached trees, because the cheapest tree may need too much memory.
KEPT_TREES: Final = 8
# A small step both ways is one call of einsum, or a record of one compiled loop; large ones need more, where it is
# little beside their loops. Priced by more, merged steps would sweep several times the cells to save steps.
BOTH_WAYS_STEP_SECONDS: Final = 5e-6


@dataclass(frozen=True)
class OrderPolicy(Policy):
    """The numbers behind how long is searched.

    Parameters
    ----------
    share : float
        Automatic planning spends this fraction of the predicted run time, and the larger fraction of runs up to this
        many seconds.
    doubtful_seconds : float
        A search that would go on for longer is begun with a quarter of this; then its best tree is looked at.
    starts : int
        Fractions of a round for trying orders and for refining each start, and the number of starts.
    compiled_seconds : float
        Seconds of a search that it is compiled for, and cells of the buckets of the first order that it is loaded for.
    compiling_seconds : float
        CPU seconds that compiling a search takes. Where it is not compiled the first tree is kept if that is predicted
        to take less, and no table of it has more cells: a grid of 2^31 cells took 30 to 46 CPU-s at first, 1.8 of them
        with its first tree and .6 with the tree that was searched.
    both_ways_tiny_cells : int
        Where both sweeps multiply no more cells than this, the buckets of one order are as good as any tree.
    restart_cells : int
        If the first tree of a short propagation sweeps more cells than this, more orders are tried and refined, for
        this many seconds per cell. Large propagations often become two to three times faster.
    restart_least_seconds : float
        Unless it is predicted to take less than this: loading the search alone takes 0.4 CPU-s, and 16 ms of diabetes,
        11 million cells, become 13.
    pairs_share : float
        Seconds per variable, or group of functions, to make the joins of a tree pairwise and to price both versions in
        both directions. Trees within a factor of the best are compared in both directions, at least one, for this
        fraction of the propagation. In a short propagation the pairwise version is skipped, because its gain is smaller
        than its cost.
    asked_cells : int
        The same of trees of buckets or cliques that were asked for, which only further orders improve.
    """

    share: float = 0.08
    doubtful_seconds: float = 2.0
    starts: int = 3
    compiled_seconds: float = 0.5
    compiling_seconds: float = 10.0
    both_ways_tiny_cells: int = 1 << 23
    restart_cells: int = 10_000_000
    restart_least_seconds: float = 0.04
    pairs_share: float = 0.02
    asked_cells: int = 1_000_000
