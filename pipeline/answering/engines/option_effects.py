"""Options that had no effect on the way that answered: named in a note, as nothing is passed over without a word.

What limits (memory, disk, threads, a time, a gap) and where a run is kept hold for every way, and need no note.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Final

from ...options import Options, ProofOptions
from ...plans.plan import Plan

#: Options that say how a sweep is planned.
PLANNING: Final = frozenset({"order", "order_time", "tree", "fit", "representation", "seed"})
#: Options that say where it runs.
WORKERS: Final = frozenset({"workers", "scheduler", "client"})
DEVICES: Final = frozenset({"gpus", "gpu_memory"})
#: Options that say how a network of costs is prepared for bounds.
PROOFS: Final = frozenset({"prune"})


def given_options(options: Options, effort: ProofOptions) -> tuple[str, ...]:
    """Return the names of the options that a caller gave and that some way of answering does not heed."""
    heeded_by_some = PLANNING | WORKERS | DEVICES | PROOFS
    return tuple(
        field.name
        for source in (options, effort)
        for field in fields(source)
        if field.name in heeded_by_some and getattr(source, field.name) != field.default
    )


def without_effect(given: Collection[str], heeded: Collection[str], plan: Plan | None) -> tuple[str, ...]:
    """Return the options among those given that had no effect.

    Parameters
    ----------
    given : collection of str
        See :func:`given_options`.
    heeded : collection of str
        By the engine that answered.
    plan : Plan or None
        That ran, if one did.
    """
    swept_on_host = plan is not None and not plan.device
    return tuple(name for name in given if name not in heeded or (swept_on_host and name in DEVICES))


def effect_note(names: Collection[str], way: str) -> tuple[str, ...]:
    """Return the note about options without effect; none where there are none."""
    return (f"{_listed([*names])} had no effect: {way}",) if names else ()


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
