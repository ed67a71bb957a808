"""Independent draws of all variables, as an array of states and as data frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawings.shown import Shown
from ..errors import format_bytes, public
from ..models.frames import Answered, imported_pandas
from ..models.model import Model
from .proof import AskedOf, plan_dict, shown_assignment

if TYPE_CHECKING:
    from ..plans.plan import Plan


def labelled_frame(model: Model, states: NDArray[Any]) -> Any:
    """Return a data frame of states, shape (rows, variables); those with labels are categories."""
    pandas = imported_pandas()
    labelled = zip(model.own_names, model.states, states.T, strict=False)
    return pandas.DataFrame(
        {
            name: column if labels is None else pandas.Categorical.from_codes(column, list(labels))
            for name, labels, column in labelled
        }
    )


# Draws that are shown to a person.
_SHOWN_DRAWS = 3


@public
@dataclass(frozen=True, repr=False)
class Samples(Shown, Answered):
    """Independent draws from a distribution over the assignments of a model.

    Parameters
    ----------
    model : Model
    states : ndarray of int, shape (draws, variables)
        State indices of each draw; variables in the order of :attr:`names`.
    seed : int
        Of the draws; the same seed and plan give the same.
    tried : int
        Draws that were made; more than there are where totals that reach ``top`` were thrown away.
    temperature : float or None
        Of a cost network; None for probabilities.
    plan : Plan or None
        What was swept; None where nothing was left to eliminate.
    seconds : dict of str to float
        Wall seconds of ``plan`` and ``run``.
    peak_rss_bytes : int
    notes : tuple of str
    written : int
        Draws that are in a file instead.
    upper_bound : number or None
        That all are at least as good as, where one was given.
    asked : AskedOf or None
        The model and the evidence that were asked.

    Examples
    --------
    >>> import bucketflow
    >>> draws = bucketflow.sample("diagnosis", 5, seed=1)
    >>> draws.states.shape, draws["Storm"].shape
    ((5, 26), (5,))
    """

    model: Model
    states: NDArray[np.integer[Any]]
    seed: int
    tried: int
    temperature: float | None = None
    plan: Plan | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    notes: tuple[str, ...] = ()
    written: int = 0
    upper_bound: float | int | str | None = None
    asked: AskedOf | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables, in the order of the columns."""
        return self.model.names[: self.states.shape[1]]

    @property
    def count(self) -> int:
        """How many were drawn, here or into a file."""
        return len(self) + self.written

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, name: str) -> NDArray[np.integer[Any]]:
        """Return the states of one variable, by its name."""
        return self.states[:, self.model.variable(name)]

    def assignments(self) -> list[dict[str, str | int]]:
        """Return each draw by names of variables and labels of states."""
        return [self.model.shown(row) for row in self.states.tolist()]

    def to_frame(self) -> Any:
        """Return a pandas data frame, a row for each draw; states with labels are categories.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        return labelled_frame(self.model, self.states)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts of the draws as plain types, as ``--json`` prints them, without the draws."""
        return {
            "query": "sample",
            "status": "ok",
            "samples": self.count,
            "tried": self.tried,
            "seed": self.seed,
            "variables": len(self.names),
            **({} if self.temperature is None else {"temperature": str(self.temperature)}),
            **({} if self.upper_bound is None else {"upper_bound": str(self.upper_bound)}),
            "plan": plan_dict(self.plan),
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            "peak_rss_bytes": self.peak_rss_bytes,
            **({"notes": list(self.notes)} if self.notes else {}),
            **(self.asked.to_dict() if self.asked else {}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled lines that describe the draws."""
        tried = "" if self.tried == self.count else f", of {self.tried:,} that were tried"
        rows = [("samples", f"{self.count:,} of {len(self.names):,} variables, seed {self.seed}{tried}")]
        if self.plan is not None:
            slices = f"{self.plan.slices} slice{'s' * (self.plan.slices != 1)}"
            rows.append(("plan", f"{slices}, peak {format_bytes(self.plan.peak_bytes)}"))
        if self.seconds:
            rows.append(("seconds", ", ".join(f"{k} {v:.3f}" for k, v in self.seconds.items())))
        for number, draw in enumerate(self.states[:_SHOWN_DRAWS].tolist(), 1):
            rows.append((f"draw {number}", shown_assignment(self.model.shown(draw))))
        if len(self) > _SHOWN_DRAWS:
            rows.append(("", f"… and {len(self) - _SHOWN_DRAWS:,} more draws; to_frame() gives all"))
        return [*rows, *(("note", text) for text in dict.fromkeys(self.notes))]
