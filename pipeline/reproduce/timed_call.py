"""Calls in a separate process, which is stopped when a call exceeds its time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BucketflowError

# Seconds for the start of an interpreter and for reading the model, which are not counted.
_START_SECONDS = 600.0


@dataclass(frozen=True)
class Ended:
    """The end of a call: its result, or the reason why there is none."""

    found: Any = None
    reason: str | None = None


def within(seconds: float | None, prepare: Callable[..., Sequence[Callable[[], Any]]], *arguments: Any) -> list[Ended]:
    """Run each call of ``prepare(*arguments)`` for at most ``seconds`` wall seconds, up to the first that fails.

    Parameters
    ----------
    seconds : float or None
        Without it, the calls run in this process, without a limit.
    prepare : callable
        A function of a module, which a new interpreter can import; the arguments are pickled. Its time is not counted.

    Returns
    -------
    list of Ended
        A result for each call, or one reason at the end.
    """
    ended: list[Ended] = []
    if seconds is None:
        _run(lambda each: ended.append(each) if each else None, prepare, arguments)
        return ended
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_in_child, args=(sender, prepare, arguments), daemon=False)
    child.start()
    sender.close()
    try:
        if not receiver.poll(_START_SECONDS):
            return [Ended(reason="did not start")]
        while (found := receiver.recv()) is None or found.reason is None:
            if found is not None:
                ended.append(found)
            if not receiver.poll(seconds):
                return [*ended, Ended(reason=f"> {seconds:g} s")]
        return [*ended, found]
    except EOFError:
        child.join()
        return ended if child.exitcode == 0 else [*ended, Ended(reason=f"ended with code {child.exitcode}")]
    finally:
        child.terminate()
        child.join()


def _run_in_child(sender: Any, prepare: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    _run(sender.send, prepare, arguments)
    sender.close()


def _run(send: Callable[[Ended | None], object], prepare: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Send None when the calls are prepared, then the end of each call until one has no result."""
    prepared = _ended(lambda: prepare(*arguments))
    if prepared.reason is not None:
        send(prepared)
        return
    send(None)
    for call in prepared.found:
        ended = _ended(call)
        send(ended)
        if ended.reason is not None:
            return


def _ended(call: Callable[[], Any]) -> Ended:
    try:
        return Ended(call())
    except BucketflowError as error:
        return Ended(reason=f"refused: {error}")
