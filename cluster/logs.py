"""Logs of a command and of its Dask workers on standard error: text, or a JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
_LOGGERS = ("bucketflow", "uvicorn")
_PLUGIN = "bucketflow-logs"


@dataclass(frozen=True)
class LogSettings:
    """How a command logs.

    Parameters
    ----------
    format : {"text", "json"}
    level : {"debug", "info", "warning", "error"}
    run : str
        The same in all lines of a command, from whatever process.
    """

    format: str
    level: str
    run: str


class _Lines(logging.Formatter):
    """Lines of text, or of JSON with `time`, `level`, `logger`, `message`, `run` and the facts of the record."""

    def __init__(self, settings: LogSettings):
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._settings = settings

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        if self._settings.format == "text":
            return super().format(record)
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "run": self._settings.run,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _StandardError(logging.Handler):
    """Writes to what standard error is when a record comes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # standard error is closed
            pass


_active: list[tuple[LogSettings, logging.Handler]] = []


def configure_logs(settings: LogSettings | None) -> None:
    """Log so in this process from now on; None logs as Python does by default."""
    while _active:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(_active[-1][1])
            logging.getLogger(name).setLevel(logging.NOTSET)
        _active.pop()
    if settings is not None:
        handler = _StandardError()
        handler.setFormatter(_Lines(settings))
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(handler)
            logging.getLogger(name).setLevel(settings.level.upper())
        _active.append((settings, handler))


def log_settings() -> LogSettings | None:
    """Return how this process logs, if a command said so."""
    return _active[-1][0] if _active else None


def log_on_workers(client: Any) -> None:
    """Let all workers of a client log as this process, those that join later too."""
    settings = log_settings()
    if settings is None:
        return
    from distributed import WorkerPlugin

    class Logs(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            configure_logs(settings)

    client.register_plugin(Logs(), name=_PLUGIN)
