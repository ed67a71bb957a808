"""How many inputs tests make up: few in a run of all tests, as many as one likes by hand."""

from __future__ import annotations

import os


def examples(few: int = 300) -> int:
    """Return the number of inputs, or what the variable ``BUCKETFLOW_FUZZ`` says: 10000, say."""
    return int(os.environ.get("BUCKETFLOW_FUZZ", few))
