"""Data classes that are cheap to import: fields are collected, and ``__init__`` is compiled, at the first use.

The standard library compiles up to six methods for each data class when its module is imported. For a process that
answers one small question, this takes longer than all other work of the import. Type checkers see the standard
decorator, and ``dataclasses.fields``, ``dataclasses.replace`` and pickle work as usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make a class a data class, as ``dataclasses.dataclass`` does.

        Parameters
        ----------
        cls : type, optional
            Without a class, a decorator is returned.
        **options : bool
            The methods of classes that define one of them are compiled immediately, and so are those of classes with
            ``order`` or another option that this module does not know.
        """
        return _decorated(cls, **options) if cls else lambda cls: _decorated(cls, **options)


_OPTIONS = {"frozen", "eq", "repr", "kw_only", "slots"}
_METHODS = {"__init__", "__eq__", "__hash__", "__setattr__", "__delattr__"}
_FIELDS = "__dataclass_fields__"
#: Held while fields are collected: other threads wait until the class has all of them.
_collecting = RLock()


def _decorated(cls: Any, **options: bool) -> Any:
    if options.keys() - _OPTIONS or _METHODS & cls.__dict__.keys():
        return dataclasses.dataclass(**options)(cls)
    frozen, slots, kw_only = (options.get(name, False) for name in ("frozen", "slots", "kw_only"))
    collected = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)
    if slots:  # which make another class
        cls = collected(cls)
    else:
        for name in (_FIELDS, "__match_args__"):
            setattr(cls, name, _Collected(cls, name, collected))
    cls.__init__ = _FirstInit(cls, frozen, slots)
    if options.get("repr", True) and "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr
    if options.get("eq", True):
        cls.__eq__, cls.__hash__ = _comparison(cls, frozen)
    if frozen:
        cls.__setattr__, cls.__delattr__ = _frozen_methods(cls)
        if slots:  # pickle would set attributes
            cls.__getstate__, cls.__setstate__ = _state, _set_state
    return cls


class _Collected:
    """Stands for an attribute that the standard decorator gives a class, until the attribute is first looked up."""

    def __init__(self, cls: Any, name: str, collected: Callable[[Any], Any]) -> None:
        self._cls, self._name, self._collected = cls, name, collected

    def __get__(self, instance: object, owner: type) -> Any:
        with _collecting:
            if isinstance(self._cls.__dict__[_FIELDS], _Collected):
                del self._cls.__match_args__
                self._collected(self._cls)
        return getattr(self._cls, self._name)


def _comparison(cls: Any, frozen: bool) -> tuple[Any, Any]:
    """Return methods that compare and hash the fields of a class."""

    @cache
    def values() -> Callable[[Any], tuple[Any, ...]]:
        return _values_of([f.name for f in dataclasses.fields(cls) if f.compare])

    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values()(self) == values()(other)

    return equal, (lambda self: hash(values()(self))) if frozen else None


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of some attributes, always as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = ", ".join([f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr])
    return f"{self.__class__.__qualname__}({shown})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


def _frozen_methods(cls: Any) -> tuple[Any, Any]:
    """Return methods that refuse to set and delete fields, and any attribute of this very class."""

    def refuse_to_set(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_to_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return refuse_to_set, refuse_to_delete


class _FirstInit:
    """Stands for the ``__init__`` of a class until it is first looked up, and is then replaced by a function."""

    def __init__(self, cls: Any, frozen: bool, slots: bool) -> None:
        self._cls, self._frozen, self._slots = cls, frozen, slots

    def __get__(self, instance: object, owner: type) -> Any:
        init = _compiled_init(self._cls, self._frozen, self._slots)
        self._cls.__init__ = init
        return init if instance is None else init.__get__(instance, owner)


def _compiled_init(cls: Any, frozen: bool, slots: bool) -> Any:
    """Compile the ``__init__`` of a class from its fields.

    Parameters
    ----------
    cls : type
        A data class.
    frozen : bool
        Whether fields must be set past the class's own ``__setattr__``.
    slots : bool
        Whether defaults cannot be attributes of the class.
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
        elif f.default is not missing:
            names[f"_default_{f.name}"] = f.default
            given += f"=_default_{f.name}"
            value = f.name if f.init else f"_default_{f.name}"
        if not f.init and (f.default is missing or not slots) and f.default_factory is missing:
            continue  # the default, if any, is an attribute of the class
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
