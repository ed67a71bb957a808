"""The paths of the server, with Starlette: the token is checked before the body is read; answers stream by line."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from html import escape
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ...cluster.version import __version__
from ..batches.manifest import COLUMNS
from ..errors import BucketflowError, shorten
from ..formats.registry import known_suffixes
from ..metrics import Metrics
from ..models.query import QUERIES
from .asgi_server import open_limit
from .service_queue import HEAD_BYTES, RETRY_SECONDS, ClosedQueueError, FullQueueError, ServedRequest, ServerPolicy

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


class ServerMetrics(Metrics):
    """Counts requests by path and status, and questions by query and status."""

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that is answered."""
        self.count("bucketflow_requests_total", "Requests.", path=path, status=status)
        self.observe("bucketflow_request_seconds", "Seconds from a head to the last answer.", seconds, path=path)

    def count_question(self, query: str, record: Mapping[str, Any]) -> None:
        """Count a question with its record as the results of a batch have it."""
        status, seconds = record["status"], record.get("wall_seconds", 0.0)
        self.count("bucketflow_questions_total", "Questions with an outcome.", query=query, status=status)
        self.observe("bucketflow_question_seconds", "Seconds of computation.", seconds, query=query)

    def current(self, waiting: int, requests: int) -> str:
        """Return the text of all metrics with the numbers of waiting questions and open requests."""
        self.set("bucketflow_questions_waiting", "Questions without an answer yet.", waiting)
        self.set("bucketflow_requests_open", "Requests without an answer yet.", requests)
        return self.text()


# The OpenAPI document of the server, and a page that shows it without a network.

_REFUSED = {
    "400": "A line is not a question; `message` names the line and the reason.",
    "401": "The token is missing or wrong.",
    "403": "The header Host is wrong.",
    "408": "The head or the body did not arrive in time.",
    "413": "The body is too long.",
    "429": "Too many questions wait; ask again after the seconds in Retry-After.",
    "503": "The server is stopping or full; ask again after the seconds in Retry-After.",
}
# Path, method, what it does, the media type of its answer, whether it needs the token.
_PATHS = (
    ("/questions", "post", "Answer questions. Each line is answered by one line.", "application/x-ndjson", True),
    ("/", "get", "Return the number of waiting questions.", "application/json", True),
    ("/stop", "post", "Stop the server.", "application/json", True),
    ("/metrics", "get", "Return metrics in the text format of Prometheus.", "text/plain", True),
    ("/healthz", "get", "Return 200, or 503 while the server is stopping.", "application/json", False),
    ("/openapi.json", "get", "Return this document.", "application/json", False),
    ("/docs", "get", "Show this document.", "text/html", False),
)


@cache
def api_document() -> dict[str, Any]:
    """Return the OpenAPI document (version 3.1)."""
    columns: dict[str, Any] = {column: {} for column in COLUMNS}
    columns |= {"model": {"type": "string"}, "query": {"enum": list(QUERIES)}}
    columns |= {"text": {"type": "string", "description": "A model itself, instead of `model`."}}
    columns |= {"format": {"enum": list(known_suffixes()), "description": "The suffix of `text`."}}
    statuses = ("answered", "bounded", "refused", "failed", "stopped")
    answer = {"row": {"type": "integer"}, "status": {"enum": statuses}, "answer": {"type": "object"}}
    schemas = {
        "Question": {"type": "object", "properties": columns},
        "Answer": {"type": "object", "properties": {**answer, "message": {"type": "string"}}},
    }
    paths: dict[str, dict[str, Any]] = {}
    for path, method, summary, media, secured in _PATHS:
        lines = {"application/x-ndjson": {"schema": {"$ref": "#/components/schemas/Answer"}}}
        responses = {"200": {"description": summary, "content": lines if path == "/questions" else {media: {}}}}
        refused = _REFUSED if path == "/questions" else {code: _REFUSED[code] for code in ("401", "403") if secured}
        responses |= {code: {"description": text} for code, text in refused.items()}
        operation: dict[str, Any] = {"summary": summary, "responses": responses}
        operation |= {"security": [{"token": []}]} if secured else {}
        if path == "/questions":
            question = {"schema": {"$ref": "#/components/schemas/Question"}}
            operation["requestBody"] = {"required": True, "content": {"application/x-ndjson": question}}
        paths[path] = {method: operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "bucketflow", "version": __version__, "description": "Questions on graphical models."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def api_page() -> str:
    """Return the page: paths, statuses and the columns of a question."""
    document = api_document()
    parts = ["<h1>bucketflow</h1><p>The same as <a href='/openapi.json'>OpenAPI</a>.</p>"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            rows = operation["responses"].items()
            statuses = "".join(f"<tr><td>{code}<td>{escape(each['description'])}" for code, each in rows)
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2><table>{statuses}</table>")
    for name, schema in document["components"]["schemas"].items():
        fields = ", ".join(f"<code>{escape(field)}</code>" for field in schema["properties"])
        parts.append(f"<h2>{name}</h2><p>{fields}</p>")
    style = "body{font-family:sans-serif;max-width:50em;margin:2em auto}td{padding:.2em 1em .2em 0}"
    return f"<!doctype html><meta charset='utf-8'><title>bucketflow</title><style>{style}</style>{''.join(parts)}"


Ask = Callable[[str, bytearray, Callable[[], object]], AbstractContextManager[ServedRequest]]
"""Takes a path, a body and a function to call when lines are ready; yields the queued request until it is answered."""
# Probes and browsers send no token; these paths say nothing about questions.
_OPEN = ("/healthz", "/docs", "/openapi.json")
_REFUSALS: dict[type[Exception], HTTPStatus] = {
    FullQueueError: HTTPStatus.TOO_MANY_REQUESTS,
    ClosedQueueError: HTTPStatus.SERVICE_UNAVAILABLE,
}
_access = logging.getLogger("bucketflow.access")


class WebApp:
    """The ASGI application.

    Parameters
    ----------
    token : str
        The token that requests have to show.
    ask : callable
    state : callable
        Returns the state of the server.
    stop : callable
        Stops the server, and returns its last state.
    metrics : ServerMetrics
    """

    def __init__(
        self,
        token: str,
        ask: Ask,
        state: Callable[[], Mapping[str, Any]],
        stop: Callable[[], Mapping[str, Any]],
        metrics: ServerMetrics,
    ):
        """Route the paths of the server to their handlers.

        Parameters
        ----------
        token : str
            The secret that requests must carry.
        ask : callable
            Answers a question.
        state, stop : callable
            Return the state of the server; stop it.
        metrics : ServerMetrics
        """
        self._token, self._ask, self._metrics = f"Bearer {token}".encode(), ask, metrics
        self.hosts: tuple[str, ...] = ()
        """The accepted headers ``Host``; empty accepts all."""
        self.prove: Callable[[Any], object] = lambda client: None
        """Called with the address of a client that showed the token."""
        self._requests = self._bytes = 0

        async def stopped(request: Request) -> Response:
            return JSONResponse(stop())

        async def status(request: Request) -> Response:
            return JSONResponse(state())

        async def health(request: Request) -> Response:
            alive = state()["status"] == "ok"
            return JSONResponse({"status": "ok" if alive else "stopping"}, 200 if alive else 503, _retry(not alive))

        async def measured(request: Request) -> Response:
            text = metrics.current(state()["questions"], self._requests)
            return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

        async def document(request: Request) -> Response:
            return JSONResponse(api_document())

        async def page(request: Request) -> Response:
            return HTMLResponse(api_page())

        paths = [
            Route("/questions", self._answers, methods=["POST"]),
            Route("/command", self._answers, methods=["POST"]),
            Route("/stop", stopped, methods=["POST"]),
            Route("/", status, methods=["GET", "POST"]),
            *(Route(path, function) for path, function in (("/healthz", health), ("/metrics", measured))),
            *(Route(path, function) for path, function in (("/openapi.json", document), ("/docs", page))),
        ]
        handlers = dict.fromkeys((HTTPException, BucketflowError, ClientDisconnect), _refused)
        self._app = Starlette(routes=paths, exception_handlers=handlers)
        # a redirect would repeat a request without its body
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, if its host and token are right; count and log it."""
        start, status = perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        request = Request(scope)
        try:
            refusal = self._refusal(request)
            await (self._app if refusal is None else refusal)(scope, receive, sent)
        finally:
            seconds, path = perf_counter() - start, scope["path"]
            known = path if status not in (401, 403, 404) else ""
            self._metrics.count_request(known, status, seconds)
            client = scope["client"] or ("", 0)
            facts = {"client": client[0], "method": scope["method"], "path": shorten(path), "status": status}
            _access.info(
                "%(method)s %(path)s %(status)s", facts, extra={"facts": {**facts, "seconds": round(seconds, 6)}}
            )

    def _refusal(self, request: Request) -> Response | None:
        """Refuse pages that came here by another host name, and callers without the token."""
        if self.hosts and request.headers.get("host", "") not in self.hosts:
            return _refusal(HTTPStatus.FORBIDDEN, f"the Host has to be {self.hosts[0]}")
        if request.scope["path"] in _OPEN:
            return None
        given = request.headers.get("authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, self._token):
            sentence = "the header Authorization must be: Bearer, and the server's token"
            return _refusal(HTTPStatus.UNAUTHORIZED, sentence)
        self.prove(tuple(request.client or ()))
        return None

    async def _answers(self, request: Request) -> Response:
        """Queue the questions of a request, and stream their answers."""
        with ExitStack() as stack:
            body = await self._body(request, stack)
            ready, loop = asyncio.Event(), asyncio.get_running_loop()
            asking = self._ask(request.scope["path"], body, partial(loop.call_soon_threadsafe, ready.set))
            # the event loop parses a small body: a thread costs 1 ms of CPU
            quick = len(body) <= HEAD_BYTES
            served = stack.enter_context(asking) if quick else await run_in_threadpool(stack.enter_context, asking)
            return _Answers(served, ready, stack.pop_all())
        raise AssertionError

    async def _body(self, request: Request, stack: ExitStack) -> bytearray:
        """Read the body, and count the request and its bytes until the stack is closed."""
        policy, body = ServerPolicy.current(), bytearray()
        if self._requests >= (most := open_limit(policy.connections)):
            sentence = f"{most:,} requests are being answered, the most at a time; ask again later"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
        self._requests += 1

        def release() -> None:
            self._requests -= 1
            self._bytes -= len(body)

        stack.callback(release)
        if (length := int(request.headers.get("content-length", 0))) > policy.body_bytes:
            raise _too_long(f"this one has {length:,}")
        async for part in request.stream():
            body += part
            self._bytes += len(part)
            if len(body) > policy.body_bytes:
                raise _too_long("this one has more")
            if self._bytes > policy.waiting_bytes:
                sentence = f"requests of {policy.waiting_bytes:,} bytes wait, the most at a time; ask again later"
                raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
        return body


class _Answers(StreamingResponse):
    """The lines of a request; if the client leaves, its questions are dropped."""

    def __init__(self, served: ServedRequest, ready: asyncio.Event, stack: ExitStack):
        super().__init__(self._parts(ready), media_type="application/x-ndjson")
        self._served, self._stack = served, stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all lines."""
        with self._stack:
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._served.cancel()

    async def _parts(self, ready: asyncio.Event) -> AsyncIterator[bytes]:
        last = False
        while not last:
            await ready.wait()
            ready.clear()
            part, last = self._served.taken()
            if part:
                yield part
                self._served.sent(part)


def _too_long(found: str) -> HTTPException:
    most = ServerPolicy.current().body_bytes
    sentence = f"a request may have {most:,} bytes, and {found}; send several"
    return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer an error by its status and its sentence."""
    if isinstance(error, HTTPException):
        return _refusal(HTTPStatus(error.status_code), error.detail)
    return _refusal(_REFUSALS.get(type(error), HTTPStatus.BAD_REQUEST), str(error))


def _refusal(status: HTTPStatus, sentence: str) -> Response:
    again = status in _REFUSALS.values()
    return JSONResponse({"status": "refused", "message": sentence}, status, _retry(again))


def _retry(again: bool) -> dict[str, str] | None:
    return {"Retry-After": str(RETRY_SECONDS)} if again else None
