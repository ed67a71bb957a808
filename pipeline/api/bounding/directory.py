"""Answers that no plan stands for, in run directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...results.result import Result, answered_before, is_confirmed
from ..questions import Question
from ..workdir import check_identity, opened


def kept(question: Question, folder: Path | None, find: Callable[[], Result]) -> Result:
    """Return the answer that a run directory holds, or find it and keep it there."""
    if folder is None:
        return find()
    with opened(folder) as rundir:
        stored, identity = rundir.read_plan(), question.identity()
        if stored is not None:
            check_identity(folder, stored, identity)
        else:
            rundir.write_plan({"identity": identity, "source": question.model.source, "plan": None})
        known = rundir.read_result()
        if known is not None:
            before = answered_before(known, question.model, None, 0.0)
            if is_confirmed(before, question.model, question.hard):
                return before
        found = find()
        rundir.write_result(found.to_dict())
        return found
