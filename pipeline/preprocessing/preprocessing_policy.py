"""Tuned numbers of preprocessing: how models become smaller, and how leaf tables are built. Pure."""

from __future__ import annotations

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class PreprocessingPolicy(Policy):
    """Tuned numbers of semijoins (removing entries that no other function allows), of chains, and of leaf tables.

    Parameters
    ----------
    semijoin_passes, semijoin_entries : int
        Semijoins may visit each entry this many times on average, plus this number of additional entries.
    most_sharing_functions : int
        If more functions share a pair of variables, larger shared sets of variables are not searched.
    semijoin_table_cells : int
        The possible joint states of shared variables are stored as a dense table of at most this number of cells, and
        as rows otherwise.
    wide_cells : int
        Maximum number of cells of a function that is stored as a dense array, or searched for its zeros.
    link_cells : int
        Maximum number of cells of a link (a small function of a chain), unless it reads only two variables.
    chained_cells : int
        A function with more cells may be replaced by a chain of small functions. In a circuit it is: a table has a row
        for each possible cell, and a clause of k literals has all of its cells but one.
    group_cells : int
        Leaf tables are built together in groups. A group visits at most this number of cells; a table that visits more
        cells is built alone, in parts of this number of cells, at about 20 bytes per cell.
    isolated_variables : int
        Minimum number of isolated variables that are eliminated before planning. A plan takes 0.1 CPU-s for 1,000
        isolated variables, and its time and memory grow with the square of their number.
    """

    semijoin_passes: int = 16
    semijoin_entries: int = 1 << 16
    most_sharing_functions: int = 1 << 5
    semijoin_table_cells: int = 1 << 24
    wide_cells: int = 1 << 20
    link_cells: int = 1 << 6
    chained_cells: int = 1 << 12
    group_cells: int = 1 << 16
    isolated_variables: int = 1 << 10
