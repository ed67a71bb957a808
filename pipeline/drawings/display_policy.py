"""How much is shown of long things, on terminals, on pages and in pictures. Pure."""

from __future__ import annotations

from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

# Members of a list, variables with bars, and bars of a chart that are shown.
LISTED_MEMBERS: Final = 40
# Seconds between two lines of progress, or two writes of metrics, where no terminal shows them.
LINE_SECONDS: Final = 10.0
# Largest steps of a plan, or slowest steps of a run, that are printed.
LISTED_STEPS: Final = 6
# Clocks that are read together differ by less.
SAME_SECONDS: Final = 1e-4
# Axes and bars are logarithmic if the largest value is this many times the least.
LOG_RATIO: Final = 100.0


@dataclass(frozen=True)
class DisplayPolicy(Policy):
    """Numbers that keep output readable.

    Parameters
    ----------
    bar_seconds : float
        A progress bar is drawn after this many seconds; one for less would only flicker.
    network_nodes : int
        Networks with more nodes are drawn as communities, because the labels of more boxes are unreadable.
    communities : int
        Communities that are drawn; the smallest of more are one.
    table_rows : int
        Rows of a table on a page: some 100 kB.
    spans : int
        Tasks of a picture by time.
    """

    bar_seconds: float = 0.5
    network_nodes: int = 256
    communities: int = 40
    table_rows: int = 1_000
    spans: int = 2_000
