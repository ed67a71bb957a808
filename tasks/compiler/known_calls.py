"""What Numba finds again and again while it compiles, found once.

It tries all that an operator may mean for every place where that stands, strings, lists and universal functions of
NumPy's first, and words what does not fit each time, in colours where it can; and it looks for variables in line
numbers and names. Here a call of a function of Numba's on numbers and arrays has the type that it had in its first
place, and words have no colours. This uses inner parts of Numba's, see :mod:`.numba_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import errors, ir, types
from numba.core.types.functions import BaseFunction

_PLAIN: tuple[Any, ...] = (types.Number, types.Boolean, types.Array)
_WITHOUT_VARIABLES = frozenset({str, int, bool, float, type(None), ir.Loc})


def know_calls() -> None:
    """Let types of calls be remembered, variables be looked for where some can be, and words stay plain."""
    colours: Any = errors.termcolor()
    colours._markup = lambda words, *_: words
    owner: Any = BaseFunction
    plain: Callable[..., Any] = owner.get_call_type
    known: dict[tuple[Any, ...], Any] = {}

    def type_of_call(self: Any, context: Any, args: Any, named: Any) -> Any:
        if named or not all(isinstance(each, _PLAIN) for each in args):
            return plain(self, context, args, named)
        place = (context, self, tuple(args))
        found = known.get(place)
        if found is None:
            found = known[place] = plain(self, context, args, named)
        return found

    owner.get_call_type = type_of_call
    instruction: Any = ir.Inst
    all_variables: Callable[..., list[Any]] = instruction._rec_list_vars

    def variables(self: Any, value: Any) -> list[Any]:
        if type(value) is dict:
            held = [each for each in value.values() if type(each) not in _WITHOUT_VARIABLES]
            return [variable for each in held for variable in all_variables(self, each)]
        return all_variables(self, value)

    instruction._rec_list_vars = variables
