"""How much is shown of long things, on terminals and on pages. Pure."""

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
    price_lines : int
        Lines of the table of prices, one for all rows that are alike.
    largest_steps : int
        Largest steps of a plan that are printed.
    line_characters : int
        Most characters of a line with a label.
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
    """

    bar_seconds: float = 0.5
    price_lines: int = 20
    largest_steps: int = 6
    line_characters: int = 400
    slowest_steps: int = 5
    model_bars: int = 20
    listed_members: int = 40
    nested_objects: int = 8
    variable_bars: int = 60
    step_bars: int = 20
    label_names: int = 3
    same_seconds: float = 1e-4
