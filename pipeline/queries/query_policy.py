"""Tuned numbers of queries that are read as formulas or summed on diagrams. Pure."""

from __future__ import annotations

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class QueryPolicy(Policy):
    """Sizes up to which a question takes another way than a sweep.

    Parameters
    ----------
    inspected_cells : int
        A table of fewer cells is built only to inspect its costs, before they are counted.
    formula_literals : int
        Most literals of a formula.
    formula_variables : int
        Most variables of a formula.
    formula_table_cells : int
        Tables of more cells are not searched for their zeros.
    formula_cubes : int
        Most cubes that cover the zeros of a table: each takes some 50 microseconds.
    free_edges : int
        A join may make this many edges, or more where that is a small part of its dense cells.
    free_part : float
        It may also make this part of the edges of a whole run: the partition function of bw_p34_15 takes 4e8 edges, and
        was given up for joins of 3e5, a fourteenth of their cells, beside a sweep of 1e6 s.
    """

    inspected_cells: int = 1 << 24
    formula_literals: int = 1 << 22
    formula_variables: int = 1 << 15
    formula_table_cells: int = 1 << 20
    formula_cubes: int = 1 << 15
    free_edges: int = 1 << 18
    free_part: float = 0.25
    telling_part: float = 0.25

    def free(self, run_edges: float) -> float:
        """Return the edges that a join may make at any density, in a run of ``run_edges`` edges."""
        return max(self.free_edges, self.free_part * run_edges)
