"""Tables that are sums of costs of single values, apart from what they forbid."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..machine_code import njit

#: Sums of so many entries stay exact.
_MOST = float(1 << 50)


@njit(nogil=True, cache=True)
def separate(costs: Any, shape: Any, found: Any) -> bool:
    """Write a cost for each value of each axis whose sums are a table's finite entries; False if there are none.

    Parameters
    ----------
    costs : ndarray of float64
        Flat; infinite where forbidden, otherwise integers.
    shape : ndarray of int64
    found : ndarray of float64
        Values of the first axis, of the second, …
    """
    k, n = len(shape), len(costs)
    known = np.zeros(len(found), dtype=np.bool_)
    places = np.empty(k, dtype=np.int64)
    found[:] = 0.0
    while True:
        changed, free = False, -1
        for cell in range(n):
            if costs[cell] == np.inf:
                continue
            rest, unknown, begin = costs[cell], 0, len(found)
            at = cell
            for axis in range(k - 1, -1, -1):
                begin -= shape[axis]
                places[axis] = begin + at % shape[axis]
                at //= shape[axis]
                rest -= found[places[axis]]
                unknown += not known[places[axis]]
            if unknown == 0 and rest != 0.0:
                return False
            if abs(rest) > _MOST:
                return False
            for axis in range(k):
                if not known[places[axis]]:
                    free = places[axis]
                    if unknown == 1:
                        found[free], known[free], changed = rest, True, True
                        break
        if not changed:
            if free < 0:
                return True
            known[free] = True
