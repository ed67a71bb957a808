"""What is tuned of questions that are read as formulas or summed on diagrams. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class QueryPolicy(Policy):
    """Sizes up to which a question takes another way than a sweep.

    Parameters
    ----------
    remembered_cells : int
        The costs in leaf tables of at most this many cells together are remembered.
    joint_cells : int
        The functions of a leaf table of at most this many cells are looked at together, to see how many assignments a
        count has: of the gates of mc2022_track1_029, which takes 15 primes, 7 are expected in place of 2.
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
    """

    remembered_cells: int = 1 << 16
    joint_cells: int = 1 << 12
    formula_literals: int = 1 << 22
    formula_variables: int = 1 << 15
    formula_table_cells: int = 1 << 20
    formula_cubes: int = 1 << 15
    free_edges: int = 1 << 18
