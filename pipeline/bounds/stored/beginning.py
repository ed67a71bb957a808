"""What layers on disk are layers of, as bytes: the network, how it was made smaller, and below which cut-off."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..network import CostNetwork, CostTable, Restore, States
from ..rules.compaction import Kept
from ..rules.pool import Best

Bytes = NDArray[np.uint8]
Arrays = list[NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Beginning:
    """Where a search layer by layer began.

    Parameters
    ----------
    network : CostNetwork
        It stands for the first one below the cut-off.
    order : tuple of int
    cells : int
        Most cells of a mini-bucket.
    upper : int or None
        The cut-off that mini-buckets were made with; rows at or above it were dropped.
    best : tuple of int or None
        The best assignment of the first network that was known.
    """

    network: CostNetwork
    order: tuple[int, ...]
    cells: int
    upper: int | None
    best: States | None

    def packed(self) -> Bytes | None:
        """Return everything as bytes; None if it is not known how the network was made smaller."""
        network = self.network
        made = [_parts_of(restore) for restore in network.made]
        known = [parts for parts in made if parts is not None]
        if len(known) < len(made):
            return None
        what = {
            "dims": network.dims,
            "scopes": network.scopes,
            "constant": network.constant,
            "made": [(kind, len(arrays)) for kind, arrays in known],
            **{name: getattr(self, name) for name in ("order", "cells", "upper", "best")},
        }
        header = np.frombuffer(json.dumps(what).encode(), np.uint8)
        arrays: Arrays = [header, *(table.costs for table in network.tables)]
        arrays += [each for _, parts in known for each in parts]
        stream = BytesIO()
        np.savez(stream, *arrays)
        return np.frombuffer(stream.getbuffer(), np.uint8)

    @classmethod
    def unpacked(cls, data: NDArray[Any]) -> Beginning:
        """Read what :meth:`packed` returned."""
        with np.load(BytesIO(data.tobytes()), allow_pickle=False) as stored:
            header, *arrays = (stored[f"arr_{i}"] for i in range(len(stored.files)))
        what = json.loads(header.tobytes())
        tables = [CostTable(tuple(scope), arrays.pop(0)) for scope in what["scopes"]]
        made = []
        for kind, count in what["made"]:
            made.append(_restore_of(kind, arrays[:count]))
            del arrays[:count]
        network = CostNetwork(tuple(what["dims"]), tuple(tables), what["constant"], tuple(made))
        best = None if what["best"] is None else tuple(what["best"])
        return cls(network, tuple(what["order"]), what["cells"], what["upper"], best)


def _parts_of(restore: Restore) -> tuple[str, Arrays] | None:
    if isinstance(restore, Kept):
        return "kept", [restore.states, restore.live, restore.values, restore.first]
    if isinstance(restore, Best):
        return "best", [part for x, scope, best in restore.choices for part in (np.array((x, *scope)), best)]
    return None


def _restore_of(kind: str, arrays: Arrays) -> Restore:
    if kind == "kept":
        return Kept(*arrays)
    variables = [tuple(each.tolist()) for each in arrays[::2]]
    return Best(tuple((x, tuple(scope), best) for (x, *scope), best in zip(variables, arrays[1::2], strict=True)))
