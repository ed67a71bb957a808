"""What is tuned of searches for orders and trees, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class OrderPolicy(Policy):
    """The numbers behind how long is searched.

    Parameters
    ----------
    share, short_share, short_seconds : float
        Automatic planning spends this share of the predicted run time, and the larger share of shorter runs up to so
        many seconds.
    hopeless_seconds : float
        And so long where nobody would wait for what was found.
    doubtful_seconds : float
        A search that would go on for longer is begun with a quarter of this; then its best tree is looked at.
    first_round_seconds : float
        The first round of a search takes so long, each further one twice as long.
    order_share, start_share, starts : float, float, int
        Shares of a round for trying orders, and for the refinement of each of so many of them.
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
        Nominal seconds of what a search beside other work does before it asks whether to end.
    kept_trees : int
        The cheapest tree may need too much memory, so so many are remembered.
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
        Neighbours that a first order looks at where a search that is compiled can follow: one that takes longer is
        worse.
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
        Where the first tree of a short propagation sweeps more cells than this, further orders are tried, and refined,
        for so many seconds a cell: on barley, 24 million cells, in 0.2 CPU-s a propagation of 73 ms becomes one of 29,
        on link, 42 million, in 0.5 CPU-s one of 110 one of 41.
    restart_least_seconds : float
        Unless it is predicted to take less than this: loading the search alone takes 0.4 CPU-s, and 16 ms of diabetes,
        11 million cells, become 13.
    pairs_seconds, pairs_share, both_ways_near : float
        Making the joins of a tree pairwise and pricing both both ways, for each variable or group of functions. The
        trees that a search one way finds within a factor of the best are compared both ways, as many as take this share
        of the propagation, at least one; of a short one not with their joins pairwise, which saved 0 to 8% of the loops
        of 20 propagations of 0.02 to 2 s and took 10 to 20 ms.
    asked_cells, asked_cell_seconds : int, float
        The same of trees of buckets or cliques that were asked for, which only further orders improve.
    longest_restarts_seconds, restarts_seconds : float
        No search whose time is by cells is given more than the first, for a refined tree nor more than the other or
        ``share`` of the propagation.
    least_restarts_seconds, both_ways_tables : float, int
        Nor than what is left once the steps of both sweeps are lowered, which have so many tables for each of the tree
        (3.2 to 5.6 of eight networks), but at least the first: a few orders by other rules are worth it (munin: 0.17 s
        a propagation instead of 0.21).
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
