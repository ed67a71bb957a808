"""Tuned numbers of models: when functions are stored as sparse rows, and which functions are handled together. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class ModelPolicy(Policy):
    """Sizes of functions from which another way of keeping or reading them is cheaper.

    Parameters
    ----------
    summed_cells : int
        Values of small functions are added together, in one array of about this many cells.
    numbered_rows_ratio : int
        Rows are added by number where their numbers reach at most this many times the rows, and sorted
        elsewhere.
    checked_cells : int
        Functions of fewer cells are checked together, in one array.
    rows_least_cells : int
        Dense tables of at least this many cells may be kept by rows.
    rows_part : int
        Functions are stored as rows if the rows need at most 1 / ``rows_part`` of the dense memory.
    compared_rows : int
        At most this many rows are compared one by one, more are sorted.
    named_scope : int
        Variables of a function that pictures name.
    single_functions : int
        Fewer functions are read one by one.
    joint_function_cells : int
        Functions of at most this many cells are read together.
    joint_cells : int
        Cells that are read together.
    single_evaluations : int
        Fewer functions are evaluated one by one.
    """

    summed_cells: int = 1 << 16
    numbered_rows_ratio: int = 8
    checked_cells: int = 1 << 12
    rows_least_cells: int = 1 << 16
    rows_part: int = 4
    compared_rows: int = 64
    named_scope: int = 8
    single_functions: int = 8
    joint_function_cells: int = 1 << 12
    joint_cells: int = 1 << 16
    single_evaluations: int = 32
