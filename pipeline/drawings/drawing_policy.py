"""How much pictures show, and how large. Pure."""

from __future__ import annotations

from ...tasks.steps.policy import Policy
from ...values import dataclass


@dataclass(frozen=True)
class DrawingPolicy(Policy):
    """Numbers that keep pictures readable, and pages small.

    Parameters
    ----------
    network_nodes : int
        Networks of more nodes are drawn as communities: beyond some hundred boxes nobody reads a label.
    communities : int
        Communities that are drawn; the smallest of more are one.
    bar_states : int
        States of a variable that are shown in its box.
    label_characters : int
        Characters of a label.
    log_ratio : float
        Axes and bars whose largest value is so many times the least are logarithmic.
    first_bound_ratio : float
        A bound that is so many times the width of all others from them is left out of the axis.
    table_rows : int
        Rows of a table on a page: some 100 kB.
    spans : int
        Tasks of a picture by time.
    sorted_rows : int
        Tables of fewer rows have no buttons to sort them.
    """

    network_nodes: int = 120
    communities: int = 40
    bar_states: int = 6
    label_characters: int = 22
    log_ratio: float = 100.0
    first_bound_ratio: float = 20.0
    table_rows: int = 1_000
    spans: int = 2_000
    sorted_rows: int = 5
