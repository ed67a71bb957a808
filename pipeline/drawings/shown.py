"""Answers as labelled lines of text, wrapped and shortened.

Light, because answers are also built where nothing is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

# Members of a list, variables with bars, and bars of a chart that are shown.
LISTED_MEMBERS: Final = 40
# Seconds between two lines of progress, or two writes of metrics, where no terminal shows them.
LINE_SECONDS: Final = 10.0
# Largest steps of a plan, or slowest steps of a run, that are printed.
LISTED_STEPS: Final = 6
# Clocks that are read together differ by less.
SAME_SECONDS: Final = 1e-4


@dataclass(frozen=True)
class DisplayPolicy(Policy):
    """Numbers that keep output readable.

    Parameters
    ----------
    bar_seconds : float
        A progress bar is drawn after this many seconds; one for less would only flicker.
    network_nodes : int
        Networks with more nodes are drawn as communities, because the labels of more boxes are unreadable.
    communities : int
        Communities that are drawn; the smallest of more are one.
    table_rows : int
        Rows of a table on a page: some 100 kB.
    spans : int
        Tasks of a picture by time.
    """

    bar_seconds: float = 0.5
    network_nodes: int = 256
    communities: int = 40
    table_rows: int = 1_000
    spans: int = 2_000


#: Lines of an answer that a terminal, Python's ``repr`` and a notebook show.
MOST_LINES = 200
#: Columns of a line where no terminal says its width.
PIPE_COLUMNS = 100
# A column beside the labels is at least this wide, however narrow the terminal is.
_LEAST_COLUMNS = PIPE_COLUMNS // 5


class Shown:
    """An answer of labelled lines, in text and in notebooks."""

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled lines for a person."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """Yield all lines of the answer as text, wrapped at the terminal's width."""
        return aligned_lines(self.rows())

    def __repr__(self) -> str:
        return first_lines(self.lines())

    def _repr_html_(self) -> str:
        from .html import shown_rows

        return shown_rows([(label, first_words(text)) for label, text in self.rows()])


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """Return labelled lines as text, wrapped at the terminal's width."""
    return "\n".join(aligned_lines(rows))


def aligned_lines(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield labelled lines; a long text continues on further lines, indented under its beginning."""
    width = max((len(label) for label, _ in rows), default=0)
    for label, text in rows:
        yield from wrapped(f"{label:<{width}}  ", text)


def wrapped(lead: str, text: str) -> Iterator[str]:
    """Yield a text after its lead, broken at blanks; further lines are indented as wide as the lead."""
    room = max(terminal_columns() - len(lead), _LEAST_COLUMNS)
    line = ""
    for k, word in enumerate(text.split(" ")):
        if k and len(line) + 1 + len(word) > room:
            yield lead + line
            lead, line = " " * len(lead), word
        else:
            line = f"{line} {word}" if k else word
    yield lead + line


def terminal_columns() -> int:
    """Return the width of the terminal, or :data:`PIPE_COLUMNS` where standard output is a pipe or a file."""
    from shutil import get_terminal_size

    return get_terminal_size((PIPE_COLUMNS, 24)).columns


def first_lines(lines: Iterable[str], all_in: str = "to_dict() and to_json() give all") -> str:
    """Return lines as text: at most :data:`MOST_LINES`, then a line that says where all of them are."""
    return "\n".join(shortened(lines, all_in))


def shortened(lines: Iterable[str], all_in: str) -> Iterator[str]:
    """Yield at most :data:`MOST_LINES` lines, then a line that names the source of all lines."""
    each = iter(lines)
    yield from islice(each, MOST_LINES)
    if next(each, None) is not None:
        yield f"… shortened after {MOST_LINES} lines; {all_in}"


def first_words(text: str) -> str:
    """Return the words of a text that fit into :data:`MOST_LINES` lines of a pipe."""
    most = MOST_LINES * PIPE_COLUMNS
    return text if len(text) <= most else f"{text[:most].rpartition(' ')[0]} … shortened; to_dict() gives all"
