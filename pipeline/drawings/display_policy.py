"""How much is shown of long things, on terminals, on pages and in pictures. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class DisplayPolicy(Policy):
    """Numbers that keep output readable.

    Parameters
    ----------
    bar_seconds : float
        A progress bar is drawn after this many seconds; one for less would only flicker.
    line_seconds : float
        Without a terminal, progress is a line after so many seconds.
    price_lines : int
        Lines of the table of prices, one for all rows that are alike.
    largest_steps : int
        Largest steps of a plan that are printed.
    slowest_steps : int
        Slowest steps of a run that are printed.
    model_bars : int
        Models of a chart, the longest first.
    listed_members : int
        Members of a list of numbers or names that are shown.
    nested_objects : int
        Objects inside each other that are shown.
    variable_bars : int
        Variables whose bars are shown.
    step_bars : int
        Steps whose bars are shown.
    label_names : int
        Names of variables in a label.
    same_seconds : float
        Clocks that are read together differ by less.
    network_nodes : int
        Networks with more nodes are drawn as communities, because the labels of more boxes are unreadable.
    communities : int
        Communities that are drawn; the smallest of more are one.
    bar_states : int
        States of a variable that are shown in its box.
    label_characters : int
        Characters of a label.
    log_ratio : float
        Axes and bars are logarithmic if the largest value is this many times the least.
    first_bound_ratio : float
        A bound is omitted from the axis if its distance from the others is this many times their range.
    table_rows : int
        Rows of a table on a page: some 100 kB.
    spans : int
        Tasks of a picture by time.
    sorted_rows : int
        Tables of fewer rows have no buttons to sort them.
    """

    bar_seconds: float = 0.5
    line_seconds: float = 10.0
    price_lines: int = 20
    largest_steps: int = 6
    slowest_steps: int = 5
    model_bars: int = 20
    listed_members: int = 40
    nested_objects: int = 8
    variable_bars: int = 60
    step_bars: int = 20
    label_names: int = 3
    same_seconds: float = 1e-4
    network_nodes: int = 256
    communities: int = 40
    bar_states: int = 6
    label_characters: int = 22
    log_ratio: float = 100.0
    first_bound_ratio: float = 20.0
    table_rows: int = 1_000
    spans: int = 2_000
    sorted_rows: int = 5
