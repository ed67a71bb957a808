"""CPU seconds that were spent on work, and not on compiling the loops that do it.

Pure: whoever only plans need not import a compiler for it.
"""

from __future__ import annotations

import time

_compiling = [0.0]


def working_seconds() -> float:
    """Return the CPU seconds of this process without those that compiling took."""
    return time.process_time() - _compiling[0]


def count_compiling(seconds: float) -> None:
    """Enter CPU seconds that went into compiling."""
    _compiling[0] += seconds
