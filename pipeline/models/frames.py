"""Answers as tables: rows under headings, for files of commas and for data frames of pandas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from ...cluster.version import install_hint
from ..errors import ModelError


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


def need_pyarrow(what: str = "writing") -> None:
    """Refuse to read or write Parquet without pyarrow.

    Raises
    ------
    ModelError
        If it is not installed; the extra ``frames`` brings it.
    """
    if find_spec("pyarrow") is None:
        raise ModelError(f"{what} .parquet needs pyarrow ({install_hint('frames')}); or use .csv or .jsonl")


class Answered:
    """An answer that is plain types, and so a JSON object."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return :meth:`to_dict` as one line of JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


class Tabled(Answered):
    """An answer that is a table."""

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield the headings, then the cells of each row."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """Return :meth:`cells` as a pandas data frame.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        pandas = imported_pandas()
        headings, *rows = self.cells()
        return pandas.DataFrame(rows, columns=list(headings))
