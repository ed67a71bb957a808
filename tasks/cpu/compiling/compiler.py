"""Whether compiled kernels pay: importing and starting the compiler costs what NumPy does millions of cells in."""

from __future__ import annotations

import sys

from ...code_files import Patience

# NumPy sweeps 1.5 to 3 x 10^8 cells in a second: so many take as long as importing a compiler and loading loops, .2 CPU
# seconds. From then on compiled loops are faster for far fewer.
COLD_CELLS = 3 << 24
_WARM_CELLS = 1 << 17
# In the worst case NumPy sweeps that many in a second: as long as it takes less than compiling would, it goes on.
_CELLS_PER_SECOND = 1 << 25
_LOADING = COLD_CELLS / _CELLS_PER_SECOND
_PATIENCE = Patience("tasks.cpu.streaming", "stream", loading=_LOADING)


def compiler_pays(cells: int) -> bool:
    """Return whether a run that sweeps so many cells should use compiled kernels.

    As soon as the runs of this process have so many cells together that loading a compiler would have paid, it is
    loaded; a process that goes on asking is as fast as one that began with a large run.
    """
    if cells < _WARM_CELLS:
        return False
    return _PATIENCE.ends(cells / _CELLS_PER_SECOND, ahead=_LOADING if "numba" in sys.modules else 0.0)
