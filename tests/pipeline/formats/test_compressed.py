"""Compressed files: the same models as plain ones, and no more memory than a plain file may take."""

from __future__ import annotations

import lzma
import tracemalloc
from pathlib import Path

import pytest

from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.formats.registry import is_model
from bucketflow.pipeline.formats.text.source import LEAST_MEMORY

from .test_blanks import FILES, content


@pytest.mark.parametrize("name", sorted(FILES))
def test_lzma_files_of_every_format(tmp_path: Path, name: str) -> None:
    plain, packed = tmp_path / name, tmp_path / f"{name}.lzma"
    plain.write_text(FILES[name])
    packed.write_bytes(lzma.compress(FILES[name].encode(), lzma.FORMAT_ALONE))
    assert content(packed) == content(plain)
    assert load(packed).name == load(plain).name
    assert is_model(packed)


@pytest.mark.parametrize("name", ["a.wcsp", "a.wcsp.xz", "a"])
def test_lzma_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16, "lc": 0, "lp": 2, "pb": 0}]
    path.write_bytes(lzma.compress(FILES["a.wcsp"].encode(), lzma.FORMAT_ALONE, filters=filters))
    assert len(load(path).dims) == 3


def test_a_text_named_lzma_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp.lzma"
    path.write_text(FILES["a.wcsp"])
    assert len(load(path).dims) == 3


@pytest.mark.parametrize("container", [lzma.FORMAT_ALONE, lzma.FORMAT_XZ])
def test_a_bomb_takes_no_more_than_its_memory(tmp_path: Path, container: int) -> None:
    path = tmp_path / "a.xml.lzma"
    packer = lzma.LZMACompressor(container, preset=0)
    with path.open("wb") as file:
        for _ in range(64):
            file.write(packer.compress(b" " * (1 << 20)))
        file.write(packer.flush())
    assert path.stat().st_size < 1 << 17
    tracemalloc.start()
    try:
        with pytest.raises(BudgetError, match=r"reading it needs at least .* of text"):
            load(path, memory=LEAST_MEMORY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * LEAST_MEMORY


def test_a_claimed_dictionary_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.xml.lzma"
    path.write_bytes(b"\x5d\xff\xff\xff\xff" + b"\xff" * 8 + b"\x00" * 50)
    with pytest.raises(BudgetError, match="decompressing it needs more than"):
        load(path, memory=LEAST_MEMORY)


@pytest.mark.parametrize(
    "data",
    [
        lzma.compress(FILES["a.wcsp"].encode(), lzma.FORMAT_ALONE)[:-9],
        lzma.compress(FILES["a.wcsp"].encode(), lzma.FORMAT_ALONE) + b"more",
        b"\x5d\x00\x00\x80\x00" + b"\xff" * 8 + b"no such stream",
    ],
)
def test_damaged_lzma_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.wcsp.lzma"
    path.write_bytes(data)
    with pytest.raises(FormatError, match="expected an undamaged compressed file"):
        load(path)


@pytest.mark.parametrize("name", ["plain.cnf", "hard.wcnf", "a.wcsp", "a.uai", "a.opb", "a.lp"])
def test_ctrl_z_ends_a_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    expected = content(path)
    path.write_bytes(FILES[name].replace("\n", "\r\n").encode() + b"\x1a")
    assert content(path) == expected
