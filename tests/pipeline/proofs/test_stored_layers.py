"""Layers of rows on disk: the optimum of brute force, with pieces of a few rows; damage and full disks are seen."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.cost_networks.cost_network import CostNetwork
from bucketflow.pipeline.proofs.provers.layer_files import RowFiles, merges
from bucketflow.pipeline.proofs.provers.row_layers import LayerRound, RowSearch
from bucketflow.pipeline.proofs.provers.stored_layers import StoredLayers
from bucketflow.storage.faults import ChunkLostError, DiskFullError
from bucketflow.tasks.rows.layers import HOST

from .networks import brute_least, cost_networks
from .test_layers import CUTS, buckets, cut_off, grid


class Small(StoredLayers):
    """Works on a few rows at a time."""

    def _size(self, layer: object) -> int:
        return 3


@contextmanager
def stored(network: CostNetwork, cells: int, upper: int | None, disk_bytes: int = 1 << 30) -> Iterator[StoredLayers]:
    with TemporaryDirectory() as folder:
        files = RowFiles(lambda: Path(folder), disk_bytes)
        found = buckets(network, cells, upper)
        yield Small(network, found, upper, memory_bytes=2000, files=files, side=HOST)


@given(network=cost_networks(), above=CUTS, cells=st.sampled_from([1, 9, 10**6]))
@settings(deadline=None, max_examples=60)
def test_the_optimum_is_found_if_it_is_below_the_cut_off(network: CostNetwork, above: int | None, cells: int) -> None:
    least, upper = brute_least(network), cut_off(network, above)
    with stored(network, cells, upper) as search:
        outcome = search.run(bool)
        assert outcome.proved
        assert outcome.feasible == (least < (math.inf if upper is None else upper))
        if outcome.feasible:
            assert outcome.states is not None
            assert outcome.total == outcome.lower == network.total(outcome.states) == least
        assert search.files.nbytes == sum(p.stat().st_size for p in search.files.folder.rglob("c.*"))


def test_it_goes_on_where_it_was_stopped_with_bounds_that_hold() -> None:
    network = grid(3, 1, d=3)
    with stored(network, 9, None) as search:
        whole = search.run(bool)
    with stored(network, 9, None) as search:
        asked = count(1)
        outcome = search.run(lambda: next(asked) % 3 == 0)
        stops = 0
        while search.stopped:
            stops += 1
            assert outcome.total is None
            assert outcome.lower <= whole.lower
            outcome = search.run(lambda: next(asked) % 3 == 0)
    assert stops > 5
    assert outcome == whole


def test_runs_are_merged_by_keys_of_two_words() -> None:
    rng = np.random.default_rng(0)
    runs = []
    for number in range(5):
        keys = np.unique(rng.integers(0, 9, (40, 2)).astype(np.uint64), axis=0)
        costs = rng.integers(0, 4, len(keys)).astype(float)
        origins = np.arange(len(keys), dtype=np.uint64) + np.uint64(100 * number)
        runs.append(np.column_stack([keys, costs.view(np.uint64), origins]))
    found = np.concatenate([merge() for merge in merges(runs, 2, 17)])
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for a, b, cost, origin in np.concatenate(runs).tolist():
        entry = float(np.uint64(cost).view(np.float64)), origin
        best[a, b] = min(best.get((a, b), entry), entry)
    costs = found[:, 2].copy().view(np.float64)
    left = zip(costs.tolist(), found[:, 3].tolist(), strict=True)
    assert [*zip(map(tuple, found[:, :2].tolist()), left, strict=True)] == sorted(best.items())
    assert len([*merges(runs, 2, 17)]) > 3


MERGE = """
import sys
from pathlib import Path
import numpy as np
from bucketflow.pipeline.proofs.provers.layer_files import RowFiles, merges
from bucketflow.tasks.rows.host import HOST

def resident(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])

def run(number):
    keys = np.arange(50_000, dtype=np.uint64) * np.uint64(7) + np.uint64(number)
    return np.column_stack([keys, np.zeros(50_000).view(np.uint64), keys])

files = RowFiles(lambda: Path(sys.argv[1]), 1 << 40)
runs = [files.checked(files.write(run(number))) for number in range(1 + int(sys.argv[2]))]
HOST.compiles(1 << 30)  # as if many rows were seen before
for merge in merges(runs[:2], 1, 2000):
    merge()  # loads what it needs
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
rows = sum(len(merge()) for merge in merges(runs, 1, 50_000))
print(resident("VmHWM") - before, rows)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is measured on Linux only")
def test_merging_takes_no_more_memory_for_more_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MERGE, str(tmp_path), "24"]
    grown, rows = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert rows == len({7 * row + number for row in range(50_000) for number in range(25)})
    assert grown < 8_000_000  # a range and its copies, of 30 MB on disk


def test_full_disks_and_damage_are_seen() -> None:
    network = grid(3, 1, d=3)
    with stored(network, 9, None, disk_bytes=900) as search, pytest.raises(DiskFullError, match="more than 900"):
        search.run(bool)
    with stored(network, 9, None) as search:
        piece = search.files.write(np.arange(6, dtype=np.uint64).reshape(3, 2))
        path = search.files.folder / piece.spec.name / piece.spec.file_name(piece.receipt.chunk)
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with pytest.raises(ChunkLostError, match="checksum"):
            search.files.checked(piece)


@pytest.mark.parametrize("disk_bytes", [1 << 30, 500])
def test_rows_go_to_disk_once_no_round_is_left(
    disk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowSearch, "fix", lambda self: None)
    network = grid(5, 3, d=3)
    search = RowSearch(
        network, range(25), None, rounds=[LayerRound(4, 2)], files=lambda: RowFiles(lambda: tmp_path, disk_bytes)
    )
    search.memory_bytes = 1 << 15
    asked = count(1)
    while not (search.done or search.hopeless):
        outcome = search.run(lambda: next(asked) % 60 == 0, lambda lower, total: None, lambda states: None)
    exact = buckets(network, 1 << 20)
    assert exact.exact
    assert outcome.lower <= exact.lower
    assert search.done == (disk_bytes > 500)
    if search.done:
        assert outcome.total == exact.lower
