"""Data frames, for answers that have rows."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ...cluster.version import install_hint
from ..models.model import Model


def imported_pandas() -> Any:
    """Return pandas.

    Raises
    ------
    ImportError
        If it is not installed; the extra ``frames`` brings it.
    """
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise ImportError(f"data frames need pandas: {install_hint('frames')}") from None
    return pandas


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
