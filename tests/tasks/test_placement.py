"""Tables of a sweep in one block of device memory: none overlaps another that is there at the same time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.tasks.gpu import arrays
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.gpu.recorded import Request, placed, room_for
from bucketflow.tasks.steps.step import Step
from bucketflow.tasks.sweeps.sweep import freed_tables

from ..device_stand_in import device


def live_bytes(requests: list[Request]) -> int:
    """The most that is there at one time."""
    times = range(max((r.last for r in requests), default=0) + 1)
    return max((sum(r.nbytes for r in requests if r.first <= t <= r.last) for t in times), default=0)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20), st.integers(0, 8)), max_size=40))
def test_nothing_overlaps(drawn: list[tuple[int, int, int]]) -> None:
    requests = [Request(512 * size, first, first + length) for size, first, length in drawn]
    places, nbytes = placed(requests)
    for i, (a, at) in enumerate(zip(requests, places, strict=True)):
        assert at % 512 == 0
        assert 0 <= at <= nbytes - a.nbytes
        for b, other in list(zip(requests, places, strict=True))[:i]:
            together = a.first <= b.last and b.first <= a.last
            assert not together or at + a.nbytes <= other or other + b.nbytes <= at
    assert live_bytes(requests) <= nbytes <= sum(r.nbytes for r in requests)


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_takes_what_is_live(seed: int) -> None:
    """Of sweeps along trees, where a table is read once, the block is hardly more than the most that is live."""
    rng = np.random.default_rng(seed)
    waiting: list[int] = []
    requests: list[Request] = []
    for k in range(60):
        for _ in range(min(len(waiting), int(rng.integers(0, 3)))):
            i = waiting.pop()
            requests[i] = requests[i]._replace(last=k)
        waiting.append(len(requests))
        requests.append(Request(512 * int(2 ** rng.integers(0, 12)), k, 60))
        requests.append(Request(512 * int(2 ** rng.integers(0, 8)), k, k))
    assert placed(requests)[1] <= 1.25 * live_bytes(requests)


def test_the_largest_is_not_always_the_first() -> None:
    """Where a workspace is larger than the tables beside it, and tables live on, it lies above them."""
    sizes = [(2, 0, 1), (5, 0, 0), (4, 1, 2), (2, 1, 1), (2, 2, 3)]
    requests = [Request(512 * size, first, last) for size, first, last in sizes]
    assert placed(requests)[1] == live_bytes(requests) == 512 * 8


@DevicePolicy.using(placed_least_bytes=1024)
def test_a_room_has_places_for_what_is_dropped() -> None:
    steps = [
        Step(node, inputs, ((),) * len(inputs), (), None) for node, inputs in ((3, (0,)), (4, (1, 3)), (5, (2, 4)))
    ]
    runs: Any = {n: SimpleNamespace(out_bytes=4096, workspace_bytes=2048 if n == 4 else 0) for n in (3, 4, 5)}
    room = room_for(steps, runs, freed_tables(steps, {5}), {5})
    first, second, last = (room.places.get(id(step), (None, None)) for step in steps)
    assert last == (None, None)  # the result is not in the block
    assert None not in (*second, first[0])
    assert first[1] is None
    assert room.nbytes == 4096 + 4096 + 2048
    # what runs twice has no place, neither has what runs on the host
    assert room_for([*steps, steps[0]], runs, [(), (), (), ()], ()).places.keys() == {id(steps[1]), id(steps[2])}
    assert room_for(steps, {}, freed_tables(steps, {5}), ()).nbytes == 0


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([64, 64, 64], 1),
        ([64, 512, 64, 512, 64, 512], 2),
        ([512, 64, 512, 64, 512, 64], 3),
        ([512, 64, 128, 512, 64, 128, 64, 512], 4),
        ([*range(64, 128)], 64),
        ([*range(128, 64, -1)], 64),
    ],
)
def test_pools_are_freed_once_for_sizes_in_turn(monkeypatch: pytest.MonkeyPatch, sizes: list[int], times: int) -> None:
    freed = list[int]()
    monkeypatch.setattr(arrays, "_BLOCKS", {})
    with device(monkeypatch):
        monkeypatch.setattr(arrays, "free_pools", lambda: freed.append(1))
        for nbytes in sizes:
            arrays.block(nbytes)
    assert len(freed) == times
