"""Everything that is checked on a GPU machine, in one call: ``python tests/gpu/run.py [--quick]``.

Runs the tests marked ``gpu``, the kernels beside ceilings measured in the same run, and whole models beside their
floors; each in a process of its own. Models and their trees are looked for in ``BUCKETFLOW_GPUDATA``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
MODELS = ["SPOT5", "c432", "c880", "queen", "CELAR6", "75-26-5", "Promedas_35", "Promedas_41"]
LONG = ["Grids_28 MPE", "Grids_28 Z"]


def step(title: str, *command: str, limit_seconds: int = 300) -> bool:
    """Run one program and say whether it ended well; what it prints is the report."""
    print(f"== {title}", flush=True)
    try:
        return subprocess.run([sys.executable, *command], timeout=limit_seconds).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"   not done after {limit_seconds} s", flush=True)
        return False


def main() -> int:
    """Run all; the exit code says whether all ended well."""
    quick = "--quick" in sys.argv[1:]
    pytest = ["-m", "pytest", "-q", "-m", "gpu", "--import-mode=importlib", "-p", "no:cacheprovider"]
    whole = [str(TESTS / "pipeline" / f"test_{name}.py") for name in ("device_spill", "calibrate", "gpu_marginals")]
    good = [step("tests", *pytest, str(TESTS / "tasks"), str(TESTS / "cluster"), *whole)]
    good.append(step("kernels", str(TESTS / "bench" / "gpu.py"), *(["--quick"] if quick else [])))
    good.append(step("larger than the device", str(TESTS / "bench" / "gpu_spill.py")))
    good.append(step("scaling", str(TESTS / "bench" / "gpu_scaling.py")))
    good.append(step("propagations", str(TESTS / "bench" / "gpu_marginals.py")))
    for name in MODELS if quick else MODELS + LONG:
        good.append(step(name, str(TESTS / "bench" / "gpu_models.py"), name))
    print(f"{sum(good)} of {len(good)} parts ended well")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
