"""Runs whose directory is in an object store: the same answers, and nothing finished is lost to any fault.

The store is an S3 server of its own process. Requests pass a proxy, which counts them and lets some fail.
"""

# ruff: noqa: F401, F811

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.machine import rates
from bucketflow.storage import ledger, locks
from bucketflow.storage.object_store import ObjectPath
from tests.killing import stopped
from tests.models import grid
from tests.object_server import Bucket, bucket, buckets, needs_server
from tests.pipeline.runs.test_damage import budget

pytestmark = needs_server

# The query, the kind of model, its size, how the plan is made to fit, and a part of the memory that it would need.
RUNS: dict[str, tuple[str, str, tuple[int, int, int], str, int]] = {
    "whole": ("optimum", "cost", (4, 4, 3), "auto", 1),
    "slices": ("optimum", "cost", (5, 5, 4), "slice", 3),
    "sums": ("partition", "markov", (5, 5, 4), "slice", 4),
    "spilled": ("optimum", "cost", (6, 6, 4), "spill", 2),
    "spilled sums": ("partition", "markov", (6, 6, 4), "spill", 2),
    "marginals": ("marginals", "markov", (5, 5, 4), "slice", 2),
    "spilled marginals": ("marginals", "markov", (6, 6, 4), "spill", 3),
}


@pytest.fixture(autouse=True)
def known_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans do not depend on how fast the server is."""
    monkeypatch.setattr(rates, "sampled_store_rate", lambda _: 1e8)


def question(name: str) -> tuple[bucketflow.Model, Callable[..., Any]]:
    """Return a model, and what asks a question on it in a run directory."""
    query, kind, shape, fit, share = RUNS[name]
    model = grid(*shape, kind)
    options = budget(model, query, fit, share)

    def ask(workdir: str, **more: Any) -> Any:
        if query == "marginals":
            return bucketflow.marginals(model, workdir=workdir, **options, **more)
        return bucketflow.solve(model, query, workdir=workdir, **options, **more)

    return model, ask


def expected(name: str) -> Any:
    """Return the answer in memory."""
    query, kind, shape, _, _ = RUNS[name]
    model = grid(*shape, kind)
    return bucketflow.marginals(model) if query == "marginals" else bucketflow.solve(model, query)


def same(found: Any, wanted: Any) -> bool:
    """Whether two answers agree: exactly where they are whole numbers, else within rounding."""
    if isinstance(wanted, bucketflow.Marginals):
        return all(np.allclose(found[name], wanted[name], rtol=1e-11) for name in wanted)
    logs = found.log10 is None if wanted.log10 is None else np.isclose(found.log10, wanted.log10, rtol=1e-12)
    return bool((found.status, found.value) == (wanted.status, wanted.value) and logs)


def chunks(run: str) -> list[ObjectPath]:
    """Return the chunks of all tables of a run."""
    return [path for path in (ObjectPath.of_url(run) / "tables").glob("*/*") if path.name.startswith("c.")]


def without_answer(run: str) -> None:
    """Remove the answer, as if the run had been interrupted just before."""
    (ObjectPath.of_url(run) / "result.json").unlink()


@pytest.mark.parametrize("name", RUNS)
def test_answers_are_those_of_a_local_run(name: str, bucket: Bucket) -> None:
    _, ask = question(name)
    run, wanted = f"{bucket.url}run", expected(name)
    assert same(ask(run), wanted)
    requests = len(bucket.requests)
    assert same(ask(run), wanted)
    assert not [path for method, path in bucket.requests[requests:] if method == "PUT" and "/tables/" in path]
    without_answer(run)
    assert same(ask(run), wanted)


def model_file(name: str, folder: Path) -> tuple[Path, list[str]]:
    """Write the model of a run; return it with the options of the command line."""
    query, kind, shape, fit, share = RUNS[name]
    path = folder / ("grid.wcsp" if kind == "cost" else "grid.uai")
    bucketflow.save(grid(*shape, kind), path)
    options = budget(bucketflow.load(path), query, fit, share)
    flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return path, flags if query == "marginals" else ["--query", query, *flags]


def command_of(name: str) -> str:
    return "marginals" if RUNS[name][0] == "marginals" else "solve"


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a lock to expire."""

    def fail(_: float) -> None:
        raise AssertionError("the holder of the lock counts as alive")

    monkeypatch.setattr(locks, "time", SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=fail))


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(("name", "receipts"), [("slices", 1), ("spilled", 4)])
def test_a_run_that_was_killed_goes_on_without_what_was_finished(
    name: str,
    receipts: int,
    bucket: Bucket,
    tmp_path: Path,
) -> None:
    path, flags = model_file(name, tmp_path)
    run = f"{bucket.url}run"
    done = stopped(receipts, signal.SIGKILL, command_of(name), path, *flags, "--workdir", run)
    assert done.returncode == -signal.SIGKILL
    finished = ledger.load(ObjectPath.of_url(run) / "tables")
    assert receipts <= len(finished)
    assert same(bucketflow.resume(run), expected(name))
    after = {receipt.key: receipt for _, receipt in ledger.history(ObjectPath.of_url(run) / "tables")}
    assert all(after[key].ended == receipt.ended for key, receipt in finished.items())


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(
    ("stage", "forwarded"),
    [("lock", True), ("plan.json", False), ("/c.", True), ("ledger/", False), ("ledger/", True), ("result.json", True)],
)
def test_a_run_may_be_killed_at_every_stage(
    stage: str,
    forwarded: bool,
    bucket: Bucket,
    tmp_path: Path,
) -> None:
    """At the first request to put something, before it arrives or before its answer does."""
    path, flags = model_file("spilled", tmp_path)
    run = f"{bucket.url}run"
    command = [sys.executable, "-m", "bucketflow", "solve", str(path), *flags, "--workdir", run]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    killed = list[str]()

    def kill(method: str, target: str) -> str | None:
        if method != "PUT" or stage not in target or killed:
            return None
        killed.append(target)
        process.kill()
        process.wait()
        return "lose" if forwarded else "drop"

    with bucket.failing(kill):
        process.communicate(timeout=120)
    assert killed
    assert process.returncode == -signal.SIGKILL
    again = CliRunner().invoke(main, ["solve", str(path), *flags, "--workdir", run, "--json"])
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["value"] == expected("spilled").value


@pytest.mark.parametrize(
    ("name", "how"),
    [("spilled", "missing"), ("spilled", "flipped"), ("spilled marginals", "missing"), ("marginals", "short")],
)
def test_lost_and_corrupted_chunks_are_computed_again(name: str, how: str, bucket: Bucket) -> None:
    _, ask = question(name)
    run = f"{bucket.url}run"
    first = ask(run)
    found = chunks(run)
    assert found
    for path in found[:: max(1, len(found) // 3)]:
        content = path.read_bytes()
        half = len(content) // 2
        if how == "missing":
            path.unlink()
        else:
            path.put(content[:half] if how == "short" else content[:half] + b"\x01\xfe" + content[half + 2 :])
    without_answer(run)
    results = ObjectPath.of_url(run) / "ledger" / "tables" / "result"
    results.remove_all()
    again = ask(run)
    assert same(again, first)
    if name == "spilled":
        assert again.assignment == first.assignment


@pytest.mark.parametrize("what", ["plan.json", "zarr.json", "ledger"])
def test_damaged_records_lead_to_the_same_answer_or_one_sentence(what: str, bucket: Bucket) -> None:
    _, ask = question("spilled")
    run = f"{bucket.url}run"
    first = ask(run)
    without_answer(run)
    for path in (*ObjectPath.of_url(run).glob("*"), *ObjectPath.of_url(run).glob("*/*/*")):
        if what in str(path) and not path.is_dir():
            path.put(path.read_bytes()[:-7])
    if what == "plan.json":
        with pytest.raises(bucketflow.IncompatibleRunError, match=r"plan\.json is damaged"):
            ask(run)
    else:
        assert same(ask(run), first)


def test_two_runs_at_the_same_time_are_one(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "OBJECT_LEASE_SECONDS", 6.0)
    _, ask = question("spilled")
    run, refused = f"{bucket.url}run", list[str]()

    def other(done: int, planned: int) -> None:
        if not refused:
            with pytest.raises(bucketflow.IncompatibleRunError, match="in use by another run") as caught:
                ask(run)
            refused.append(str(caught.value))

    assert same(ask(run, progress=other), expected("spilled"))
    assert refused
    assert same(ask(run), expected("spilled"))


def test_a_run_takes_over_from_a_process_that_another_machine_lost(
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "OBJECT_LEASE_SECONDS", 1.0)
    _, ask = question("whole")
    (ObjectPath.of_url(f"{bucket.url}run") / "lock").put(b'{"token": "other", "place": "elsewhere", "pid": 1}')
    start = time.monotonic()
    assert same(ask(f"{bucket.url}run"), expected("whole"))
    assert time.monotonic() - start >= 1.0


@pytest.mark.parametrize("how", ["503", "drop", "lose"])
def test_requests_that_fail_are_sent_again(how: str, bucket: Bucket) -> None:
    """Each request fails once before it is answered, a lost answer too: what was put may have arrived."""
    _, ask = question("spilled sums")
    seen, lock = Counter[tuple[str, str]](), threading.Lock()

    def fail(method: str, target: str) -> str | None:
        with lock:
            seen[method, target] += 1
            return how if seen[method, target] == 1 else None

    with bucket.failing(fail):
        found = ask(f"{bucket.url}run")
    assert same(found, expected("spilled sums"))
    assert len(seen) > 10


def test_a_store_that_goes_away_stops_the_run_which_goes_on_later(bucket: Bucket) -> None:
    _, ask = question("spilled")
    run, gone = f"{bucket.url}run", list[str]()

    def fail(method: str, target: str) -> str | None:
        if gone or (method == "PUT" and "/c." in target and "ledger" not in target):
            gone.append(target)
            return "drop"
        return None

    with bucket.failing(fail), pytest.raises(bucketflow.StoppedError, match="cannot be reached") as caught:
        ask(run)
    assert f"bucketflow resume {run}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert same(ask(run), expected("spilled"))


def test_a_folder_of_something_else_is_refused(bucket: Bucket) -> None:
    (ObjectPath.of_url(f"{bucket.url}run") / "holiday.jpg").put(b"1")
    _, ask = question("whole")
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"holds 'holiday\.jpg' and no plan\.json"):
        ask(f"{bucket.url}run")


def test_a_bucket_that_is_not_there_is_one_sentence(bucket: Bucket) -> None:
    done = CliRunner().invoke(main, ["solve", "satellite", "--workdir", "s3://nosuchbucket-here/run"])
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "s3://nosuchbucket-here/run cannot be used as a run directory" in done.stderr


@pytest.mark.parametrize("name", ["spilled", "marginals"])
def test_a_run_is_inspected_and_reported(name: str, bucket: Bucket, tmp_path: Path) -> None:
    path, flags = model_file(name, tmp_path)
    for place in (f"{bucket.url}run", str(tmp_path / "run")):
        done = CliRunner().invoke(main, [command_of(name), str(path), *flags, "--workdir", place])
        assert done.exit_code == 0, done.stderr
    facts = []
    for place in (f"{bucket.url}run", str(tmp_path / "run")):
        done = CliRunner().invoke(main, ["inspect", place, "--json"])
        assert done.exit_code == 0, done.stderr
        facts.append(json.loads(done.stdout))
    told = [[(stage["table"], stage["boxes"], stage["chunks_done"]) for stage in each["stages"]] for each in facts]
    assert told[0] == told[1]
    assert [each["status"] for each in facts] == ["finished"] * 2
    arrays = [[(array["name"], array["shape"], array["chunks_done"]) for array in each["arrays"]] for each in facts]
    assert arrays[0] == arrays[1]
    assert facts[0]["disk_bytes"] > 0
    done = CliRunner().invoke(main, ["report", f"{bucket.url}run", "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.stderr
    assert "Timeline" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("finished", [True, False])
def test_zarr_opens_the_tables_through_its_own_stores(finished: bool, bucket: Bucket) -> None:
    import zarr
    from obstore.store import S3Store
    from zarr.storage import ObjectStore

    _, ask = question("spilled")
    run = f"{bucket.url}run"

    def stop(done: int, planned: int) -> None:
        if not finished and done > planned // 2:
            raise KeyboardInterrupt

    if finished:
        ask(run)
    else:
        with pytest.raises(bucketflow.StoppedError):
            ask(run, progress=stop)
    name = bucket.url.removeprefix("s3://").rstrip("/")
    group = zarr.open_group(ObjectStore(S3Store(name, prefix="run/tables"), read_only=True), mode="r")
    arrays = dict(group.arrays())
    assert arrays
    done = Counter(table for table, _ in ledger.load(ObjectPath.of_url(run) / "tables"))
    for array_name, array in arrays.items():
        values = array[...]
        assert values.shape == array.shape
        assert bool((values != array.fill_value).any()) == (done[array_name] > 0)
    if finished:
        return
    pytest.importorskip("s3fs")
    from zarr.storage import FsspecStore

    endpoint = {"endpoint_url": bucket.environment["AWS_ENDPOINT_URL"]}
    store = FsspecStore.from_url(f"{run}/tables", storage_options=endpoint, read_only=True)
    again = dict(zarr.open_group(store, mode="r").arrays())
    assert again.keys() == arrays.keys()
    assert all(np.array_equal(again[key][...], arrays[key][...]) for key in arrays)


def test_kept_tables_and_bounds_are_stored(bucket: Bucket, tmp_path: Path) -> None:
    model = grid(5, 5, 3)
    bucketflow.solve(model, workdir=f"{bucket.url}kept", keep_tables=0)
    bucketflow.solve(model, workdir=tmp_path / "kept", keep_tables=0)
    files = [file.relative_to(tmp_path).as_posix() for file in tmp_path.glob("kept/tables/*/c.*")]
    assert sorted(str(path).removeprefix(bucket.url) for path in chunks(f"{bucket.url}kept")) == sorted(files)
    found = bucketflow.solve(model, workdir=f"{bucket.url}bounds", time=20)
    assert found.value == bucketflow.solve(model).value
    assert bucketflow.solve(model, workdir=f"{bucket.url}bounds", time=20).value == found.value
