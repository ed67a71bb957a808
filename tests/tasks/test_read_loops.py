"""Chunk files read by compiled code: the bytes that Python reads, and no file that Python would refuse."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bucketflow.storage.chunks import BLOSC, path_of, read_chunk, write_chunk
from bucketflow.storage.faults import ChunkLostError
from bucketflow.storage.spec import Receipt, TableSpec
from bucketflow.storage.tables import create_table
from bucketflow.tasks.boxes import read_loops
from bucketflow.tasks.boxes.read_loops import File, read_together

CHUNKS, ROWS = 3, 5000


@pytest.fixture
def written(tmp_path: Path) -> list[File]:
    """Chunks of a compressed and of a raw table, in a folder whose name is no ASCII, with arrays to fill."""
    rng, files = np.random.default_rng(0), list[File]()
    folder = tmp_path / "Größe"
    folder.mkdir()
    for name, dtype, compression in (("keys", "uint64", BLOSC), ("values", "int32", "")):
        spec = TableSpec(name, (0, 1), ("chunk", "row"), (CHUNKS, ROWS), frozenset((0,)), dtype, compression)
        create_table(folder, spec, lambda compression=compression: compression)  # type: ignore[misc]
        for chunk in range(CHUNKS):
            cells = np.sort(rng.integers(0, 1 << 30, (1, ROWS))).astype(dtype)
            nbytes, checksum = write_chunk(folder, spec, (chunk, 0), cells)
            receipt = Receipt(name, (chunk, 0), nbytes, checksum, 0.0, 0, {})
            files.append((spec, receipt, np.zeros_like(cells)))
    return files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "Größe"


@pytest.mark.parametrize("threads", [1, 2, 20])
def test_files_have_the_bytes_that_python_reads(written: list[File], folder: Path, threads: int) -> None:
    assert read_together(folder, written, threads) == [True] * len(written)
    for spec, receipt, found in written:
        wanted = np.empty_like(found)
        read_chunk(folder, spec, receipt, wanted)
        assert found.tobytes() == wanted.tobytes()


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("damage", [flipped, shortened, linked, os.unlink])
@pytest.mark.parametrize("number", range(2 * CHUNKS))
def test_files_that_python_refuses_are_not_right(
    written: list[File], folder: Path, damage: Callable[[Path], object], number: int
) -> None:
    spec, receipt, out = written[number]
    damage(Path(str(path_of(folder, spec, receipt.chunk))))
    with pytest.raises(ChunkLostError):
        read_chunk(folder, spec, receipt, out)
    assert read_together(folder, written, 2) == [n != number for n in range(len(written))]


def test_frames_of_other_lengths_are_not_right(written: list[File], folder: Path) -> None:
    spec, receipt, _ = written[0]
    for rows in (ROWS - 1, ROWS + 1):
        assert read_together(folder, [(spec, receipt, np.zeros((1, rows), "uint64"))], 1) == [False]


def test_no_file_is_right_where_the_libraries_have_no_such_functions(
    written: list[File], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lockless_crc32c", "lockless_decompress"):
        with monkeypatch.context() as patch:
            patch.setattr(read_loops, name, lambda: None)
            assert read_together(folder, written, 2) == [False] * len(written)
