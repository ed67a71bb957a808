"""How commands end: expected failures and signals as one sentence and an exit code, so that nothing is left behind."""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click

from ...cluster.address import waiting_reported
from ...cluster.logs import log_settings
from ...storage.file_faults import file_fault
from ..errors import BucketflowError
from ..local_paths import verify_cache_folder
from .logs import with_logs

T = TypeVar("T")
EXIT_STATUS = {
    0: "answered (infeasible is an answer)",
    2: "bad input or usage",
    3: "refused because of a budget",
    4: "stopped but resumable, or bounded only",
    5: "some rows of a batch failed",
    130: "Ctrl-C",
    143: "SIGTERM",
    1: "a bug",
}
EXIT_CODES = f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_STATUS.items())}."
_STOPPED = 130
# Seconds after which an interruption is raised again, if it came where nothing can be raised, such as in callbacks of
# imports.
_AGAIN_SECONDS = 0.01
# Importing makes many objects and no garbage: looking for some as often as usual took 0.02 of 0.6 CPU seconds.
_OBJECTS_BEFORE_COLLECTING = 10_000
# OpenBLAS has threads wait in a loop, 0.08 CPU seconds after NumPy is imported; 2 to this power rounds are enough.
_WAITING_ROUNDS = ("OPENBLAS_THREAD_TIMEOUT", "4")
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def guarded(command: Callable[..., T]) -> Callable[..., T]:
    """End expected failures as one sentence and their exit code, and Ctrl-C and SIGTERM without a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> T:
        codes: list[int] = []
        try:
            with terminable(codes), waiting_reported(note_waiting):
                verify_cache_folder()
                return command(*args, **kwargs)
        except BucketflowError as error:
            _end(str(error), error.exit_code)
        except MemoryError:
            _end("out of memory; give a smaller --memory or --gpu-memory, so that the plan uses less", 3)
        except KeyboardInterrupt as stop:
            _end(str(stop) or "stopped", codes[0] if codes else _STOPPED)

    return run


def say(sentence: str, level: int = logging.WARNING) -> None:
    """Print a sentence on standard error, or log it as a line of JSON if the command has ``--log json``."""
    if (settings := log_settings()) is not None and settings.format == "json":
        logging.getLogger("bucketflow").log(level, "%s", sentence)
    else:
        click.echo(f"bucketflow: {sentence}", err=True)


def note_waiting(sentence: str) -> None:
    with suppress(OSError, ValueError):  # standard error is closed
        say(sentence)


def _end(sentence: str, code: int) -> NoReturn:
    with suppress(OSError):  # standard error is closed: the code remains
        say(sentence, logging.ERROR)
    sys.exit(code)


def _open_streams() -> None:
    """Open standard streams that the parent process closed, so that no later file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


class Commands(click.Group):
    """All commands, imported one by one and listed by groups; a full output device ends them with one sentence.

    Parameters
    ----------
    homes : mapping of str to str
        The module of each command that is not defined in the main module. Only the module of the called command is
        imported.
    groups : mapping of str to sequence of str
        The commands of each section of the help.
    """

    def __init__(
        self, *args: Any, homes: Mapping[str, str], groups: Mapping[str, Sequence[str]], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self._homes, self.groups = homes, groups

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by groups, each with the first sentence of its help."""
        for title, names in self.groups.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(60)) for name, command in commands if command])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands."""
        return sorted({*super().list_commands(ctx), *self._homes})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if it is elsewhere."""
        if cmd_name in self._homes:
            found = getattr(import_module(f".{self._homes[cmd_name]}", __package__), cmd_name)
        elif (found := super().get_command(ctx, cmd_name)) is None:
            return None
        return with_logs(found)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command."""
        os.environ.setdefault(*_WAITING_ROUNDS)
        _open_streams()
        often = gc.get_threshold()
        gc.set_threshold(_OBJECTS_BEFORE_COLLECTING, *often[1:])
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            with suppress(OSError):  # output that could not be written is not retried at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            fault = file_fault(error, error.filename or "", "write")
            _end(f"cannot write {error.filename or 'to standard output'}: {fault}", 2)
        finally:
            gc.set_threshold(*often)


@contextmanager
def terminable(codes: list[int]) -> Iterator[None]:
    """Let SIGTERM raise ``KeyboardInterrupt`` and add its exit code to a list; the next SIGTERM ends the process.

    A handler that the user's program has set, or a signal that it ignores, stays as it is.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        codes.append(128 + number)
        raise KeyboardInterrupt

    if ours:
        signal.signal(signal.SIGTERM, stop)
    try:
        with _raised_again() if ours and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL else nullcontext():
            yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def ended() -> None:
    """Say nothing of Ctrl-C any more, as all is said; the interpreter takes some hundredths of a second to end.

    The next one ends the process. A handler that was set by others, or a signal that is ignored, stays as it is.
    """
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, _: signal.signal(number, signal.SIG_DFL))


@contextmanager
def _raised_again() -> Iterator[None]:
    """Raise a ``KeyboardInterrupt`` again that Python swallows, as it does in finalizers and callbacks."""
    hook = sys.unraisablehook

    def again(found: Any) -> None:
        if found.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        else:
            hook(found)

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = again
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
