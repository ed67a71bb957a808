"""Data classes that are cheap to import: fields are collected at the first use, and few classes compile a method.

The standard library compiles up to six methods for each data class when its module is imported. For a process that
answers one small question, this takes longer than all other work of the import. The first instances of a class are
filled without a compiled ``__init__``: most classes have few instances in such a process. Type checkers see the
standard decorator, and ``dataclasses.fields``, ``dataclasses.replace`` and pickle work as usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

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
_METHODS = {"__init__", "__setattr__", "__delattr__"}
_FIELDS = "__dataclass_fields__"
_MISSING = dataclasses.MISSING
#: This many instances are filled without a compiled ``__init__``. To compile one takes as long as some 400 of them.
_FIRST_INSTANCES = 100
#: Held while fields are collected: other threads wait until the class has all of them.
_collecting = RLock()


def _decorated(cls: Any, **options: bool) -> Any:
    if options.keys() - _OPTIONS or _METHODS & cls.__dict__.keys():
        return dataclasses.dataclass(**options)(cls)
    frozen, slots, kw_only = [options.get(name, False) for name in ("frozen", "slots", "kw_only")]
    collected = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)
    if slots:  # which make another class
        cls = collected(cls)
    else:
        for name in (_FIELDS, "__match_args__"):
            setattr(cls, name, _Collected(cls, name, collected, plain=not kw_only))
    cls.__init__ = _FirstInit(cls, frozen, slots)
    if options.get("repr", True) and "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr
    if options.get("eq", True):
        equal, hashed = _comparison(cls, frozen)
        if cls.__dict__.get("__hash__") is None:  # a class with a method to compare, and none to hash, has None
            cls.__hash__ = hashed
        if "__eq__" not in cls.__dict__:
            cls.__eq__ = equal
    if frozen:
        cls.__setattr__, cls.__delattr__ = _frozen_methods(cls)
        if slots:  # pickle would set attributes
            cls.__getstate__, cls.__setstate__ = _state, _set_state
    return cls


class _Collected:
    """Stands for an attribute that the standard decorator gives a class, until the attribute is first looked up."""

    def __init__(self, cls: Any, name: str, collected: Callable[[Any], Any], plain: bool) -> None:
        self._cls, self._name, self._collected, self.plain = cls, name, collected, plain

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
        plain = _plain_fields(cls)
        return _values_of(plain.compared if plain else [f.name for f in dataclasses.fields(cls) if f.compare])

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


class _PlainFields(NamedTuple):
    """Fields that a class declares by annotations, defaults and factories alone: all are parameters of ``__init__``."""

    names: list[str]
    first: dict[str, Any]
    """The default of each field, or a mark that it has none."""
    required: list[str]
    factories: dict[str, Callable[[], Any]]
    compared: list[str]
    checked: bool
    """Whether the class has ``__post_init__``."""


def _plain_fields(cls: Any) -> _PlainFields | None:
    """Return the fields of a class that does not have them collected yet, and of its bases; None if any is special.

    Special are parameters by keyword only, fields that are no parameters, and defaults within ``dataclasses.field``,
    which the standard decorator must replace.
    """
    with _collecting:  # another thread that collects the fields replaces attributes of the class
        return _declared_fields(cls)


def _declared_fields(cls: Any) -> _PlainFields | None:
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        collected = base.__dict__.get(_FIELDS)
        if collected is None:
            continue
        if not (isinstance(collected, _Collected) and collected.plain):
            return None
        for name, annotation in base.__annotations__.items():
            if type(annotation) is not str or "InitVar" in annotation or "KW_ONLY" in annotation:
                return None
            if "ClassVar" not in annotation:
                found[name] = getattr(base, name, dataclasses.MISSING)
            elif not annotation.startswith("ClassVar"):
                return None
    factories, compared = dict[str, Callable[[], Any]](), [*found]
    for name, default in found.items():
        if isinstance(default, dataclasses.Field):
            if not default.init or default.kw_only is True or default.default is not dataclasses.MISSING:
                return None
            if not default.compare:
                compared.remove(name)
            if default.default_factory is not dataclasses.MISSING:
                factories[name] = default.default_factory
    first = {name: _MISSING if isinstance(value, dataclasses.Field) else value for name, value in found.items()}
    required = [name for name in found if first[name] is _MISSING and name not in factories]
    return _PlainFields([*found], first, required, factories, compared, hasattr(cls, "__post_init__"))


class _FirstInit:
    """Stands for the ``__init__`` of a class until the class has some instances, and is then replaced by a function."""

    def __init__(self, cls: Any, frozen: bool, slots: bool) -> None:
        self._cls, self._frozen, self._slots = cls, frozen, slots
        self._calls = 0
        self._fields: _PlainFields | None = None

    def __get__(self, instance: object, owner: type) -> Any:
        fields = self._fields
        # from Python 3.13 on, ``inspect.signature`` looks up methods of the class as of an instance
        if isinstance(instance, self._cls) and self._calls < _FIRST_INSTANCES:
            if not self._calls and (self._frozen or self._cls.__setattr__ is object.__setattr__) and not self._slots:
                fields = self._fields = _plain_fields(self._cls)
            self._calls += 1
            if fields:
                return partial(self._fill, fields, instance)
        init = self._compile()
        return init if instance is None else init.__get__(instance, owner)

    def _compile(self) -> Any:
        init = _compiled_init(self._cls, self._frozen, self._slots)
        self._cls.__init__ = init
        return init

    def _fill(self, fields: _PlainFields, instance: Any, /, *args: Any, **keywords: Any) -> None:
        """Set the fields of an instance as ``__init__`` does."""
        filled, count = instance.__dict__, len(args)
        filled.update(fields.first)
        filled.update(zip(fields.names, args, strict=False))
        if keywords:
            filled.update(keywords)
        for name, make in fields.factories.items():
            if filled[name] is _MISSING:
                filled[name] = make()
        if (
            len(filled) > len(fields.first)
            or count > len(fields.names)
            or not keywords.keys() >= {*fields.required[count:]}
            or (keywords and not keywords.keys().isdisjoint(fields.names[:count]))
        ):
            self._compile()(instance, *args, **keywords)  # raises the usual TypeError
        elif fields.checked:
            instance.__post_init__()


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
