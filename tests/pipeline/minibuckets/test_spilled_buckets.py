"""Mini-buckets with messages on disk: the bounds and assignments of memory, whatever boxes, and whatever was lost."""

from __future__ import annotations

import json
import math
import signal
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, cost_network
from bucketflow.pipeline.minibuckets.joins import BucketTable, Joins, ordered
from bucketflow.pipeline.minibuckets.least_costs import eliminate, greedy_states
from bucketflow.pipeline.minibuckets.log_sums import log_sum_bounds
from bucketflow.pipeline.minibuckets.message_boxes import Boxing, boxed
from bucketflow.pipeline.minibuckets.partition import Partition, Size, partition
from bucketflow.pipeline.minibuckets.run_boxes import Found, Spilling, least_total, log_sum
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.storage import ledger
from bucketflow.storage.faults import StorageError
from bucketflow.tasks.steps.semiring import LOG_SUM, MIN_PLUS
from tests.device_stand_in import device
from tests.killing import stopped
from tests.memory import traced
from tests.pipeline.proofs.networks import cost_networks

SIZES = st.sampled_from([Size(cells=1), Size(cells=6), Size(variables=2), Size(variables=3), Size()])


def tightest(split: Partition) -> Boxing:
    """The boxes of the least memory that some fit."""
    for memory in count(8, 8):
        try:
            return boxed(split, memory)
        except bucketflow.BudgetError:
            continue
    raise AssertionError


def joins_of(split: Partition, semiring: object) -> Joins:
    return Joins(split.dims, semiring, compiled=False)  # type: ignore[arg-type]


def least(network: CostNetwork, boxing: Boxing, folder: Path, upper: int | None = None) -> Found:
    spilling = Spilling(boxing, folder)
    found = least_total(network, spilling, upper, joins=joins_of(boxing.split, MIN_PLUS), stop=bool)
    assert found is not None
    return found


def in_memory(network: CostNetwork, split: Partition, upper: int | None = None) -> Found:
    found = eliminate(network, split, upper=upper, compiled=False)
    assert found is not None
    return Found(found.lower, found.feasible, greedy_states(found, network.dims) if found.feasible else None)


@given(cost_networks(), SIZES, st.sampled_from([None, 0, 5]))
@settings(max_examples=30, deadline=None)
def test_costs_are_those_of_memory_in_any_boxes(network: CostNetwork, size: Size, upper: int | None) -> None:
    split = partition(network.dims, network.scopes, tuple(range(len(network.dims))), size)
    expected = in_memory(network, split, upper)
    with TemporaryDirectory() as folder:
        for boxing in (tightest(split), boxed(split, 1 << 30)):
            assert least(network, boxing, Path(folder), upper) == expected


@given(cost_networks(), SIZES)
@settings(max_examples=20, deadline=None)
def test_sums_are_those_of_memory_in_any_boxes(network: CostNetwork, size: Size) -> None:
    split = partition(network.dims, network.scopes, tuple(range(len(network.dims))), size)
    tables = [BucketTable(s, -ordered(t, s)) for t, s in zip(network.tables, split.scopes, strict=False)]
    expected = log_sum_bounds(tables, split)
    assert expected is not None
    with TemporaryDirectory() as folder:
        for boxing in (tightest(split), boxed(split, 1 << 30)):
            found = log_sum(tables, Spilling(boxing, Path(folder)), joins=joins_of(split, LOG_SUM), stop=bool)
            assert found == pytest.approx(expected, abs=1e-9, rel=1e-12)


def grid(n: int, d: int) -> CostNetwork:
    return cost_network(reduce_model(grid_model(n, d), "optimum", {}))[0]


def grid_model(n: int, d: int) -> bucketflow.Model:
    rng = np.random.default_rng(0)
    names = {f"x{r}_{c}": d for r in range(n) for c in range(n)}
    pairs = [((r, c), (r + a, c + b)) for r in range(n) for c in range(n) for a, b in ((0, 1), (1, 0))]
    functions = [
        ([f"x{r}_{c}", f"x{s}_{e}"], rng.integers(0, 100, (d, d))) for (r, c), (s, e) in pairs if s < n and e < n
    ]
    return bucketflow.Model.build("cost", names, functions)


def test_what_was_stopped_is_continued_and_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    network = grid(5, 3)
    split = partition(network.dims, network.scopes, tuple(range(25)), Size(variables=4))
    boxing, expected = tightest(split), in_memory(network, split)
    asked = iter(range(60))
    stop = lambda: next(asked, None) is None  # noqa: E731
    joins = joins_of(split, MIN_PLUS)
    assert least_total(network, Spilling(boxing, tmp_path), None, joins=joins, stop=stop) is None
    (folder,) = tmp_path.iterdir()
    files = sorted((folder / "tables" / "messages").iterdir())
    assert len(files) > 30
    files[0].unlink()
    for path in files[3::4]:
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data)
    assert least(network, boxing, tmp_path) == expected
    assert least(network, boxing, tmp_path) == expected  # from what it found
    assert not list((folder / "tables" / "messages").iterdir())


def test_other_boxes_begin_anew_and_remove_what_was_left(tmp_path: Path) -> None:
    network = grid(4, 3)
    split = partition(network.dims, network.scopes, tuple(range(16)), Size(variables=4))
    asked = iter(range(9))
    small, joins = tightest(split), joins_of(split, MIN_PLUS)
    spilling = Spilling(small, tmp_path)
    stopped_early = least_total(network, spilling, None, joins=joins, stop=lambda: next(asked, None) is None)
    assert stopped_early is None
    assert least(network, boxed(split, 1 << 20), tmp_path) == in_memory(network, split)
    assert len(list(tmp_path.iterdir())) == 1


def test_links_are_not_followed(tmp_path: Path) -> None:
    network = grid(3, 3)
    split = partition(network.dims, network.scopes, tuple(range(9)), Size(variables=3))
    asked = iter(range(3))
    spilling, joins = Spilling(boxed(split, 1 << 20), tmp_path / "run"), joins_of(split, MIN_PLUS)
    least_total(network, spilling, None, joins=joins, stop=lambda: next(asked, None) is None)
    (folder,) = (tmp_path / "run").iterdir()
    (folder / "tables" / "messages").rename(tmp_path / "elsewhere")
    (folder / "tables" / "messages").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="is a symbolic link"):
        least_total(network, spilling, None, joins=joins, stop=bool)


def test_memory_is_kept_and_disk_is_what_was_said(tmp_path: Path) -> None:
    network = grid(7, 5)
    split = partition(network.dims, network.scopes, tuple(range(49)), Size(variables=8))
    memory = 900_000
    assert split.live_bytes > 2 * memory
    boxing = boxed(split, memory)
    assert boxing.peak_bytes <= memory
    asked = iter(range(40))

    def run() -> None:
        spilling = Spilling(boxing, tmp_path)
        least_total(network, spilling, None, joins=joins_of(split, MIN_PLUS), stop=lambda: next(asked, None) is None)

    peak, _ = traced(run, memory)
    assert peak <= memory, peak
    (folder,) = tmp_path.iterdir()
    written = sum(path.stat().st_size for path in (folder / "tables" / "messages").iterdir())
    assert 0 < written <= boxing.disk_bytes


def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    file, workdir = tmp_path / "grid.wcsp", tmp_path / "run"
    bucketflow.save(grid_model(6, 4), file)
    asked = ("bound", file, "--z", 6, "--memory", "30kB", "--workdir", workdir, "--json")
    assert stopped(40, signal.SIGKILL, *asked).returncode == -signal.SIGKILL
    other = CliRunner().invoke(main, ["resume", str(workdir)])
    assert other.exit_code == 2
    assert f"continue with: bucketflow bound {file} --query optimum --workdir {workdir}" in other.output
    ran = CliRunner().invoke(main, [str(each) for each in asked])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.output)
    expected = bucketflow.bound(bucketflow.load(file), z=6)
    assert (found["lower"], found["value"]) == (expected.lower, expected.value)
    assert found["rounds"][0]["disk_bytes"] > 0
    (folder,) = (workdir / "messages").iterdir()
    written = Counter(receipt.key for _, receipt in ledger.history(folder / "tables"))
    assert len(written) > 40
    assert set(written.values()) == {1}


def test_refusals_are_one_sentence(tmp_path: Path) -> None:
    model = grid_model(6, 4)
    with pytest.raises(bucketflow.BudgetError, match=r"take .* of disk, more than the 1 kB there are"):
        bucketflow.bound(model, z=6, memory="30kB", workdir=tmp_path, disk="1kB")
    assert bucketflow.bound(model, z=6, memory="100kB").assignment is None
    with pytest.raises(bucketflow.BudgetError, match=r"take .* of disk"):  # no bound without what was asked to be there
        bucketflow.bound(model, z=6, memory="100kB", workdir=tmp_path, disk="1kB")
    with pytest.raises(bucketflow.BudgetError, match=r"--workdir for messages on disk"):
        bucketflow.bound(model, z=6, memory="30kB")
    with pytest.raises(bucketflow.BudgetError, match=r"even in their smallest boxes, more than the"):
        bucketflow.bound(model, z=6, memory="1kB", workdir=tmp_path)
    with pytest.raises(bucketflow.BucketflowError, match="another run"):
        bucketflow.bound(grid_model(4, 4), z=3, workdir=tmp_path)
    with pytest.raises(bucketflow.BucketflowError, match="began with a model in memory"):
        bucketflow.resume(tmp_path)


def test_partition_functions(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = {f"x{i}": 3 for i in range(12)}
    functions = [([f"x{i}", f"x{j}"], rng.random((3, 3))) for i in range(12) for j in range(i)]
    model = bucketflow.Model.build("markov", names, functions)
    expected = bucketflow.bound(model, "partition", z=5)
    found = bucketflow.bound(model, "partition", z=5, memory="20kB", workdir=tmp_path)
    assert found.rounds[0].disk_bytes > 0
    assert (found.lower, found.upper) == pytest.approx((expected.lower, expected.upper), rel=1e-9)
    assert found.upper is not None
    exact = bucketflow.solve(model, "partition").log10
    assert exact is not None
    assert found.upper >= exact > (found.lower or -math.inf)


def test_boxes_on_a_device_are_those_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = grid(4, 3)
    split = partition(network.dims, network.scopes, tuple(range(16)), Size(variables=4))
    joins = replace(joins_of(split, MIN_PLUS), device_cells=20)
    with device(monkeypatch):
        for memory in (3_000, 1 << 20):
            spilling = Spilling(boxed(split, memory), tmp_path)
            assert least_total(network, spilling, None, joins=joins, stop=bool) == in_memory(network, split)
