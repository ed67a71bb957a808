"""A question of a batch: one row of its list, and what it is known by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import file_digest, sha256
from os.path import isfile
from pathlib import Path
from typing import Any

from ... import __version__
from ..errors import FormatError


@dataclass(frozen=True)
class Row:
    """A question.

    Parameters
    ----------
    number : int
        In the list, from 1.
    name : str
        What the list calls it.
    model : str
        Path of the file.
    query : str
    evidence : str, mapping or None
        A file, ``x=v`` pairs, or name → state (or likelihoods, for marginals).
    memory : str or None
    order_time, time : float or None
        Seconds for the search of orders, and until an optimum is left between its bounds.
    priority : int
        Higher ones are answered first.
    problem : str
        What is wrong with the row itself; it is not asked then.
    """

    number: int
    name: str
    model: str
    query: str = "optimum"
    evidence: str | Mapping[str, Any] | None = None
    memory: str | None = None
    order_time: float | None = None
    time: float | None = None
    priority: int = 0
    problem: str = ""

    @property
    def settings(self) -> tuple[str, str | None, float | None, float | None]:
        """What rows have to agree in to share a tree."""
        return self.query, self.memory, self.order_time, self.time

    def shown_evidence(self) -> str:
        """Return the evidence as text."""
        if self.evidence is None:
            return ""
        return self.evidence if isinstance(self.evidence, str) else json.dumps(self.evidence)

    def key(self) -> str:
        """Return a hash of all that the answer depends on: bytes of the model, evidence, options, our version.

        Raises
        ------
        FormatError
            If a file cannot be read.
        """
        evidence = self.evidence
        if isinstance(evidence, str) and isfile(evidence):
            evidence = hash_of(evidence)
        asked = [__version__, hash_of(self.model), self.query, evidence, self.memory, self.order_time, self.time]
        return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def wrong(self, problem: str) -> Row:
        """The row with what is wrong with it."""
        return replace(self, problem=problem)


def hash_of(path: str) -> str:
    """Return a hash of a file's bytes, read again where the file was touched.

    Raises
    ------
    FormatError
        If it cannot be read.
    """
    try:
        status = Path(path).stat()
        return _hashed(path, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError) as error:  # a NUL in a name is a ValueError
        raise FormatError(path, None, "a file", getattr(error, "strerror", None) or str(error)) from None


@lru_cache(maxsize=100_000)
def _hashed(path: str, mtime_ns: int, size: int) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()
