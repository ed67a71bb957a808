"""What a search for an optimum leaves in its run directory: bounds while it runs, and its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .....storage.folders.rundir import RunDir
from ....options import Effort, Options
from ....results.result import Result
from ....results.stored import answered_before, is_confirmed
from ...questions import Question
from ..directories import keep_question

# Seconds between two writings of bounds that improve.
_OFTEN = 1.0


@dataclass
class Kept:
    """A run directory that is open for a search."""

    rundir: RunDir
    written: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, rundir: RunDir, question: Question, options: Options, effort: Effort) -> Kept:
        """Check that a directory belongs to the question, and keep how it is asked.

        Raises
        ------
        IncompatibleRunError
            If it belongs to another run.
        """
        keep_question(rundir, question, options, effort)
        return cls(rundir)

    def answer(self, question: Question) -> Result | None:
        """Return the answer that was found before, if it is confirmed."""
        known = self.rundir.read_result()
        if known is None:
            return None
        before = answered_before(known, question.model, None, 0.0)
        return before if is_confirmed(before, question.model, question.hard) else None

    def bounds(self) -> Mapping[str, Any] | None:
        """Return what was known when the last search ended."""
        return self.rundir.read_bounds()

    def improve(self, known: Callable[[], Result]) -> None:
        """Write bounds that have just improved, not too often."""
        if time.perf_counter() - self.written >= _OFTEN:
            self.write(known())

    def write(self, found: Result, *, final: bool = False) -> None:
        """Write what is known, or the answer."""
        write = self.rundir.write_result if final else self.rundir.write_bounds
        write(found.to_dict())
        self.written = time.perf_counter()
