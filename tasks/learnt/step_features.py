"""The features from which the time of a step is learnt: its sizes and layout, but none of its values. Pure."""

from __future__ import annotations

from math import log2, prod
from typing import Final

from ..steps.lowering import Lowered

FEATURES: Final = (
    *("log2 cells", "log2 output", "log2 largest input", "log2 second input", "log2 moved bytes", "log2 bytes a value"),
    *("log2 inputs", "log2 eliminated", "log2 innermost", "log2 inner elimination", "axes", "large inputs"),
    *("inputs across", "broadcast inputs", "product", "log2 shortest side", "sums", "floats"),
)
"""Names of the features, in their order."""

# Inputs of at least this part of a step's cells are large: each of their cells is read a few times.
_LARGE_SHARE: Final = 16


def features_of(lowered: Lowered) -> tuple[float, ...]:
    """Describe a lowered step by numbers, one for each of `FEATURES`.

    Parameters
    ----------
    lowered : Lowered
        A step with fused axes.
    """
    axes, cells, sizes = lowered.axes, lowered.cells, lowered.input_cells
    itemsize = lowered.semiring.itemsize
    ranked = sorted(sizes, reverse=True)
    gone = axes.eliminated
    innermost = axes.sizes[-1] if axes.sizes and axes.out[-1] else 1
    product = lowered.product
    groups = (product.rows, product.columns, product.depth) if product else ()
    shortest = min([prod([axes.sizes[axis] for axis in group]) for group in groups], default=1)
    lasts = [strides[-1] if strides else 0 for strides in axes.strides]
    return (
        # sizes as logarithms, because times are products of powers of them
        log2(max(cells, 1)),
        log2(max(lowered.out_cells, 1)),
        log2(max(ranked[0], 1)),
        log2(max(ranked[1], 1)) if len(ranked) > 1 else 0.0,
        log2((sum(sizes) + lowered.out_cells) * itemsize),
        log2(itemsize),
        log2(len(sizes)),
        log2(max(cells // max(lowered.out_cells, 1), 1)),
        log2(innermost),
        log2(axes.sizes[gone - 1]) if gone else 0.0,
        float(len(axes.sizes)),
        float(sum([size * _LARGE_SHARE >= cells for size in sizes])),
        float(sum([stride > 1 for stride in lasts])),
        float(sum([stride == 0 for stride in lasts])),
        float(product is not None),
        log2(max(shortest, 1)),
        float(lowered.semiring.name != "min_plus"),
        float(lowered.semiring.dtype.startswith("float")),
    )
