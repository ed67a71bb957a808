"""Answers that no plan stands for, in run directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...results.result import Result
from ..questions import Question
from ..workdir import check_identity, opened


def kept(question: Question, folder: Path | None, find: Callable[[dict[str, Any] | None], Result]) -> Result:
    """Find an answer, given what a run directory knows of it, and keep it there."""
    if folder is None:
        return find(None)
    with opened(folder) as rundir:
        stored, identity = rundir.read_plan(), question.identity()
        if stored is not None:
            check_identity(folder, stored, identity)
        else:
            rundir.write_plan({"identity": identity, "source": question.model.source, "plan": None})
        found = find(rundir.read_result())
        rundir.write_result(found.to_dict())
        return found
