"""Signals while functions are compiled, and while compiled ones run.

A compiler that is interrupted loses the exception, or what it was about to keep. So signals wait for it.

Python runs the handler of a signal at the interpreter's next instruction. After a compiled function that may be one of
the compiler's own: it looks up the class of a result that becomes an object. Numba (0.68) goes on with the class that
it did not get if an exception is raised there (:exc:`KeyboardInterrupt`, say), and the process ends in a fault.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from llvmlite import ir

_LOOKUP, _PATIENT = "numba_unpickle", "bucketflow.unpickled"


def _patient(api: Any, kind: ir.FunctionType) -> ir.Function:
    """Generate a function that looks an object up, twice if it is interrupted.

    The exception is raised again at the next instruction of this thread outside the loop: only its type, as for
    exceptions raised by another thread.

    Parameters
    ----------
    api : numba.core.pythonapi.PythonAPI
        Of the module that gets the function.
    kind : llvmlite.ir.FunctionType
        That of ``numba_unpickle``, which it calls.
    """
    from numba.core.cgutils import get_or_insert_function

    declare: Any = get_or_insert_function
    function = ir.Function(api.module, kind, _PATIENT)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())

    def call(name: str, result: ir.Type, *given: Any) -> Any:
        declared = declare(api.module, ir.FunctionType(result, [value.type for value in given]), name)
        return builder.call(declared, given)

    def is_null(value: Any) -> Any:
        return builder.icmp_unsigned("==", value, ir.Constant(value.type, None))

    found = call(_LOOKUP, kind.return_type, *function.args)
    with builder.if_then(builder.not_(is_null(found)), likely=True):
        builder.ret(found)
    raised = [builder.alloca(api.pyobj) for _ in range(3)]
    call("PyErr_Fetch", ir.VoidType(), *raised)
    again = call(_LOOKUP, kind.return_type, *function.args)
    exception = [builder.load(part) for part in raised]
    with builder.if_then(is_null(again), likely=False):
        call("PyErr_Restore", ir.VoidType(), *exception)
        builder.ret(again)
    # the second lookup succeeded, so the loop runs on and the exception is raised after it
    thread = call("PyThread_get_thread_ident", api.ulong)
    call("PyThreadState_SetAsyncExc", ir.IntType(32), thread, exception[0])
    for part in exception:
        call("Py_DecRef", ir.VoidType(), part)
    builder.ret(again)
    return function


class Uninterrupted:
    """A time in which the first signal of a kind waits for its end; may be entered again while it lasts.

    Signals are handled by the main thread alone, so that nothing is to be done in others.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            depth = self._depth
            try:
                if not depth:
                    self._hold()
                self._depth = depth + 1
            except BaseException:  # of a signal that was not held yet
                self._depth = depth
                if not depth:
                    self._release()
                raise

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if not self._depth:
                self._release()

    def _hold(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._keep)

    def _keep(self, number: int, frame: Any) -> None:
        if number in self._came:
            self._handlers[number](number, frame)
        self._came.append(number)

    def _release(self) -> None:
        """Restore all signal handlers, even if a handler raises immediately, and raise the received signals."""
        try:
            self._give_back()
        except BaseException:
            self._give_back()
            self._came = []
            raise
        came, self._came = self._came, []
        for number in came:
            signal.raise_signal(number)

    def _give_back(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}


uninterrupted = Uninterrupted()


def patient_lookup(get_function: Callable[..., Any], api: Any, kind: ir.FunctionType, name: str) -> Any:
    """Declare a function of the interpreter, or generate the function that looks objects up.

    Parameters
    ----------
    get_function : callable
        The method of ``numba.core.pythonapi.PythonAPI`` that this function replaces.
    api : numba.core.pythonapi.PythonAPI
    kind : llvmlite.ir.FunctionType
    name : str
    """
    if name != _LOOKUP:
        return get_function(api, kind, name)
    return api.module.globals.get(_PATIENT) or _patient(api, kind)
