"""What a sweep by rows took, as part of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

from ..text import format_bytes


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
