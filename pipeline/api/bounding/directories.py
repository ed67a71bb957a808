"""Run directories of answers that no plan stands for: kept, found again, and where their layers may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from ....storage.files import file_bytes, free_bytes
from ....storage.folders.rundir import LAYERS, RunDir
from ....storage.folders.scratch import scratch_folder
from ...errors import StoppedError
from ...models.model import Model
from ...options import Effort, Options
from ...results.result import Result
from ...results.stored import answered_before, is_confirmed
from ..questions import Question
from ..workdir import check_identity, identity, opened

if TYPE_CHECKING:
    from ...bounds.stored.row_files import Finished, RowFiles

# What is free is for others too, where nothing is said.
_PART = 2


def keep_question(rundir: RunDir, question: Question, options: Options, effort: Effort) -> None:
    """Check that a directory belongs to the question, and keep how it is asked, unless it holds the plan of a sweep.

    Raises
    ------
    IncompatibleRunError
        If it belongs to another run.
    """
    stored, identity = rundir.read_plan(), question.identity()
    if stored is not None:
        check_identity(rundir.path, stored, identity)
    if stored is None or stored["plan"] is None:
        asked = {**asdict(effort), "upper_bound": None if effort.upper_bound is None else str(effort.upper_bound)}
        how = {"effort": asked, "memory": options.memory, "seed": options.seed}
        rundir.write_plan({"identity": identity, "source": question.model.source, "plan": None, **how})


def kept(question: Question, options: Options, effort: Effort, find: Callable[[], Result]) -> Result:
    """Return the answer that a run directory holds, or find it and keep it there."""
    if options.folder is None:
        return find()
    with opened(options.folder) as rundir:
        keep_question(rundir, question, options, effort)
        known = rundir.read_result()
        if known is not None:
            before = answered_before(known, question.model, None, 0.0)
            if is_confirmed(before, question.model, question.hard):
                return before
        found = find()
        rundir.write_result(found.to_dict())
        return found


def row_files(options: Options, stack: ExitStack) -> RowFiles:
    """Return where layers may be: in the run directory, or where temporary files go until it is closed."""
    from ...bounds.stored.row_files import RowFiles

    def made() -> Path:
        if options.folder is None:
            return stack.enter_context(scratch_folder())
        (options.folder / LAYERS).mkdir(exist_ok=True)
        return options.folder / LAYERS

    lasting = options.folder is not None
    if options.disk_bytes is not None:
        return RowFiles(made, options.disk_bytes, lasting=lasting)
    there = 0 if options.folder is None else file_bytes(options.folder / LAYERS, "c.*")
    return RowFiles(made, there + free_bytes(options.folder or Path(gettempdir())) // _PART, lasting=lasting)


def finished_layers(folder: Path, files: Callable[[], RowFiles]) -> Finished | None:
    """Return the layers that an earlier search for the same optimum finished in its run directory, if any."""
    return files().finished() if (folder / LAYERS).is_dir() else None


@contextmanager
def bounds_directory(folder: Path | None, model: Model, query: str, hard: dict[int, int]) -> Iterator[None]:
    """Use a run directory for bounds on one question, if there is one.

    Raises
    ------
    IncompatibleRunError
        If it belongs to another question, or cannot be used.
    StoppedError
        Where Ctrl-C or a full disk ended it.
    """
    if folder is None:
        yield
        return
    with opened(folder) as rundir:
        wanted, stored = {**identity(model, query, hard), "query": f"bounds on the {query}"}, rundir.read_plan()
        if stored is None:
            rundir.write_plan({"identity": wanted, "source": model.source, "plan": None})
        else:
            check_identity(folder, stored, wanted)
        try:
            yield
        except KeyboardInterrupt:
            raise StoppedError(f"stopped; ask the same again with --workdir {folder} to go on") from None
