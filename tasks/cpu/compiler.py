"""Whether compiled kernels pay: importing and starting the compiler costs what NumPy does millions of cells in."""

from __future__ import annotations

import sys

# Below so many cells NumPy is done before a compiler is even imported; once it is there, far fewer suffice.
COLD_CELLS = 1 << 23
_WARM_CELLS = 1 << 17


def compiler_pays(cells: int) -> bool:
    """Return whether a run that sweeps so many cells should use compiled kernels."""
    return cells >= (_WARM_CELLS if "numba" in sys.modules else COLD_CELLS)
