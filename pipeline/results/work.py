"""What a sum on diagrams, a search or a sweep by rows took, as part of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

from ..text import format_bytes


@dataclass(frozen=True)
class DiagramWork:
    """How decision diagrams summed.

    Parameters
    ----------
    sums : int
        How many: a count takes one in floats and one for each prime.
    edges, nodes : int
        Edges of all diagrams of the first sum, and the nodes of the largest.
    error : float
        The sum in floats is off by at most this part of it.
    """

    sums: int
    edges: int
    nodes: int
    error: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {"method": "diagram", **vars(self)}


@dataclass(frozen=True)
class SearchWork:
    """How models of clauses were counted, or what they weigh was summed.

    Parameters
    ----------
    clauses : int
        That the model was turned into.
    nodes : int
        Decisions of the search that was through first.
    known : int
        Components that it had counted before.
    forgotten : int
        Components that had to make room for others.
    error : float
        The sum is off by at most this part of it, apart from the rounding of the logarithm; 0 for a count.
    """

    clauses: int
    nodes: int
    known: int
    forgotten: int
    error: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {"method": "search", **vars(self)}


@dataclass(frozen=True)
class RowsWork:
    """Tables that hold only what is possible.

    Parameters
    ----------
    why : str
        Why tables were rows.
    tables, dense : int
        Tables that steps made, and how many of them are arrays of all cells all the same, as those take fewer bytes.
    largest_rows, largest_cells : int
        Rows of the table of rows that has the most, and cells that it stands for.
    joined_rows : int
        Rows of all joins.
    written_bytes : int
        Chunks of tables that were written to disk.
    disk_bytes, most_disk_bytes : int
        What tables took there at a time, and what they might have as far as was known before.
    """

    why: str
    tables: int
    dense: int
    largest_rows: int
    largest_cells: int
    joined_rows: int
    written_bytes: int = 0
    disk_bytes: int = 0
    most_disk_bytes: int = 0

    @property
    def text(self) -> str:
        """One line for a person."""
        share = f"{self.largest_rows:,} of 2^{log2(self.largest_cells):.1f} cells" if self.largest_rows else "none"
        written = f", {format_bytes(self.written_bytes)} written to disk" if self.written_bytes else ""
        if self.disk_bytes:
            written += f", {format_bytes(self.disk_bytes)} at a time (<= {format_bytes(self.most_disk_bytes)} planned)"
        return f"{self.why}; largest table of rows {share}, {self.dense} of {self.tables} tables dense{written}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {**vars(self)}
