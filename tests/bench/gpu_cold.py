"""Small questions with ``gpus=1`` whose kernels are not compiled: ``python tests/bench/gpu_cold.py [KIND …]``.

Each kind of question runs in separate processes, with an empty cache of CuPy. A line has wall seconds of answers: on
the cores, the first and the second time with uncompiled kernels (a cold GPU), and with compiled kernels (a warm GPU).
Before the clock starts, the loops of the cores are compiled, the GPU and its compiler are started, and all modules are
imported. A cold GPU must not be slower than the cores by more than 5% plus 10 ms.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
import bucketflow
from tests.models import grid
from tests.pipeline.runs.sparse import ring

_SHARE, _SECONDS = 1.05, 0.01


_grid, _ring = cache(grid), cache(lambda: ring(120))


def _compiled(gpus: int | None) -> Any:
    """Ask a compiled model ten times."""
    compiled = bucketflow.compile(_grid(8, 8, 3, "markov"), gpus=gpus)
    for number in range(10):
        compiled.add("x0", number % 3)
        found = compiled.marginals()
    return found


def _cases(gpus: int | None) -> Any:
    cases = {"x1": np.arange(200) % 3}
    return bucketflow.compile(_grid(8, 8, 3, "markov"), gpus=gpus).marginals_batch(cases)


def _modules(_: int | None) -> None:
    """Import the modules that a question to a GPU imports once in a process."""
    from bucketflow.pipeline.compiled import device_cases
    from bucketflow.pipeline.machine import device
    from bucketflow.tasks.rows import device_algebra
    from bucketflow.tasks.sweeps import conditional_draws

    assert all((device_cases, device, device_algebra, conditional_draws))


KINDS: Final[dict[str, Callable[[int | None], Any]]] = {
    "modules": _modules,
    "bound": lambda gpus: bucketflow.bound(_grid(12, 12, 4), z=7, gpus=gpus),
    "bound of a sum": lambda gpus: bucketflow.bound(_grid(12, 12, 4, "markov"), "partition", z=7, gpus=gpus),
    "dpop": lambda gpus: bucketflow.dpop(_grid(9, 9, 3), gpus=gpus),
    "samples": lambda gpus: bucketflow.sample(_grid(9, 9, 4, "markov"), 50_000, gpus=gpus),
    "compiled": _compiled,
    "cases": _cases,
    "rows": lambda gpus: bucketflow.solve(_ring(), "optimum", representation="rows", gpus=gpus),
}


def _measured(kind: str, device: str) -> None:
    """Print the seconds of a kind of question in this process, and the notes of its answer, as JSON."""
    gpus = None if device == "cores" else 1
    if gpus:
        import cupy

        # starts the device and loads the compiler
        cupy.RawModule(code='extern "C" __global__ void nothing() {}').get_function("nothing")
        KINDS["modules"](gpus)
    KINDS[kind](None)  # loads the loops of the cores
    seconds, notes = [], ()
    for _ in range(2):
        begun = time.perf_counter()
        notes = getattr(KINDS[kind](gpus), "notes", ())
        seconds.append(time.perf_counter() - begun)
    print(json.dumps([seconds, [*notes]]))


def _process(kind: str, device: str, **more: str) -> tuple[list[float], list[str]]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", kind, device],
        capture_output=True,
        text=True,
        env=os.environ | more,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr.splitlines()[-1] if done.stderr else f"{kind}: {done.returncode}")
    seconds, notes = json.loads(done.stdout.splitlines()[-1])
    return seconds, notes


# every kernel counts as compiled, so that the GPU is used and compiles its kernels
_FORCED: Final = {"BUCKETFLOW_BENCH_FORCED": "1"}


def main() -> None:
    """Measure the named kinds of questions, or all kinds."""
    asked = tuple(sys.argv[1:])
    names = [name for name in KINDS if name != "modules" and (not asked or name.startswith(asked))]
    for kind in names:
        with TemporaryDirectory() as cache:
            (cores, again), _ = _process(kind, "cores")
            (cold, second), notes = _process(kind, "gpu", CUPY_CACHE_DIR=cache)
            _process(kind, "gpu", CUPY_CACHE_DIR=cache, **_FORCED)
            (warm, warm_again), _ = _process(kind, "gpu", CUPY_CACHE_DIR=cache)
        verdict = "fine" if cold <= _SHARE * cores + _SECONDS else "SLOWER"
        print(
            f"{kind:16s} cores {cores:7.3f} and {again:7.3f} s; cold GPU {cold:7.3f} and {second:7.3f} s, {verdict}; "
            f"warm GPU {warm:7.3f} and {warm_again:7.3f} s; {notes}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        if "BUCKETFLOW_BENCH_FORCED" in os.environ:
            from bucketflow.tasks.gpu import kernels

            kernels.is_marked = lambda _: True  # type: ignore[assignment]
        _measured(*sys.argv[2:4])
    else:
        main()
