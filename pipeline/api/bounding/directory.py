"""Answers that no plan stands for, in run directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...results.result import Result
from ..questions import Question
from ..workdir import check_identity, opened


def kept(question: Question, folder: Path | None, find: Callable[[], Result]) -> Result:
    """Find an answer, and keep it in a run directory if there is one."""
    if folder is None:
        return find()
    with opened(folder) as rundir:
        stored, identity = rundir.read_plan(), question.identity()
        if stored is not None:
            check_identity(folder, stored, identity)
        else:
            rundir.write_plan({"identity": identity, "source": question.model.source, "plan": None})
        found = find()
        rundir.write_result(found.to_dict())
        return found
