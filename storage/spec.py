"""The description of a table on disk: its axes, its chunk grid, and the receipt of each finished chunk. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

Key = tuple[str, tuple[int, ...]]
"""A table and a chunk of it."""


@dataclass(frozen=True)
class TableSpec:
    """A dense table as a Zarr array, one axis for each variable with several states.

    Parameters
    ----------
    name : str
        Folder of the array inside the run directory.
    variables : tuple of int
        Variable of each axis, in the order of the axes.
    labels : tuple of str
        Their names, which become the dimension names.
    shape : tuple of int
    chunked : frozenset of int
        Variables along which a chunk has one state; along the others it has all.
    dtype : str
    compression : str
        How the chunk files are stored: ``""`` for raw values, or ``"blosc"``.
    attributes : mapping
        Attributes of the array for its readers, in plain types.
    """

    name: str
    variables: tuple[int, ...]
    labels: tuple[str, ...]
    shape: tuple[int, ...]
    chunked: frozenset[int]
    dtype: str
    compression: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of every chunk."""
        return tuple(1 if v in self.chunked else n for v, n in zip(self.variables, self.shape, strict=True))

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(n if v in self.chunked else 1 for v, n in zip(self.variables, self.shape, strict=True))

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return prod(self.grid)

    def chunks_at(self, states: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
        """Yield the coordinates of the chunks that agree with some states, in C order."""
        return product(
            *(
                ((states[v],) if v in states else range(n)) if v in self.chunked else (0,)
                for v, n in zip(self.variables, self.shape, strict=True)
            )
        )

    def file_name(self, chunk: tuple[int, ...]) -> str:
        """Name of a chunk's file: Zarr's default key encoding with dots."""
        return ".".join(["c", *map(str, chunk)])


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a task finished: the chunk that it wrote, and the task's numbers.

    Parameters
    ----------
    table : str
        Name of the table, or of the result for the last stage.
    chunk : tuple of int
        Coordinates in the table's chunk grid, or the number of the box for a result.
    nbytes, checksum : int
        Length and CRC-32C of the chunk's file; 0 for a result.
    seconds : float
        Wall time of the task that wrote it.
    peak_bytes : int
        Largest resident size of the process that wrote it.
    value : dict
        Scale and bounds of a chunk of probabilities; the value of a result.
    ended : float
        Seconds since 1970; 0 where that was not written down.
    steps : mapping of str to (float, int)
        Seconds of the task's steps and the number of runs of each step, by table. If a task has several receipts, only
        one holds them.
    """

    table: str
    chunk: tuple[int, ...]
    nbytes: int
    checksum: int
    seconds: float
    peak_bytes: int
    value: dict[str, Any]
    ended: float = 0.0
    steps: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Table and chunk."""
        return self.table, self.chunk

    def to_record(self) -> dict[str, Any]:
        """Return the receipt as plain types for the ledger, its table and chunk first."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Receipt:
        """Rebuild a receipt from its ledger record."""
        steps = {step: tuple(took) for step, took in record.get("steps", {}).items()}
        return cls(**{**record, "chunk": tuple(record["chunk"]), "steps": steps})
