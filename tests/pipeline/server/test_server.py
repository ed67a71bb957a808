"""The server of questions: answers are those of `solve`, strangers are refused, and it ends cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import bucketflow
from bucketflow import BucketflowError, BudgetError, ModelError
from bucketflow.pipeline.batches.models import BatchPolicy
from bucketflow.pipeline.examples import example_path
from bucketflow.pipeline.server.server import QuestionServer, ServerSettings
from bucketflow.pipeline.server.server_folder import ServerFolder, all_folders, default_folder
from bucketflow.pipeline.server.service_queue import ServedRequest, ServerPolicy
from bucketflow.pipeline.server.warm_client import posted, stop_server
from tests.policies import InForce

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("starlette", reason="the extra serve is not installed")

DOCS = Path(__file__).parents[3] / "docs" / "server.md"
DIAGNOSIS = str(example_path("diagnosis"))
CYCLE = "cycle 2 2 1 100\n2 2\n2 0 1 0 2\n0 1 3\n1 0 5\n"


CLIENTS: list[Client] = []


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().connection.close()


class Client:
    """A connection to a server, which is kept."""

    def __init__(self, folder: ServerFolder):
        found = folder.address()
        assert found is not None
        self.url, self.token = found
        self.connection = HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        CLIENTS.append(self)

    def send(self, body: bytes, path: str = "/questions", **headers: str) -> HTTPResponse:
        known = {"Authorization": f"Bearer {self.token}", **headers}
        self.connection.request("POST", path, body, known)
        return self.connection.getresponse()

    def ask(self, *rows: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self.send("\n".join(map(json.dumps, rows)).encode())
        text = answer.read().decode()
        assert answer.status == 200, text
        return [json.loads(line) for line in text.splitlines()]

    def refused(self, body: bytes, path: str = "/questions", **headers: str) -> tuple[int, str]:
        answer = self.send(body, path, **headers)
        message = json.loads(answer.read())["message"]
        return answer.status, message


@contextmanager
def served(folder: ServerFolder, run_command: Any = None, **settings: Any) -> Iterator[QuestionServer]:
    """A server in a thread of its own, which has ended when the block ends."""
    server = QuestionServer(ServerSettings(**settings), folder, run_command)
    ready = threading.Event()
    errors = list[BaseException]()

    def run() -> None:
        try:
            server.run(ready=lambda _: ready.set())
        except BaseException as error:
            errors.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        assert errors == []
        yield server
    finally:
        server.stop()
        thread.join(60)
    assert errors == []
    assert not thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path) -> ServerFolder:
    return ServerFolder(tmp_path / "server")


@pytest.fixture
def client(folder: ServerFolder) -> Iterator[Client]:
    with served(folder):
        yield Client(folder)


def expected(row: dict[str, Any]) -> dict[str, Any]:
    asked = {"evidence": row.get("evidence")}
    if row.get("query") == "marginals":
        return bucketflow.marginals(row["model"], **asked).to_dict()
    return bucketflow.solve(row["model"], row.get("query", "optimum"), **asked).to_dict()


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in ("status", "value", "assignment"):
        assert ours.get(name) == theirs.get(name)
    for name in ("log10", "log10_evidence"):
        if theirs.get(name) is not None:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-9)
    for name, belief in (theirs.get("marginals") or {}).items():
        assert ours["marginals"][name] == pytest.approx(belief)


def test_answers_are_those_of_solve(client: Client) -> None:
    rows: list[dict[str, Any]] = [
        {"model": DIAGNOSIS, "query": query, "evidence": {"Season": state}, "name": f"{query} {state}"}
        for query in ("optimum", "partition", "marginals")
        for state in ("summer", "winter", 1, 0, 2)
    ]
    found = {record["name"]: record for record in client.ask(*rows)}
    for k, row in enumerate(rows, 1):
        record = found[row["name"]]
        assert (record["row"], record["status"]) == (k, "answered")
        same(record["answer"], expected(row))


def test_records_are_those_of_a_batch(client: Client, tmp_path: Path) -> None:
    rows = [{"model": DIAGNOSIS, "query": "partition"}, {"model": DIAGNOSIS, "query": "nonsense"}, {"model": "absent"}]
    bucketflow.batch(rows, tmp_path / "out")
    kept = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    found = sorted(client.ask(*rows), key=lambda record: record["row"])
    for ours, theirs in zip(found, kept, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours.keys() - {"answer", "wall_seconds"}:
            assert ours[name] == theirs[name]


def test_single_questions_share_what_a_batch_shares(client: Client) -> None:
    """From some questions on a model is compiled, whoever asks."""
    row = {"model": DIAGNOSIS, "query": "marginals"}
    answers = [client.ask(row)[0]["answer"] for _ in range(BatchPolicy.current().compiled_rows + 1)]
    for answer in answers:
        same(answer, expected(row))
    assert "plan" in answers[0]["seconds"]
    assert "plan" not in answers[-1]["seconds"]


def test_few_models_are_counted(client: Client, in_force: InForce) -> None:
    """A model that others pushed out begins again; answers stay as they are."""
    in_force(ServerPolicy, counted_models=1)
    row, other = {"model": DIAGNOSIS, "query": "marginals"}, {"model": DIAGNOSIS, "query": "partition"}
    for _ in range(BatchPolicy.current().compiled_rows + 1):
        answer = client.ask(row)[0]["answer"]
        assert "plan" in answer["seconds"]
        same(client.ask(other)[0]["answer"], expected(other))
    same(answer, expected(row))


def test_a_model_as_text(client: Client, tmp_path: Path, in_force: InForce) -> None:
    path = tmp_path / "cycle.wcsp"
    path.write_text(CYCLE)
    for _ in range(2):
        record = client.ask({"text": CYCLE, "format": "wcsp", "name": "a"})[0]
        same(record["answer"], bucketflow.solve(path).to_dict())
    in_force(ServerPolicy, inline_bytes=0)
    place = Path(record["model"])
    assert not place.exists() or client.ask({"text": CYCLE, "format": ".wcsp"})[0]["status"] == "answered"
    client.send(b"", "/").read()
    record = client.ask({"text": CYCLE, "format": ".wcsp"})[0]
    assert record["answer"]["value"] == bucketflow.solve(path).value


def test_a_changed_file_is_read_again(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "cycle.wcsp"
    values = []
    for text in (CYCLE, CYCLE.replace("0 1 3", "0 1 7")):
        path.write_text(text)
        record = client.ask({"model": str(path), "query": "count"}, {"model": str(path)})
        values.append(sorted(str(one["answer"]["value"]) for one in record))
        path.write_text(CYCLE.replace("2 0 1 0 2\n0 1 3", "2 0 1 4 2\n0 1 9"))
        assert client.ask({"model": str(path)})[0]["answer"]["value"] == bucketflow.solve(path).value == 4
    assert values


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"nonsense", "the request:1: expected a JSON object"),
        (b"[1]", "the request:1: expected names with values"),
        (b'{"model": "diagnosis"}\n{"modell": "diagnosis"}', "the request:2: expected columns among"),
        (b'{"query": "optimum"}', "the request:1: expected a column 'model'"),
        (b'{"text": "x"}', "a column 'format' among"),
        (b'{"text": "x", "format": "exe"}', "a column 'format' among"),
        (b'{"text": "x", "format": "uai", "model": "diagnosis"}', "either a column 'model', or a text"),
        (b"\xff", "the request is not UTF-8 text"),
    ],
)
def test_bad_requests_are_one_sentence(client: Client, body: bytes, message: str) -> None:
    status, said = client.refused(body)
    assert status == 400
    assert message in said
    assert "\n" not in said


def test_what_is_wrong_with_a_row_is_said_of_it(client: Client) -> None:
    found = client.ask(
        {"model": "diagnosis", "query": "partition"}, {"model": "absent"}, {"model": "diagnosis", "time": "soon"}
    )
    messages = {record["row"]: record.get("message", "") for record in found}
    assert messages[1] == ""
    assert "absent" in messages[2]
    assert "column 'time'" in messages[3]


def test_strangers_are_refused(client: Client) -> None:
    assert client.refused(b"{}", Authorization="Bearer wrong")[0] == 401
    assert client.refused(b"{}", Authorization="")[0] == 401
    assert client.refused(b"{}", Host="evil.example")[0] == 403
    assert client.refused(b"{}", "/elsewhere") == (404, "Not Found")
    assert client.refused(b"")[1] == "the request has no questions"
    assert client.ask({"model": "diagnosis", "query": "partition"})[0]["status"] == "answered"


def test_requests_are_bounded(client: Client, in_force: InForce) -> None:
    in_force(ServerPolicy, body_bytes=100, queued_questions=2)
    status, said = client.refused(b" " * 101)
    assert (status, "a request may have 100 bytes" in said) == (413, True)
    assert client.refused(b'{"model": "diagnosis"}\n' * 3) == (
        429,
        "0 questions are waiting, and 3 more would exceed the maximum of 2; send fewer at a time, or try again later",
    )
    in_force(ServerPolicy, waiting_bytes=20)
    answer = client.send(b'{"model": "diagnosis"}')
    assert (answer.status, answer.getheader("Retry-After")) == (503, "1")
    assert json.loads(answer.read())["message"].startswith("requests of 20 bytes wait, the most at a time")
    in_force(ServerPolicy, waiting_bytes=1000)
    assert client.ask({"model": "diagnosis", "query": "partition"})[0]["status"] == "answered"


def test_a_request_without_a_length_is_read(client: Client, in_force: InForce) -> None:
    parts = iter([b'{"model": "diagnosis",', b' "query": "partition"}'])
    client.connection.request("POST", "/questions", parts, {"Authorization": f"Bearer {client.token}"})
    assert json.loads(client.connection.getresponse().read())["status"] == "answered"
    in_force(ServerPolicy, body_bytes=30)
    client.connection.request("POST", "/questions", iter([b" " * 20] * 2), {"Authorization": f"Bearer {client.token}"})
    assert client.connection.getresponse().status == 413


class Blocking:
    """A command that runs until it is let go or interrupted."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.interrupted = threading.Event()

    def __call__(self, told: Any, request: ServedRequest) -> None:
        try:
            with request.running(None):
                self.begun.set()
                while not self.go.is_set():
                    self.go.wait(0.01)
        except KeyboardInterrupt:
            self.interrupted.set()
        request.send(b'{"exit": 0}\n')


def test_more_clients_than_are_answered_are_sent_away(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, connections=1)
    blocking = Blocking()
    with served(folder, blocking):
        first, second, third = Client(folder), Client(folder), Client(folder)
        waiting = threading.Thread(target=lambda: first.send(b"{}", "/command").read())
        waiting.start()
        assert blocking.begun.wait(60)
        assert second.refused(b'{"model": "diagnosis"}') == (
            503,
            "1 requests are being answered, the most at a time; ask again later",
        )
        assert json.loads(third.send(b"", "/").read())["status"] == "ok"
        assert stop_server(folder)
        waiting.join(60)


@pytest.mark.parametrize("clients", [1000])
def test_all_of_many_clients_are_answered(folder: ServerFolder, clients: int) -> None:
    """Each has a connection of its own, and all ask at the same time."""
    row = json.dumps({"model": "diagnosis", "query": "partition"}).encode()
    with served(folder):
        token = Client(folder).token
        head = f"POST /questions HTTP/1.0\r\nHost: {host_of(folder)}\r\nAuthorization: Bearer {token}\r\n"
        sent = f"{head}Content-Length: {len(row)}\r\n\r\n".encode() + row
        connections = [opened(folder, sent) for _ in range(clients)]
        answers = [connection.makefile("rb").read() for connection in connections]
        for connection in connections:
            connection.close()
    assert {answer.split()[1] for answer in answers} == {b"200"}
    assert {json.loads(answer.partition(b"\r\n\r\n")[2])["status"] for answer in answers} == {"answered"}


def test_clients_beyond_the_limit_may_ask_again(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, queued_questions=5)
    blocking = Blocking()
    row = json.dumps({"model": "diagnosis", "query": "partition"})
    with served(folder, blocking):
        waiting = threading.Thread(target=lambda: Client(folder).send(b"{}", "/command").read())
        waiting.start()
        assert blocking.begun.wait(60)
        clients = [Client(folder) for _ in range(20)]
        for client in clients:
            client.connection.request("POST", "/questions", row, {"Authorization": f"Bearer {client.token}"})
        refused = [client.connection.getresponse() for client in clients[4:]]
        assert {(answer.status, answer.getheader("Retry-After")) for answer in refused} == {(429, "1")}
        blocking.go.set()
        assert {client.connection.getresponse().status for client in clients[:4]} == {200}
        waiting.join(60)


def host_of(folder: ServerFolder) -> str:
    found = folder.address()
    assert found is not None
    return found[0].partition("//")[2]


def opened(folder: ServerFolder, sent: bytes = b"") -> socket.socket:
    """A connection that sends bytes as they are."""
    found = folder.address()
    assert found is not None
    host, _, port = found[0].partition("://")[2].rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(sent)
    return connection


def received(connection: socket.socket) -> tuple[int, str]:
    """Status and message of an answer that ends with the connection."""
    with connection, connection.makefile("rb") as file:
        head, _, body = file.read().partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["message"]


@pytest.mark.parametrize(
    "sent", [b"", b"POST /questions HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
)
def test_silent_connections_without_a_token_shut_nobody_out(
    folder: ServerFolder, in_force: InForce, sent: bytes
) -> None:
    in_force(ServerPolicy, connections=4, head_seconds=3600.0)
    with served(folder):
        silent = [opened(folder, sent) for _ in range(12)]
        for _ in range(3):
            assert Client(folder).ask({"model": "diagnosis", "query": "partition"})[0]["status"] == "answered"
            silent.append(opened(folder, sent))
        assert stop_server(folder)
        for connection in silent:
            connection.close()


def test_connections_without_a_token_close_none_with_one(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, connections=2, head_seconds=3600.0)
    with served(folder):
        client = Client(folder)
        for _ in range(2):
            assert client.ask({"model": "diagnosis", "query": "partition"})[0]["status"] == "answered"
            strangers = [opened(folder) for _ in range(6)]
            assert [received(stranger)[0] for stranger in strangers[:4]] == [503] * 4
            for stranger in strangers:
                stranger.close()


def test_a_head_has_to_be_whole_in_time(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, head_seconds=0.2)
    with served(folder):
        connection = opened(folder, b"GET / HTTP/1.1\r\n")
        stop = threading.Event()

        def drip() -> None:  # as a stranger does whose silences are short
            with contextlib.suppress(OSError):
                while not stop.wait(0.02):
                    connection.sendall(b"X-A: b\r\n")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            with connection.makefile("rb") as file:
                assert file.readline().split()[1] == b"408"
        finally:
            stop.set()
            dripping.join(60)
            connection.close()
        assert received(opened(folder)) == (408, "the head of a request must arrive within 0.2 s")


def test_a_body_has_to_be_whole_in_time(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, read_seconds=0.2)
    with served(folder) as server:
        client = Client(folder)
        host = client.url.removeprefix("http://")
        head = f"POST /questions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {client.token}\r\n"
        sent = f"{head}Content-Length: 9\r\n\r\n{{".encode()
        assert received(opened(folder, sent)) == (408, "the body of a request must arrive within 0.2 s")
        assert server._queue.waiting == 0


INVALID = "Invalid HTTP request received."


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (f"POST / HTTP/1.1\r\nContent-Length: {'9' * 5000}\r\n\r\n", 400, INVALID),
        ("POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n", 400, INVALID),
        ("POST / HTTP/1.1\r\nContent-Length: -4\r\n\r\n", 400, INVALID),
        ("POST / HTTP/1.1\r\nContent-Length: +4\r\n\r\n", 400, INVALID),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400, INVALID),
        ("GET /\r\n\r\n", 400, INVALID),
        ("GET\r\n\r\n", 400, INVALID),
        ("GET / HTTP/x.9\r\n\r\n", 400, INVALID),
        ("\xff\xfe\x00 / HTTP/1.1\r\n\r\n", 400, INVALID),
        (f"GET /{'a' * 700_000} HTTP/1.1\r\n\r\n", 400, INVALID),
        ("GET / HTTP/1.1\r\n" + "X: y\r\n" * 100_000, 400, INVALID),
        ("GET / HTTP/1.1\r\n" + f"X: {'y' * 60_000}\r\n" * 9, 400, INVALID),
        ("GET / HTTP/1.0\r\nHost: \xff\r\n\r\n", 403, "the Host has to be"),
        ("POST / HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", 403, "the Host has to be"),
        ("PUT / HTTP/1.0\r\n\r\n", 403, "the Host has to be"),
    ],
)
def test_bad_heads_are_answered(folder: ServerFolder, sent: str, status: int, message: str) -> None:
    with served(folder):
        found, said = received(opened(folder, sent.encode("latin-1")))
        assert found == status
        assert message in said
        assert len(said) < 500
        assert Client(folder).ask({"model": "diagnosis", "query": "partition"})[0]["status"] == "answered"


@pytest.mark.parametrize("path", ["//", "/../", "/questions/", "/stop/", "/%FF", "*", "/questions%00"])
def test_paths_are_exact(client: Client, folder: ServerFolder, path: str) -> None:
    head = f"GET {path} HTTP/1.0\r\nHost: {host_of(folder)}\r\nAuthorization: Bearer {client.token}\r\n\r\n"
    assert received(opened(folder, head.encode()))[0] == 404


def test_methods_are_those_of_the_path(client: Client) -> None:
    client.connection.request("GET", "/questions", headers={"Authorization": f"Bearer {client.token}"})
    assert client.connection.getresponse().status == 405


def test_an_answer_to_a_body_that_is_too_long_arrives(client: Client, in_force: InForce) -> None:
    in_force(ServerPolicy, body_bytes=100)
    assert client.refused(b" " * (1 << 24))[0] == 413


def test_requests_wait_for_their_turn_and_a_full_queue_refuses(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, queued_questions=2)
    blocking = Blocking()
    with served(folder, blocking):
        first, second, third = Client(folder), Client(folder), Client(folder)
        waiting = threading.Thread(target=lambda: first.send(b"{}", "/command").read())
        waiting.start()
        assert blocking.begun.wait(60)
        answers = list[Any]()
        other = threading.Thread(
            target=lambda: answers.extend(second.ask({"model": "diagnosis", "query": "partition"}))
        )
        other.start()
        while json.loads(third.send(b"", "/").read())["questions"] < 2:
            pass
        assert third.refused(b'{"model": "diagnosis"}')[0] == 429
        assert answers == []
        blocking.go.set()
        waiting.join(60)
        other.join(60)
        assert [record["status"] for record in answers] == ["answered"]


def test_a_client_that_goes_away_is_answered_no_further(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, glance_seconds=0.01)
    blocking = Blocking()
    with served(folder, blocking):
        client = Client(folder)
        client.connection.request("POST", "/command", b"{}", {"Authorization": f"Bearer {client.token}"})
        assert blocking.begun.wait(60)
        client.connection.close()
        assert blocking.interrupted.wait(60)
        assert Client(folder).ask({"model": "diagnosis", "query": "partition"})[0]["status"] == "answered"


def test_a_server_stops_while_a_question_runs(folder: ServerFolder) -> None:
    blocking = Blocking()
    with served(folder, blocking):
        client, other = Client(folder), Client(folder)
        answers = list[Any]()
        waiting = threading.Thread(target=lambda: client.send(b"{}", "/command").read())
        waiting.start()
        assert blocking.begun.wait(60)
        second = threading.Thread(
            target=lambda: answers.extend(other.ask({"model": "diagnosis"}, {"model": "diagnosis"}))
        )
        second.start()
        looking = Client(folder)
        while json.loads(looking.send(b"", "/").read())["questions"] < 3:
            pass
        assert stop_server(folder)
        waiting.join(60)
        second.join(60)
        assert blocking.interrupted.is_set()
        assert {record["status"] for record in answers} == {"stopped"}
        assert {record["exit_code"] for record in answers} == {4}
    assert not folder.is_served()
    assert not folder.url_file.exists()
    assert not folder.token_file.exists()
    assert not stop_server(folder)


def test_a_server_that_stops_takes_no_more(folder: ServerFolder) -> None:
    blocking = Blocking()
    with served(folder, blocking) as server:
        client, other = Client(folder), Client(folder)
        waiting = threading.Thread(target=lambda: client.send(b"{}", "/command").read())
        waiting.start()
        assert blocking.begun.wait(60)
        server._queue.close()
        assert other.refused(b'{"model": "diagnosis"}') == (
            503,
            "the server is stopping; try again when a server is running",
        )
        blocking.go.set()
        waiting.join(60)


def test_a_question_has_its_time(folder: ServerFolder) -> None:
    with served(folder, time=0.0):
        found = Client(folder).ask(*({"model": DIAGNOSIS, "query": query} for query in ("optimum", "marginals")))
    statuses = {record["query"]: (record["status"], record.get("message")) for record in found}
    assert statuses["optimum"][0] in ("answered", "bounded")  # what is quick is answered at once
    assert statuses["marginals"] in (("stopped", "stopped after 0 seconds"), ("answered", None))


def test_memory_is_divided(folder: ServerFolder) -> None:
    with served(folder, memory="100MB"):
        client = Client(folder)
        kept, large = client.ask({"model": "diagnosis", "query": "partition"}, {"model": "diagnosis", "memory": "90MB"})
        assert BatchPolicy.current().kept_model_bytes == 25_000_000
    assert kept["status"] == "answered"
    sentence = "memory is 90MB, but this server allows 50 MB per question; start it with more --memory"
    assert (large["status"], large["message"], large["exit_code"]) == ("refused", sentence, 3)
    assert BatchPolicy.current() == BatchPolicy()


def test_a_server_without_questions_ends(folder: ServerFolder) -> None:
    QuestionServer(ServerSettings(idle=0), folder).run()
    assert not folder.is_served()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"address": "0.0.0.0"}, ModelError, "only with --token-file, --tls-cert and --tls-key; for this machine"),
        ({"tls_cert": "/absent"}, ModelError, "/absent and /absent hold no certificate with its key in PEM: No such"),
        ({"port": 65_536}, ModelError, "port is 65536; the largest is 65535"),
        ({"port": "x"}, ModelError, "port is 'x', which is not an integer"),
        ({"time": -1}, ModelError, "time is -1; it must be a number of seconds, 0 or more"),
        ({"idle": "x"}, ModelError, "idle is x; it must be a number of minutes, 0 or more"),
        ({"memory": "x"}, ModelError, "'x' is not a size"),
        ({"memory": 1000}, BudgetError, "memory is 1000, and a server needs at least"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        bucketflow.serve(**settings)


def test_a_second_server_is_refused(client: Client, folder: ServerFolder) -> None:
    with pytest.raises(
        BucketflowError, match=f"a server is already running at {client.url}; stop it with bucketflow serve"
    ):
        QuestionServer(ServerSettings(), folder).run()


def test_a_port_in_use_is_named(client: Client, tmp_path: Path) -> None:
    port = int(client.url.rpartition(":")[2])
    with pytest.raises(BucketflowError, match=f"cannot listen at port {port} of 127.0.0.1: Address already in use"):
        QuestionServer(ServerSettings(port=port), ServerFolder(tmp_path / "other")).run()


def test_what_a_killed_server_left_is_harmless(folder: ServerFolder) -> None:
    folder.path.mkdir(mode=0o700)
    folder.url_file.write_text("http://127.0.0.1:1")
    folder.token_file.write_text("old")
    (folder.path / "lock").write_text("")
    assert folder.address() is None
    with served(folder):
        assert Client(folder).token != "old"


def test_the_token_is_for_its_user_alone(client: Client, folder: ServerFolder) -> None:
    assert folder.token_file.stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.token_file.chmod(0o640)
    with pytest.raises(BucketflowError, match=r"others may use .*token, whose mode is 0640"):
        folder.address()
    folder.token_file.chmod(0o600)
    folder.path.chmod(0o750)
    with pytest.raises(BucketflowError, match=r"others may use .*server, whose mode is 0750"):
        folder.address()
    folder.path.chmod(0o700)
    assert folder.address() is not None


def test_a_token_that_is_a_link_is_not_followed(client: Client, folder: ServerFolder, tmp_path: Path) -> None:
    folder.token_file.rename(tmp_path / "elsewhere")
    folder.token_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a symbolic link"):
        folder.address()


def test_a_server_is_found_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path))
    urls = SimpleQueue[str]()
    thread = threading.Thread(target=lambda: bucketflow.serve(idle=10, ready=urls.put))
    thread.start()
    first = urls.get(timeout=60)
    assert [one.path for one in all_folders()] == [tmp_path / "server"]
    url, token = default_folder().address() or ("", "")
    assert url == first
    assert [told["status"] for told in posted(url, token, "/stop", {})] == ["stopping"]
    thread.join(60)
    assert not thread.is_alive()


def test_pages_and_probes_need_no_token(client: Client) -> None:
    found = {}
    for path in ("/healthz", "/openapi.json", "/docs"):
        client.connection.request("GET", path)
        answer = client.connection.getresponse()
        assert answer.status == 200
        found[path] = answer.read().decode()
    assert json.loads(found["/healthz"]) == {"status": "ok"}
    document = json.loads(found["/openapi.json"])
    assert document["openapi"].startswith("3.")
    columns = document["components"]["schemas"]["Question"]["properties"]
    assert {"model", "query", "evidence", "text", "order-time"} <= columns.keys()
    assert set(document["paths"]) == {"/", "/questions", "/stop", "/metrics", "/healthz", "/openapi.json", "/docs"}
    assert all(path in found["/docs"] for path in document["paths"])
    client.connection.request("GET", "/metrics")
    assert client.connection.getresponse().status == 401


def test_metrics_count_questions_and_requests(client: Client) -> None:
    client.ask({"model": "diagnosis", "query": "partition"}, {"model": "absent"})
    client.refused(b"{}", "/elsewhere")
    client.connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {client.token}"})
    answer = client.connection.getresponse()
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(answer.read().decode())
    assert found['bucketflow_questions_total{query="partition",status="answered"}'] == 1
    assert found['bucketflow_questions_total{query="optimum",status="failed"}'] == 1
    assert found['bucketflow_requests_total{path="/questions",status="200"}'] == 1
    assert found['bucketflow_requests_total{path="",status="404"}'] == 1
    assert found['bucketflow_question_seconds_count{query="partition"}'] == 1
    assert found["bucketflow_questions_waiting"] == 0
    assert found["process_resident_memory_bytes"] > 1e6


def test_requests_are_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "bucketflow.access"):
        client.ask({"model": "diagnosis", "query": "partition"})
        client.refused(b"{}", "/elsewhere")
        client.send(b"", "/").read()
    first, second = caplog.records[:2]
    assert [record.getMessage() for record in (first, second)] == ["POST /questions 200", "POST /elsewhere 404"]
    facts = vars(first)["facts"]
    assert (facts["client"], facts["status"]) == ("127.0.0.1", 200)
    assert facts["seconds"] > 0


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate for another host name, signed by itself, and its key."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "questions.example")])
    now = datetime.now(UTC)
    draft = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    draft = draft.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path / "server.pem"
    text = draft.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path.write_bytes(text + key.private_bytes(serialization.Encoding.PEM, *private))
    return path


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
def test_other_machines_need_the_token_and_tls(
    folder: ServerFolder, tmp_path: Path, certificate: Path, address: str
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o640)
    secrets = {"token_file": str(token), "tls_cert": str(certificate)}
    with served(folder, address=address, **secrets):
        found = folder.address()
        assert found is not None
        url, shown = found
        assert (url.partition(":")[0], shown) == ("https", "0123456789abcdef0123456789abcdef")
        row = {"model": "diagnosis", "query": "partition"}
        known = folder.certificate_file
        assert known.stat().st_mode & 0o777 == 0o600
        assert [one["status"] for one in posted(url, shown, "/questions", row, known)] == ["answered"]
        assert list(posted(url, "wrong" * 8, "/questions", row, known)) == []
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            list(posted(url, shown, "/questions", row))
        assert stop_server(folder)
    assert not known.exists()


def test_a_handshake_has_to_be_whole_in_time(folder: ServerFolder, certificate: Path, in_force: InForce) -> None:
    in_force(ServerPolicy, head_seconds=0.1)
    with served(folder, tls_cert=str(certificate)), opened(folder) as connection:
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("x" * 32, 0o644, "everyone on this machine can read the token; chmod o-rwx "),
        ("short", 0o600, "a token of 20 to 1000 ASCII characters without blanks is expected; write one, e.g. openssl"),
        ("é" * 32, 0o600, "a token of 20 to 1000 ASCII characters"),
        (None, 0o600, "no such file; write a token to it, e.g. openssl rand -hex 32"),
    ],
)
def test_token_files_are_checked(
    folder: ServerFolder, tmp_path: Path, text: str | None, mode: int, message: str
) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(BucketflowError, match=re.escape(message)):
        QuestionServer(ServerSettings(token_file=str(path)), folder).run()


def test_a_client_that_never_reads_is_closed(folder: ServerFolder, in_force: InForce) -> None:
    in_force(ServerPolicy, read_seconds=0.3)

    def print_much(told: Any, request: ServedRequest) -> None:
        for _ in range(200):
            request.send(b" " * (1 << 20))

    with served(folder, print_much) as server:
        token = Client(folder).token
        head = f"POST /command HTTP/1.0\r\nHost: {host_of(folder)}\r\nAuthorization: Bearer {token}\r\n"
        with opened(folder, f"{head}Content-Length: 2\r\n\r\n{{}}".encode()):
            while server._queue.waiting or server._streaming:
                Client(folder).send(b"", "/").read()
        assert Client(folder).ask({"model": "diagnosis", "query": "partition"})[0]["status"] == "answered"


def samples(text: str) -> dict[str, float]:
    """Return the samples of a text in the format of Prometheus."""
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_a_client_that_does_not_read_waits(in_force: InForce) -> None:
    in_force(ServerPolicy, unsent_bytes=3)
    request = ServedRequest([], 0)
    request.send(b"1234")
    assert not request.is_read
    request.sent(b"1234")
    assert request.is_read


def block_of(language: str, part: str = "") -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return next(block for block in blocks if part in block)


def test_the_example_in_python(folder: ServerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKETFLOW_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with served(default_folder()):
        names: dict[str, Any] = {}
        exec(block_of("python"), names)
        names["connection"].close()
    assert [answer["status"] for answer in names["answers"]] == ["answered", "answered"]


def run_shell(code: str, place: Path) -> str:
    import subprocess

    environment = {**os.environ, "HOME": str(place)}
    return subprocess.run(["sh", "-ec", code], env=environment, capture_output=True, text=True, check=True).stdout


def test_the_example_with_curl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path / ".cache" / "bucketflow"))
    with served(default_folder()):
        lines = run_shell(block_of("sh", "cat url"), tmp_path).splitlines()
    found = {record["name"]: record for record in map(json.loads, lines)}
    assert {record["status"] for record in found.values()} == {"answered"}
    shown = json.loads(block_of("json"))
    first = found["first"]
    assert {name: first[name] for name in shown if name != "answer"} | {"answer": shown["answer"]} == shown
    log10 = shown["answer"].pop("log10")
    assert first["answer"]["log10"] == pytest.approx(log10)
    assert {name: first["answer"][name] for name in shown["answer"]} == shown["answer"]
