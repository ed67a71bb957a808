"""Folders of object stores behave as those of a file system do, and locks outlive no process."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from bucketflow.storage import files, ledger, locks, object_store
from bucketflow.storage.faults import StorageError
from bucketflow.storage.files import LineLog, Place, logged_lines, read_whole, write_all, written_whole
from bucketflow.storage.locks import is_held, take_lease
from bucketflow.storage.object_store import ObjectPath, StaleObjectError
from bucketflow.storage.spec import Receipt

KEY = ("msg_1", (0, 2))


@pytest.fixture(params=["file system", "object store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A new folder of either kind."""
    if request.param == "file system":
        return tmp_path
    pytest.importorskip("obstore")
    return ObjectPath.of_url(f"memory://bucket/{uuid4().hex}")


@pytest.fixture
def url() -> ObjectPath:
    """A new folder of an object store in memory."""
    pytest.importorskip("obstore")
    return ObjectPath.of_url(f"memory://bucket/{uuid4().hex}")


def put(path: Place, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        write_all(file, memoryview(content))


def receipt(checksum: int, ended: float = 1.0) -> Receipt:
    return Receipt(*KEY, 10, checksum, 0.5, 1 << 20, {"scale": 1.5}, ended)


def test_what_is_put_is_listed_and_read(folder: Place) -> None:
    put(folder / "plan.json", b"{}")
    put(folder / "tables" / "a" / "c.0", b"1234")
    put(folder / "tables" / "a" / "zarr.json", b"{}")
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "tables"]
    assert [str(path) for path in folder.glob("*/*/c.*")] == [str(folder / "tables" / "a" / "c.0")]
    assert [path.name for path in sorted(folder.glob("*/*"))] == ["a"]
    assert files.file_bytes(folder, "c*") == 4
    assert files.is_there(folder / "tables")
    assert (folder / "tables").is_dir()
    assert not (folder / "plan.json").is_dir()
    assert not (folder / "tab").exists()
    assert read_whole(folder / "tables" / "a" / "c.0") == b"1234"
    files.remove_folder(folder / "tables")
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_what_fails_leaves_nothing(folder: Place) -> None:
    put(folder / "plan.json", b"before")

    def fail() -> None:
        with written_whole(folder / "plan.json") as file:
            write_all(file, memoryview(b"half"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert read_whole(folder / "plan.json") == b"before"
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_a_missing_file_is_a_missing_file(folder: Place) -> None:
    with pytest.raises(FileNotFoundError):
        read_whole(folder / "plan.json")
    with pytest.raises(FileNotFoundError), files.opened(folder / "plan.json") as file:
        file.readall()
    (folder / "plan.json").unlink(missing_ok=True)


def test_lines_are_read_in_the_order_in_which_they_were_appended(folder: Place) -> None:
    log = LineLog(folder / "answers.jsonl")
    for number in range(20):
        log.append(b"%d\n" % number, forced=number % 2 == 0)
    log.close()
    assert [line for line in logged_lines(folder / "answers.jsonl") if line] == [b"%d" % n for n in range(20)]


def test_receipts_are_found_by_chunk_by_table_and_all_together(folder: Place) -> None:
    tables = folder / "tables"
    ledger.folder_of(tables).mkdir(parents=True, exist_ok=True)
    other = Receipt("result", (3, 0), 0, 0, 0.1, 1, {"roots": [1]}, 2.0)
    ledger.append(tables, [receipt(7), other])
    assert ledger.load(tables) == {KEY: receipt(7), other.key: other}
    assert ledger.load(tables, [KEY]) == {KEY: receipt(7)}
    assert ledger.load(tables, [("result", None)]) == {other.key: other}
    assert ledger.load(tables, [("result", (4, 0))]) == {}
    writers = {writer for writer, _ in ledger.history(tables)}
    assert len(writers) == 1
    assert str(os.getpid()) in writers.pop()


def test_the_latest_receipt_counts(folder: Place) -> None:
    tables = folder / "tables"
    ledger.folder_of(tables).mkdir(parents=True, exist_ok=True)
    for checksum in (7, 8):
        ledger.append(tables, [receipt(checksum, ended=float(checksum))])
    assert ledger.load(tables) == {KEY: receipt(8, ended=8.0)}


def test_a_task_that_runs_twice_leaves_the_first_receipt(url: ObjectPath) -> None:
    for ended in (1.0, 2.0):
        ledger.append(url / "tables", [receipt(7, ended)])
    assert ledger.load(url / "tables")[KEY].ended == 1.0


def test_a_damaged_receipt_stands_for_nothing_and_is_replaced(url: ObjectPath) -> None:
    ledger.append(url / "tables", [receipt(7)])
    (path,) = (url / "ledger" / "tables").glob("*/*")
    path.put(path.read_bytes().replace(b"1.5", b"2.5"))
    assert ledger.load(url / "tables") == {}
    ledger.append(url / "tables", [receipt(7)])
    assert ledger.load(url / "tables") == {KEY: receipt(7)}


def test_only_one_process_creates_an_object_or_replaces_a_version(url: ObjectPath) -> None:
    first = (url / "lock").create(b"1")
    with pytest.raises(StaleObjectError):
        (url / "lock").create(b"2")
    second = (url / "lock").replace(b"3", first)
    with pytest.raises(StaleObjectError):
        (url / "lock").replace(b"4", first)
    assert (url / "lock").read_version() == (b"3", second)


def test_paths_travel_to_workers() -> None:
    path = ObjectPath.of_url("s3://bucket/run/tables")
    assert pickle.loads(pickle.dumps(path)) == path
    assert hash(pickle.loads(pickle.dumps(path))) == hash(path)
    assert str(path.parent / "x") == "s3://bucket/run/x"


def test_without_the_library_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['obstore'] = None; import bucketflow"
    code += "; bucketflow.solve('satellite', workdir=sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, "s3://bucket/run"], capture_output=True, text=True, cwd=tmp_path)
    assert "pip install obstore" in done.stderr.splitlines()[-1]
    assert not [*tmp_path.iterdir()]


# Locks.


@pytest.mark.parametrize("letter", ["word ", "x"])
def test_long_messages_of_the_library_are_cut(letter: str) -> None:
    """Some stores answer with a long document without blanks: its beginning is shown all the same."""
    reason = object_store._reason(OSError(letter * 500 + "\n\nDebug source: more"))
    assert 390 <= len(reason) <= 400
    assert reason.startswith(letter)
    assert reason.endswith("…")
    assert object_store._reason(OSError(" no\nroom\n\nDebug source: more")) == "no room"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> float:
    """A lease of a second."""
    monkeypatch.setattr(locks, "OBJECT_LEASE_SECONDS", 1.0)
    return 1.0


def test_a_lock_is_held_by_one_process_and_then_by_the_next(url: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "OBJECT_LEASE_SECONDS", 6.0)
    lock = take_lease(url / "lock")
    assert lock is not None
    assert is_held(url / "lock")
    assert take_lease(url / "lock") is None  # once it is renewed
    assert lock.writable()
    lock.close()
    assert not is_held(url / "lock")
    with take_lease(url / "lock") as again:  # type: ignore[union-attr]
        assert again.writable()
    assert [*url.iterdir()] == []


def foreign(url: ObjectPath, **facts: object) -> None:
    """Leave the lock of a process of another machine."""
    record = {"token": "other", "place": "elsewhere", "pid": 1, "start": "1", "renewed": time.time(), **facts}
    (url / "lock").put(json.dumps(record).encode())


def test_a_lock_that_nobody_renews_is_taken_over_after_a_lease(url: ObjectPath, short: float) -> None:
    foreign(url)
    start = time.monotonic()
    with take_lease(url / "lock") as lock:  # type: ignore[union-attr]
        assert time.monotonic() - start >= short
        assert lock.writable()


def test_clocks_of_other_machines_do_not_matter(url: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "OBJECT_LEASE_SECONDS", 8.0)
    foreign(url, renewed=0.0)
    renewing = threading.Event()

    def renew() -> None:
        while not renewing.wait(1.0):
            foreign(url, renewed=0.0, beat=time.monotonic())

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        assert take_lease(url / "lock") is None
    finally:
        renewing.set()
        thread.join()


def test_a_lock_of_a_dead_process_of_this_machine_is_taken_over_immediately(
    url: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = locks.this_process()
    if here["place"] is None:
        pytest.skip("the system does not tell processes apart")
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    foreign(url, place=here["place"], pid=dead.pid)
    monkeypatch.setattr(locks.time, "sleep", lambda _: pytest.fail("the lock was waited for"))
    with take_lease(url / "lock") as lock:  # type: ignore[union-attr]
        assert lock.writable()


def test_a_damaged_lock_is_taken_over_after_a_lease(url: ObjectPath, short: float) -> None:
    (url / "lock").put(b"\x00 no json")
    with take_lease(url / "lock") as lock:  # type: ignore[union-attr]
        assert lock.writable()


def test_a_holder_that_was_suspended_finds_out_and_writes_no_answer(url: ObjectPath, short: float) -> None:
    from bucketflow.storage.run_folder import RunDir

    with RunDir(url).lock:
        pass
    run = RunDir(url)
    foreign(url)  # as if another process had taken over
    time.sleep(short)
    with run.lock, pytest.raises(StorageError, match="taken over by another run"):
        run.write_result({"status": "optimal"})
    assert json.loads((url / "lock").read_bytes())["token"] == "other"
