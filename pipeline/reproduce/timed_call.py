"""Calls in a process of their own, which ends when its time is over."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import BucketflowError

# An interpreter that starts, and a file that is read, are given this besides.
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Ended:
    """The end of a call: its result, or the reason why there is none."""

    found: Any = None
    reason: str | None = None


def within(seconds: float | None, prepare: Callable[..., Any], *arguments: Any) -> Ended:
    """Call the result of ``prepare(*arguments)`` for at most ``seconds`` wall seconds; preparation is not counted.

    Parameters
    ----------
    seconds : float or None
        Without it the call is made in this process, and takes what it takes.
    prepare : callable
        A function of a module, which a new interpreter can import; so are the arguments.
    """
    if seconds is None:
        return _then(_ended(lambda: prepare(*arguments)))
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(sender, prepare, arguments), daemon=False)
    child.start()
    sender.close()
    try:
        if not receiver.poll(_START_SECONDS) or receiver.recv() is not None:
            return Ended(reason="did not start")
        if not receiver.poll(seconds):
            return Ended(reason=f"> {seconds:g} s")
        found = receiver.recv()
        assert isinstance(found, Ended)
        return found
    except EOFError:
        child.join()
        return Ended(reason=f"ended with code {child.exitcode}")
    finally:
        child.terminate()
        child.join()


def _answer(sender: Any, prepare: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    prepared = _ended(lambda: prepare(*arguments))
    sender.send(None)
    sender.send(_then(prepared))


def _then(prepared: Ended) -> Ended:
    return prepared if prepared.reason else _ended(prepared.found)


def _ended(call: Callable[[], Any]) -> Ended:
    try:
        return Ended(call())
    except BucketflowError as error:
        return Ended(reason=f"refused: {error}")
