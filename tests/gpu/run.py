"""Everything that is checked on a GPU machine: ``python tests/gpu/run.py [--quick] [--sanitize] [PART …]``.

Runs the tests marked ``gpu``, the ladder of known answers, the kernels beside ceilings measured in the same run, optima
by rows, tables larger than the device, full propagations, several GPUs, runs as they are planned, step by step, and
whole models beside their floors; each in processes of its own. What they print is the report, and its last table has a
line for each target. Models are looked for in ``BUCKETFLOW_DATA``, trees that were searched for long in
``BUCKETFLOW_GPUDATA``. ``--sanitize`` adds a few cases of every kernel's tests under compute-sanitizer; PARTs are run
alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from shutil import which

from rich.console import Console
from targets import table_of

TESTS = Path(__file__).resolve().parents[1]
MODELS = ["SPOT5", "c432", "c880", "queen", "CELAR6", "75-26-5", "Promedas_35", "Promedas_41"]
LONG = ["Grids_28"]
CHECKERS = {"memcheck": 4, "initcheck": 2, "racecheck": 1}
"""Cases of each test: the slower a checker, the fewer."""


def bench(name: str, *options: str) -> list[str]:
    """Return the command of a program beside this one."""
    return [sys.executable, str(TESTS / "bench" / f"{name}.py"), *options]


def tests() -> list[str]:
    """Return the command of the tests."""
    options = ["-m", "gpu", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    options += ["-n", "8"] if find_spec("xdist") else []
    return [sys.executable, "-m", "pytest", *options, *(str(TESTS / room) for room in ("tasks", "cluster", "pipeline"))]


def parts(quick: bool) -> dict[str, tuple[list[str], int]]:
    """Return the command of each part and how many seconds it may take."""
    jobs = str(max(1, (os.cpu_count() or 1) * 3 // 4))
    return {
        "tests": (tests(), 600),
        "ladder": (bench("ladder", "--gpus", "1", "--jobs", jobs, "--failures"), 300),
        "far ladder": (bench("ladder", "--gpus", "1", "--jobs", "4", "--from", "24.01", "--up-to", "50"), 900),
        "kernels": (bench("gpu", *(["--quick"] if quick else [])), 300),
        "rows": (bench("rows", "--gpu"), 120),
        "optima": (bench("gpu_optima"), 420),
        "relations": (bench("relations", "--gpu", "--quick"), 240),
        "spill": (bench("gpu_spill"), 300),
        "stored rows": (bench("gpu_rows", *(["--quick"] if quick else [])), 300),
        "propagations": (bench("gpu_marginals"), 300),
        "scaling": (bench("gpu_scaling"), 300),
        "batches and slices": (bench("gpu_marginals", "--counts", "1,2,4,8"), 300),
        "runs": (bench("gpu_runs"), 300),
        "models": (bench("gpu_models", *(MODELS if quick else MODELS + LONG)), 900),
    }


def run(title: str, command: Sequence[str], seconds: int) -> tuple[str, bool]:
    """Run one program and pass on what it prints; return that, and whether it ended well and in time."""
    print(f"== {title}", flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    late = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
    late.start()
    lines = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        good = process.wait() == 0
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        late.cancel()
    if not good:
        print(f"   {title}: exit code {process.returncode}, or more than {seconds} s", flush=True)
    return "".join(lines), good


def sanitize(seconds: int) -> tuple[str, bool]:
    """Run a few cases of the kernels' tests under each checker, several files and checkers side by side."""
    print("== sanitize", flush=True)
    if which("compute-sanitizer") is None:
        print("   compute-sanitizer is not installed", flush=True)
        return "", False
    files = sorted((TESTS / "tasks").glob("test_gpu*.py"))

    def check(job: tuple[str, Path]) -> tuple[str, bool]:
        command = ["compute-sanitizer", "--tool", job[0], "--error-exitcode", "9", sys.executable]
        command += [str(TESTS / "gpu" / "few.py"), str(CHECKERS[job[0]]), str(job[1])]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            return f"{late}\n{late.output}", False
        return done.stdout, done.returncode == 0

    text, good = "", True
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        jobs = list(product(CHECKERS, files))
        for (checker, path), (printed, well) in zip(jobs, threads.map(check, jobs), strict=True):
            print(f"{checker}, {path.name}: {'well' if well else 'NOT well'}\n{printed}", flush=True)
            text, good = text + printed, good and well
    return text, good


def main() -> int:
    """Run all; the exit code says whether all ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="tests, ladder, kernels, …")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sanitize", action="store_true")
    chosen = parser.parse_args()
    commands = parts(chosen.quick)
    wanted = chosen.parts or ([] if chosen.sanitize else list(commands))
    done = {title: run(title, *commands[title]) for title in wanted}
    if chosen.sanitize:
        done["sanitize"] = sanitize(300)
    Console(width=140).print(table_of({title: text for title, (text, _) in done.items()}))
    good = [title for title, (_, well) in done.items() if well]
    print(f"{len(good)} of {len(done)} parts ended well")
    return int(len(good) < len(done))


if __name__ == "__main__":
    sys.exit(main())
