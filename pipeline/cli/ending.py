"""How commands end: expected failures and signals as one sentence and an exit code, so that nothing is left behind.

Every command also has ``--log``, ``--log-level`` and ``--metrics``.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click

from ...cluster.address import waiting_reported
from ...cluster.logs import FORMATS, LEVELS, LogSettings, configure_logs, log_settings
from ...storage.faults import file_fault
from ..drawings.shown import LINE_SECONDS
from ..errors import TUNE_REMOVED, BucketflowError, ModelError
from ..local_paths import verify_cache_folder
from ..metrics import Metrics

_COMMANDS = logging.getLogger("bucketflow.command")
_GIVEN = "bucketflow.logs"


class DriverMetrics(Metrics):
    """Metrics of one command, in the file of ``--metrics``."""

    def __init__(self) -> None:
        self.start(None)

    def start(self, path: str | None) -> None:
        """Begin without numbers; None writes no file."""
        super().__init__()
        self._path, self._written = path, time.monotonic()

    def count_row(self, status: str, seconds: float) -> None:
        """Count a row of a batch; the file is written again if it is older than 10 seconds."""
        if self._path is not None:
            self.count("bucketflow_batch_rows_total", "Rows with an outcome.", status=status)
            self.count("bucketflow_batch_row_seconds_total", "Seconds of computation.", seconds, status=status)
            if time.monotonic() - self._written > LINE_SECONDS:
                self.save()

    def save(self) -> None:
        """Write the file; if this fails, end the command with one sentence."""
        if self._path is not None:
            try:
                self.write(self._path)
            except ModelError as error:
                click.echo(f"bucketflow: {error}", err=True)
                sys.exit(2)
            self._written = time.monotonic()


driver_metrics = DriverMetrics()
"""Metrics of the command that this process runs."""


def with_logs(command: click.Command) -> click.Command:
    """Give a command the options."""
    if any(param.name == "log_level" for param in command.params):
        return command
    choice = click.Choice
    command.params += [
        _option("--log", _log, choice(FORMATS), "Form of messages on standard error: text, or a JSON object a line."),
        _option("--log-level", _log, choice(LEVELS), "Least level of messages.  [default: warning; info with json]"),
        _option("--metrics", _metrics, str, "Write metrics in the text format of Prometheus to FILE.", metavar="FILE"),
    ]
    return command


def _option(flag: str, callback: Any, kind: Any, help: str, **more: Any) -> click.Option:
    variable = f"BUCKETFLOW_{flag.removeprefix('--').replace('-', '_').upper()}"
    return click.Option([flag], type=kind, envvar=variable, expose_value=False, callback=callback, help=help, **more)


def _log(context: click.Context, param: click.Parameter, given: str | None) -> None:
    """Log as both options say, in whatever order they come."""
    if not context.meta.setdefault(_GIVEN, {}):
        configure_logs(None)
    known = context.meta[_GIVEN]
    if given is None:
        return
    if not known:
        context.call_on_close(_Ended(context.info_name or "").log)
        known["run"] = os.urandom(6).hex()
    known[param.name] = given
    form = known.get("log", "text")
    level = known.get("log_level", "info" if form == "json" else "warning")
    configure_logs(LogSettings(form, level, known["run"]))


def _metrics(context: click.Context, _: object, given: str | None) -> None:
    driver_metrics.start(given)
    if given is not None:
        if not os.path.isdir(os.path.dirname(given) or "."):
            raise click.BadParameter(f"{given}: no such folder")
        if not given.strip():
            raise click.BadParameter("the text is empty.")
        context.call_on_close(_Ended(context.info_name or "").count)


class _Ended:
    """Logs and counts a command when it ends."""

    def __init__(self, name: str):
        self._name, self._start = name, time.perf_counter()

    def _facts(self) -> tuple[float, int]:
        error, seconds = sys.exc_info()[1], time.perf_counter() - self._start
        if isinstance(error, SystemExit):
            return seconds, error.code if isinstance(error.code, int) else int(error.code is not None)
        return seconds, 0 if error is None else getattr(error, "exit_code", 1)

    def log(self) -> None:
        """Log the end, and log as Python does from now on."""
        seconds, code = self._facts()
        facts = {"command": self._name, "seconds": round(seconds, 6), "exit_code": code}
        _COMMANDS.info("the command %s ended", self._name, extra={"facts": facts})
        configure_logs(None)

    def count(self) -> None:
        """Write the metrics with the end."""
        seconds, code = self._facts()
        driver_metrics.set("bucketflow_command_seconds", "Seconds of the command.", seconds, command=self._name)
        driver_metrics.set("bucketflow_command_exit_code", "Exit code of the command.", code, command=self._name)
        ended = "End of the command in Unix time."
        driver_metrics.set("bucketflow_command_ended_seconds", ended, time.time(), command=self._name)
        driver_metrics.save()
        driver_metrics.start(None)


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
#: Exit code of a query that is bounded or not answered in time.
UNANSWERED = 4
EXIT_CODES = f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_STATUS.items())}."
# Seconds after which an interruption is raised again, if it came where nothing can be raised, such as in callbacks of
# imports.
_AGAIN_SECONDS = 0.01
# A small question makes fewer objects than this, most of them by imports, and hardly any cycles. To search for cycles
# after every 10,000 objects takes 0.015 of 0.23 CPU seconds.
_OBJECTS_BEFORE_COLLECTING = 100_000
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
            _end(str(stop) or "stopped", codes[0] if codes else 128 + signal.SIGINT)

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of some arguments; end with one sentence if an earlier version had it."""
        if args[:1] == ["tune"]:
            _end(TUNE_REMOVED, 2)
        return super().resolve_command(ctx, args)

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
    """Prepare the end of the process: ignore one Ctrl-C, and exclude all objects from garbage collection.

    The answer is complete, but the interpreter takes some hundredths of a second to end. The first Ctrl-C in this time
    has no effect. The second one ends the process. A handler that another program has set, or an ignored signal, stays.

    Without the exclusion, the interpreter would search all objects for cycles several times before it ends. This takes
    a fifth of the time of a small question. The system frees the memory in any case.
    """
    gc.freeze()
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
