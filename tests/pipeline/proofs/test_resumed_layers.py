"""Layers on disk that another process goes on with: what was finished is not done again, and answers are the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import bucketflow
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.cost_networks.preparation import prepare
from bucketflow.pipeline.proofs.limits import Outcome
from bucketflow.pipeline.proofs.provers import row_layers as rows
from bucketflow.pipeline.proofs.provers.layer_files import Beginning, RowFiles
from bucketflow.pipeline.proofs.provers.layered_search import Stop
from bucketflow.pipeline.proofs.provers.row_layers import RowSearch
from bucketflow.pipeline.proofs.remote_prover import restricted
from bucketflow.storage.faults import DiskFullError
from bucketflow.tasks.rows.layers import HOST

from . import test_chain
from .networks import cost_networks
from .test_layers import buckets, grid
from .test_stored_layers import Small

CELLS = 9


@given(network=cost_networks())
@settings(deadline=None, max_examples=60)
def test_beginnings_are_read_as_they_were_written(network: CostNetwork) -> None:
    small = prepare(network).network
    order = tuple(range(len(small.dims)))
    for upper, best in ((None, None), (7, (0,) * len(network.dims))):
        data = Beginning(small, order, 4, upper, best).packed()
        assert data is not None
        read = Beginning.unpacked(data)
        assert (read.order, read.cells, read.upper, read.best) == (order, 4, upper, best)
        assert (read.network.dims, read.network.constant) == (small.dims, small.constant)
        for told, table in zip(read.network.tables, small.tables, strict=True):
            assert told.scope == table.scope
            np.testing.assert_array_equal(told.costs, table.costs)
        for states in [*product(*map(range, small.dims))][:50]:
            assert read.network.restored(states) == small.restored(states)


def test_slices_are_not_for_others() -> None:
    network = restricted(CostNetwork((2, 2), (CostTable((0, 1), np.zeros((2, 2))),)), {0: 1})
    assert Beginning(network, (0, 1), 4, None, None).packed() is None


class Killed(Exception):
    """The process is gone."""


class OnDisk(RowSearch):
    """Layers are on disk from the beginning."""

    @classmethod
    def of(cls, network: CostNetwork, files: RowFiles, memory_bytes: int) -> OnDisk:
        found, order = files.finished(), tuple(range(len(network.dims)))
        upper = buckets(network, 1 << 20).lower + 1
        network = network if found is None else found.beginning.network
        search = cls(network, order, upper, rounds=(), files=lambda: files, finished=found)
        search.memory_bytes, search._to_disk = memory_bytes, True
        return search

    def go_on(self, stop: Stop = bool) -> Outcome:
        return self.run(stop, lambda lower, total: None, lambda states: None)


class Dying(RowFiles):
    """Ends after some layers; `done` are those that were finished."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__(lambda: folder, 1 << 30, lasting=True)
        self.after, self.done = after, list[int]()

    def finish(self, number: int, *layer: object) -> None:
        super().finish(number, *layer)  # type: ignore[arg-type]
        self.done.append(number)
        if len(self.done) == self.after:
            raise Killed


def searched(network: CostNetwork, files: Dying) -> Outcome:
    """Begin a search, or go on with one."""
    finished = files.finished()
    if finished is None:
        files.begin(Beginning(network, tuple(range(len(network.dims))), CELLS, None, None))
    else:
        network = finished.beginning.network
    found = buckets(network, CELLS)
    return Small(network, found, None, memory_bytes=2000, files=files, side=HOST, finished=finished).run(bool)


def test_finished_layers_are_not_done_again(tmp_path: Path) -> None:
    network, done = grid(3, 1, d=3), list[int]()
    (tmp_path / "whole").mkdir()
    whole = searched(network, Dying(tmp_path / "whole", 0))
    for after in (2, 1, 3, 0):
        files = Dying(tmp_path, after)
        try:
            outcome = searched(network, files)
        except Killed:
            # what the next layer had begun with
            files.write(np.zeros((4, 2), np.uint64))
        done += files.done
    assert done == [*range(9)]
    assert outcome == whole
    assert files.nbytes == sum(path.stat().st_size for path in (tmp_path / "tables" / "rows").iterdir())


@pytest.mark.parametrize("damage", ["tables/rows", "ledger/tables"])
def test_what_is_damaged_begins_anew(damage: str, tmp_path: Path) -> None:
    network = grid(3, 1, d=3)
    with pytest.raises(Killed):
        searched(network, Dying(tmp_path, 4))
    path = max((tmp_path / damage).iterdir(), key=lambda p: p.stat().st_mtime_ns)
    path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
    files = Dying(tmp_path, 0)
    assert searched(network, files).total == buckets(network, 1 << 20).lower
    assert files.done == [*range(3 if damage == "ledger/tables" else 0, 9)]


def begun_on_disk(network: CostNetwork, folder: Path) -> None:
    """Begin a search with large mini-buckets, which is killed."""
    with pytest.raises(Killed):
        OnDisk.of(network, Dying(folder, 4), 1 << 26).go_on()


def test_a_search_with_less_memory_begins_anew(tmp_path: Path) -> None:
    network, files = grid(4, 1, d=4), Dying(tmp_path, 0)
    begun_on_disk(network, tmp_path)
    search = OnDisk.of(network, files, 25_000)
    outcome = search.go_on()
    assert (search.done, outcome.total) == (True, buckets(network, 1 << 20).lower)
    assert files.done == [*range(16)]


def test_what_was_given_up_goes_on_from_the_last_layer(tmp_path: Path) -> None:
    network, files = grid(3, 1, d=3), Dying(tmp_path, 0)
    begun_on_disk(network, tmp_path)
    search = OnDisk.of(network, files, 1 << 26)
    for enough in (5, 7, 9):
        outcome = search.go_on(lambda enough=enough: len(files.done) + 4 >= enough)  # type: ignore[misc]
        search.rest()
    assert (search.done, outcome.total) == (True, buckets(network, 1 << 20).lower)
    assert files.done == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("known", [True, False])
def test_layers_below_a_cut_off_are_not_for_a_higher_one(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where less was asked for in between, nor where the assignment that lowered it is lost."""
    model, finish = test_chain.grid(5), RowFiles.finish
    least = bucketflow.solve(model, method="dense").value
    monkeypatch.setattr(rows, "ROUNDS", (rows.LayerRound(4, 2),))
    monkeypatch.setattr(RowSearch, "fix", lambda self: None)

    def killed(self: RowFiles, number: int, *layer: object) -> None:
        finish(self, number, *layer)  # type: ignore[arg-type]
        raise Killed

    monkeypatch.setattr(RowFiles, "finish", killed)
    with pytest.raises(Killed):
        bucketflow.solve(model, method="rows", workdir=tmp_path, prune=False)
    monkeypatch.setattr(RowFiles, "finish", finish)
    assert isinstance(least, int)
    below = bucketflow.solve(model, method="rows", workdir=tmp_path, prune=False, upper_bound=least - 1)
    assert below.status == "infeasible"
    if not known:
        (tmp_path / "bounds.json").unlink()
    result = bucketflow.solve(model, method="rows", workdir=tmp_path, prune=False)
    assert (result.status, result.value) == ("optimal", least)


@pytest.mark.parametrize("falls", [True, False])
def test_what_lowered_the_cut_off_is_known_to_whoever_goes_on(falls: bool, tmp_path: Path) -> None:
    network, best, upper = grid(3, 1, d=3), (1,) * 9, 10**6
    files = Dying(tmp_path, 0)
    files.begin(Beginning(network, tuple(range(9)), CELLS, upper, None))
    found = buckets(network, CELLS, upper)
    small = Small(network, found, upper, memory_bytes=2000, files=files, side=HOST, best=lambda: best)
    small.run(lambda: len(files.done) == 2)
    small.upper -= falls
    small.run(lambda: len(files.done) == 4)
    finished = files.finished()
    assert finished is not None
    assert (finished.upper, finished.best) == (upper - falls, best if falls else None)


_DYING = """
import os, signal, sys
import bucketflow
from bucketflow.pipeline.proofs.provers import row_layers
from bucketflow.pipeline.proofs.provers.layer_files import RowFiles
from bucketflow.pipeline.proofs.provers.row_layers import LayerRound, RowSearch

row_layers.ROUNDS = (LayerRound(4, 2),)
RowSearch._fix = lambda self: None
finish = RowFiles.finish

def dying(self, number, *layer):
    finish(self, number, *layer)
    if number == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

RowFiles.finish = dying
bucketflow.solve(bucketflow.load(sys.argv[1]), method=sys.argv[4], workdir=sys.argv[2], memory="64MB")
"""


@pytest.mark.parametrize("method", ["rows", "auto"])
def test_killed_between_layers_another_process_goes_on(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = test_chain.grid(8)
    path, folder, killed_after = tmp_path / "grid.wcsp", tmp_path / "run", 5
    bucketflow.save(model, path)
    command = [sys.executable, "-c", _DYING, str(path), str(folder), str(killed_after), "rows"]
    killed = subprocess.run(command, env=os.environ, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    finished = list[int]()
    finish = RowFiles.finish

    def counted(self: RowFiles, number: int, *layer: object) -> None:
        finished.append(number)
        finish(self, number, *layer)  # type: ignore[arg-type]

    monkeypatch.setattr(RowFiles, "finish", counted)
    options = {"method": method, "time": 600, "workdir": folder, "memory": "64MB"}
    result = bucketflow.solve(bucketflow.load(path), **options)  # type: ignore[arg-type]
    assert (result.status, result.value) == ("optimal", bucketflow.solve(model, method="dense").value)
    assert finished[:1] in ([], [killed_after + 1])
    assert method == "auto" or finished == [*range(killed_after + 1, killed_after + 1 + len(finished))] != []
    assert not (folder / "layers").exists()


def test_a_full_disk_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, files, again = grid(3, 1, d=3), Dying(tmp_path, 0), Dying(tmp_path, 0)
    finish = files.finish

    def filled(number: int, *layer: object) -> None:
        finish(number, *layer)
        files._disk_bytes = files.nbytes if number == 3 else files._disk_bytes

    monkeypatch.setattr(files, "finish", filled)
    with pytest.raises(DiskFullError):
        searched(network, files)
    searched(network, again)
    assert (files.done, again.done) == ([0, 1, 2, 3], [4, 5, 6, 7, 8])
