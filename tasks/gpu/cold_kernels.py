"""Cold kernels, which are not compiled yet: whether this machine's cores end before a device has compiled them.

A question that runs on the cores for this reason counts its seconds. Once the seconds of a process have reached the
seconds of a start or of compiling, the device is used after all. Repeated questions therefore take at most twice the
time of the better choice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from .kernels import Kernel, compile_seconds
from .memory import LongStepError


@dataclass
class AvoidedStart:
    """Seconds that this process computed on its cores, because a device would have to start or to compile first."""

    seconds: float = 0.0

    def remaining(self, seconds: float) -> float:
        """Return the seconds of a start, or of compiling, less the seconds that were computed on the cores."""
        return max(seconds - self.seconds, 0.0)

    def pay(self, seconds: float) -> None:
        """Use up counted seconds for a start or for compiling."""
        self.seconds = max(self.seconds - seconds, 0.0)

    @contextmanager
    def counted(self, here: bool = True) -> Iterator[None]:
        """Count the seconds of a block that runs on the cores; ``here`` is False if it runs on a device."""
        begun = time.perf_counter()
        yield
        if here:
            self.seconds += time.perf_counter() - begun


AVOIDED_START: Final = AvoidedStart()


def cores_end_first(kernels: Iterable[Kernel], cores: float, device: float = 0.0, start: float = 0.0) -> bool:
    """Return whether this machine's cores end before a device has started, compiled its kernels and computed.

    Return False if the device has started and all kernels are compiled: then the sizes of steps decide. If the device
    is chosen, the counted seconds pay for its compiling. The cores also run a step that no device can launch.

    Parameters
    ----------
    kernels : iterable of Kernel
        Kernels of the device. Only as many are looked at as the decision needs.
    cores, device : float
        Predicted seconds on the cores, and on a device with compiled kernels.
    start : float
        Predicted seconds until the device starts; 0 if it has started.
    """
    try:
        compiling = start + compile_seconds(kernels, cores - device + AVOIDED_START.seconds - start)
    except LongStepError:
        return True
    if not compiling:
        return False
    if cores < device + AVOIDED_START.remaining(compiling):
        return True
    AVOIDED_START.pay(compiling)
    return False
