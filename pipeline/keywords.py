"""The keywords that the public functions share, with their types; what they mean: :func:`bucketflow.solve`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypedDict

from .plans.kinds import Fit, Representation, TreeKind


class Where(TypedDict, total=False):
    """Where to run, and within what memory."""

    memory: int | str | None
    threads: int | None
    workers: int | None
    scheduler: str | None
    client: Any
    gpus: int | str | None
    gpu_memory: int | str | None


class Keywords(Where, total=False):
    """How to plan, too."""

    order: str | Sequence[str]
    order_time: float | None
    tree: TreeKind
    seed: int
    representation: Representation
    fit: Fit
    disk: int | str | None
    workdir: str | PathLike[str] | None


class Sharing(Keywords, total=False):
    """How a job shares its cluster with others, too."""

    priority: int
    most_workers: int | None


class Bounding(TypedDict, total=False):
    """How to bound an answer, within what memory, and where on disk: on this machine, in one process."""

    memory: int | str | None
    disk: int | str | None
    workdir: str | PathLike[str] | None
    order: str | Sequence[str]
    order_time: float | None
    seed: int
    threads: int | None
    gpus: int | str | None
    gpu_memory: int | str | None
