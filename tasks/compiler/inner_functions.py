"""Functions that are compiled for others are optimised as parts of these, and not by themselves before.

Numba optimises every function when it is compiled, and again with each function that calls it: for those that nobody
else calls the first time is in vain, a third of what large loops take. This uses inner parts of Numba's, see
:mod:`.numba_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import codegen, event

from .kept_code import KeptCode

#: Of the functions that are being compiled, the outermost first, whether their code is kept.
_compiled: list[bool] = []


class _Nesting(event.Listener):
    """Follows which functions are being compiled."""

    def on_start(self, event: Any) -> None:
        """Begin with a function."""
        _compiled.append(isinstance(event.data["dispatcher"]._cache, KeptCode))

    def on_end(self, event: Any) -> None:
        """End the innermost one."""
        _compiled.pop()


def is_inner() -> bool:
    """Whether what is being compiled is for a function that calls it, and kept only as part of that."""
    return len(_compiled) > 1 and not _compiled[-1]


def optimise_once() -> None:
    """Leave inner functions to the optimisation of those that call them."""
    library: Any = codegen.CPUCodeLibrary
    plain: Callable[[Any], None] = library._optimize_final_module

    def optimised(self: Any) -> None:
        if not is_inner():
            plain(self)

    library._optimize_final_module = optimised
    register: Callable[..., None] = event.register
    register("numba:compile", _Nesting())
