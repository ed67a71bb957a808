"""Dataclasses that cost little where nobody makes one: their methods are written when they are needed first. Pure.

The standard library writes and compiles up to six functions for every class when its module is imported, about a
millisecond a class: a third of what a small question took. Here comparisons, hashes and texts are closures over the
fields, and only the constructor is compiled, when the first value of the class is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a dataclass, as ``dataclasses.dataclass`` does, which is asked where there are slots or an order."""
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        return _made(cls, **options)


def _made(cls: type, **options: Any) -> type:
    import dataclasses

    if not options.keys() <= {"frozen", "eq", "repr", "kw_only"}:
        return dataclasses.dataclass(**options)(cls)
    frozen, eq = options.get("frozen", False), options.get("eq", True)
    methods: dict[str, Any] = {"__init__": _LateConstructor(cls, frozen)}
    _take_fields(cls, frozen, options.get("kw_only", False))
    fields = dataclasses.fields(cls)
    if options.get("repr", True):
        methods["__repr__"] = _text_of([field.name for field in fields if field.repr])
    if eq:
        methods["__eq__"] = _comparison(_values_of([field.name for field in fields if field.compare]))
    if eq and not frozen:
        methods["__hash__"] = None
    elif eq:
        hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        methods["__hash__"] = _hash_of(_values_of(hashed))
    if frozen:
        methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return cls


def _take_fields(cls: type, frozen: bool, kw_only: bool) -> None:
    """Give a class what the standard library knows of its fields, and whether they can be changed.

    Own fields are those of a class without bases: with them it would insist that all are frozen, or none, and write
    the methods that see to it.
    """
    import dataclasses
    from inspect import get_annotations

    types = get_annotations(cls)
    own = {name: vars(cls)[name] for name in types if name in vars(cls)}
    alike = {"__annotations__": types, "__module__": cls.__module__, "__doc__": "Has the same fields."}
    decorated = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)
    alone: Any = decorated(type("alone", (), own | alike))
    fields: dict[str, Any] = {}
    for base in cls.__mro__[:0:-1]:
        fields |= getattr(base, "__dataclass_fields__", {})
    made: Any = cls
    made.__dataclass_fields__ = fields | alone.__dataclass_fields__
    made.__dataclass_params__ = _parameters(frozen)
    matched = tuple(field.name for field in dataclasses.fields(made) if field.init and not field.kw_only)
    type.__setattr__(cls, "__match_args__", matched)
    for name, value in own.items():
        if name in vars(alone):
            setattr(cls, name, vars(alone)[name])
        elif isinstance(value, dataclasses.Field):
            delattr(cls, name)


@cache
def _parameters(frozen: bool) -> object:
    """Return what the standard library writes into classes whose values can, or cannot, be changed."""
    import dataclasses

    made: Any = dataclasses.make_dataclass("Alike", (), frozen=frozen)
    return made.__dataclass_params__


class _LateConstructor:
    """Stands where a class has its constructor until the first value is made."""

    def __init__(self, cls: type, frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen

    def __get__(self, value: object, cls: type) -> Any:
        """Compile the constructor, and put it in this one's place."""
        made = _constructor(self.cls, self.frozen)
        type.__setattr__(self.cls, "__init__", made)
        return made if value is None else made.__get__(value)


class _Absent:
    """Stands for what a factory makes, in signatures too."""

    def __repr__(self) -> str:
        return "<factory>"


def _constructor(cls: type, frozen: bool) -> Callable[..., None]:
    """Return the constructor of a class: a parameter for each field that has one, defaults, what follows."""
    from dataclasses import MISSING, fields

    known: dict[str, Any] = {"_set": object.__setattr__, "_absent": _Absent()}
    plain: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    for field in fields(cls):
        name = field.name
        made = field.default_factory is not MISSING
        if made or field.default is not MISSING:
            known[f"_of_{name}"] = field.default_factory if made else field.default
        default = "=_absent" if made else f"=_of_{name}" if f"_of_{name}" in known else ""
        if field.init:
            (by_name if field.kw_only else plain).append(f"{name}{default}")
        value = name
        if made:
            value = f"_of_{name}() if {name} is _absent else {name}" if field.init else f"_of_{name}()"
        if field.init or made:
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*"] if by_name else []), *by_name])
    body = "\n  ".join(lines or ["pass"])
    text = f"def outer({', '.join(known)}):\n def __init__({parameters}):\n  {body}\n return __init__"
    scope: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), scope)
    init: Callable[..., None] = scope["outer"](**known)
    init.__annotations__ = {field.name: field.type for field in fields(cls) if field.init} | {"return": None}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _values_of(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return a function that takes these attributes of a value."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _comparison(values: Callable[[object], tuple[Any, ...]]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash_of(values: Callable[[object], tuple[Any, ...]]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:
        return hash(values(self))

    return __hash__


def _text_of(names: list[str]) -> Callable[[object], str]:
    @recursive_repr("...")
    def __repr__(self: object) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refuse_assignment(self: object, name: str, value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")
