"""Temporary folders: there while their process lives, and no longer."""

from __future__ import annotations

import subprocess
import sys
from io import FileIO
from pathlib import Path

import pytest

from bucketflow.storage import locks
from bucketflow.storage.locks import remove_abandoned, scratch_folder

HOLD = (
    "import sys, pathlib; from bucketflow.storage.locks import scratch_folder\n"
    "with scratch_folder(pathlib.Path(sys.argv[1])) as folder:\n"
    "    (folder / 'table').write_text('x'); print(folder, flush=True); sys.stdin.read()"
)


def test_a_folder_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        (folder / "table").write_text("x")
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_only_folders_of_the_dead_are_removed(tmp_path: Path) -> None:
    held = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    folders = [Path(process.stdout.readline().strip()) for process in held if process.stdout]
    held[0].kill()
    held[0].communicate()
    assert all(folder.exists() for folder in folders)
    with scratch_folder(tmp_path) as own:
        remove_abandoned(tmp_path)
        assert own.exists()
        assert [folder.exists() for folder in folders] == [False, True]
    held[1].communicate("")
    assert not list(tmp_path.iterdir())


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lock").write_text("")
    (tmp_path / f"{locks._prefix()}link").symlink_to(outside)
    linked = tmp_path / f"{locks._prefix()}linked"
    linked.mkdir()
    (linked / "lock").symlink_to(outside / "lock")
    (tmp_path / f"{locks._prefix()}new").mkdir()
    (tmp_path / "bucketflow-elsewhere-1").mkdir()
    (tmp_path / "bucketflow-elsewhere-1" / "lock").write_text("")
    before = sorted(tmp_path.rglob("*"))
    remove_abandoned(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_was_taken_for_abandoned_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process looks between the making of a folder and the taking of its lock."""
    original, made = locks.opened, []

    def seen(path: Path, flags: int) -> FileIO:
        handle = original(path, flags)
        if not made:
            made.append(path.parent)
            remove_abandoned(tmp_path)
        return handle

    monkeypatch.setattr(locks, "opened", seen)
    with scratch_folder(tmp_path) as folder:
        assert folder.exists()
        assert not made[0].exists()
        assert folder != made[0]
