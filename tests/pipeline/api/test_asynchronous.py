"""Asynchronous clients and event loops: questions are awaited, and the synchronous functions refuse at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import bucketflow
from bucketflow.pipeline.answering import placement
from tests.models import grid

pytestmark = pytest.mark.filterwarnings("ignore")


def with_client(use: Callable[[Client], Any]) -> Any:
    """Await what a function makes of an asynchronous client."""

    async def run() -> Any:
        workers = LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, asynchronous=True
        )
        async with workers, Client(workers, asynchronous=True, set_as_default=False) as client:
            return await use(client)

    return asyncio.run(run())


def test_questions_are_awaited_with_an_asynchronous_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    model, sums = grid(9, 9, 3), grid(6, 6, 2, "markov")

    async def ask(client: Client) -> Any:
        return await asyncio.gather(
            bucketflow.asolve(model, method="dense", client=client), bucketflow.amarginals(sums, client=client)
        )

    best, beliefs = with_client(ask)
    assert best.value == bucketflow.solve(model).value
    assert best.dask.tasks > 0
    expected = bucketflow.marginals(sums)
    assert all((beliefs[name] == expected[name]).all() for name in sums.names)


def test_synchronous_functions_refuse_an_asynchronous_client(tmp_path: Path) -> None:
    model = grid(2, 2, 2)
    bucketflow.save(model, tmp_path / "a.wcsp")

    async def ask(client: Client) -> int:
        calls: list[Callable[[], Any]] = [
            lambda: bucketflow.solve(model, client=client),
            lambda: bucketflow.marginals(grid(2, 2, 2, "markov"), client=client),
            lambda: bucketflow.plan(model, client=client),
            lambda: bucketflow.submit(tmp_path / "a.wcsp", client=client, workdir=tmp_path / "run"),
            lambda: bucketflow.jobs(client=client),
            lambda: bucketflow.Job(tmp_path, client),
        ]
        for call in calls:
            with pytest.raises(bucketflow.BucketflowError, match=r"client is asynchronous.*await bucketflow.asolve"):
                call()
        return len(calls)

    assert with_client(ask) == 6


def test_a_cancelled_query_stops() -> None:
    """The query reports its progress, waits for the cancellation, and never ends by itself."""
    reached, ended = threading.Event(), threading.Event()

    def wait(*_: int) -> None:
        reached.set()
        try:
            while True:
                threading.Event().wait(0.01)
        finally:
            ended.set()

    async def run() -> None:
        task = asyncio.create_task(bucketflow.asolve(grid(6, 6, 2), method="dense", progress=wait))
        while not reached.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(run())
