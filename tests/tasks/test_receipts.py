"""What runners know of chunks: taken over, verified, forgotten, made again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bucketflow.storage import ledger
from bucketflow.storage.faults import ChunkLostError, StorageError
from bucketflow.storage.spec import Receipt, TableSpec
from bucketflow.tasks.boxes.stores import ChunkFiles, Receipts

SPEC = TableSpec("costs", (0, 1), ("a", "b"), (3, 4), frozenset((0,)), "int64")


@pytest.fixture
def receipts(tmp_path: Path) -> Receipts:
    """Of a table of three chunks that were written."""
    ledger.folder_of(tmp_path).mkdir(parents=True)
    found = Receipts(ChunkFiles(tmp_path), lambda: {SPEC.name: SPEC})
    write(found)
    return found


def write(receipts: Receipts) -> None:
    """Write the chunks that lack: chunk c holds 10 * c everywhere."""
    for chunk in SPEC.chunks_at({}):
        if (SPEC.name, chunk) not in receipts:
            ((_, nbytes, checksum),) = receipts.store.save(SPEC, np.full((1, 4), 10 * chunk[0]), [chunk], {0: chunk[0]})
            receipts.record([Receipt(SPEC.name, chunk, nbytes, checksum, 0.0, 0, {}, steps={"3": (0.5, 1)})])


def total(receipts: Receipts) -> int:
    """Read all chunks, and add up their cells."""
    values = np.empty(SPEC.shape, SPEC.dtype)
    receipts.store.load(SPEC, values, receipts.at(SPEC, {}), {})
    return int(values.sum())


def flip(folder: Path, *chunks: int) -> None:
    for chunk in chunks:
        path = folder / SPEC.name / SPEC.file_name((chunk, 0))
        path.write_bytes(bytes(b ^ 0x15 for b in path.read_bytes()))


def test_what_is_there_is_taken_over(receipts: Receipts, tmp_path: Path) -> None:
    (tmp_path / SPEC.name / SPEC.file_name((1, 0))).unlink()
    ledger.append(tmp_path, [Receipt("deleted", (0,), 8, 1, 0.0, 0, {}), Receipt("box", (0,), 0, 0, 0.0, 0, {})])
    again = Receipts(receipts.store, receipts.tables)
    again.resume()
    assert {*again} == {("costs", (0, 0)), ("costs", (2, 0)), ("box", (0,))}
    assert again.nbytes == 2 * 32
    assert not any(receipt.steps for receipt in again.values())
    with pytest.raises(ChunkLostError, match="not written"):
        again.at(SPEC, {})
    flip(tmp_path, 2)
    assert again.lost_of_earlier({}) == []
    again.resume()
    assert again.lost_of_earlier(again.tables()) == [("costs", (2, 0))]
    assert again.lost_of_earlier(again.tables()) == [], "once"


def test_lost_chunks_are_made_again_all_at_once(receipts: Receipts, tmp_path: Path) -> None:
    flip(tmp_path, 0, 2)
    lacking: list[int] = []

    def repair() -> None:
        lacking.append(3 - len(receipts))
        write(receipts)

    assert receipts.until_whole(lambda: total(receipts), repair) == 4 * (10 + 20)
    assert lacking == [2]
    assert receipts.nbytes == 3 * 32


def test_what_cannot_be_right_is_verified(receipts: Receipts, tmp_path: Path) -> None:
    tried: list[int] = []

    def attempt() -> int:
        tried.append(len(tried))
        return len(tried)

    assert receipts.until_whole(attempt, is_right=lambda _: False) == 1, "all chunks are whole: it is what it is"
    flip(tmp_path, 1)
    assert receipts.until_whole(attempt, lambda: write(receipts), lambda found: found > 2) == 3


def test_a_disk_that_loses_everything_is_given_up(receipts: Receipts, tmp_path: Path) -> None:
    def attempt() -> int:
        write(receipts)
        flip(tmp_path, 1)
        return total(receipts)

    with pytest.raises(StorageError, match="lost as fast as they are written"):
        receipts.until_whole(attempt)


def test_deleted_tables_are_forgotten(receipts: Receipts, tmp_path: Path) -> None:
    receipts.delete([SPEC])
    assert not receipts
    assert receipts.nbytes == 0
    assert not (tmp_path / SPEC.name).exists()
