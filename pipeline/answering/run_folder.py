"""Run directories as the user sees them: opened for one run, taken up again only by the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...cluster.version import __version__
from ...storage.faults import DiskFullError, StorageError, UnreachableError
from ...storage.files import Place, file_bytes, free_bytes
from ...storage.locks import scratch_folder
from ...storage.object_store import ObjectPath
from ...tasks.gpu.memory import is_short
from ...tasks.steps.light_dataclass import dataclass
from ..errors import BudgetError, IncompatibleRunError, StoppedError, format_bytes
from ..options import Options, ProofOptions
from ..plans.plan import Plan
from ..results.result import Result, answered_before, is_confirmed
from .question import Question

if TYPE_CHECKING:
    from ...storage.run_folder import RunDir
    from ..proofs.provers.layer_files import Finished, RowFiles


def run_plan(folder: Place) -> dict[str, Any]:
    """Return the stored plan of a run directory.

    Raises
    ------
    IncompatibleRunError
        If it is not a run directory.
    """
    from ...storage.run_folder import stored_plan

    try:
        return stored_plan(folder)
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None


def check_identity(path: Place, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a directory that belongs to another run.

    Raises
    ------
    IncompatibleRunError
        Naming what differs.
    """
    found = stored.get("identity", {})
    for name, value in wanted.items():
        if found.get(name) != value:
            raise IncompatibleRunError(
                f"{path} belongs to another run: its {name} is {_short(found.get(name))}, this one's is "
                f"{_short(value)}; use another --workdir"
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def check_space(path: Place, plan: Plan, done_bytes: int) -> None:
    """Refuse a plan whose tables do not fit the file system.

    Raises
    ------
    BudgetError
        With both numbers.
    """
    assert plan.spill is not None
    check_room(path, plan.spill.disk_bytes - done_bytes)


def check_room(path: Place, needed: int) -> None:
    """Refuse to need more bytes than a file system has left.

    Raises
    ------
    BudgetError
        With both numbers.
    """
    free = free_bytes(path)
    if needed > free:
        raise BudgetError(
            f"the tables of the plan need {format_bytes(needed)} more in {path}, which has {format_bytes(free)} "
            "left; try a larger --memory, another --workdir, or --fit slice"
        )


def used_bytes(path: Place) -> int:
    """Return the bytes of all files below a folder."""
    return file_bytes(path, "*")


@contextmanager
def opened(path: Place) -> Iterator[RunDir]:
    """Open a run directory and lock it; storage failures become errors that end as one sentence.

    Raises
    ------
    IncompatibleRunError
        If the folder cannot be used.
    StoppedError
        If the disk is full.
    """
    from ...storage.run_folder import RunDir

    try:
        rundir = RunDir(path)
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    with rundir.lock:  # a signal before a call of our own cannot skip the end of this block
        try:
            yield rundir
        except DiskFullError as error:
            raise _out_of_space(error, path) from None
        except UnreachableError as error:
            raise _unreachable(error, path) from None
        except StorageError as error:
            raise IncompatibleRunError(str(error)) from None


@contextmanager
def resumable(path: Place | None) -> Iterator[None]:
    """Turn what stops a run into an error that says how to go on; ``path`` is its run directory, if it has one."""
    try:
        yield
    except DiskFullError as error:
        raise _out_of_space(error, path) from None
    except UnreachableError as error:
        raise _unreachable(error, path) from None
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    except MemoryError as error:
        if path is None or not is_short(error):
            raise
        raise StoppedError(
            f"the device ran out of memory ({error}); continue without it: bucketflow resume {path}"
        ) from None
    except KeyboardInterrupt:
        if path is None:
            raise
        raise StoppedError(f"stopped; continue with: bucketflow resume {path}") from None


def _out_of_space(error: DiskFullError, path: Place | None) -> StoppedError:
    """Say what to do next; a run can be resumed once its plan was kept."""
    if path is None:
        return StoppedError(f"{error}; free some space; with a --workdir, finished chunks are kept")
    if (path / "plan.json").exists():
        return StoppedError(f"{error}; finished chunks are kept: free some space and resume {path}")
    return StoppedError(f"{error}; free some space and repeat the query")


def _unreachable(error: UnreachableError, path: Place | None) -> StoppedError:
    """Say what to do once the object store answers again."""
    return StoppedError(f"{error}; finished chunks are kept: once the store answers, bucketflow resume {path}")


# Where the layers of a search may be, and run directories of bounds.

# By default other programs get the rest of the free disk.
_PART = 2


def row_files(options: Options, stack: ExitStack) -> RowFiles:
    """Return where layers may be: in the run directory, or where temporary files go until it is closed."""
    from tempfile import gettempdir

    from ...storage.run_folder import LAYERS
    from ..proofs.provers.layer_files import RowFiles

    # layers are read row by row, which takes a request each in an object store: there they do not outlive the process
    folder = None if isinstance(options.folder, ObjectPath) else options.folder

    def made() -> Path:
        if folder is None:
            return stack.enter_context(scratch_folder())
        (folder / LAYERS).mkdir(exist_ok=True)
        return folder / LAYERS

    lasting = folder is not None
    if options.disk_bytes is not None:
        return RowFiles(made, options.disk_bytes, lasting=lasting)
    there = 0 if folder is None else file_bytes(folder / LAYERS, "c.*")
    return RowFiles(made, there + free_bytes(folder or Path(gettempdir())) // _PART, lasting=lasting)


def finished_layers(folder: Place, files: Callable[[], RowFiles]) -> Finished | None:
    """Return the layers that an earlier search for the same optimum finished in its run directory, if any."""
    from ...storage.run_folder import LAYERS

    return files().finished() if isinstance(folder, Path) and (folder / LAYERS).is_dir() else None


@contextmanager
def bounds_directory(folder: Place | None, question: Question) -> Iterator[None]:
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
        wanted = {**question.identity(), "query": f"bounds on the {question.query}"}
        stored = rundir.read_plan()
        if stored is None:
            rundir.write_plan({"identity": wanted, "source": question.model.source, "plan": None}, __version__)
        else:
            check_identity(folder, stored, wanted)
        try:
            yield
        except KeyboardInterrupt:
            raise StoppedError(f"stopped; repeat the query with --workdir {folder} to continue") from None


# The one place where an answer in a run directory is found again.

# Seconds between two writings of bounds that improve.
_OFTEN = 1.0


@dataclass
class RunFolder:
    """A run directory that is open for one question.

    Parameters
    ----------
    rundir : RunDir
    question : Question

    Raises
    ------
    IncompatibleRunError
        If it belongs to another question.
    """

    rundir: RunDir
    question: Question
    written: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if (stored := self.rundir.read_plan()) is not None:
            check_identity(self.rundir.path, stored, self.question.identity())

    @property
    def path(self) -> Place:
        """Where it is."""
        return self.rundir.path

    @property
    def is_used(self) -> bool:
        """Whether a run began here."""
        return self.rundir.read_plan() is not None

    @property
    def stored_plan(self) -> dict[str, Any] | None:
        """The stored facts of a sweep's plan."""
        stored = self.rundir.read_plan()
        plan: dict[str, Any] | None = stored and stored["plan"]
        return plan

    def answered(self, plan: Plan | None = None, plan_seconds: float = 0.0) -> Result | None:
        """Return the value that was found before, if it is confirmed on the model; marginals are computed again."""
        stored = None if self.question.asked is not None else self.rundir.read_result()
        if stored is None:
            return None
        before = answered_before(stored, self.question.model, plan, plan_seconds)
        return self.question.told(before) if is_confirmed(before, self.question.weighted, self.question.hard) else None

    def keep_question(self, options: Options, effort: ProofOptions) -> None:
        """Keep how the question is asked, unless the directory holds the plan of a sweep."""
        stored = self.rundir.read_plan()
        if stored is None or stored["plan"] is None:
            asked = {**asdict(effort), "upper_bound": None if effort.upper_bound is None else str(effort.upper_bound)}
            self._write_plan(None, effort=asked, memory=options.memory, seed=options.seed)

    def keep_plan(self, record: Mapping[str, Any] | None) -> None:
        """Keep the plan of a sweep."""
        self._write_plan(record)

    def _write_plan(self, record: Mapping[str, Any] | None, **how: Any) -> None:
        question = self.question
        told = {"identity": question.identity(), "source": question.model.source, "plan": record, **how}
        self.rundir.write_plan(told, __version__)

    def bounds(self) -> Mapping[str, Any] | None:
        """Return the bounds of an optimum that the last search stored."""
        return self.rundir.read_bounds()

    def improve(self, known: Callable[[], Result]) -> None:
        """Write bounds that have just improved, not too often."""
        if time.perf_counter() - self.written >= _OFTEN:
            self.write(known())

    def write(self, found: Result, *, final: bool = False) -> None:
        """Write what is known, or the answer."""
        write = self.rundir.write_result if final else self.rundir.write_bounds
        write(self.question.told(found).to_dict())
        self.written = time.perf_counter()


@contextmanager
def run_folder(question: Question, path: Place | None) -> Iterator[RunFolder | None]:
    """Open the run directory of a question; None where none is asked for.

    Raises
    ------
    IncompatibleRunError
        If the folder cannot be used, or belongs to another question.
    StoppedError
        If the disk is full.
    """
    if path is None:
        yield None
        return
    with opened(path) as rundir:
        yield RunFolder(rundir, question)
