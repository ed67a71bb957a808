"""Walks down on a GPU: the distributions of all variables lie there, and each thread takes four draws through them.

The host joins and sums up weights, once. The remaining work is to look up, multiply and compare, which a device does to
the same bits: a draw equals the draw that the host makes from the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..gpu import arrays
from ..gpu.kernels import Kernel, cupy, kernel
from ..gpu.memory import to_device, to_host
from .conditional_draws import TOGETHER, Conditional

Array = NDArray[Any]

_THREADS: Final = 128
_TILE: Final = 32
"""Threads of a block, and the side of the tiles that are turned; as in ``cuda/walk.cu``."""

_CONDITIONAL: Final = np.dtype(
    [("first_sum", "i8"), ("stream", "u8"), *((name, "i4") for name in ("first_given", "given", "states", "slot"))],
    align=True,
)
"""The layout of ``Conditional`` in ``cuda/walk.cu``."""

_WALK: Final = np.dtype(
    [
        *((name, "u8") for name in ("sums", "conditionals", "slots", "strides", "columns", "found", "out")),
        *((name, "i8") for name in ("draws", "begun")),
        ("seed", "u8"),
        *((name, "i4") for name in ("count", "width")),
    ],
    align=True,
)
"""The layout of ``Walk`` in ``cuda/walk.cu``."""


def walk_bytes(slots: int, columns: int, itemsize: int) -> int:
    """Return the bytes of a draw on the device: states of all slots, and the states of the answer."""
    return itemsize * (slots + columns)


class DeviceWalks:
    """The distributions of variables on the present device, in the order in which they are drawn.

    Parameters
    ----------
    conditionals : sequence of Conditional
        Their variables number slots; the given variables were drawn before.
    streams : sequence of int
        Of random numbers, one for each of them.
    columns : sequence of int
        Slots, in the order of the answer.
    seed : int
    dtype : dtype
        Of states, int16 or int32.
    draws : int
        Most draws that are made together, a multiple of four.
    """

    def __init__(
        self,
        conditionals: Sequence[Conditional],
        streams: Sequence[int],
        columns: Sequence[int],
        seed: int,
        dtype: np.dtype[Any],
        draws: int,
    ) -> None:
        """Copy the conditionals to the device and allocate room for the draws.

        Parameters
        ----------
        conditionals : sequence of Conditional
            Cumulative sums of each variable given the variables above it, in the order of drawing.
        streams : sequence of int
            Random stream of each conditional.
        columns : sequence of int
            Variables in the order of the output's columns.
        seed : int
        dtype : dtype
            Of the drawn states.
        draws : int
            Most draws of one launch.
        """
        sizes = [each.sums.shape[1] for each in conditionals]
        place = {each.variable: k for k, each in enumerate(conditionals)}
        records = np.zeros(len(conditionals), _CONDITIONAL)
        records["first_sum"] = np.cumsum([0, *(each.sums.size for each in conditionals)])[:-1]
        records["stream"] = np.array(streams, np.uint64)
        records["given"] = [len(each.given) for each in conditionals]
        records["first_given"] = np.cumsum(records["given"]) - records["given"]
        records["states"] = sizes
        records["slot"] = range(len(conditionals))
        strides = []
        for each in conditionals:
            own = [sizes[place[v]] for v in each.given]
            strides.append(np.append(np.cumprod(own[:0:-1], dtype=np.int64)[::-1], 1)[: len(own)])
        parts: dict[str, Array] = {
            "conditionals": records.view(np.uint8),
            "slots": np.array([place[v] for each in conditionals for v in each.given], np.int32),
            "strides": np.array([*chain.from_iterable(strides)], np.int64),
            "columns": np.array([place[v] for v in columns], np.int32),
        }
        # one copy for all small arrays; the sums are large and copied one by one
        copies = dict(zip(parts, arrays.upload([*parts.values()]), strict=True))
        copies["sums"] = arrays.empty(sum(each.sums.size for each in conditionals), "float64")
        for first, each in zip(records["first_sum"].tolist(), conditionals, strict=True):
            to_device(np.ascontiguousarray(each.sums), copies["sums"][first : first + each.sums.size])
        copies["found"] = arrays.empty(draws * len(conditionals), dtype.name)
        copies["out"] = arrays.empty(draws * len(columns), dtype.name)
        self._held, self._dtype, self._most = copies, dtype, draws
        self._record = np.zeros((), _WALK)
        for name, copy in copies.items():
            self._record[name] = copy.data.ptr
        self._record["seed"] = np.uint64(seed & ((1 << 64) - 1))
        self._record["count"], self._record["width"] = len(conditionals), len(columns)

    def fill(self, found: Array, begun: int = 0) -> None:
        """Draw a row of states for each row of an array of the host; the first row is draw ``begun``.

        Parameters
        ----------
        found : ndarray, shape (draws, columns)
            C-contiguous, of the states' dtype.
        begun : int
            A multiple of four.
        """
        for start in range(0, len(found), self._most):
            rows = found[start : start + self._most]
            draws = -(-len(rows) // TOGETHER) * TOGETHER
            self._record["draws"], self._record["begun"] = draws, begun + start
            walk_kernel(self._dtype.name, "walk")((-(-draws // (TOGETHER * _THREADS)),), (_THREADS,), (self._record,))
            tiles = -(-draws // _TILE), -(-found.shape[1] // _TILE)
            walk_kernel(self._dtype.name, "turn")(tiles, (_THREADS,), (self._record,))
            to_host(self._held["out"][: rows.size], rows)
            cupy().cuda.get_current_stream().synchronize()


def walk_kernel(dtype: str, entry: str) -> Kernel:
    """Return the kernel that draws states of a type, or the kernel that transposes them."""
    return kernel("walk", "min_plus", dtype, entry)


def walk_kernels(dtype: np.dtype[Any]) -> list[Kernel]:
    """Return the two kernels that draw states of a dtype."""
    return [walk_kernel(dtype.name, entry) for entry in ("walk", "turn")]
