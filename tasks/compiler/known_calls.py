"""Results that Numba computes repeatedly during compilation, cached.

Numba tries all meanings of an operator at every place, starting with strings, lists and NumPy's universal functions. It
words every failure, in colours if possible, and searches line numbers and names for variables. Here a call of a Numba
function on numbers and arrays gets the type of its first occurrence, and messages have no colours. This uses inner
parts of Numba, see :mod:`.numba_parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numba.core import errors, ir, types
from numba.core.types.functions import BaseFunction

from .own_compilation import Patch

_PLAIN: tuple[Any, ...] = (types.Number, types.Boolean, types.Array)
_WITHOUT_VARIABLES = frozenset({str, int, bool, float, type(None), ir.Loc})
#: Types of calls of our loops, by typing context, function and types of arguments.
_types: dict[tuple[Any, ...], Any] = {}


def call_patches() -> Iterator[Patch]:
    """Yield patches that cache types of calls, search for variables only where some can be, and colour no messages."""
    yield Patch(errors.termcolor(), "_markup", lambda plain: lambda words, *_: words)
    yield Patch(BaseFunction, "get_call_type", _remembered)
    yield Patch(ir.Inst, "_rec_list_vars", _searched)


def _remembered(plain: Callable[..., Any]) -> Callable[..., Any]:
    def type_of_call(self: Any, context: Any, args: Any, named: Any) -> Any:
        if named or not all(isinstance(each, _PLAIN) for each in args):
            return plain(self, context, args, named)
        place = (context, self, tuple(args))
        found = _types.get(place)
        if found is None:
            found = _types[place] = plain(self, context, args, named)
        return found

    return type_of_call


def _searched(all_variables: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def variables(self: Any, value: Any) -> list[Any]:
        if type(value) is dict:
            held = [each for each in value.values() if type(each) not in _WITHOUT_VARIABLES]
            return [variable for each in held for variable in all_variables(self, each)]
        return all_variables(self, value)

    return variables
