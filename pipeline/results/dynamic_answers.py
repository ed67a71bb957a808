"""Answers about dynamic networks: posteriors and states with an axis of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..models.frames import imported_pandas
from ..models.model import Model
from ..public_names import public
from .case_posteriors import CaseMarginals
from .samples import labelled_frame

Array = NDArray[Any]


@public
@dataclass(frozen=True, eq=False, repr=False)
class StepMarginals(CaseMarginals):
    """Posteriors of the variables of a slice, at each of some steps: arrays with an axis ``step``.

    Parameters
    ----------
    model : Model
        A slice: names and states.
    tables : dict of str to ndarray, shape (steps, states)
        All zeros for a step that is impossible.
    log10_evidence : ndarray, shape (steps,)
        log10 of the probability of the findings that the step's posteriors are conditioned on; -inf if they are
        impossible.
    impossible_step : int or None
        The first step whose observations are impossible given those before it.
    told : tuple of str
        Notes.

    Examples
    --------
    >>> import bucketflow
    >>> first = bucketflow.Model.build("bayes", {"rain": 2}, [(["rain"], [0.8, 0.2])])
    >>> change = (["rain_prev", "rain"], [[0.9, 0.1], [0.3, 0.7]])
    >>> later = bucketflow.Model.build("bayes", {"rain_prev": 2, "rain": 2}, [(["rain_prev"], [0.5, 0.5]), change])
    >>> found = bucketflow.dynamic(first, later).smoothed({"rain": [None, None, 1]})
    >>> found["rain"].round(3).tolist()
    [[0.552, 0.448], [0.336, 0.664], [0.0, 1.0]]
    """

    impossible_step: int | None = None
    told: tuple[str, ...] = ()
    _ROW: ClassVar[str] = "step"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the caller, one sentence each."""
        return self.told

    def to_frame(self) -> Any:
        """Return a pandas data frame, a row for each step and a column for each state, named ``variable=state``.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        columns = {
            f"{name}={self.model.label(v, s)}": table[:, s]
            for name, table in self.items()
            for v in [self.model.index[name]]
            for s in range(self.model.dims[v])
        }
        return imported_pandas().DataFrame(columns)


@public
@dataclass(frozen=True, eq=False)
class StatePath:
    """The most likely states of all variables at all steps.

    Parameters
    ----------
    model : Model
        A slice: names and states.
    states : ndarray of int, shape (steps, variables)
        State indices; no row where what is observed is impossible.
    log10 : float
        log10 of the joint probability of these states and the findings; -inf if it is 0.
    impossible_step : int or None
        The first step whose observations are impossible given those before it.
    notes : tuple of str

    Examples
    --------
    >>> import bucketflow
    >>> first = bucketflow.Model.build("bayes", {"rain": 2}, [(["rain"], [0.8, 0.2])])
    >>> change = (["rain_prev", "rain"], [[0.9, 0.1], [0.3, 0.7]])
    >>> later = bucketflow.Model.build("bayes", {"rain_prev": 2, "rain": 2}, [(["rain_prev"], [0.5, 0.5]), change])
    >>> bucketflow.dynamic(first, later).path({"rain": [None, None, 1]}).states.tolist()
    [[1], [1], [1]]
    """

    model: Model
    states: Array
    log10: float
    impossible_step: int | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, name: str) -> Array:
        """Return the state indices of one variable, by its name; :meth:`to_frame` has their labels."""
        if name not in self.model.index:
            raise ModelError(f"{name!r} is not a variable of a slice")
        return np.asarray(self.states[:, self.model.index[name]])

    def to_frame(self) -> Any:
        """Return a pandas data frame, a row for each step; states with labels are categories.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        return labelled_frame(self.model, self.states)
