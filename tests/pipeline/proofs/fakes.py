"""Provers that do as they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bucketflow.pipeline.proofs.incumbent import Incumbent
from bucketflow.pipeline.proofs.limits import Outcome
from bucketflow.pipeline.proofs.prover import Prover
from bucketflow.pipeline.proofs.prover_registry import ALL_PROVERS, CompiledLoop, Registered


class Fake(Prover):
    """A prover that does as it is told; ``does`` is called with the CPU seconds of each turn."""

    nbytes = 0

    def __init__(self, known: Incumbent, does: Callable[[float], Outcome | None]) -> None:
        super().__init__(known)
        self._does = does

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        return self._does(seconds)

    def forget(self) -> None: ...


def compiled() -> list[Registered]:
    """All provers, none of which waits for a compiler."""
    return [replace(entry, loop=None) for entry in ALL_PROVERS]


def fake(name: str, does: Callable[[float], Outcome | None], loop: CompiledLoop | None = None) -> Registered:
    """Register a fake."""
    return Registered(name, lambda known: Fake(known, does), loop)
