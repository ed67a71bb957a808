"""Whether compiled kernels pay: importing and starting the compiler costs what NumPy does millions of cells in."""

from __future__ import annotations

import sys

from ...code_files import Patience

# Below so many cells NumPy, at 1.5 to 4 x 10^8 a second, is done before a compiler is even imported, which takes 0.2
# CPU seconds; once it is there, far fewer suffice.
COLD_CELLS = 3 << 24
_WARM_CELLS = 1 << 17
# In the worst case NumPy sweeps that many in a second: as long as it takes less than compiling would, it goes on.
_CELLS_PER_SECOND = 1 << 25
_PATIENCE = Patience("tasks.cpu.streaming", "stream", loading=0.0)


def compiler_pays(cells: int) -> bool:
    """Return whether a run that sweeps so many cells should use compiled kernels."""
    if cells < (_WARM_CELLS if "numba" in sys.modules else COLD_CELLS):
        return False
    return _PATIENCE.ends(cells / _CELLS_PER_SECOND)
