"""Counters and gauges in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Literal

from ..cluster.version import __version__
from .local_paths import whole_text

Kind = Literal["counter", "gauge", "summary"]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    """Numbers by name and labels, which threads share."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[Kind, str]] = {}
        self._values: dict[str, dict[str, float]] = {}
        self._lock = Lock()

    def count(self, name: str, help: str, amount: float = 1, **labels: object) -> None:
        """Add an amount to a counter."""
        self._add(name, "counter", help, {"": amount}, labels)

    def observe(self, name: str, help: str, value: float, **labels: object) -> None:
        """Add a value to a summary, which has the sum and the number of its values."""
        self._add(name, "summary", help, {"_sum": value, "_count": 1}, labels)

    def set(self, name: str, help: str, value: float, **labels: object) -> None:
        """Set a gauge."""
        self._add(name, "gauge", help, {"": value}, labels)

    def _add(self, name: str, kind: Kind, help: str, parts: Mapping[str, float], labels: Mapping[str, object]) -> None:
        shown = ",".join(f'{label}="{str(value).translate(_ESCAPES)}"' for label, value in labels.items())
        with self._lock:
            self._families[name] = kind, help
            values = self._values.setdefault(name, {})
            for suffix, value in parts.items():
                sample = f"{name}{suffix}{{{shown}}}" if shown else f"{name}{suffix}"
                values[sample] = value if kind == "gauge" else values.get(sample, 0) + value

    def text(self) -> str:
        """Return all metrics, and those of this process."""
        import psutil

        process = psutil.Process()
        used = os.times()
        self.set("bucketflow_build_info", "The version of bucketflow.", 1, version=__version__)
        self.set("process_resident_memory_bytes", "Resident memory.", process.memory_info().rss)
        self.set("process_start_time_seconds", "Start of the process in Unix time.", process.create_time())
        with self._lock:
            self._families["process_cpu_seconds_total"] = "counter", "CPU seconds, with those of child processes."
            self._values["process_cpu_seconds_total"] = {"process_cpu_seconds_total": sum(used[:4])}
            lines = []
            for name, (kind, help) in self._families.items():
                lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
                lines += [f"{sample} {value!r}" for sample, value in self._values[name].items()]
        return "\n".join(lines) + "\n"

    def write(self, path: str | Path) -> None:
        """Write all metrics to a file, such as node_exporter's textfile collector reads; it is replaced as a whole.

        Raises
        ------
        ModelError
            If the file cannot be written.
        """
        with whole_text(path) as file:
            file.write(self.text())
