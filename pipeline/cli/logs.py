"""``--log``, ``--log-level`` and ``--metrics``, which every command has."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

import click

from ...cluster.logs import FORMATS, LEVELS, LogSettings, configure_logs
from ..errors import ModelError
from ..metrics import Metrics

_COMMANDS = logging.getLogger("bucketflow.command")
_WRITE_SECONDS = 10.0
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
            if time.monotonic() - self._written > _WRITE_SECONDS:
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
