"""Results that Numba computes repeatedly during compilation, cached.

Numba tries all meanings of an operator at every place, starting with strings, lists and NumPy's universal functions. It
words every failure, in colours if possible, and searches line numbers and names for variables. Here a call of a Numba
function on numbers and arrays gets the type of its first occurrence, and messages have no colours. This uses inner
parts of Numba, see :mod:`.numba_parts`.
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
