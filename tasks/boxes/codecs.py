"""How the tables of each arithmetic are stored, put together from parts, and read as beliefs and roots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..steps.light_dataclass import dataclass
from ..steps.semiring import Semiring
from ..sweeps.scaled import Scaled, above_least, from_logs, joined_scales, measured, weighed

Array = NDArray[Any]
T = TypeVar("T")
Piece = tuple[Array, dict[str, Any]]


class Codec(Protocol[T]):
    """How a kind of table is stored: its values as an array, the rest into the receipt."""

    @property
    def belief_dtype(self) -> str:
        """Return the dtype of stored weights and beliefs."""
        ...

    def pack(self, table: T) -> Piece:
        """Return the values and what else has to be kept."""
        ...

    def unpack(self, values: Array, parts: Sequence[Piece]) -> T:
        """Rebuild a table from its values; ``parts`` are views of them with the stored facts of each part."""
        ...

    def added(self, total: T, share: T) -> T:
        """Add a share of a table to others, in place."""
        ...

    def settled(self, total: T) -> T:
        """Return a table to which shares were added, in place, with bounds as tight as can be."""
        ...

    def weighed(self, belief: T) -> tuple[Any, Array]:
        """Return the weight of a belief and its entries without it."""
        ...


@dataclass(frozen=True)
class PlainCodec:
    """Bare arrays of a semiring of least costs or energies, or of residues."""

    semiring: Semiring

    @property
    def belief_dtype(self) -> str:
        """Integers for integer costs."""
        return "int64" if self.semiring.saturates else "float64"

    def pack(self, table: Array) -> Piece:
        """Return the array."""
        return table, {}

    def unpack(self, values: Array, parts: Sequence[Piece]) -> Array:
        """Return the array, flat."""
        return values.reshape(-1)

    def added(self, total: Array, share: Array) -> Array:
        """Return the least of both, or the sum of residues."""
        if not self.semiring.modulus:
            return np.minimum(total, share, out=total)
        np.add(total, share, out=total)
        return np.remainder(total, self.semiring.modulus, out=total)

    def settled(self, total: Array) -> Array:
        """Return the array."""
        return total

    def weighed(self, belief: Array) -> tuple[Any, Array]:
        """Return the least entry, and all of them above it."""
        return above_least(belief, self.semiring.zero)


class ScaledCodec:
    """Probabilities: every chunk has a scale of its own."""

    @property
    def belief_dtype(self) -> str:
        """Probabilities."""
        return "float64"

    def pack(self, table: Scaled) -> Piece:
        """Return the values, with scale and bounds apart."""
        kept = {"log_scale": table.log_scale, "low": table.low, "high": table.high, "logs": table.logs}
        return table.values, kept

    def unpack(self, values: Array, parts: Sequence[Piece]) -> Scaled:
        """Bring all parts to one scale, in place."""
        return joined_scales(values.reshape(-1), [(view, Scaled(view, **kept)) for view, kept in parts])

    def added(self, total: Scaled, share: Scaled) -> Scaled:
        """Return the sum of both."""
        joined = joined_scales(total.values, [(total.values, total), (share.values, share)])
        add = np.logaddexp if joined.logs else np.add
        add(total.values, share.values, out=total.values)
        # twice the larger of the two at most
        return replace(joined, values=total.values, high=joined.high + math.log(2.0))

    def settled(self, total: Scaled) -> Scaled:
        """Measure the bounds of a sum."""
        return from_logs(total.values, total.log_scale) if total.logs else measured(total.values, total.log_scale)

    def weighed(self, belief: Scaled) -> tuple[float, Array]:
        """Return ln of the sum, and probabilities."""
        return weighed(belief)


def packed_roots(codec: Codec[T], tables: Sequence[T]) -> list[dict[str, Any]]:
    """Return root tables, of one value each, for a receipt."""
    packed = [codec.pack(table) for table in tables]
    return [{"root": values.reshape(-1)[0].item(), **kept} for values, kept in packed]


def root_table(codec: Codec[T], value: Mapping[str, Any], dtype: str) -> T:
    """Rebuild a root's table, with one entry of this dtype, from its receipt."""
    entry = np.array([value["root"]], dtype=dtype)
    return codec.unpack(entry, [(entry, {name: kept for name, kept in value.items() if name != "root"})])
