"""Functions that are compiled for others are code to be inlined in these, and nothing more.

Numba completes every function that it compiles: optimised machine code with all called functions, and two wrappers for
callers in Python and C. It then repeats all this for each calling function. For inner functions without other callers
this is wasted, and takes half of the time of large loops. An inner function of a loop with cached code is therefore
compiled to the code of its own body only. If Python calls it later, it is compiled again, completely.

Who refers to an array is counted only in functions that make some: loops that only read and write arrays would have
code for each use of each of them.

Results that Numba computes repeatedly during a compilation are cached. Numba tries all meanings of an operator at every
place, starting with strings, lists and NumPy's universal functions. It words every failure, in colours if possible, and
searches line numbers and names for variables. Here a call of a Numba function on numbers and arrays gets the type of
its first occurrence, and messages have no colours. This uses inner parts of Numba, see :mod:`.numba_parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numba.core import codegen, cpu, environment, errors, ir, typed_passes, types
from numba.core.types.functions import BaseFunction

from .own_compilation import CodeOnly, Patch, body_only, is_inner, own

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


#: Body-only code of functions that Python called later. Compiled code may hold addresses of its constants.
_replaced: list[Any] = []

_KNOWN: tuple[Any, ...] = (types.IntegerLiteral, types.BooleanLiteral)


def inner_patches() -> Iterator[Patch]:
    """Yield patches that leave the optimisation and machine code of inner functions to their callers.

    No function may return arrays that does not count who refers to them: its callers would free them too early.
    """
    for name in ("create_cpython_wrapper", "create_cfunc_wrapper"):
        yield own(cpu.CPUContext, name, _only_for_outer)
    yield own(cpu.CPUContext, "get_executable", _executable)
    yield own(codegen.CPUCodeLibrary, "finalize", _finalized)
    yield own(codegen.CPUCodeLibrary, "_optimize_functions", _optimised)
    yield own(typed_passes.BaseTypeInference, "run_pass", _typed)


def complete(function: Any) -> None:
    """Remove body-only code, so that it is compiled again, completely."""
    for given, result in body_only(function).items():
        del function.overloads[given]
        _replaced.append(result)


def widen_arguments(function: Any) -> None:
    """Compile a function for numbers, whether its callers know them or not.

    Numba compiles a function for a literal number in a call, and again for other values. This also happens if a
    variable holds a literal first and other values later, so that the first compilation is wasted.
    """
    plain = function._compiler.fold_argument_types
    unliteral: Callable[[Any], Any] = types.unliteral

    def widened(args: Any, named: Any) -> tuple[Any, tuple[Any, ...]]:
        names, given = plain(args, named)
        return names, tuple(unliteral(each) if isinstance(each, _KNOWN) else each for each in given)

    function._compiler.fold_argument_types = widened


def _typed(plain: Callable[..., bool], self: Any, state: Any) -> bool:
    """Find the types of a function, and look at what it returns."""
    done = plain(self, state)
    found, context = state.return_type, state.targetctx
    if not (found is None or context.enable_nrt) and context.data_model_manager[found].contains_nrt_meminfo():
        refused: Callable[[str], Exception] = errors.NumbaTypeError
        raise refused(f"{state.func_id.func_name} returns arrays: say makes_arrays=True")
    return done


def _only_for_outer(plain: Callable[..., None], *args: Any, **named: Any) -> None:
    """Make a wrapper, unless it would have no caller."""
    if not is_inner():
        plain(*args, **named)


def _executable(plain: Callable[..., Any], self: Any, library: Any, function: Any, constants: Any) -> Any:
    """Return the object that Python calls; its inner functions receive the addresses of their constants."""
    if is_inner():
        library.finalize()
        return CodeOnly()
    entry = plain(self, library, function, constants)
    lookup: Callable[[str], Any] = environment.lookup_environment
    for variable in library._final_module.global_variables if library._linking_libraries else ():
        if variable.name.startswith("_ZN08NumbaEnv") and (found := lookup(variable.name)) is not None:
            library.codegen.set_env(variable.name, found)
    return entry


def _finalized(plain: Callable[[Any], None], self: Any) -> None:
    """Finish a library: an inner library holds its own code only, another library also the code of all inner ones."""
    if is_inner():
        self._finalize_dynamic_globals()
        self._finalized = self.is_code_only = True
        return
    self._linking_libraries[:] = linked = _linked(self)
    plain(self)
    declared = {function.name for function in self._final_module.functions if function.is_declaration}
    left_out = [f.name for library in linked for f in library.get_defined_functions() if f.name in declared]
    assert not left_out, f"machine code calls what is not in it: {left_out}"


def _linked(library: Any) -> list[Any]:
    """List what a library is linked with, and what the inner ones among these are, each after all that call it.

    The linker omits functions without present callers, which later code would miss.
    """
    found: dict[Any, None] = {}
    seen = set[Any]()

    def visit(one: Any) -> None:
        for other in one._linking_libraries:
            if other not in seen:
                seen.add(other)
                if getattr(other, "is_code_only", False):
                    visit(other)
                found[other] = None

    visit(library)
    return [*reversed(found)]


def _optimised(plain: Callable[..., None], self: Any, module: Any) -> None:
    """Prepare the functions of a module that have code; otherwise a pass manager is made for each function."""
    module.data_layout = self._codegen._data_layout
    passes, builder = self._codegen._function_pass_manager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
