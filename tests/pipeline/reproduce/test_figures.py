"""The published figures: all are shown as printed, and they are those of the public transcription."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bucketflow.pipeline.reproduce.comparison import ComparedRow, ComparedTable
from bucketflow.pipeline.reproduce.paper_tables import PAPERS, paper
from bucketflow.pipeline.reproduce.papers import published_tables

FIGURES = 2918
DATA = Path(os.environ.get("BUCKETFLOW_DATA", Path(__file__).parents[4] / "shared" / "data"))
TRANSCRIPTION = DATA / "answers" / "paper_figures.json"
# The transcription's tables, by how their names begin.
NAMES = {
    **{"000 Table I ": "cube I", "000 Table II ": "cube II", "000 Table III ": "cube III"},
    **{f"001 Table {n} ": f"gpudbe {n}" for n in (1, 2, 3, 5)},
    **{f"001 Table {n} ": f"gpube {n}" for n in range(6, 11)},
    **{"001 Fig. 10 ": "gpube text", "002 Tabella 2 ": "gottoli 2"},
    **{"003 Table I ": "bp-layout I", "003 Table II ": "bp-layout II"},
    **{"004 Table 4 ": "bp-regression 4", "004 text": "bp-regression text"},
}


def is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def test_every_published_number_is_shown() -> None:
    """Every number of every table stands in a column of theirs, or names its row, with all printed digits."""
    shown = 0
    for name in PAPERS:
        for table in paper(name).tables:
            rows = tuple(ComparedRow(row) for row in table.rows)
            compared = ComparedTable(table, rows)
            for row, cells in zip(rows, compared.under([*compared.columns]), strict=True):
                for column, value in row.row.published.items():
                    heading = column if column in compared.columns else f"theirs: {column}"
                    cell = cells[[*compared.columns].index(heading)]
                    if is_number(value):
                        assert float(cell.replace(",", "")) == value, (name, table.title, heading)
                        shown += 1
                    else:
                        assert cell == ("" if value is None else value)
    assert shown == FIGURES


def test_every_table_of_figures_belongs_to_a_paper() -> None:
    numbers = [is_number(cell) for each in published_tables().values() for row in each["rows"] for cell in row]
    assert sum(numbers) == FIGURES
    assert all(len(row) == len(each["columns"]) for each in published_tables().values() for row in each["rows"])
    assert set(NAMES.values()) == set(published_tables())


@pytest.mark.skipif(not TRANSCRIPTION.exists(), reason="no public transcription of the papers ($BUCKETFLOW_DATA)")
def test_figures_are_those_of_the_transcription() -> None:
    public = json.loads(TRANSCRIPTION.read_text(encoding="utf-8"))
    assert len(public) == len(NAMES)
    compared = 0
    for key, value in public.items():
        (name,) = (name for start, name in NAMES.items() if f"{key} ".startswith(start) or key == start)
        ours = published_tables()[name]["rows"]
        theirs = [*rows_of(value)]
        assert ours == theirs, key
        compared += sum(is_number(cell) for row in ours for cell in row)
    assert compared == FIGURES


def rows_of(table: Any) -> Iterator[list[Any]]:
    """Rows of a table of the transcription: records, columns by instance, instances by column, or statements."""
    if isinstance(table, list):
        yield from ([*row.values()] for row in table)
    elif not all(isinstance(each, Mapping) for each in table.values()):
        for statement, value in table.items():
            parts = value.items() if isinstance(value, Mapping) else [("", value)]
            yield from ([f"{statement}: {part}" if part else statement, each] for part, each in parts)
    elif "Pigs" in table:
        yield from ([name.lower(), *row.values()] for name, row in table.items())
    else:
        instances = dict.fromkeys(name for column in table.values() for name in column)
        yield from ([name, *(column[name] for column in table.values())] for name in instances)
