"""Which variables a file counts assignments of, where these are not all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Projection:
    """Variables whose assignments alone are counted or summed over: the others need only some state.

    Parameters
    ----------
    variables : tuple of int
    told : str
        File, line and words that say so.
    """

    variables: tuple[int, ...]
    told: str
