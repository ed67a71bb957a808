"""Answers as JSON objects and as tables: rows under headings, for CSV files and for data frames of pandas.

The smallest answer, the evaluation of a given assignment, stands here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

from ...cluster.version import install_hint
from ...tasks.steps.light_dataclass import dataclass
from ..drawings.shown import Shown
from ..errors import MOST_NAMED, ModelError, printable, public, shown_number


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


@public
@dataclass(frozen=True, repr=False)
class Evaluation(Shown, Answered):
    """The value of an assignment on a model.

    Parameters
    ----------
    possible : bool
        Whether no function forbids it and its costs stay below ``top``.
    value : int, Decimal or None
        What it costs; None for probabilities, and where it is forbidden.
    log10 : float or None
        log10 of the product of all functions, minus infinity for 0; None for costs.
    forbidden_by : tuple of tuple of str
        The variables of each function that forbids it.
    top : int, Decimal or None
        The model's ``top``, if the total cost reaches it and the assignment is therefore forbidden.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.evaluate("satellite", bucketflow.solve("satellite").assignment)
    >>> found.possible, found.value
    (True, 49)
    """

    possible: bool
    value: int | Decimal | None
    log10: float | None
    forbidden_by: tuple[tuple[str, ...], ...] = ()
    top: int | Decimal | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain types, as ``--json`` prints it."""
        exact = {name: str(v) if isinstance(v := getattr(self, name), Decimal) else v for name in ("value", "top")}
        return {
            "query": "evaluation",
            "status": "ok" if self.possible else "infeasible",
            "value": exact["value"],
            "log10": self.log10 if self.possible else None,
            "forbidden_by": [list(names) for names in self.forbidden_by],
            **({} if self.top is None else {"top": exact["top"]}),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return it as labelled lines for a person."""
        rows = [("status", "possible" if self.possible else "forbidden")]
        if self.value is not None:
            rows.append(("value", str(self.value)))
        if self.possible and self.log10 is not None:
            rows.append(("log10", shown_number(self.log10)))
        named = ["{" + ", ".join(map(printable, names)) + "}" for names in self.forbidden_by[:MOST_NAMED]]
        if more := len(self.forbidden_by) - len(named):
            named.append(f"and {more:,} more")
        return rows + ([("by", " ".join(named))] if named else []) + self._top_rows()

    def _top_rows(self) -> list[tuple[str, str]]:
        return [] if self.top is None else [("top", f"its costs reach {self.top}")]
