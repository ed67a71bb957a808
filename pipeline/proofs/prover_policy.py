"""Tuned numbers of proofs: lengths of turns, when provers start and give up, and their limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class ProverPolicy(Policy):
    """Numbers of the portfolio and of its provers, in the order of a proof (``tests/bench/peers.py --optimum``).

    Parameters
    ----------
    first_turn_seconds : float
        CPU seconds of the first round, for each prover; each round takes twice as long as the one before.
    notable_gap_share : float
        The prover that closed most of the gap has the longest turns where a prover may close this part of the
        gap.
    again_gap_share : float
        A prover that closed this part of the gap in one turn has another turn at once.
    improving_turn_weight : float
        The weight of a local search is multiplied by this where its last turn found something better.
    idle_turn_weight : float
        The same where its last turn found nothing better.
    least_turn_seconds : float
        Minimum seconds of a turn for measuring the closed fraction of the gap per second.
    held_memory_part : int
        A prover that holds more than one part in this many of the memory between two turns leaves the others
        too little.
    glances : tuple[tuple[int, float], tuple[int, float]]
        Cells that the first preparations touch, and CPU seconds of the short search after each: easy networks
        need no more.
    diagram_glance_seconds, diagram_glance_share, diagram_glance_cells : float
        CPU seconds of decision diagrams after the first of these searches that leaves an assignment; repeated while
        they close this fraction of the gap. Networks with more cells are excluded, because the other provers would take
        as long to be set up.
    glance_most_cells : int
        Networks of more cells are not laid out for a short search.
    settled_cells : int
        Networks of at most this many cells get a full preparation only where the last short one finds that it
        pays.
    tree_saving_ratio : int
        A tree is searched for networks whose cells are at most this many times the cells that are swept soon.
    tree_search_seconds : float
        CPU seconds of that search.
    first_preparation_work : int
        Cells that preparation touches before a tree is searched for the first early sweep, where there is a cut-off:
        that sweep of c432 took 0.12 CPU-s, and preparation proves it in 0.02. 50-18-5 and pedigree9, without a cut-off,
        took 0.03-0.08 more, and cap131, for which no tree is searched, 0.05.
    early_cells, early_sweep_seconds : float
        Networks with at most this many bucket cells are swept before or after the first short run, if the searched tree
        promises a sweep no longer than a short run.
    sought_again_part : float
        A tree is searched again once an order found quickly has at most this fraction of the cells.
    planned_sweep_seconds : float
        A sweep of at most this many predicted seconds is planned as others are.
    short_sweep_seconds : float
        It runs if its plan takes at most this many seconds.
    dolls_share : float
        Russian dolls come before the full preparation, for this share of the time spent.
    clusters_share : float
        Fraction of the time spent for small clusters, which come first; rows get the same time on the shifted costs.
    preparation_share : float
        Another preparation pays if the last one closed this part of the gap, or removed this part of the cells.
    cut_off_share : float
        Preparing again pays where the cut-off fell by this part of the gap.
    preparation_cells_per_second : int
        Cells that preparing again touches for each CPU second spent so far, about a tenth of a second.
    order_share : float
        An order is searched for this share of the time spent.
    order_seconds : float
        An order is searched for at least this many CPU seconds.
    remote_report_seconds : float
        Seconds between two reports of a remote prover about its bound alone; assignments are reported at once.
    subproblem_candidates : int
        Number of variables with the most functions that are compared when the next variable to fix is chosen.
    searched_bits : int
        Networks of at most this many assignments, in bits, are searched rather than represented, where their
        domains are large.
    searched_domain_bits : int
        Average bits of a large domain.
    unsearched_bits : int
        Of networks of more assignments, in bits, a search sees only a part, if short ones found no proof.
    search_nodes : int
        Nodes that are explored depth first below each open node, the one of the least bound first.
    search_seconds : float
        CPU seconds between two looks at the clock.
    interpreted_cells : int
        Networks of at most this many cells are searched in the interpreter until the search is compiled. The first
        propagation cannot be interrupted, and takes longer the more cells there are.
    tiny_move_share : float
        If costs are fine-grained, moves of a smaller fraction of the open gap are not propagated.
    coarse_costs : float
        Costs are fine where the cut-off has more units than this.
    cluster_pairs : int
        Pairs of neighbours of a variable, on average, beyond which there are too many cycles to look for.
    cluster_descents : int
        Rounds of improving an assignment, both ways.
    cluster_cells : tuple[int, int]
        Cells of a cluster, round by round; clusters of the first round are not grown beyond the cycles through
        one variable.
    cluster_cycles : int
        Networks with more short cycles for a variable have too many clusters.
    mesh_least_cycles : float
        A mesh has at least this many short cycles for a variable, on average.
    mesh_most_cycles : int
        A mesh has at most this many.
    cluster_variables : int
        With more variables making the clusters takes seconds.
    cluster_sweeps : int
        Sweeps between two looks at the clock, an even number.
    cluster_work_cells : int
        Fewer sweeps where they touch more cells than this.
    cluster_stall_share : float
        Sweeps end a round if they raised the bound by less than this fraction of the round's total rise.
    cluster_gap_per_cell : float
        Or by less than this part of the gap for each cell that they touched, which takes half a nanosecond.
    cluster_gap_share : float
        Clusters that closed less than this part of the gap are not enlarged, and their costs are of no use to
        others.
    cluster_decoded_sweeps : tuple[int, int, int]
        Sweeps after which an assignment is read off, besides the last.
    most_triangles : int
        With more triangles laying them out takes seconds.
    triangle_sweeps : int
        Sweeps between two looks at the clock, an even number.
    triangle_work_cells : int
        Fewer sweeps where they touch more cells than this.
    triangle_gap_per_sum : float
        Sweeps are the last if they raised the bound by less than this part of the gap for each sum that they
        made.
    triangle_look_ratio : float
        Assignments are decoded, and values forbidden by single variables, after this many times the work of the last
        time.
    triangle_single_sweeps : int
        Sweeps over single variables then.
    triangle_forbidden_share : float
        Share of the entries that must be forbidden to be worth a smaller network.
    triangles_from_seconds : float
        Triangles have their first turn in rounds of this many CPU seconds.
    triangle_gap_share : float
        They have no other turn where one closed less than this part of the gap.
    subtree_longer_ratio : float
        A part is much longer than another where it takes this many times as long.
    subtrees_from_seconds : float
        Subtrees have their first turn in rounds of this many CPU seconds.
    subtree_few_variables : int
        They have it in rounds half as long where there are at most this many variables.
    subtree_seconds : float
        They are left if more than one part is open after this many CPU seconds.
    subtree_idle_turns : int
        They are left if this many turns optimised no other part.
    subtree_last_share : float
        Where one part is left, it is much smaller than the whole, and has this share of the time that was
        spent.
    agreement_seconds : float
        CPU seconds after which other parts may have their turn.
    agreement_first_part : int
        The first cut-off goes one part in this many of the way from the bound to the last one.
    agreement_assignments : int
        Costs of assignments of the shared variables are found out where at most this many are left.
    cut_least_variables : int
        Networks of fewer variables are not cut.
    cut_most_variables : int
        Networks of more variables have parts too large to be optimised.
    cut_least_part : int
        A part has at least one in this many of the variables.
    cut_separator_ratio : int
        A part has more than this many times the variables of the separator that cuts it off.
    dolls_soft_share : float
        Functions that are no sums of costs of single values are at most this share of all.
    dolls_most_cells : int
        Russian dolls do not look at networks of more cells.
    dolls_look_seconds : float
        CPU seconds between two looks at the clock.
    doll_seconds : float
        Russian dolls are too hard if none is solved in this many CPU seconds.
    diagram_first_part : int
        The first step goes one part in this many of the way from the lower bound to the cut-off.
    diagram_quick_edges : int
        Where eliminations make more edges than this, the next one should cost not much more than the last.
    diagram_cost_ratio : float
        It should cost about this many times as much.
    diagram_straight_ratio : float
        The last cut-off comes next if it is expected to make at most this many times the edges of the one
        before it.
    diagram_far_part : int
        If other provers closed at least 1 / this of the gap, growth is estimated from the first elimination on.
    diagram_fewest_edges : int
        As if an elimination without any gap had made this many edges.
    scarce_bytes : int
        Below this memory, freed pages are returned to the system, which takes milliseconds.
    diagram_lost_part : int
        Many small arrays leave about one part in this many of the memory between them.
    diagram_soon_share : float
        Diagrams go on at once if they are expected to complete the proof in this share of the time that was
        spent.
    diagram_kept_part : int
        Messages that serve every cut-off take at most one part in this many of the memory.
    diagram_freed_part : int
        If memory is scarce, freed pages are returned after joins have freed 1 / this of it.
    trail_least_bytes : int
        Back-pointers of fewer bytes are kept whole.
    device_least_rows : int
        Rounds of at least this many rows run on a device, if there is one.
    device_least_join_cells : int
        They do where their joins have at least this many cells.
    device_bounds_share : float
        Share of a device's memory that mini-buckets may take: the closer their bounds, the fewer rows are
        beside them.
    thread_bytes : int
        Layers are shared by no more threads than have this much memory each, a few times what one needs beside
        its rows.
    stored_bounds_part : int
        Mini-buckets of a search on disk take one part in this many of the memory, so that they can stay while
        others have their turn.
    stored_bounds_bits : tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
        log2 of the cells of such mini-buckets, the first that fit.
    join_cell_seconds : float
        Seconds that NumPy takes for a cell of a join.
    fixing_cells : int
        Cells that are touched to remove what a new incumbent excludes.
    reorder_seconds : float
        CPU seconds in which another order is searched afterwards.
    piece_copies : int
        Copies of the rows of a piece that are in memory while it is expanded or merged, about.
    planning_from_seconds : float
        Turns from this many CPU seconds on also plan, which may take seconds.
    planned_saving_ratio : float
        Plans take up to this many times less time than the buckets of an order.
    bucket_cell_seconds : float
        Seconds that buckets take for a cell.
    local_levels : tuple[tuple[int, float], tuple[int, float], tuple[int, float], tuple[int, float], tuple[int, float]]
        Variables to look at, and log2 of the cells of a bucket, of larger and larger neighbourhoods.
    local_most_cells : int
        Cells of all buckets of a neighbourhood, at most.
    local_least_cells : int
        With memory for fewer cells there is no local search.
    local_work_per_value : int
        Work of the shortest episode for each value of a variable (work is about nanoseconds).
    local_batch_work : int
        Work between two looks at the clock.
    local_first_penalty : float
        Penalty of a forbidden entry at first, in the largest cost allowed.
    local_penalty_ratio : float
        The penalty grows by this factor while assignments with a forbidden entry seem best.
    local_memory_part : int
        A local search takes one part in this many of the memory.
    local_smaller_ratio : int
        It begins anew in a network that is this many times smaller.
    neighbourhood_copies : int
        Neighbourhoods are searched where there is memory for this many times what a search is laid out in.
    improving_from_seconds : float
        Where an assignment is known already, there are no turns of fewer CPU seconds.
    neighbourhood_bits : int
        Neighbourhoods are searched in networks of more assignments than these, in bits.
    neighbourhood_domain_bits : int
        And with domains of at least this many bits on average.
    neighbourhood_least_variables : int
        Variables that are free at first and at least.
    neighbourhood_wider_ratio : float
        Growth factor of a neighbourhood that was searched completely without success.
    neighbourhood_narrower_ratio : float
        A neighbourhood that was not searched to its end is narrowed by this factor.
    neighbourhood_again_ratio : float
        A neighbourhood that found something better is narrowed by this factor.
    neighbourhood_nodes : int
        Nodes of a neighbourhood.
    neighbourhood_again_share : float
        It is laid out again, with fewer values, once only this part of the best total above the bound is left.
    """

    first_turn_seconds: float = 0.25
    notable_gap_share: float = 0.02
    again_gap_share: float = 0.5
    improving_turn_weight: float = 0.5
    idle_turn_weight: float = 0.25
    least_turn_seconds: float = 0.01
    held_memory_part: int = 4
    glances: tuple[tuple[int, float], tuple[int, float]] = ((30_000_000, 0.1), (100_000_000, 0.15))
    diagram_glance_seconds: float = 0.1
    diagram_glance_share: float = 0.1
    diagram_glance_cells: float = 2.0**16
    glance_most_cells: int = 1 << 19
    settled_cells: int = 1 << 16
    tree_saving_ratio: int = 1 << 8
    tree_search_seconds: float = 0.1
    first_preparation_work: int = 1_000_000
    early_cells: float = 2.0**36
    early_sweep_seconds: float = 0.5
    sought_again_part: float = 0.25
    planned_sweep_seconds: float = 2.0
    short_sweep_seconds: float = 1.0
    dolls_share: float = 0.5
    clusters_share: float = 1.0
    preparation_share: float = 0.05
    cut_off_share: float = 0.02
    preparation_cells_per_second: int = 50_000_000
    order_share: float = 0.1
    order_seconds: float = 0.1
    remote_report_seconds: float = 0.25
    subproblem_candidates: int = 12
    searched_bits: int = 128
    searched_domain_bits: int = 3
    unsearched_bits: int = 512
    search_nodes: int = 1024
    interpreted_cells: int = 1 << 20
    search_seconds: float = 0.03
    tiny_move_share: float = 1e-7
    coarse_costs: float = 1e7
    cluster_pairs: int = 64
    cluster_descents: int = 5
    cluster_cells: tuple[int, int] = (1 << 9, 1 << 12)
    cluster_cycles: int = 8
    mesh_least_cycles: float = 0.9
    mesh_most_cycles: int = 2
    cluster_variables: int = 10_000
    cluster_sweeps: int = 10
    cluster_work_cells: int = 20_000_000
    cluster_stall_share: float = 1e-5
    cluster_gap_per_cell: float = 1.5e-9
    cluster_gap_share: float = 0.25
    cluster_decoded_sweeps: tuple[int, int, int] = (1, 3, 10)
    most_triangles: int = 100_000
    triangle_sweeps: int = 10
    triangle_work_cells: int = 100_000_000
    triangle_gap_per_sum: float = 1e-12
    triangle_look_ratio: float = 1.5
    triangle_single_sweeps: int = 4
    triangle_forbidden_share: float = 0.02
    triangles_from_seconds: float = 1.0
    triangle_gap_share: float = 0.01
    subtree_longer_ratio: float = 2.0
    subtrees_from_seconds: float = 1.0
    subtree_few_variables: int = 128
    subtree_seconds: float = 0.25
    subtree_idle_turns: int = 2
    subtree_last_share: float = 0.65
    agreement_seconds: float = 0.05
    agreement_first_part: int = 8
    agreement_assignments: int = 1 << 12
    cut_least_variables: int = 40
    cut_most_variables: int = 1000
    cut_least_part: int = 4
    cut_separator_ratio: int = 2
    dolls_soft_share: float = 0.05
    dolls_most_cells: int = 1 << 20
    dolls_look_seconds: float = 0.03
    doll_seconds: float = 1.0
    diagram_first_part: int = 32
    diagram_quick_edges: int = 300_000
    diagram_cost_ratio: float = 4.0
    diagram_straight_ratio: float = 4.0
    diagram_far_part: int = 3
    diagram_fewest_edges: int = 50_000
    scarce_bytes: int = 1 << 28
    diagram_lost_part: int = 8
    diagram_soon_share: float = 0.5
    diagram_kept_part: int = 4
    diagram_freed_part: int = 16
    trail_least_bytes: int = 1 << 22
    device_least_rows: int = 1_000_000
    device_least_join_cells: int = 1 << 20
    device_bounds_share: float = 0.75
    thread_bytes: int = 1 << 22
    stored_bounds_part: int = 6
    stored_bounds_bits: tuple[int, int, int, int, int, int, int, int, int, int, int, int, int] = (
        28,
        26,
        24,
        22,
        20,
        18,
        16,
        14,
        12,
        10,
        8,
        6,
        4,
    )
    join_cell_seconds: float = 5e-9
    fixing_cells: int = 30_000_000
    reorder_seconds: float = 0.1
    piece_copies: int = 4
    planning_from_seconds: float = 0.5
    planned_saving_ratio: float = 30.0
    bucket_cell_seconds: float = 1e-9
    local_levels: tuple[
        tuple[int, float], tuple[int, float], tuple[int, float], tuple[int, float], tuple[int, float]
    ] = ((8, 8.0), (32, 12.0), (128, 15.0), (512, 17.0), (2048, 19.0))
    local_most_cells: int = 1 << 21
    local_least_cells: int = 1 << 12
    local_work_per_value: int = 1000
    local_batch_work: int = 5_000_000
    local_first_penalty: float = 2.0
    local_penalty_ratio: float = 4.0
    local_memory_part: int = 4
    local_smaller_ratio: int = 2
    neighbourhood_copies: int = 2
    improving_from_seconds: float = 0.5
    neighbourhood_bits: int = 384
    neighbourhood_domain_bits: int = 3
    neighbourhood_least_variables: int = 8
    neighbourhood_wider_ratio: float = 1.05
    neighbourhood_narrower_ratio: float = 1.1
    neighbourhood_again_ratio: float = 2.0
    neighbourhood_nodes: int = 200
    neighbourhood_again_share: float = 0.5
