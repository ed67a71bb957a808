"""Asking a server of this machine to run a command, and starting one: nothing but sockets, as it is for short ones."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from ...cluster.version import __version__
from ...storage.files import opened
from ...storage.locks import PAUSE_SECONDS
from ..errors import BucketflowError
from .server_folder import ServerFolder, check_installed, warm_folder

# Idle seconds after which a server started by ``--keep-warm`` ends.
_IDLE_MINUTES: Final = 15.0

# A server whose connections are contested gets the request to stop again, for a second in all.
_STOP_TRIES = 20
_PROGRAM = f"{sys.executable} {Path(__file__).parents[2]}"


def folder_here() -> ServerFolder:
    """Return the folder of the server that answers as this program does, in this environment."""
    return warm_folder(__version__, _PROGRAM)


def posted(
    url: str, token: str, path: str, told: Mapping[str, Any], certificate: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Send a JSON object to a server, and yield the objects of its answer; none if the server does not take it.

    Parameters
    ----------
    url, token, path : str
    told : mapping
    certificate : Path, optional
        The certificate of the server, if the URL begins with ``https``.

    Raises
    ------
    OSError
        If it went away in between.
    """
    scheme, _, host = url.partition("://")
    name, _, port = host.rpartition(":")
    body = json.dumps(told).encode()
    head = (
        f"POST {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((name.strip("[]"), int(port))))
        if scheme == "https":
            import ssl

            context = ssl.create_default_context(cafile=certificate)
            context.check_hostname = False  # the certificate itself is known
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            connection = stack.enter_context(context.wrap_socket(connection))
        answer = stack.enter_context(connection.makefile("rb"))
        connection.sendall(head.encode() + body)
        taken = answer.readline().split()[1:2] == [b"200"]
        while answer.readline().strip():
            pass
        for line in answer if taken else ():
            yield json.loads(line)


def start_server(folder: ServerFolder, idle_minutes: float) -> None:
    """Start a server in the background, unless one lives or is starting; it takes over the lock of its folder."""
    check_installed("--keep-warm")
    lock = folder.lock()
    if lock is None:
        return
    words = ["serve", "--idle", f"{idle_minutes:g}", "--warm-lock", str(lock.fileno())]
    command = [sys.executable, "-m", __name__.partition(".")[0], *words]
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with lock, opened(folder.log_file, log_flags) as log, open(os.devnull, "r+b") as nothing:
        os.set_inheritable(lock.fileno(), True)
        streams = [(os.POSIX_SPAWN_DUP2, file.fileno(), k) for k, file in enumerate((nothing, nothing, log))]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=streams, setsid=True)


def stop_server(folder: ServerFolder) -> bool:
    """Ask the server of a folder to stop, and wait until it did; return False if there is none.

    Raises
    ------
    BucketflowError
        If the server does not take the request, although it runs.
    """
    found = folder.address()
    if found is None:
        return False
    for _ in range(_STOP_TRIES):
        with suppress(OSError):
            if list(posted(*found, "/stop", {}, folder.certificate_file)):
                folder.wait_for_end()
                return True
        if not folder.is_served():
            return True
        time.sleep(PAUSE_SECONDS)  # the connection was closed in favour of others
    raise BucketflowError(f"the server at {found[0]} does not accept the request to stop; end its process")


def answered_warm(command: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Let the server that answers as this program does run a command; yield what happens, nothing if there is none.

    Where there is none, one is started for the commands to come.

    Raises
    ------
    OSError
        If it went away in between.
    BucketflowError
        If others than this user can change or read what is in its folder.
    """
    folder = folder_here()
    found = folder.address()
    if found is None:
        start_server(folder, _IDLE_MINUTES)
        return
    told = {"command": command, "options": dict(options), "folder": os.getcwd(), "columns": _columns()}
    yield from posted(*found, "/command", told)


def _columns() -> int | None:
    """Return the width of the terminal of this process, as rich finds it."""
    if (given := os.environ.get("COLUMNS", "")).isdigit():
        return int(given)
    for handle in range(3):
        with suppress(OSError):
            return os.get_terminal_size(handle).columns
    return None
