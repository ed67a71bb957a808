"""Compiled functions that call each other by address: what one contains is compiled again in every one around it.

What they share is told by address too: a call from Python takes as long as it has arguments to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types

from .vectors import element_pointer, intrinsic


def address_of(function: Any, *examples: Any) -> int:
    """Return where the code of a compiled function is in this process, for arguments like some examples."""
    kind: Callable[[Any], Any] = numba.typeof
    args = tuple([kind(each) for each in examples])
    function.compile(args)
    made = function.overloads[args]
    address: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    return address


def _typed(address: Any, *given: Any) -> Any:
    args = tuple([types.int64 if isinstance(each, types.Integer | types.Boolean) else each for each in given])

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        kind = context.call_conv.get_function_type(types.none, args)
        callee = builder.inttoptr(values[0], kind.as_pointer())
        context.call_conv.call_function(builder, callee, types.none, args, values[1:])
        return context.get_dummy_value()

    return types.none(types.int64, *args), emit


_TYPERS: dict[int, Callable[..., Any]] = {
    2: lambda typing, f, a, b: _typed(f, a, b),
    4: lambda typing, f, a, b, c, d: _typed(f, a, b, c, d),
    5: lambda typing, f, a, b, c, d, e: _typed(f, a, b, c, d, e),
    7: lambda typing, f, a, b, c, d, e, g, h: _typed(f, a, b, c, d, e, g, h),
    10: lambda typing, f, a, b, c, d, e, g, h, i, j, k: _typed(f, a, b, c, d, e, g, h, i, j, k),
}


def calling(arity: int) -> Any:
    """Return what calls a function at an address with some arguments; it returns and raises nothing.

    Numbers are given as int64.
    """
    return intrinsic(_TYPERS[arity])


def reader(kind: Any) -> Any:
    """Return what loads a named tuple of int64 from the words at an address."""
    fields = len(kind._fields)
    named: Callable[..., Any] = types.NamedUniTuple
    loaded_type = named(types.int64, fields, kind)

    def typed(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
            word = ir.IntType(64)
            loaded = [builder.load(element_pointer(builder, values[0], word(i), word)) for i in range(fields)]
            return context.make_tuple(builder, signature.return_type, loaded)

        return loaded_type(types.int64), emit

    return intrinsic(typed)
