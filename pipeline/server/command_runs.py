"""Commands that the server runs for clients: their output is sent, with their exit code."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOBase
from typing import Any

from .service_queue import ServedRequest

Commands = Callable[[str], Callable[..., object] | None]
"""Returns the function of a command that clients may run, which ends as a program does."""


class SentText(TextIOBase):
    """A stream that sends every text under a name as soon as it is written."""

    def __init__(self, name: str, request: ServedRequest):
        self._name, self._request = name, request

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of JSON; the client replaces characters that its terminal cannot show."""
        return "utf-8"

    def writable(self) -> bool:
        """Say that it takes text."""
        return True

    def write(self, text: str) -> int:
        """Send a text, unless it is about an interruption."""
        if not isinstance(text, str):
            raise TypeError("a text is expected")
        if text and not self._request.interrupted:
            send_event(self._request, **{self._name: text})
        return len(text)


def send_event(request: ServedRequest, **event: Any) -> None:
    """Send what happened as a JSON object."""
    request.send(json.dumps(event).encode() + b"\n")


def run_described(find: Commands, told: Mapping[str, Any], request: ServedRequest) -> None:
    """Run a command in the working directory of its client; send what it prints, and how it ends.

    Events are ``stdout`` and ``stderr`` with a text. The last event is ``exit`` with a code, ``usage`` or ``os_error``
    with an error for the client to raise, or ``stopped``, after which the client may run the command itself.
    """
    name, options, folder = (told.get(key) for key in ("command", "options", "folder"))
    function = find(name) if isinstance(name, str) else None
    if function is None or not isinstance(options, dict) or not isinstance(folder, str):
        send_event(request, stderr="bucketflow: a server cannot run this command\n")
        send_event(request, exit=2)
        return
    with suppress(KeyboardInterrupt), request.running(None):
        try:
            with (
                _in_place(folder, told.get("columns")),
                redirect_stdout(SentText("stdout", request)),
                redirect_stderr(SentText("stderr", request)),
            ):
                end = _ended(function, options)
        except OSError as error:
            end = {"os_error": [error.errno, error.strerror, error.filename]}
        if not request.interrupted:
            send_event(request, **end)
            return
    send_event(request, stopped=True)


def _ended(function: Callable[..., object], options: Mapping[str, Any]) -> dict[str, Any]:
    """Call a command, and say how it ends."""
    from click import UsageError

    try:
        function(**options)
    except SystemExit as end:
        return {"exit": end.code if isinstance(end.code, int) else int(end.code is not None)}
    except UsageError as error:
        return {"usage": error.message}
    except (OSError, KeyboardInterrupt):
        raise
    except BaseException:
        return {"stderr": traceback.format_exc(), "exit": 1}
    return {"exit": 0}


@contextmanager
def _in_place(folder: str, columns: object) -> Iterator[None]:
    """Work in the folder, and for the terminal, of a client."""
    here, before = os.getcwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    try:
        os.environ["COLUMNS"] = str(columns) if isinstance(columns, int) else ""
        yield
    finally:
        os.chdir(here)
        os.environ["COLUMNS"] = before or ""
        if before is None:
            del os.environ["COLUMNS"]
