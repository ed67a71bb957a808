"""Messages between cliques that keep their tables: the two classical operations.

Reduction and scattering are those of junction trees in the style of Hugin (Jensen, Lauritzen and Olesen 1990;
Zheng and Mengshoel 2013): a clique that keeps its table absorbs a neighbour's news as the ratio of the new
separator to the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dense import contract
from ..steps.semiring import SUM_PRODUCT

Array = NDArray[Any]


def reduction(
    clique: Array, axes: tuple[int, ...], separator: tuple[int, ...], sizes: Mapping[int, int], threads: int = 1
) -> Array:
    """Marginalise a clique's table onto a separator.

    Parameters
    ----------
    clique : ndarray, float64, C-contiguous
        ``prod(sizes[v] for v in axes)`` values.
    axes, separator : tuples of int
        Variables of the clique and of the separator, in the order of their axes.

    Returns
    -------
    ndarray, flat
    """
    return contract([clique], [axes], separator, sizes, SUM_PRODUCT, threads=threads)


def scattering(
    clique: Array,
    axes: tuple[int, ...],
    separator: tuple[int, ...],
    sizes: Mapping[int, int],
    old: Array,
    new: Array,
    threads: int = 1,
) -> Array:
    """Multiply a clique's table by ``new / old`` on a separator, where 0 / 0 is 0.

    A zero of the old separator stands for states that the clique excludes already, so nothing is lost.

    Returns
    -------
    ndarray, flat
        A new table; the given ones are left as they are.
    """
    ratio = np.divide(new, old, out=np.zeros(old.size), where=old != 0.0)
    return contract([clique, ratio], [axes, separator], axes, sizes, SUM_PRODUCT, threads=threads)
