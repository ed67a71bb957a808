"""The versions of Numba whose inner parts are known, and what is done with others.

Fast-loading files of machine code, functions that survive Ctrl-C, vectors and calls by address use parts that Numba may
change in any version. With an untested version, or if a part is missing, loops are compiled and cached by plain Numba,
and NumPy replaces vectors: slower, with the same results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final

#: The first and the last version with which the tests were run.
TESTED: Final = (0, 62), (0, 68)

# The used parts, by module.
_PARTS: Final = {
    "numba.core.base": ("BaseContext.get_dummy_value", "BaseContext.make_tuple", "BaseContext.get_executable"),
    "numba.core.caching": ("NullCache", "_Cache"),
    "numba.core.cpu": (*("CPUContext.create_cpython_wrapper", "CPUContext.create_cfunc_wrapper"),),
    "numba.core.dispatcher": (
        *("_DispatcherBase.add_overload", "Dispatcher.compile"),
        *("_FunctionCompiler.fold_argument_types", "_FunctionCompiler.compile"),
    ),
    "numba.core.errors": ("termcolor",),
    "numba.core.ir": ("Inst._rec_list_vars",),
    "numba.core.typed_passes": ("BaseTypeInference",),
    "numba.core.types.functions": ("BaseFunction",),
    "numba.core.callconv": ("CPUCallConv.get_function_type", "CPUCallConv.call_function"),
    "numba.core.cgutils": ("get_or_insert_function",),
    "numba.core.codegen": (
        *("JITCodeLibrary.enable_object_caching", "JITCodeLibrary.get_pointer_to_function"),
        *("JITCodeLibrary._set_compiled_object", "JITCodeLibrary._finalize_final_module"),
        *("JITCPUCodegen.magic_tuple", "JITCPUCodegen.set_env", "JITCPUCodegen._function_pass_manager"),
        *("CPUCodeLibrary._optimize_functions", "CPUCodeLibrary._finalize_dynamic_globals"),
    ),
    "numba.core.compiler": ("CompileResult._reduce", "CompileResult.reload_init", "CompileResult.referenced_envs"),
    "numba.core.environment": ("Environment._memo", "lookup_environment", "_rebuild_env"),
    "numba.core.pythonapi": ("PythonAPI._get_function",),
    "numba.core.runtime.nrt": ("_nrt.c_helpers",),
    "numba.core.serialize": ("dumps",),
    "numba.extending": ("intrinsic", "register_model", "models.PrimitiveModel"),
    "llvmlite.binding": ("add_symbol", "parse_bitcode"),
    "llvmlite.ir": (
        *("IRBuilder.atomic_rmw", "IRBuilder.load_atomic", "IRBuilder.store_atomic", "IRBuilder.shuffle_vector"),
        *("IRBuilder.inttoptr", "IRBuilder.gep", "IRBuilder.if_then", "Type.as_pointer", "VectorType"),
    ),
}


@cache
def unknown_numba() -> str:
    """Return why Numba's inner parts are left alone, and what follows, and log it; nothing where they are known."""
    why = _unknown_version() or next(_missing(), "")
    if not why:
        return ""
    said = f"{why}: loops are compiled as Numba does it by itself, and NumPy does what vectors would; both are slower"
    logging.getLogger(__name__).warning("%s", said)
    return said


def said_so_far() -> str:
    """Return the result of :func:`unknown_numba` in this process, if it was called."""
    return unknown_numba() if unknown_numba.cache_info().currsize else ""


def _unknown_version() -> str:
    try:
        import numba
    except ImportError:
        return "Numba is not installed"
    found = tuple(int(part) for part in numba.__version__.split(".")[:2] if part.isdigit())
    first, last = TESTED
    if first <= found <= last:
        return ""
    known = " to ".join(".".join(map(str, version)) for version in TESTED)
    return f"Numba {numba.__version__} was not tested with bucketflow ({known} were)"


def _missing() -> Iterator[str]:
    """Say which parts are not there."""
    import numba

    for module, names in _PARTS.items():
        for name in names:
            try:
                found: Any = import_module(module)
                for part in name.split("."):
                    found = getattr(found, part)
            except (ImportError, AttributeError):
                yield f"Numba {numba.__version__} has no {module}.{name}"
