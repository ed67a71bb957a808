"""Options that had no effect on the way that answered: named in a note, as nothing is passed over without a word.

Options that limit resources (memory, disk, threads, time, gap) or name the run directory affect every engine, and need
no note.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from ...options import Options, ProofOptions

#: Options that say how a sweep is planned.
PLANNING: Final = frozenset({"order", "order_time", "tree", "fit", "representation", "seed"})
#: Options that say where it runs.
WORKERS: Final = frozenset({"workers", "scheduler", "client"})
DEVICES: Final = frozenset({"gpus", "gpu_memory"})
#: Options that say how a network of costs is prepared for bounds.
PROOFS: Final = frozenset({"prune"})
_HEEDED_BY_SOME: Final = PLANNING | WORKERS | DEVICES | PROOFS


def given_options(options: Options, effort: ProofOptions) -> tuple[str, ...]:
    """Return the names of the options that a caller gave and that some way of answering does not heed."""
    return tuple(
        field.name
        for source in (options, effort)
        for field in fields(source)
        if field.name in _HEEDED_BY_SOME and getattr(source, field.name) != field.default
    )
