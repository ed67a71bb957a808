"""Data frames of assignments."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..models.frames import imported_pandas
from ..models.model import Model


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
