"""Reading stays within its memory, which is measured in a process of its own, and says what it would need."""

from __future__ import annotations

import lzma
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.examples import example_path
from bucketflow.pipeline.formats.text.source import LEAST_MEMORY

MEMORY = LEAST_MEMORY
# Pages of the allocator, and what is imported while reading.
SLACK = 12 << 20

# Each takes several times as much where nothing counts.
MANY = 500_000
HOSTILE = {
    "tuples.wcsp": f"p 1 3 1 9\n3\n1 0 0 {4 * MANY}\n" + "0 1\n" * (4 * MANY),
    "functions.wcsp": f"p 1 3 {MANY} 9\n3\n" + "0 1 0\n" * MANY,
    "variables.wcsp": f"p {6 * MANY} 3 0 9\n" + "3 " * (6 * MANY),
    "table.uai": f"MARKOV 1 {6 * MANY} 1\n1 0\n{6 * MANY}\n" + "1 " * (6 * MANY),
    "functions.uai": f"MARKOV 1 1 {MANY}\n" + "0 " * MANY + "1 1 " * MANY,
    "long.uai": "MARKOV 1 1 1 0 1 " + "1" * (16 * MANY),
    "names.erg": f"{MANY}\n" + "1 " * MANY + "0 " * MANY + "1 1 " * MANY,
    "tuples.cfn": "{variables: {a: 3} functions: {{scope: [a] defaultcost: 0 costs: [" + "0 1.5 " * MANY + "]}}}",
    "signs.cfn": "{" * (8 * MANY),
    "nodes.net": "net {} " + "".join(f'node v{i} {{ states = ("x"); }}' for i in range(MANY // 10)),
    "labels.bif": f"variable v {{ type discrete [ {MANY} ] {{ " + " ".join(map(str, range(MANY))) + " }; }",
}
MEASURE = """
import sys
from pathlib import Path
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.formats.read import load

def resident(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])

load(sys.argv[1], memory=int(sys.argv[2]))  # imports what reading needs
for path in sys.argv[3:]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    try:
        load(path, memory=int(sys.argv[2]))
        answer = "read"
    except BudgetError as error:
        answer = str(error)
    print(resident("VmHWM") - before, answer)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "small.uai").write_text("MARKOV 1 2 0")
    for name, text in HOSTILE.items():
        (folder / f"{name}.xz").write_bytes(lzma.compress(text.encode(), preset=0))
    return folder


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is measured on Linux only")
def test_reading_stays_within_its_memory(folder: Path) -> None:
    paths = [folder / f"{name}.xz" for name in HOSTILE]
    command = [sys.executable, "-c", MEASURE, folder / "small.uai", str(MEMORY), *paths]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for path, line in zip(paths, lines, strict=True):
        peak, _, answer = line.partition(" ")
        assert int(peak) <= MEMORY + SLACK, path
        assert f"{path}: " in answer, line
        assert "of memory" in answer, line
        assert "allowed 33.6 MB" in answer, line


@pytest.mark.parametrize("states", [400_000_000, 2**31 - 1])
@pytest.mark.parametrize("command", ["solve", "plan", "marginals"])
def test_a_claimed_domain_is_refused_by_name(tmp_path: Path, command: str, states: int) -> None:
    path = tmp_path / "claim.uai"
    path.write_text(f"MARKOV 1 {states} 0")
    found = CliRunner().invoke(main, [command, str(path), "--memory", "200MB"])
    assert found.exit_code == 3
    assert f"claim.uai: its domains of up to {states} states need" in found.output
    assert "allowed 200 MB" in found.output


def test_python_gives_a_memory_too(tmp_path: Path) -> None:
    path = tmp_path / "claim.wcsp"
    path.write_text("p 1 9000000 0 9\n9000000\n")
    assert bucketflow.load(path, memory="1GB").dims == (9_000_000,)
    with pytest.raises(BudgetError, match="allowed 100 MB; if the file is what it should be, give a larger --memory"):
        bucketflow.load(path, memory="100MB")


def test_little_memory_reads_ordinary_files() -> None:
    assert bucketflow.load(example_path("satellite"), memory=1).top is not None


@pytest.mark.parametrize("suffix", [".wcsp", ".cfn", ".wcsp.gz", ".cfn.gz"])
def test_writing_takes_little_memory(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(0, 100**4, 50_000))
    rows = np.stack([codes // 100**k % 100 for k in range(4)], axis=1)
    names = [f"x{v}" for v in range(4)]
    listed = (names, rows, rng.integers(0, 50, len(rows)), 100)
    model = bucketflow.Model.build("cost", dict.fromkeys(names, 100), [listed], top=100)
    path = tmp_path / f"model{suffix}"
    tracemalloc.start()
    try:
        bucketflow.save(model, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8e6  # as strings and Python's numbers all entries take 15 MB and more
    (function,) = bucketflow.load(path).functions
    assert function.rows is not None
    order = np.lexsort(rows.T[::-1]), np.lexsort(function.rows.T[::-1])
    assert np.array_equal(rows[order[0]], function.rows[order[1]])
    assert np.array_equal(listed[2][order[0]], function.values[order[1]])
