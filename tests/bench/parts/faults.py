"""Faults while a run spills to disk, one at a time, each followed by a resume; see ``outofcore.py --faults``.

A trial is lost if the answer differs, or if a chunk that had a receipt was written again although nobody
damaged it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from parts.instances import grid_model
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[3]))

import bucketflow
from bucketflow.storage import ledger
from tests.pipeline.runs.sparse import ring

WIDTH, STATES, SHARE = 9, 4, 8
#: Groups of variables with so many joint states, and a budget in which their tables do not fit.
ROWS, _ROWS_BYTES = 250, 9_000_000
_ROWS: Any = {"representation": "rows", "memory": _ROWS_BYTES, "order_time": 0.2}
#: Makes a short plan worth a cluster.
DRIVER = (
    "import bucketflow.pipeline.answering.placement as a; a.TASK_SECONDS = 1e-4; "
    "from bucketflow.pipeline.cli.main import main; main()"
)
_PATIENCE = 180.0
_TMPFS_BYTES = 32 << 20


@dataclass(frozen=True)
class Case:
    """What every trial runs; ``options`` are those of the command line besides the budget, ``shows`` has the answer."""

    model: Path
    memory_bytes: int
    tasks: int
    receipts: int
    answer: Any
    options: tuple[str, ...] = ("--tree", "bucket", "--order-time", "0.2")
    title: str = "a run"
    command: str = "solve"
    shows: str = "value"


@dataclass
class Tally:
    """Outcomes of the trials of one kind of fault."""

    trials: int = 0
    right: int = 0
    damaged: int = 0
    recomputed: int = 0
    rewritten: int = 0
    seconds: float = 0.0
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """One run with a fault in it."""

    case: Case
    run: Path
    draw: random.Random

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start the run in the background."""
        command = [sys.executable, "-c", DRIVER, self.case.command, str(self.case.model), "--json", *self.case.options]
        command += ["--fit", "spill", "--memory", f"{self.case.memory_bytes}B"]
        command += ["--workdir", str(self.run), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def resume(self) -> subprocess.CompletedProcess[str]:
        """Continue the run to its end."""
        command = [sys.executable, "-m", "bucketflow", "resume", str(self.run), "--json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)

    def wait(self, process: subprocess.Popen[str]) -> None:
        """Wait until a random number of chunks is done, or the run ends."""
        wanted = self.draw.randrange(1, int(0.9 * self.case.receipts))
        deadline = time.monotonic() + _PATIENCE
        while process.poll() is None and time.monotonic() < deadline and self.lines() < wanted:
            time.sleep(0.005)

    def lines(self) -> int:
        """Count the receipts so far."""
        return sum(p.read_bytes().count(b"\n") for p in (self.run / "tables" / ledger.FOLDER).glob("*.jsonl"))

    def interrupt(self) -> None:
        """Kill the client at a random moment."""
        process = self.start()
        self.wait(process)
        process.kill()
        process.communicate()

    def finished(self) -> dict[Path, int]:
        """Return the chunk files that have receipts, with the time of their last change."""
        found = {}
        for table, chunk in ledger.load(self.run / "tables"):
            path = self.run / "tables" / table / ".".join(["c", *map(str, chunk)])
            if table != "result" and path.exists():
                found[path] = path.stat().st_mtime_ns
        return found

    def written(self) -> dict[Path, set[float]]:
        """Return when each chunk file was written that ever had a receipt, also those that were deleted since."""
        found: dict[Path, set[float]] = {}
        for _, receipt in ledger.history(self.run / "tables"):
            path = self.run / "tables" / receipt.table / ".".join(["c", *map(str, receipt.chunk)])
            found.setdefault(path, set()).add(receipt.ended)
        return found


Fault = Callable[[Trial], tuple[set[Path], subprocess.Popen[str] | None]]


def client_killed(trial: Trial) -> tuple[set[Path], None]:
    """Kill -9 of the client."""
    trial.interrupt()
    return set(), None


def _with_worker(trial: Trial, act: Callable[[psutil.Process], None]) -> tuple[set[Path], subprocess.Popen[str]]:
    """Do something to a worker of a run with two, which goes on."""
    process = trial.start("--workers", "2")
    trial.wait(process)
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    workers = [p for p in children if "spawn_main" in " ".join(p.cmdline())]
    if workers:
        act(trial.draw.choice(workers))
    return set(), process


def worker_killed(trial: Trial) -> tuple[set[Path], subprocess.Popen[str]]:
    """Kill -9 of one of two workers; the run goes on."""
    return _with_worker(trial, psutil.Process.kill)


def worker_stopped(trial: Trial) -> tuple[set[Path], subprocess.Popen[str]]:
    """Stop one of two workers for two seconds; the run goes on."""

    def act(worker: psutil.Process) -> None:
        worker.suspend()
        time.sleep(2)
        worker.resume()

    return _with_worker(trial, act)


def everything_killed(trial: Trial) -> tuple[set[Path], None]:
    """Kill -9 of the client and both workers."""
    process = trial.start("--workers", "2")
    trial.wait(process)
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    for victim in children:
        victim.kill()
    process.kill()
    process.communicate()
    return set(), None


def _chosen(trial: Trial) -> list[Path]:
    files = sorted(trial.finished())
    return trial.draw.sample(files, min(3, len(files)))


def chunk_corrupted(trial: Trial) -> tuple[set[Path], None]:
    """Kill, then flip a bit of three finished chunks."""
    trial.interrupt()
    chosen = _chosen(trial)
    for path in chosen:
        data = bytearray(path.read_bytes())
        data[trial.draw.randrange(len(data))] ^= 1 << trial.draw.randrange(8)
        path.write_bytes(bytes(data))
    return set(chosen), None


def chunk_deleted(trial: Trial) -> tuple[set[Path], None]:
    """Kill, then delete three finished chunks."""
    trial.interrupt()
    chosen = _chosen(trial)
    for path in chosen:
        path.unlink()
    return set(chosen), None


def all_corrupted(trial: Trial) -> tuple[set[Path], None]:
    """Let the run finish, damage all chunks, and ask again."""
    trial.start().communicate(timeout=_PATIENCE)
    chosen = list(trial.finished())
    for path in chosen:
        data = bytearray(path.read_bytes())
        path.write_bytes(bytes(b ^ 0x15 for b in data))
    return set(chosen), None


def disk_full(trial: Trial) -> tuple[set[Path], None]:
    """Fill the file system while the run goes on; then make room again."""
    process = trial.start()
    trial.wait(process)
    ballast = trial.run.parent / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * (1 << 16)):
                pass
        except OSError:
            pass
    _, err = process.communicate(timeout=_PATIENCE)
    ballast.unlink()
    if process.returncode not in (0, 4):
        raise RuntimeError(f"exit code {process.returncode} on a full disk: {err.strip()[-200:]}")
    return set(), None


def read_only(trial: Trial) -> tuple[set[Path], None]:
    """Kill, resume on a read-only file system, which must be refused, and make it writable again."""
    trial.interrupt()
    _mount("remount,ro", trial.run.parent)
    try:
        found = trial.resume()
    finally:
        _mount("remount,rw", trial.run.parent)
    if found.returncode == 0 or "Traceback" in found.stderr:
        raise RuntimeError(f"exit code {found.returncode} on a read-only disk: {found.stderr.strip()[-200:]}")
    return set(), None


def clock_moved(trial: Trial) -> tuple[set[Path], None]:
    """Kill twice; between and after, move the times of all ledgers by up to a year either way."""
    for _ in range(2):
        trial.interrupt()
        for path in (trial.run / "tables" / ledger.FOLDER).glob("*.jsonl"):
            moved = time.time() + trial.draw.uniform(-3e7, 3e7)
            os.utime(path, (moved, moved))
    return set(), None


FAULTS: Mapping[str, tuple[Fault, bool]] = {
    "client killed": (client_killed, False),
    "worker killed": (worker_killed, False),
    "worker stopped": (worker_stopped, False),
    "everything killed": (everything_killed, False),
    "chunks corrupted": (chunk_corrupted, False),
    "chunks deleted": (chunk_deleted, False),
    "all corrupted at the end": (all_corrupted, False),
    "disk full": (disk_full, True),
    "read-only": (read_only, True),
    "clock moved": (clock_moved, False),
}
"""Kinds of faults; whether each needs a file system of its own."""

_WITH_WORKERS = ("worker killed", "worker stopped", "everything killed")


def _mount(options: str, folder: Path) -> None:
    subprocess.run(["mount", "-o", options, str(folder)], check=True, capture_output=True)


@contextmanager
def working_folder(own: bool) -> Iterator[Path]:
    """Yield a new folder, on a small file system of its own if asked for."""
    with TemporaryDirectory(prefix="bucketflow-") as folder:
        if not own:
            yield Path(folder)
            return
        command = ["mount", "-t", "tmpfs", "-o", f"size={_TMPFS_BYTES}", "none", folder]
        subprocess.run(command, check=True, capture_output=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def attempt(case: Case, name: str, seed: int, tally: Tally) -> None:
    """Run one trial and add it to the tally."""
    fault, own = FAULTS[name]
    with working_folder(own) as folder:
        trial = Trial(case, folder / "run", random.Random(seed))
        start = time.perf_counter()
        tally.trials += 1
        try:
            damaged, process = fault(trial)
            before = {path: at for path, at in trial.finished().items() if path not in damaged}
            times = trial.written()
            spoilt = {path: path.stat().st_mtime_ns if path.exists() else 0 for path in damaged}
            answer, remark = _outcome(trial, process)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            tally.remarks.append(str(error))
            return
        after, later = trial.finished(), trial.written()
        changed = sum(after[path] != at if path in after else later[path] != times[path] for path, at in before.items())
        tally.seconds += time.perf_counter() - start
        tally.damaged += len(damaged)
        tally.recomputed += sum(after.get(path, at) != at for path, at in spoilt.items())
        tally.rewritten += changed
        tally.right += answer == case.answer
        if answer != case.answer:
            tally.remarks.append(remark or f"answer {str(answer)[:100]}")


def _outcome(trial: Trial, process: subprocess.Popen[str] | None) -> tuple[Any, str]:
    """Wait for a run that goes on, or resume one that does not; return its answer and what it complained of."""
    if process is not None:
        out, err = process.communicate(timeout=_PATIENCE)
        code = process.returncode
    else:
        found = trial.resume()
        out, err, code = found.stdout, found.stderr, found.returncode
    return (json.loads(out)[trial.case.shows] if code == 0 else None), err.strip()[-200:]


def make_case(folder: Path) -> Case:
    """Write the model and solve it in memory."""
    model = grid_model(WIDTH, WIDTH, STATES)
    path = folder / "grid.wcsp"
    bucketflow.save(model, path)
    whole = bucketflow.plan(model, tree="bucket", order_time=0.2)
    assert whole is not None
    memory = whole.peak_bytes // SHARE + (1 << 20)
    plan = bucketflow.plan(model, tree="bucket", fit="spill", memory=memory, order_time=0.2)
    assert plan is not None
    assert plan.spill is not None
    spill = plan.spill
    receipts = sum(prod(spill.dims[v] for v in s.chunked) for s in spill.stages[:-1]) + spill.boxes(spill.stages[-1])
    return Case(path, memory, spill.tasks, receipts, bucketflow.solve(model).value)


def make_rows_case(folder: Path) -> Case:
    """Write a model of functions by rows, and solve it with tables of rows on disk."""
    path, run = _ring(folder), folder / "whole"
    found = bucketflow.solve(bucketflow.load(path), fit="spill", workdir=run, **_ROWS)
    return _rows_case(path, run, found.value, "a run by rows")


def make_rows_gpu_case(folder: Path) -> Case:
    """The same through a GPU, which may take as little."""
    case = make_rows_case(folder)
    return replace(case, options=(*case.options, "--gpus", "1"), title="a run by rows through a GPU")


def make_rows_marginals_case(folder: Path) -> Case:
    """The same for least costs of every state."""
    path, run = _ring(folder), folder / "whole"
    found = bucketflow.marginals(bucketflow.load(path), max_marginals=True, fit="spill", workdir=run, **_ROWS)
    case = _rows_case(path, run, found.to_dict()["marginals"], "marginals by rows")
    return replace(case, command="marginals", options=(*case.options, "--max-marginals"), shows="marginals")


def _ring(folder: Path) -> Path:
    bucketflow.save(ring(ROWS, groups=4), folder / "ring.wcsp")
    return folder / "ring.wcsp"


def _rows_case(path: Path, run: Path, answer: Any, title: str) -> Case:
    receipts = ledger.load(run / "tables")
    boxes = [key for key in receipts if not key[0].endswith(("_keys", "_values"))]
    how = ("--representation", "rows", "--order-time", "0.2")
    return Case(path, _ROWS_BYTES, len(boxes), len(receipts), answer, how, title)


CASES: Mapping[str, Callable[[Path], Case]] = {
    "dense": make_case,
    "rows": make_rows_case,
    "rows on a GPU": make_rows_gpu_case,
    "marginals by rows": make_rows_marginals_case,
}


def can_mount() -> bool:
    """Whether this process may mount file systems of its own."""
    try:
        with working_folder(own=True):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def run_faults(trials: int, kind: str = "dense", first: int = 0, jobs: int = 1) -> Table:
    """Run trials of every kind of fault and lay out what happened.

    Parameters
    ----------
    first : int
        The number of the first trial, from which its random moments follow.
    jobs : int
        Kinds at the same time.
    """
    with TemporaryDirectory(prefix="bucketflow-") as folder:
        case = CASES[kind](Path(folder))
        left_out = _WITH_WORKERS if "--gpus" in case.options else ()  # every GPU has a worker of its own
        mounts = can_mount()
        names = [name for name, (_, own) in FAULTS.items() if mounts or not own]
        names = [name for name in names if name not in left_out]
        tallies = {name: Tally() for name in names}

        def attempts(kind: int) -> None:
            for k in range(first + kind, first + trials, len(names)):
                tally = tallies[names[kind]]
                attempt(case, names[kind], k, tally)
                told = f"{tally.right} of {tally.trials} right, {tally.rewritten} chunks rewritten"
                print(f"{k} {names[kind]}: {told}", file=sys.stderr, flush=True)

        with suppress(KeyboardInterrupt), ThreadPoolExecutor(max(1, min(jobs, len(names)))) as threads:
            list(threads.map(attempts, range(len(names))))
    return _table(case, tallies)


def _table(case: Case, tallies: Mapping[str, Tally]) -> Table:
    table = Table(
        title=f"Faults in {case.title} of {case.tasks} boxes with {case.receipts} receipts, at random moments"
    )
    table.add_column("fault", no_wrap=True)
    for heading in ("trials", "right", "chunks damaged", "written again", "others rewritten", "s/trial"):
        table.add_column(heading, justify="right")
    table.add_column("remarks", overflow="fold")
    for name, t in tallies.items():
        numbers = (t.trials, t.right, t.damaged, t.recomputed, t.rewritten)
        row = [name, *map(str, numbers), f"{t.seconds / max(t.trials, 1):.1f}", "; ".join(t.remarks)[:300]]
        table.add_row(*row, style=None if t.right == t.trials and not t.rewritten else "bold")
    return table
