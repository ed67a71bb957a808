"""Data classes that are cheap to import: ``__init__`` is compiled when it is first called, other methods never.

The standard library compiles up to six methods for each data class when its module is imported. For a process that
answers one small question, this takes longer than all other work of the import. Type checkers see the standard
decorator, and :func:`dataclasses.fields`, :func:`dataclasses.replace` and pickle work as usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make a class a data class, as :func:`dataclasses.dataclass` does.

        Parameters
        ----------
        cls : type, optional
            Without a class, a decorator is returned.
        **options : bool
            The methods of classes that need other options than ``frozen``, ``eq`` and ``repr`` are compiled
            immediately. So are the methods of classes that define one of them.
        """
        return _decorated(cls, **options) if cls else lambda cls: _decorated(cls, **options)


_METHODS = {"__init__", "__eq__", "__hash__", "__setattr__", "__delattr__"}


def _decorated(cls: Any, **options: bool) -> Any:
    if options.keys() - {"frozen", "eq", "repr"} or _METHODS & cls.__dict__.keys():
        return dataclasses.dataclass(**options)(cls)
    frozen = options.get("frozen", False)
    cls = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    cls.__init__ = _FirstInit(cls, frozen)
    if options.get("repr", True) and "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr
    if options.get("eq", True):
        values = _values_of([f.name for f in dataclasses.fields(cls) if f.compare])
        cls.__eq__ = lambda self, other: (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )
        cls.__hash__ = (lambda self: hash(values(self))) if frozen else None
    if frozen:
        cls.__setattr__, cls.__delattr__ = _frozen_methods(cls)
    return cls


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of some attributes, always as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = ", ".join([f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr])
    return f"{self.__class__.__qualname__}({shown})"


def _frozen_methods(cls: Any) -> tuple[Any, Any]:
    """Return methods that refuse to set and delete fields, and any attribute of this very class."""
    names = frozenset(f.name for f in dataclasses.fields(cls))

    def refuse_to_set(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_to_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return refuse_to_set, refuse_to_delete


class _FirstInit:
    """Stands for the ``__init__`` of a class until it is first looked up, and is then replaced by a function."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self._cls, self._frozen = cls, frozen

    def __get__(self, instance: object, owner: type) -> Any:
        init = _compiled_init(self._cls, self._frozen)
        self._cls.__init__ = init
        return init if instance is None else init.__get__(instance, owner)


def _compiled_init(cls: Any, frozen: bool) -> Any:
    """Compile the ``__init__`` of a class from its fields.

    Parameters
    ----------
    cls : type
        A data class.
    frozen : bool
        Whether fields must be set past the class's own ``__setattr__``.
    """
    missing = dataclasses.MISSING
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": missing}
    places: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for f in dataclasses.fields(cls):
        value, given = f.name, f.name
        if f.default_factory is not missing:
            names[f"_new_{f.name}"] = f.default_factory
            value = f"_new_{f.name}() if {f.name} is _missing else {f.name}" if f.init else f"_new_{f.name}()"
            given += "=_missing"
        elif not f.init:
            continue  # the default is an attribute of the class
        elif f.default is not missing:
            names[f"_default_{f.name}"] = f.default
            given += f"=_default_{f.name}"
        if f.init:
            (keywords if f.kw_only else places).append(given)
        body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *places, *(["*", *keywords] if keywords else [])]
    # names that stand in this text only, so that a field may have any other name
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init} | {"return": None}
    return init
