"""Whether compiled kernels pay: importing and starting the compiler costs what NumPy does millions of cells in."""

from __future__ import annotations

import sys

from ..code_files import Patience

# Below so many cells NumPy is done before a compiler is even imported; once it is there, far fewer suffice.
COLD_CELLS = 1 << 23
_WARM_CELLS = 1 << 17
# NumPy sweeps that many or more in a second: as long as it takes less than compiling would, it goes on.
_CELLS_PER_SECOND = 1 << 25
_PATIENCE = Patience("tasks.cpu.streaming", "stream", loading=0.0)


def compiler_pays(cells: int) -> bool:
    """Return whether a run that sweeps so many cells should use compiled kernels."""
    if cells < (_WARM_CELLS if "numba" in sys.modules else COLD_CELLS):
        return False
    return _PATIENCE.ends(cells / _CELLS_PER_SECOND)
