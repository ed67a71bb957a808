"""A command that waits for a scheduler says so, on a terminal and in a pipe."""

from __future__ import annotations

import threading
import time

import pytest
from click.testing import CliRunner

from bucketflow.cluster import address
from bucketflow.cluster.address import ClusterError, unanswered, verify_listening, waiting_for, waiting_reported
from bucketflow.pipeline.cli import ending
from bucketflow.pipeline.cli.main import main


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "NOTICE_SECONDS", 0.0)


@pytest.mark.usefixtures("told_at_once")
def test_waiting_is_reported_to_the_innermost_listener() -> None:
    said, came = list[str](), threading.Event()

    def report(sentence: str) -> None:
        said.append(sentence)
        came.set()

    with waiting_reported(pytest.fail), waiting_reported(report), waiting_for("a worker"):
        assert came.wait(60)
    assert said == ["a worker"]


def test_what_takes_no_time_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "NOTICE_SECONDS", 3600.0)
    timers = threading.active_count()
    with waiting_reported(pytest.fail), waiting_for("a worker"):
        assert threading.active_count() == timers + 1
    while threading.active_count() > timers:
        time.sleep(0.001)


@pytest.mark.usefixtures("told_at_once")
def test_a_command_says_what_it_waits_for_and_then_how_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is tried until the sentence was printed."""
    printed, echo = threading.Event(), ending.note_waiting

    def note(sentence: str) -> None:
        echo(sentence)
        printed.set()

    def tried(place: str, *_: object) -> None:
        assert printed.wait(60)
        raise ClusterError(unanswered(place, "Connection refused"))

    monkeypatch.setattr(ending, "note_waiting", note)
    monkeypatch.setattr(address, "wait_for_listening", tried)
    done = CliRunner().invoke(main, ["solve", "diagnosis", "--scheduler", "tcp://127.0.0.1:1"])
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "bucketflow: no Dask scheduler answers at tcp://127.0.0.1:1 yet; bucketflow keeps trying for 5 s",
        "bucketflow: no Dask scheduler answers at tcp://127.0.0.1:1 (Connection refused); check that "
        "`dask scheduler --port 1` runs on 127.0.0.1 and that no firewall blocks the connection",
    ]


def test_a_closed_port_is_tried_for_no_longer_than_a_scheduler_takes_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(address.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(address.time, "sleep", sleep)
    with pytest.raises(ClusterError, match="no Dask scheduler answers"):
        verify_listening("tcp://127.0.0.1:1")
    assert clock[0] <= address.LISTENING_SECONDS + 1
