"""The paths of the server, with Starlette: the token is checked before the body is read; answers stream by line."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ..errors import BucketflowError, shorten
from .api_page import api_document, api_page
from .asgi_server import open_limit
from .server_metrics import ServerMetrics
from .server_policy import HEAD_BYTES, RETRY_SECONDS, ServerPolicy
from .service_queue import ClosedQueueError, FullQueueError, ServedRequest

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

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
