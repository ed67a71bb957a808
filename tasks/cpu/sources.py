"""What cached machine code was compiled from, as a type: numba's cache only looks at the file of the kernel itself.

A kernel that inlines functions or constants of other files takes a :class:`Sources` of those files as an argument.
The argument has no value. Its type is named after the files' contents, and numba looks machine code up by the types
of the arguments: code that was compiled from other contents is not found.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox


class Sources:
    """The contents of some files.

    Parameters
    ----------
    paths : iterable of Path
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(path.resolve() for path in paths)
        digest = sha256()
        for path in self.paths:
            digest.update(sha256(path.read_bytes()).digest())
        self.numba_type = _SourcesType(digest.hexdigest())


class _SourcesType(types.Opaque):
    def __init__(self, digest: str) -> None:
        super().__init__(name=f"bucketflow_sources({digest})")


register_model(_SourcesType)(models.OpaqueModel)


@typeof_impl.register(Sources)
def _type_of(sources: Sources, _: Any) -> _SourcesType:
    return sources.numba_type


@unbox(_SourcesType)  # type: ignore[no-untyped-call,untyped-decorator]
def _no_value(kind: _SourcesType, sources: Any, context: Any) -> NativeValue:
    return NativeValue(ir.Constant(ir.IntType(8).as_pointer(), None))  # type: ignore[no-untyped-call]


def sources_beside(file: str, *names: str) -> Sources:
    """Return the sources of some files, named from the folder of ``file``."""
    return Sources(Path(file).parent / name for name in names)
