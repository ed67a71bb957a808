"""Tuned numbers of making models smaller and of their leaf tables. Pure."""

from __future__ import annotations

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class PreprocessingPolicy(Policy):
    """The numbers behind what functions allow together, links of wide functions, and leaf tables.

    Parameters
    ----------
    together_functions : int
        Below this number of functions, allowed entries are examined function by function.
    semijoin_passes, semijoin_entries : int
        Passes may visit every entry this many times, and this many additional entries.
    most_sharing_functions : int
        Where more functions share a pair of variables, they are not compared two by two.
    semijoin_table_cells : int
        Possible values over shared variables are a dense table up to this many cells, and rows otherwise.
    wide_cells : int
        Cells up to which a function is stored as a dense array.
    link_cells : int
        A link reads variables as long as it has no more cells than this, and two at least.
    chained_cells : int
        Cells of a function from which a chain of small functions may replace it.
    group_cells : int
        Tables of larger functions are built one by one; small ones are built together, up to this many cells.
    group_tables : int
        Fewer tables are made sooner one by one.
    isolated_variables : int
        This many variables that share no function with another variable are eliminated before planning. A plan takes
        0.1 CPU-s for 1,000 of them, and time and memory that are quadratic beyond.
    made_cells : int
        Cells of a larger table that are built at a time, at about 20 bytes per cell.
    """

    together_functions: int = 32
    semijoin_passes: int = 16
    semijoin_entries: int = 1 << 16
    most_sharing_functions: int = 1 << 5
    semijoin_table_cells: int = 1 << 24
    wide_cells: int = 1 << 20
    link_cells: int = 1 << 6
    chained_cells: int = 1 << 12
    group_cells: int = 1 << 16
    group_tables: int = 16
    isolated_variables: int = 1 << 10
    made_cells: int = 1 << 16
