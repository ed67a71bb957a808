"""What the C library keeps of freed memory.

Blocks of up to 32 MB are kept in its heap once one was freed, where those of other sizes find no room: a process grows
by half of what it may take. Pure: nothing is computed here.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_MMAP_THRESHOLD = -3
#: Blocks of this many bytes are returned: smaller ones are quicker to keep.
_LARGE = 1 << 20


def return_freed_pages() -> None:
    """Give pages back that hold only freed blocks, of whatever size; takes milliseconds."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def return_large_blocks() -> None:
    """Have every freed block of a megabyte and more given back to the system, where the C library can do that."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
