"""Chunks, ledgers and run directories."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from bucketflow.storage import chunks, ledger
from bucketflow.storage.chunks import compress, paying
from bucketflow.storage.faults import ChunkLostError, DiskFullError, StorageError
from bucketflow.storage.run_folder import RunDir, sweep_partial_files
from bucketflow.storage.spec import Receipt, TableSpec
from bucketflow.storage.tables import create_group, create_table, stored_table

SPEC = TableSpec("msg_7", (4, 2, 9), ("d", "b", "j"), (3, 5, 7), frozenset({4, 9}), "int32")


def place(chunk: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a chunk lies in the table."""
    return tuple(
        slice(c, c + 1) if v in SPEC.chunked else slice(None) for v, c in zip(SPEC.variables, chunk, strict=True)
    )


def written(folder: Path, values: np.ndarray, compression: str = "") -> list[Receipt]:
    """Write a table chunk by chunk."""
    create_group(folder, {"query": "partition"})
    spec = create_table(folder, SPEC, lambda: compression)
    receipts = []
    for chunk in SPEC.chunks_at({}):
        nbytes, checksum = chunks.write_chunk(folder, spec, chunk, values[place(chunk)])
        receipts.append(Receipt(SPEC.name, chunk, nbytes, checksum, 0.5, 1, {}))
    return receipts


@pytest.mark.parametrize("compression", ["", "blosc"])
def test_tables_open_with_plain_zarr(tmp_path: Path, compression: str) -> None:
    import zarr

    values = np.arange(105, dtype=np.int32).reshape(SPEC.shape)
    receipts = written(tmp_path, values, compression)
    assert len(receipts) == SPEC.chunks == 21
    assert all((tmp_path / SPEC.name / SPEC.file_name(r.chunk)).stat().st_size == r.nbytes for r in receipts)
    array = zarr.open_array(str(tmp_path / SPEC.name), mode="r")
    assert np.array_equal(array[...], values)
    assert array.metadata.dimension_names == ("d", "b", "j")
    group = zarr.open_group(str(tmp_path), mode="r")
    assert dict(group.attrs) == {"query": "partition"}
    assert np.array_equal(group[SPEC.name][...], values)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("compression", ["", "blosc"])
def test_zarr_writes_the_same_metadata(tmp_path: Path, dtype: str, compression: str) -> None:
    import zarr

    spec = replace(SPEC, dtype=dtype, compression=compression)
    codec = zarr.codecs.BloscCodec(
        typesize=np.dtype(dtype).itemsize, cname="lz4", clevel=5, shuffle="bitshuffle", blocksize=0
    )
    theirs = zarr.create_array(
        store=str(tmp_path / "theirs"),
        shape=spec.shape,
        chunks=spec.chunk_shape,
        dtype=dtype,
        compressors=codec if compression else None,
        fill_value=np.nan if dtype.startswith("float") else -1,
        dimension_names=spec.labels,
        chunk_key_encoding={"name": "default", "separator": "."},
        zarr_format=3,
    )
    create_table(tmp_path, spec, lambda: compression)
    ours = zarr.open_array(str(tmp_path / spec.name), mode="r")
    assert ours.metadata.to_dict().keys() == theirs.metadata.to_dict().keys()
    assert ours.metadata.codecs == theirs.metadata.codecs
    assert repr(ours.metadata) == repr(theirs.metadata)


@pytest.mark.parametrize("compression", ["", "blosc"])
def test_scattered_chunks_are_read_into_place(tmp_path: Path, compression: str) -> None:
    spec = TableSpec("t", (0, 1, 2), ("a", "b", "c"), (600, 4, 250), frozenset({1}), "int16")
    values = np.random.default_rng(0).integers(0, 50, spec.shape).astype("int16")
    found = create_table(tmp_path, spec, lambda: compression)
    out = np.zeros_like(values)
    for chunk in spec.chunks_at({}):
        part = (slice(None), slice(chunk[1], chunk[1] + 1))
        nbytes, checksum = chunks.write_chunk(tmp_path, found, chunk, values[part])
        assert (nbytes < values[part].nbytes) == bool(compression)
        chunks.read_chunk(tmp_path, found, Receipt("t", chunk, nbytes, checksum, 0.0, 0, {}), out[part])
    assert np.array_equal(out, values)


def test_the_first_worker_decides_how_a_table_is_stored(tmp_path: Path) -> None:
    first = create_table(tmp_path, SPEC, lambda: "blosc")
    assert first.compression == "blosc"
    assert create_table(tmp_path, SPEC, lambda: "") == first == stored_table(tmp_path, SPEC)


def test_compression_is_chosen_where_it_pays() -> None:
    rng = np.random.default_rng(0)
    few, random = rng.integers(0, 5, 1 << 20).astype("int32"), rng.random(1 << 20)
    assert paying(few, 1e7) == "blosc"
    assert paying(few, 1e13) == ""
    assert paying(random, 1e7) == ""
    assert paying(few[:0], 1e7) == ""


def test_missing_chunks_are_not_zeros(tmp_path: Path) -> None:
    import zarr

    create_table(tmp_path, SPEC)
    assert (zarr.open_array(str(tmp_path / SPEC.name), mode="r")[...] == -1).all()
    out = np.empty(SPEC.chunk_shape, np.int32)
    with pytest.raises(ChunkLostError, match="missing"):
        chunks.read_chunk(tmp_path, SPEC, Receipt(SPEC.name, (0, 0, 0), 20, 1, 0.0, 0, {}), out)


@pytest.mark.parametrize("compression", ["", "blosc"])
@pytest.mark.parametrize("damage", ["flip", "cut", "longer"])
def test_damage_is_detected(tmp_path: Path, damage: str, compression: str) -> None:
    receipt = written(tmp_path, np.arange(105, dtype=np.int32).reshape(SPEC.shape), compression)[3]
    path = tmp_path / SPEC.name / SPEC.file_name(receipt.chunk)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[5] ^= 4
    path.write_bytes(bytes(data[:-3] if damage == "cut" else data + b"x" if damage == "longer" else data))
    lost = chunks.lost_files(tmp_path, {SPEC.name: SPEC}, {receipt.key: receipt})
    if damage == "flip":
        with pytest.raises(ChunkLostError, match="checksum"):
            chunks.read_chunk(tmp_path, stored_table(tmp_path, SPEC), receipt, np.empty(SPEC.chunk_shape, np.int32))
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
    ledger.folder_of(tmp_path).mkdir(parents=True)
    receipts = [Receipt("t", (i,), 1, 2, 0.1, 3, {"low": float("-inf")}) for i in range(3)]
    ledger.append(tmp_path, receipts)
    path = next(ledger.folder_of(tmp_path).glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-9])
    assert list(ledger.load(tmp_path).values()) == receipts[:2]


def test_receipts_of_some_chunks_and_tables_are_read(tmp_path: Path) -> None:
    ledger.folder_of(tmp_path).mkdir(parents=True)
    keys = [("t", (0,)), ("t", (1,)), ("tt", (0,)), ("u", (3, 0)), ("u", (30,))]
    ledger.append(tmp_path, [Receipt(*key, 8, 1, 0.0, 0, {}) for key in keys])
    assert [*ledger.load(tmp_path, [("t", (1,)), ("u", None)])] == [keys[1], *keys[3:]]


def test_a_cut_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    ledger.folder_of(tmp_path).mkdir(parents=True)
    receipts = [Receipt("t", (i,), 8, 1, 0.0, 0, {}) for i in range(3)]
    ledger.append(tmp_path, receipts[:2])
    (path,) = ledger.folder_of(tmp_path).iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    ledger.append(tmp_path, receipts[2:])
    assert set(ledger.load(tmp_path)) == {("t", (0,)), ("t", (2,))}


def test_full_disk_for_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    ledger.folder_of(tmp_path).mkdir(parents=True)
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
    first.write_plan({"a": 1}, "0.1")
    first.lock.close()
    second = RunDir(tmp_path / "run")
    assert second.read_plan() == {"a": 1, "bucketflow": "0.1"}
    second.lock.close()


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StorageError, match=r"thesis\.tex"):
        RunDir(tmp_path)


def test_partial_files_are_swept(tmp_path: Path) -> None:
    (tmp_path / "msg_1").mkdir()
    (tmp_path / "msg_1" / "c.0.12.partial").write_text("x")
    sweep_partial_files(tmp_path)
    assert not list((tmp_path / "msg_1").iterdir())


def test_compressed_chunks_are_the_same_whenever_they_are_made() -> None:
    words = np.sort(np.random.default_rng(0).integers(0, 1 << 40, 1 << 19)).astype(np.uint64)
    assert len({compress(words) for _ in range(20)}) == 1


@pytest.mark.parametrize("alone", [True, False])
def test_checksums_are_the_same_however_they_are_called(alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not alone:
        monkeypatch.setattr(chunks, "lockless_crc32c", lambda: None)
    data = np.random.default_rng(0).integers(0, 256, 3 << 14).astype(np.uint8)
    for cells in (0, 1, 9, (1 << 14) - 1, 1 << 14, len(data)):
        value = chunks._extended(0, data[:cells])
        assert value == google_crc32c.value(data[:cells].tobytes())
        assert chunks._extended(value, data[cells:]) == google_crc32c.value(data.tobytes())
