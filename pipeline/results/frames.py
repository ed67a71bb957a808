"""Data frames, for answers that have rows."""

from __future__ import annotations

from typing import Any

from ...cluster.version import install_hint


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
