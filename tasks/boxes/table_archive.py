"""Tables of an in-memory sweep that are written to a store during the sweep, for inspection."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeVar

from ...storage.spec import TableSpec
from ..steps.step import Step
from .box import new_receipt
from .box_policy import BoxPolicy
from .codecs import Codec
from .stores import ChunkFiles

T = TypeVar("T")


@dataclass(frozen=True)
class TableArchive(Generic[T]):
    """Writes the tables that steps make to a store, each an array of its own.

    Parameters
    ----------
    store : ChunkFiles
    codec : Codec
        How tables are stored.
    sizes : tuple of int
        Domain sizes.
    least_bytes : int
        Smaller tables are not kept.
    names : callable
        Returns the names of some variables.
    told_of : callable
        Returns the attributes of an array, from the number of its table and its axes.
    """

    store: ChunkFiles
    codec: Codec[T]
    sizes: tuple[int, ...]
    least_bytes: int
    names: Callable[[Sequence[int]], tuple[str, ...]]
    told_of: Callable[[int, Sequence[int]], Mapping[str, Any]]

    def keep(self, step: Step, table: T) -> None:
        """Write the table of a step, unless it is small, with its receipts.

        Raises
        ------
        DiskFullError
            If no space is left.
        """
        start = time.perf_counter()
        values, kept = self.codec.pack(table)
        if values.nbytes < self.least_bytes:
            return
        spec = self.spec(step, values.dtype.name, kept)
        shaped = values.reshape(spec.shape)
        # the table of an earlier run may have had another scale
        self.store.delete(spec)
        written = self.store.save(spec, shaped, list(spec.chunks_at({})), {})
        self.store.record([new_receipt(spec.name, *one, start, {**kept}) for one in written])

    def spec(self, step: Step, dtype: str, kept: Mapping[str, Any]) -> TableSpec:
        """Return the array of a table, cut along its first variables into chunks that are read at once."""
        axes = tuple([v for v in step.axes if self.sizes[v] > 1])
        shape = tuple([self.sizes[v] for v in axes])
        most, cut = BoxPolicy.current().kept_chunk_cells, 0
        while cut < len(shape) and prod(shape[cut:]) > most:
            cut += 1
        told = {**self.told_of(step.node, axes), **kept}
        return TableSpec(f"table_{step.node}", axes, self.names(axes), shape, frozenset(axes[:cut]), dtype, "", told)
