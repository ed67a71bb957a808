"""Answers that no plan stands for in run directories, and room on disk for what they take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from ....storage.files import free_bytes
from ....storage.scratch import scratch_folder
from ...options import Options
from ...results.result import Result, answered_before, is_confirmed
from ...runs.slices import TABLES
from ..questions import Question
from ..workdir import check_identity, opened

if TYPE_CHECKING:
    from ...bounds.stored.row_files import RowFiles

# What is free is for others too, where nothing is said.
_PART = 2


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


def row_files(options: Options, stack: ExitStack) -> RowFiles:
    """Return where layers may be: below the run directory or where temporary files go, until it is closed."""
    from ...bounds.stored.row_files import RowFiles

    def made() -> Path:
        parent = None if options.folder is None else options.folder / TABLES
        if parent is not None:
            parent.mkdir(exist_ok=True)
        return stack.enter_context(scratch_folder(parent))

    free = free_bytes(options.folder or Path(gettempdir())) // _PART
    return RowFiles(made, free if options.disk_bytes is None else options.disk_bytes)
