"""Searching a part for a while."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import count

from ..network import States
from ..outcome import Outcome
from ..search import Search

#: CPU seconds after which others may have their turn.
_SECONDS = 0.05


def search_a_while(
    search: Search, enough: float = -math.inf, on_states: Callable[[States], None] = lambda states: None
) -> tuple[Outcome, bool]:
    """Go on with a search until time is over, or it has found something that costs no more than ``enough``.

    Returns the outcome, and whether there was too little memory to go on.
    """
    start, asked, ended = time.process_time(), count(), False

    def see(states: States) -> None:
        nonlocal ended
        ended = ended or search.network.total(states) <= enough
        on_states(states)

    def stop() -> bool:
        nonlocal ended
        ended = ended or (next(asked) > 0 and time.process_time() - start > _SECONDS)
        return ended

    outcome = search.run(stop, on_states=see)
    return outcome, not (ended or outcome.proved)
