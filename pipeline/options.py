"""What a caller may ask of planning and running, read once at the edge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from .budget.fit import Fit
from .errors import ModelError
from .plans.plan import TreeKind


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to plan and where to run; see :func:`solve`."""

    memory: int | str | None = None
    order: str | Sequence[str] = "auto"
    order_time: float | None = None
    tree: TreeKind = "refined"
    seed: int = 0
    threads: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    client: Any = None
    fit: Fit = "auto"
    disk: int | str | None = None
    workdir: str | PathLike[str] | None = None
    gpus: int | str | None = None
    gpu_memory: int | str | None = None

    def __post_init__(self) -> None:
        for name, value, known in (("tree", self.tree, TreeKind), ("fit", self.fit, Fit)):
            if value not in get_args(known):
                raise ModelError(f"unknown {name} {value!r}; one of {', '.join(get_args(known))}")
        if self.order_time is not None and not 0 <= self.order_time < math.inf:
            raise ModelError(f"order_time is {self.order_time}; it must be a number of seconds, 0 or more")
        if self.gpus is not None and self.workers:
            raise ModelError("every GPU has one worker; leave out workers, or gpus")
        for name in ("memory", "disk", "gpu_memory"):
            if (size := getattr(self, name)) is not None:
                parse_size(size)

    @property
    def remote(self) -> bool:
        """Whether the workers are those of a running cluster."""
        return self.client is not None or self.scheduler is not None

    @property
    def disk_bytes(self) -> int | None:
        """The budget for tables on disk in bytes, if one is given."""
        return None if self.disk is None else parse_size(self.disk)

    @property
    def folder(self) -> Path | None:
        """The run directory, if one is given."""
        return None if self.workdir is None else Path(self.workdir)


def parse_size(size: int | str) -> int:
    """Read a size in bytes, as a number or as ``"4GB"`` or ``"512MiB"``.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        found = size if isinstance(size, int) else _parsed(size)
    except (ValueError, OverflowError, TypeError, AttributeError):
        found = -1
    if found < 0:
        raise ModelError(f"{size!r} is not a size; write for example 4GB or 512MiB")
    return found


def _parsed(size: str) -> int:
    from dask.utils import parse_bytes

    return int(parse_bytes(size))
