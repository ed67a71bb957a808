"""Chunks, ledgers and run directories."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from bucketflow.storage import chunks, ledger
from bucketflow.storage.errors import ChunkLostError, DiskFullError, StorageError
from bucketflow.storage.rundir import RunDir, sweep_partial_files
from bucketflow.storage.spec import Receipt, TableSpec
from bucketflow.storage.tables import create_table

SPEC = TableSpec("msg_7", (4, 2, 9), ("d", "b", "j"), (3, 5, 7), frozenset({4, 9}), "int32")


def written(folder: Path, values: np.ndarray) -> list[Receipt]:
    """Write a table chunk by chunk."""
    create_table(folder, SPEC)
    receipts = []
    for chunk in SPEC.chunks_at({}):
        index = tuple(
            slice(c, c + 1) if v in SPEC.chunked else slice(None) for v, c in zip(SPEC.variables, chunk, strict=True)
        )
        nbytes, checksum = chunks.write_chunk(folder, SPEC, chunk, values[index])
        receipts.append(Receipt(SPEC.name, chunk, nbytes, checksum, 0.5, 1, {}))
    return receipts


def test_tables_open_with_plain_zarr(tmp_path: Path) -> None:
    import zarr

    values = np.arange(105, dtype=np.int32).reshape(SPEC.shape)
    receipts = written(tmp_path, values)
    assert len(receipts) == SPEC.chunks == 21
    array = zarr.open_array(str(tmp_path / SPEC.name), mode="r")
    assert np.array_equal(array[...], values)
    assert array.metadata.dimension_names == ("d", "b", "j")


def test_missing_chunks_are_not_zeros(tmp_path: Path) -> None:
    import zarr

    create_table(tmp_path, SPEC)
    assert (zarr.open_array(str(tmp_path / SPEC.name), mode="r")[...] == -1).all()
    out = np.empty(SPEC.chunk_shape, np.int32)
    with pytest.raises(ChunkLostError, match="missing"):
        chunks.read_chunk(tmp_path, SPEC, Receipt(SPEC.name, (0, 0, 0), 20, 1, 0.0, 0, {}), out)


@pytest.mark.parametrize("damage", ["flip", "cut", "longer"])
def test_damage_is_detected(tmp_path: Path, damage: str) -> None:
    receipt = written(tmp_path, np.arange(105, dtype=np.int32).reshape(SPEC.shape))[3]
    path = tmp_path / SPEC.name / SPEC.file_name(receipt.chunk)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[5] ^= 4
    path.write_bytes(bytes(data[:-3] if damage == "cut" else data + b"x" if damage == "longer" else data))
    lost = chunks.lost_files(tmp_path, {SPEC.name: SPEC}, {receipt.key: receipt})
    if damage == "flip":
        with pytest.raises(ChunkLostError, match="checksum"):
            chunks.read_chunk(tmp_path, SPEC, receipt, np.empty(SPEC.chunk_shape, np.int32))
    else:
        assert lost == [receipt]


def test_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(tmp_path, SPEC)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(chunks.os, "replace", full)
    with pytest.raises(DiskFullError, match="no space left"):
        chunks.write_chunk(tmp_path, SPEC, (0, 0, 0), np.zeros(SPEC.chunk_shape, np.int32))
    assert sorted(p.name for p in (tmp_path / SPEC.name).iterdir()) == ["zarr.json"]


def test_ledger_survives_a_cut_line(tmp_path: Path) -> None:
    (tmp_path / ledger.FOLDER).mkdir()
    receipts = [Receipt("t", (i,), 1, 2, 0.1, 3, {"low": float("-inf")}) for i in range(3)]
    ledger.append(tmp_path, receipts)
    path = next((tmp_path / ledger.FOLDER).glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-9])
    assert list(ledger.load(tmp_path).values()) == receipts[:2]


def test_a_cut_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / ledger.FOLDER).mkdir()
    receipts = [Receipt("t", (i,), 8, 1, 0.0, 0, {}) for i in range(3)]
    ledger.append(tmp_path, receipts[:2])
    (path,) = (tmp_path / ledger.FOLDER).iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    ledger.append(tmp_path, receipts[2:])
    assert set(ledger.load(tmp_path)) == {("t", (0,)), ("t", (2,))}


def test_full_disk_for_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    (tmp_path / ledger.FOLDER).mkdir()
    monkeypatch.setattr(ledger.os, "fsync", full)
    with pytest.raises(DiskFullError, match="receipts"):
        ledger.append(tmp_path, [Receipt("t", (0,), 8, 1, 0.0, 0, {})])


def test_every_damaged_chunk_is_found(tmp_path: Path) -> None:
    receipts = written(tmp_path, np.arange(105, dtype=np.int32).reshape(SPEC.shape))
    flipped, missing = (tmp_path / SPEC.name / SPEC.file_name(receipts[i].chunk) for i in (2, 5))
    flipped.write_bytes(bytes(b ^ 1 for b in flipped.read_bytes()))
    missing.unlink()
    found = chunks.damaged(tmp_path, {SPEC.name: SPEC}, {r.key: r for r in receipts})
    assert {r.key for r in found} == {receipts[2].key, receipts[5].key}


def test_one_run_at_a_time(tmp_path: Path) -> None:
    first = RunDir(tmp_path / "run")
    with pytest.raises(StorageError, match="in use"):
        RunDir(tmp_path / "run")
    first.write_plan({"a": 1})
    first.close()
    second = RunDir(tmp_path / "run")
    assert second.read_plan() == {"a": 1}
    second.close()


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StorageError, match=r"thesis\.tex"):
        RunDir(tmp_path)


def test_partial_files_are_swept(tmp_path: Path) -> None:
    (tmp_path / "msg_1").mkdir()
    (tmp_path / "msg_1" / "c.0.12.partial").write_text("x")
    sweep_partial_files(tmp_path)
    assert not list((tmp_path / "msg_1").iterdir())
