"""Graphs of launches: each launch follows the launches that it waits for, and no others."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.tasks.gpu import kernels
from bucketflow.tasks.gpu.kernels import Launch, bound_launches


class Capture:
    """Streams and events that record which launches must end before each launch, as the capture of a graph does."""

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.graphs: list[set[int]] = []
        self.single = 0
        capture = self

        class Stream:
            def __init__(self, non_blocking: bool = False) -> None:
                self.ptr, self.captured, self.ended = id(self), False, set[int]()
                streams[self.ptr] = self

            def begin_capture(self) -> None:
                self.captured = True

            def end_capture(self) -> Any:
                assert all(stream.ended <= self.ended for stream in streams.values()), "a branch was not joined"
                nodes = self.ended
                return SimpleNamespace(launch=lambda _: capture.graphs.append(nodes))

            def wait_event(self, event: Event) -> None:
                self.captured |= event.captured
                self.ended = self.ended | event.ended

        class Event:
            def __init__(self, disable_timing: bool = False) -> None:
                assert disable_timing

            def record(self, stream: Stream) -> None:
                self.captured, self.ended = stream.captured, set(stream.ended)

        streams = dict[int, Stream]()

        def launch(function: int, *numbers: int) -> None:
            stream = streams.get(numbers[-3])
            if stream is None:
                self.single += 1
                return
            assert stream.captured, "the launch is not part of the graph"
            self.before.append(set(stream.ended))
            stream.ended = stream.ended | {len(self.before) - 1}

        self.streams = streams
        self.module: Any = ModuleType("cupy")
        self.module.cuda = SimpleNamespace(
            Stream=Stream,
            Event=Event,
            driver=SimpleNamespace(launchKernel=launch),
            get_current_stream=lambda: SimpleNamespace(ptr=7),
        )


def repeated(capture: Capture, waits: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat launches until they are a graph, and launch the graph."""
    monkeypatch.setitem(sys.modules, "cupy", capture.module)
    kernel: Any = SimpleNamespace(present=SimpleNamespace(kernel=SimpleNamespace(ptr=1)))
    record = np.zeros((), [("inputs", "u8", 1), ("out", "u8", 1)])
    launches = [(Launch(kernel, record, ([0], [1]), 1, 32), [0, 0]) for _ in waits]
    repeat = bound_launches(launches, waits)
    for _ in range(kernels._REPEATED_SINGLY + 1):
        repeat()


def ancestors(waits: list[list[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for before in waits:
        found.append({*before}.union(*(found[i] for i in before)))
    return found


@given(data=st.data())
def test_launches_follow_those_that_they_wait_for_and_no_others(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12))
    waits = [sorted(data.draw(st.sets(st.integers(0, k - 1), max_size=3))) if k else [] for k in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        capture = Capture()
        repeated(capture, waits, patch)
    assert capture.before == ancestors(waits)
    assert capture.graphs == [{*range(count)}]
    assert capture.single == kernels._REPEATED_SINGLY * count


def test_a_chain_takes_one_stream_and_steps_use_streams_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, steps = Capture(), Capture()
    repeated(chain, [[k - 1] if k else [] for k in range(20)], monkeypatch)
    assert len(chain.streams) == 1
    # each step has three joins and a last pass, and begins when the step before has ended
    waits = [wait for k in range(0, 40, 4) for wait in (*[[k - 1] if k else []] * 3, [k, k + 1, k + 2])]
    repeated(steps, waits, monkeypatch)
    assert steps.before == ancestors(waits)
    assert len(steps.streams) == 3
