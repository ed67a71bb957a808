"""What is tuned of making models smaller and of their leaf tables, listed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class PreprocessingPolicy(Policy):
    """The numbers behind what functions allow together, links of wide functions, and leaf tables.

    Parameters
    ----------
    together_functions : int
        What fewer functions allow is looked at one by one.
    semijoin_passes, semijoin_entries : int
        Passes may look at every entry so many times, and at so many more.
    own_pairs, free_pairs : int
        Pairs of variables by which functions are found that share them: for each function, and for all.
    most_sharing_functions : int
        Where more functions share a pair of variables, they are not compared two by two.
    semijoin_table_cells : int
        What is possible over shared variables is a table of at most so many cells, or else rows.
    wide_cells : int
        As an array of all cells a function of so many is fine.
    link_cells : int
        A link reads variables as long as it has no more cells than this, and two at least.
    group_small_cells, group_cells : int
        Tables of larger functions are made one by one, and so many cells of small ones together.
    group_tables : int
        Fewer tables are made sooner one by one.
    isolated_variables : int
        This many variables that share no function with another variable are eliminated before planning. A plan takes
        0.1 CPU-s for 1,000 of them, and time and memory that are quadratic beyond.
    made_cells : int
        Of a larger table so many cells are made at a time, each of some 20 bytes while it is made.
    """

    together_functions: int = 32
    semijoin_passes: int = 16
    semijoin_entries: int = 1 << 16
    own_pairs: int = 1 << 6
    free_pairs: int = 1 << 16
    most_sharing_functions: int = 1 << 5
    semijoin_table_cells: int = 1 << 24
    wide_cells: int = 1 << 20
    link_cells: int = 1 << 6
    group_small_cells: int = 1 << 10
    group_cells: int = 1 << 16
    group_tables: int = 16
    isolated_variables: int = 1 << 10
    made_cells: int = 1 << 16
