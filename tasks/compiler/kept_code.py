"""Machine code in our own files: loading it needs nothing of its compilation.

Other modules, bitcode, and Numba's memory management stay as they are until something is compiled. This uses inner
parts of Numba's, see :mod:`.numba_parts`.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from numba.core import compiler, environment, serialize
from numba.core.caching import NullCache, _Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import nrt

from ...storage.files import write_whole
from . import signals
from .code_cache import code_folders, code_roots, processor, read_code, sources_digest, warn_of_unkept_code
from .compile_beside import compiled_beside, is_begun
from .compile_limits import SECONDS_PER_BYTE, NotCompiledError, is_limited, may_compile
from .signals import uninterrupted

#: Names the generated code beside the functions' code.
_GENERATED = sources_digest(Path(signals.__file__))


class NotKept(NullCache):
    """Stands for the machine code of a function that is compiled for others, with whose code it is kept."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return nothing: it is compiled if there is time."""
        _check_time(self._function)


def _check_time(function: Callable[..., Any]) -> None:
    """Refuse to compile what would not be ready in time.

    Raises
    ------
    NotCompiledError
        If there is an end to the time, and it is too near.
    """
    if is_limited() and not may_compile(SECONDS_PER_BYTE * _code_bytes(function)):
        raise NotCompiledError(function.__qualname__)


@cache
def _code_bytes(function: Callable[..., Any]) -> int:
    """Count the bytes of the code of a function, and of all compiled functions that it and these call by name."""
    found, waiting = set[Callable[..., Any]](), [function]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            named: list[Any] = [one.__globals__.get(name) for name in one.__code__.co_names]
            waiting += [each.py_func for each in named if hasattr(each, "py_func")]
    return sum(len(each.__code__.co_code) for each in found)


class KeptCode(_Cache):
    """The machine code of one function, a file for each combination of types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._file = Path(function.__code__.co_filename)
        self._name = function.__qualname__

    @property
    def cache_path(self) -> str:
        """Where files are written."""
        return str(code_roots()[0])

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the compiled code for these types; None if there is none.

        Raises
        ------
        NotCompiledError
            If there is a deadline, and the code would not be ready by then, was not, or the caller goes on meanwhile.
        """
        found = self._kept_overload(signature, target_context)
        if found is None and is_limited():
            if not is_begun(self._function, signature):
                _check_time(self._function)
            if compiled_beside(self._function, signature):
                found = self._kept_overload(signature, target_context)
        return found

    def _kept_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the code in a file for these types; None if there is none."""
        _know_helpers()
        name = self._file_name(signature, target_context.codegen())
        for folder in code_folders(self._file):
            with suppress(OSError, EOFError, ValueError, pickle.UnpicklingError), uninterrupted:
                code = read_code(folder / name)
                if sha256(code[32:]).digest() == code[:32]:
                    return _loaded(target_context, *_CodeReader(io.BytesIO(code[32:])).load())
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Store the compiled code for these types."""
        if result.library.has_dynamic_globals or result.lifted:
            return
        dumps: Callable[[Any], bytes] = serialize.dumps
        with uninterrupted:
            code = dumps(result._reduce())
            name, code = self._file_name(signature, result.codegen), sha256(code).digest() + code
            if not any(write_whole(folder / name, code) for folder in code_folders(self._file)):
                warn_of_unkept_code()

    def _file_name(self, signature: Any, codegen: Any) -> str:
        made_with = (sys.version_info[:2], numba.__version__, llvmlite.__version__, codegen.magic_tuple(), _GENERATED)
        made_for = (str(signature), made_with)
        return f"{self._name}-{processor()}-{sha256(repr(made_for).encode()).hexdigest()[:24]}.nbc"

    def enable(self) -> None:
        """Files are always looked for."""

    def disable(self) -> None:
        """Files are always looked for."""

    def flush(self) -> None:
        """Files of other sources are never found."""


@cache
def _know_helpers() -> None:
    """Tell the linker where Numba's functions in C are, that machine code of loops calls."""
    runtime: Any = nrt
    for name, address in runtime._nrt.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _CodeReader(pickle.Unpickler):
    """Reads what was compiled, without the modules that are inlined there."""

    def find_class(self, module: str, name: str) -> Any:
        """Replace what imports them."""
        if (module, name) == (environment.__name__, "_rebuild_env"):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Return the constants of compiled code. If its module is not needed, only its name is used."""
    lookup: Callable[[str], Any] = environment.lookup_environment
    found = lookup(name)
    if found is None:
        known = sys.modules.get(module)
        made: Any = environment.Environment
        found = made({"__name__": module} if known is None else vars(known))
        found.consts[:] = constants
        found.env_name = name
        made._memo[name] = found
    return found


class _Library(JITCodeLibrary):
    """A library of machine code; its bitcode is read when another function is linked with it."""

    bitcode = b""
    _linkable: Any = None

    @property
    def _shared_module(self) -> Any:
        if self._linkable is None and self.bitcode:
            self._linkable = llvm.parse_bitcode(self.bitcode)
            know_symbols: Callable[[Any], None] = self._codegen._engine._load_defined_symbols
            know_symbols(self._linkable)
        return self._linkable

    @_shared_module.setter
    def _shared_module(self, module: Any) -> None:
        self._linkable = module


def _loaded(target_context: Any, library_data: Any, function: Any, *parts: Any) -> Any:
    """Put together what was compiled, as ``CompileResult._rebuild`` does, without looking at bitcode.

    Parameters
    ----------
    target_context : numba.core.base.BaseContext
    library_data : tuple
        The library's name, its kind, which is "object", and object code with bitcode.
    function : numba.core.funcdesc.FunctionDescriptor
    *parts
        Further arguments of ``CompileResult._rebuild``, in its order.

    Returns
    -------
    numba.core.compiler.CompileResult
        The function descriptor with a callable entry point.
    """
    codegen = target_context.codegen()
    name, kind, (code, bitcode) = library_data
    assert kind == "object"
    make: Callable[..., Any] = _Library
    library = make(codegen, name)
    library.enable_object_caching()
    # parsing the bitcode takes longer than all other parts of loading, and only callers that inline need it
    library._set_compiled_object(code)
    library._finalize_final_module()
    library.bitcode = bitcode
    codegen._engine._defined_symbols |= {function.llvm_func_name, function.llvm_cpython_wrapper_name}
    environment_of, signature, objectmode, lifted, annotation, initialize, environments = parts
    for again in initialize:
        again()
    for each in environments:
        codegen.set_env(each.env_name, each)
    result: Callable[..., Any] = compiler.CompileResult
    return result(
        typing_context=target_context.typing_context,
        target_context=target_context,
        entry_point=target_context.get_executable(library, function, environment_of),
        typing_error=None,
        type_annotation=annotation,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        fndesc=function,
        library=library,
        call_helper=None,
        environment=environment_of,
        metadata=None,
        reload_init=initialize,
        referenced_envs=environments,
    )
