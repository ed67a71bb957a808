"""Tuned numbers of searches for orders and trees. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class OrderPolicy(Policy):
    """The numbers behind how long is searched.

    Parameters
    ----------
    share, short_share, short_seconds : float
        Automatic planning spends this fraction of the predicted run time, and the larger fraction of runs up to this
        many seconds.
    hopeless_seconds : float
        Maximum seconds of planning if the best plan would take unacceptably long.
    doubtful_seconds : float
        A search that would go on for longer is begun with a quarter of this; then its best tree is looked at.
    first_round_seconds : float
        Seconds of the first round of a search; each round takes twice as long as the last.
    order_share, start_share, starts : float, float, int
        Fractions of a round for trying orders and for refining each start, and the number of starts.
    least_gain : float
        A round may gain this share of the run although those before gained less.
    forest_seconds, tree_seconds : float
        Making the forest of an order, and the tree of a forest and its price, for each variable or group of functions:
        measured 10 to 27 and 23 to 100 microseconds on six networks.
    forests_share : float
        Of a round for forests and trees: of large networks fewer orders are refined.
    emergency : float
        A search that takes this many times its nominal time is stopped by the clock.
    piece_seconds : float
        Nominal seconds between two checks of whether a search beside other work should end.
    kept_trees : int
        Number of cached trees, because the cheapest tree may need too much memory.
    compiled_seconds, loaded_cells : float, int
        Seconds of a search that it is compiled for, and cells of the buckets of the first order that it is loaded for.
    compiling_seconds, uncompiled_table_cells : float, int
        CPU seconds that compiling a search takes. Where it is not compiled the first tree is kept if that is predicted
        to take less, and no table of it has more cells: a grid of 2^31 cells took 30 to 46 CPU-s at first, 1.8 of them
        with its first tree and .6 with the tree that was searched.
    compiled_first_cells : int
        Orders that are not for a sweep are searched for, though that has to be compiled, where the buckets of the first
        one have more cells.
    first_work : int
        Neighbours visited by a first order if a compiled search can follow; a longer first order is worse.
    both_ways_tiny_cells : int
        Where both sweeps multiply no more cells than this, the buckets of one order are as good as any tree.
    both_ways_step_seconds : float
        A small step both ways is one call of einsum, or a record of one compiled loop; large ones need more, where it
        is little beside their loops. Priced by more, merged steps would sweep several times the cells to save steps.
    both_ways_small_seconds : float
        Propagations whose loops are predicted to take less, and sweep few cells, are planned without the compiled
        search.
    both_ways_short_seconds : float
        The share of a propagation that takes less is too little for a search, which is given time by cells instead.
    restart_cells, restart_cell_seconds : int, float
        If the first tree of a short propagation sweeps more cells than this, more orders are tried and refined, for
        this many seconds per cell. Large propagations often become two to three times faster.
    restart_least_seconds : float
        Unless it is predicted to take less than this: loading the search alone takes 0.4 CPU-s, and 16 ms of diabetes,
        11 million cells, become 13.
    pairs_seconds, pairs_share, both_ways_near : float
        Seconds per variable, or group of functions, to make the joins of a tree pairwise and to price both versions in
        both directions. Trees within a factor of the best are compared in both directions, at least one, for this
        fraction of the propagation. In a short propagation the pairwise version is skipped, because its gain is smaller
        than its cost.
    asked_cells, asked_cell_seconds : int, float
        The same of trees of buckets or cliques that were asked for, which only further orders improve.
    longest_restarts_seconds, restarts_seconds : float
        No search whose time is by cells is given more than the first, for a refined tree nor more than the other or
        ``share`` of the propagation.
    least_restarts_seconds, both_ways_tables : float, int
        Also at most the time that remains after the steps of both sweeps are lowered; they have this many tables for
        each table of the tree. The first orders by other rules are always tried.
    """

    share: float = 0.08
    short_share: float = 0.25
    short_seconds: float = 0.1
    hopeless_seconds: float = 0.5
    doubtful_seconds: float = 2.0
    first_round_seconds: float = 0.05
    order_share: float = 0.35
    start_share: float = 0.1
    starts: int = 3
    least_gain: float = 0.02
    forest_seconds: float = 2e-5
    tree_seconds: float = 5e-5
    forests_share: float = 0.6
    emergency: float = 4.0
    piece_seconds: float = 0.1
    kept_trees: int = 8
    compiled_seconds: float = 0.5
    loaded_cells: int = 1 << 22
    compiling_seconds: float = 10.0
    uncompiled_table_cells: int = 1 << 26
    compiled_first_cells: int = 1 << 26
    first_work: int = 100_000
    both_ways_tiny_cells: int = 1 << 23
    both_ways_step_seconds: float = 5e-6
    both_ways_small_seconds: float = 0.2
    both_ways_short_seconds: float = 1.2
    restart_cells: int = 10_000_000
    restart_cell_seconds: float = 5e-9
    restart_least_seconds: float = 0.04
    pairs_seconds: float = 1.2e-4
    pairs_share: float = 0.02
    both_ways_near: float = 1.5
    asked_cells: int = 1_000_000
    asked_cell_seconds: float = 2e-8
    longest_restarts_seconds: float = 1.0
    restarts_seconds: float = 0.1
    least_restarts_seconds: float = 0.02
    both_ways_tables: int = 5
