"""What shows itself as labelled lines. Light: answers are made where nobody looks at them. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class Shown:
    """What shows itself as labelled lines, in text and in notebooks."""

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled lines for a person."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return aligned(self.rows())

    def _repr_html_(self) -> str:
        from .html import shown_rows

        return shown_rows(self.rows())


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """Return labelled lines as text."""
    width = max((len(label) for label, _ in rows), default=0)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)
