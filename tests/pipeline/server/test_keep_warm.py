"""Commands with --keep-warm: a server that runs them prints, refuses and ends as they do by themselves."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bucketflow.pipeline.batches.models import kept_model
from bucketflow.pipeline.cli import batch as serving
from bucketflow.pipeline.cli.batch import SentText
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cli.options import reading_by
from bucketflow.pipeline.server import warm_client
from bucketflow.pipeline.server.server import QuestionServer, ServerSettings
from bucketflow.pipeline.server.server_folder import ServerFolder
from bucketflow.pipeline.server.service_queue import ServedRequest, ServerPolicy
from tests.policies import InForce

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("starlette", reason="the extra serve is not installed")

CYCLE = "cycle 2 2 1 100\n2 2\n2 0 1 0 2\n0 1 3\n1 0 5\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, and a cache folder of its own."""
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cycle.wcsp").write_text(CYCLE)
    return tmp_path


@pytest.fixture
def warm(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerFolder]:
    """The server that --keep-warm finds, in a thread.

    A command that it runs has the standard output of this process until it ends, so clients print afterwards.
    """
    posted = warm_client.posted
    monkeypatch.setattr(warm_client, "posted", lambda *given: iter([*posted(*given)]))
    monkeypatch.setattr(warm_client, "start_server", lambda *_: pytest.fail("another server was started"))
    folder = warm_client.folder_here()
    server = QuestionServer(ServerSettings(), folder, serving.run_described)
    ready = threading.Event()

    def run() -> None:
        with reading_by(kept_model):
            server.run(ready=lambda _: ready.set())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    yield folder
    server.stop()
    thread.join(60)
    assert not thread.is_alive()


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def without_times(text: str) -> str:
    """Leave out what differs from run to run."""
    return re.sub(r'"(seconds|peak_rss_bytes|compile)": ({[^}]*}|[\d.e-]+)|seconds .*|compil.*|in [\d.]+ s', "", text)


@pytest.mark.parametrize(
    "words",
    [
        ("solve", "cycle.wcsp"),
        ("solve", "cycle.wcsp", "--json"),
        ("solve", "cycle.wcsp", "--best", "2"),
        ("solve", "cycle.wcsp", "--evidence", "x0=1", "--query", "count"),
        ("solve", "cycle.wcsp", "--evidence", "foo=1"),
        ("solve", "cycle.wcsp", "--best", "2", "--query", "count"),
        ("solve", "cycle.wcsp", "--memory", "10"),
        ("solve", "absent.wcsp"),
        ("solve", "diagnosis", "--query", "partition", "--evidence", "Storm=no"),
        ("marginals", "diagnosis", "--variables", "Season", "--evidence", "Storm=no"),
        ("marginals", "diagnosis", "--out", "/dev/null/x.json"),
        ("bound", "cycle.wcsp"),
    ],
)
def test_a_server_prints_and_ends_as_the_command_does(warm: ServerFolder, words: tuple[str, ...]) -> None:
    alone = run(*words)
    for _ in range(2):
        found = run(*words, "--keep-warm")
        assert found.exit_code == alone.exit_code
        assert without_times(found.stdout) == without_times(alone.stdout)
        assert found.stderr == alone.stderr


def test_the_server_answers_and_keeps_the_model(warm: ServerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    monkeypatch.setattr(warm_client, "posted", _counted(warm_client.posted, read))
    for _ in range(2):
        assert "optimal" in run("solve", "cycle.wcsp", "--keep-warm").stdout
    assert read == ["/command"] * 2
    first = kept_model("cycle.wcsp", memory=None, check=True)
    assert first is kept_model("cycle.wcsp", memory=None, check=True)
    Path("cycle.wcsp").write_text(CYCLE.replace("0 1 3", "0 1 77"))
    assert kept_model("cycle.wcsp", memory=None, check=True) is not first
    found = json.loads(run("solve", "cycle.wcsp", "--keep-warm", "--json").stdout)
    assert found["value"] == json.loads(run("solve", "cycle.wcsp", "--json").stdout)["value"]


def _counted(function, paths):  # type: ignore[no-untyped-def]
    def counted(url: str, token: str, path: str, told: object):  # type: ignore[no-untyped-def]
        paths.append(path)
        return function(url, token, path, told)

    return counted


def test_the_first_command_starts_a_server_and_answers_itself(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[tuple[Path, float]]()
    monkeypatch.setattr(warm_client, "start_server", lambda folder, idle: started.append((folder.path, idle)))
    assert "optimal" in run("solve", "cycle.wcsp", "--keep-warm").stdout
    assert started == [(warm_client.folder_here().path, warm_client._IDLE_MINUTES)]
    assert run("solve", "cycle.wcsp").exit_code == 0
    assert len(started) == 1


def test_a_server_in_the_background_starts_answers_and_stops(cache: Path) -> None:
    folder = warm_client.folder_here()
    warm_client.start_server(folder, 1)
    assert folder.is_served()  # from the beginning, as its lock is handed over
    warm_client.start_server(folder, 1)
    while folder.address() is None:
        assert folder.is_served(), folder.log_file.read_text()
    assert folder.token_file.stat().st_mode & 0o777 == 0o600
    assert "optimal" in run("solve", "cycle.wcsp", "--keep-warm").stdout
    assert run("serve", "--stop").stdout == "stopped 1 server\n"
    assert folder.log_file.read_text() == ""
    assert json.loads(run("serve", "--stop", "--json").stdout) == {"stopped": []}
    assert run("serve", "--stop").stdout == "no server runs\n"


def test_where_the_queue_is_full_the_command_answers_by_itself(warm: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, queued_questions=0)
    assert "optimal" in run("solve", "cycle.wcsp", "--keep-warm").stdout


def test_a_server_that_stops_lets_the_command_answer_by_itself(
    warm: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_client, "posted", lambda *_: iter([{"stopped": True}]))
    assert "optimal" in run("solve", "cycle.wcsp", "--keep-warm").stdout


def test_a_server_that_is_lost_in_the_middle_is_named(warm: ServerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_client, "posted", lambda *_: iter([{"stdout": "query"}]))
    found = run("solve", "cycle.wcsp", "--keep-warm")
    sentence = "bucketflow: the server that caches models ended during the answer; run the command again\n"
    assert (found.exit_code, found.stderr) == (2, sentence)


def test_workers_go_without_it(cache: Path) -> None:
    found = run("solve", "cycle.wcsp", "--keep-warm", "--workers", "2")
    assert found.exit_code == 2
    assert "--keep-warm asks a server on this machine; leave out --workers" in found.stderr


def test_a_pipe_is_read_by_its_own_process(warm: ServerFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_client, "posted", lambda *_: pytest.fail("the server was asked"))
    assert run("solve", "/dev/null", "--keep-warm").stderr == run("solve", "/dev/null").stderr


def test_others_may_not_offer_a_server(warm: ServerFolder) -> None:
    warm.token_file.chmod(0o644)
    found = run("solve", "cycle.wcsp", "--keep-warm")
    assert found.exit_code == 2
    assert re.fullmatch(
        r"bucketflow: no server can use .*, because others may use .* whose mode is 0644\n", found.stderr
    )
    warm.token_file.chmod(0o600)


def test_only_commands_with_the_option_are_run_for_others(warm: ServerFolder) -> None:
    address = warm.address()
    assert address is not None
    for told in ({"command": "convert", "options": {}, "folder": "/"}, {"command": 5}):
        events = list(warm_client.posted(*address, "/command", told))
        assert events[-1] == {"exit": 2}
    gone = {"command": "solve", "options": {}, "folder": "/absent/folder"}
    assert "os_error" in next(iter(warm_client.posted(*address, "/command", gone)))
    assert os.getcwd() != "/absent/folder"


def test_what_is_no_text_is_not_sent() -> None:
    with pytest.raises(TypeError, match="a text is expected"):
        SentText("stdout", ServedRequest([], 1)).write(b"")  # type: ignore[arg-type]
