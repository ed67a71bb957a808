"""Alternative launches of a step on a device, beside the rules' launch: kernel families and their tiles. Pure."""

from __future__ import annotations

from typing import Final, Literal

from ...learnt.learnt_launches import RULES
from ...steps.light_dataclass import dataclass

Use = Literal["rules", "always", "never"]
"""Whether a family is taken as the rules say, wherever it can be, or not at all."""


@dataclass(frozen=True)
class TileLaunch:
    """Which families of kernels a step may run by.

    Parameters
    ----------
    products, bricks, buckets, inner : str
        ``inner``: sums inside of a step, of some inputs before the others are multiplied in.
    brick_shares : tuple of float
        Shares of the shared memory that the large inputs of a brick may take, in the order in which they are tried or
        compared: smaller bricks leave room for more blocks on a multiprocessor.
    """

    products: Use = "rules"
    bricks: Use = "rules"
    buckets: Use = "rules"
    brick_shares: tuple[float, ...] = (0.75, 0.45, 0.3, 0.2, 0.1)
    inner: Use = "rules"


_SMALL: Final = (0.3, 0.2, 0.1)
TILE_LAUNCHES: Final = {
    RULES: TileLaunch(),
    "product": TileLaunch(products="always"),
    "no product": TileLaunch(products="never"),
    "bricks": TileLaunch("never", "always", "never"),
    "small bricks": TileLaunch("never", "always", "never", _SMALL),
    "buckets": TileLaunch("never", "never", "always"),
    "no buckets": TileLaunch(buckets="never"),
    "no bricks": TileLaunch(bricks="never"),
    "all at once": TileLaunch(inner="never"),
    "streams": TileLaunch("never", "never", "never"),
}
"""The launch space of a step; the rules' launch is first. Passes that come out alike are one launch."""
