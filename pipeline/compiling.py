"""Reports of loop compilation in answers: its seconds, once per installation, and loops that could not be used."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ..tasks.compiler.numba_parts import said_so_far
from ..tasks.compiler.working_time import compiling_seconds

P = ParamSpec("P")
A = TypeVar("A")

_NAME = "compile"


def counts_compiling(answer: Callable[P, A]) -> Callable[P, A]:
    """Add the seconds spent on compilation, if any, to the ``seconds`` of a function's answer.

    Its ``notes`` say where the compiler is one whose inner parts are not known.
    """

    @wraps(answer)
    def counted(*args: P.args, **kwargs: P.kwargs) -> A:
        start, before = time.perf_counter(), compiling_seconds()
        found: Any = answer(*args, **kwargs)
        compiling = compiling_seconds() - before
        if compiling > 0.0:
            found = _changed(found, seconds=apart(found.seconds, compiling, time.perf_counter() - start))
        if (said := said_so_far()) and said not in getattr(found, "notes", (said,)):
            found = _changed(found, notes=(*found.notes, said))
        return found  # type: ignore[no-any-return]

    return counted


def _changed(found: Any, **changes: Any) -> Any:
    """Return an answer with changed fields. An answer that is an iterator, and no dataclass, is changed in place."""
    if is_dataclass(found):
        return replace(found, **changes)  # type: ignore[type-var]
    vars(found).update(changes)
    return found


def apart(phases: Mapping[str, float], compiling: float, elapsed: float) -> dict[str, float]:
    """Return phases with compiling as one of them, so that all together are no longer than what elapsed.

    Clocks of phases go on while loops are compiled in them, and some are compiled in none.

    Examples
    --------
    >>> apart({"plan": 1.0, "run": 21.0}, 135.0, 157.0)
    {'plan': 1.0, 'run': 21.0, 'compile': 135.0}
    >>> apart({"plan": 1.0, "run": 156.0}, 135.0, 157.0)
    {'plan': 1.0, 'run': 21.0, 'compile': 135.0}
    """
    found = {name: seconds for name, seconds in phases.items() if name != _NAME}
    twice = min(compiling, sum(found.values()) + compiling - elapsed)
    for name in sorted(found, key=lambda name: -found[name]):
        taken = max(min(found[name], twice), 0.0)
        found[name] -= taken
        twice -= taken
    return {**found, _NAME: compiling}
