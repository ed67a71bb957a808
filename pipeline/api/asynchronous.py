"""Questions of asynchronous programs: they run in a thread of their own, beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from ...cluster.driver import interrupt
from ..errors import public
from ..formats.read import GivenModel
from ..results.posteriors import Marginals
from ..results.result import Result
from .marginals import marginals
from .solve import solve

T = TypeVar("T")


@public
async def asolve(model: GivenModel, query: str = "optimum", **options: Any) -> Result:
    """Answer a query without blocking the event loop.

    If the coroutine is cancelled, the query stops as Ctrl-C would stop it.

    Parameters
    ----------
    model, query, **options
        As in :func:`bucketflow.solve`. ``client`` may be asynchronous.

    Raises
    ------
    BucketflowError
        As :func:`bucketflow.solve` does.

    Examples
    --------
    >>> import asyncio, bucketflow
    >>> asyncio.run(bucketflow.asolve("satellite")).value == bucketflow.solve("satellite").value
    True
    """
    return await _in_thread(partial(solve, model, query, **options))


@public
async def amarginals(model: GivenModel, variables: Any = "all", **options: Any) -> Marginals:
    """Compute posterior marginals without blocking the event loop.

    If the coroutine is cancelled, the computation stops as Ctrl-C would stop it.

    Parameters
    ----------
    model, variables, **options
        As in :func:`bucketflow.marginals`. ``client`` may be asynchronous.

    Raises
    ------
    BucketflowError
        As :func:`bucketflow.marginals` does.

    Examples
    --------
    >>> import asyncio, bucketflow
    >>> found = asyncio.run(bucketflow.amarginals("diagnosis", ["Storm"], evidence={"Flow": "none"}))
    >>> [*found]
    ['Storm']
    """
    return await _in_thread(partial(marginals, model, variables, **options))


async def _in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own, and interrupt it if this coroutine is cancelled.

    Parameters
    ----------
    function : callable
        Takes nothing; runs in a copy of the caller's context.

    Returns
    -------
    T
        The function's result. Its exception is raised here.
    """
    outcome: Future[T] = Future()
    lock, ended = threading.Lock(), threading.Event()

    def call() -> None:
        try:
            try:
                found = function()
            finally:
                # under the lock, an interrupt never reaches a function that has returned
                with lock:
                    ended.set()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(found)

    thread = threading.Thread(target=copy_context().run, args=(call,), name="bucketflow answers", daemon=True)
    thread.start()
    arriving = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(arriving)
    except asyncio.CancelledError:
        with lock:
            if not ended.is_set():
                interrupt(thread)
        with suppress(BaseException):
            await arriving
        raise
