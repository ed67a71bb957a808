"""Parameters of a global cost function in a .cfn, by name. Costs are scaled when all are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import shorten
from ...models.function import FORBIDDEN
from ..decimal_costs import Number, read_numbers
from ..text.tokens import Tokens, unquote
from .decomposition import GlobalFunctionError
from .global_kinds import KINDS, NESTED, NESTED_FIELDS, PAIRS, Field

_OPENING, _CLOSING = ("[", "{"), ("]", "}")


@dataclass(frozen=True)
class CfnCost:
    """A cost as the file gives it; ``signed`` if it may be negative once it is stored."""

    number: Number
    signed: bool


@dataclass(frozen=True)
class ParamReader:
    """Reads parameters.

    Parameters
    ----------
    tokens : Tokens
    arity : int
        How many variables the function has.
    variables : mapping
        Variable index by name.
    """

    tokens: Tokens
    arity: int
    variables: Mapping[str, int]

    def given(self, kind: str, at: int) -> dict[str, Any]:
        """Return the parameters of a function of a kind; they start at an index."""
        fields = NESTED_FIELDS if kind in NESTED else KINDS[kind].fields
        places = self._listed(fields, at) if kind in PAIRS else self._named(fields, at)
        read = (f for f in fields if f.name in places)
        given = {field.name: self._list(field, field.lists, places[field.name]) for field in read}
        return {**{field.name: [] for field in fields if field.absent}, **given}

    def _listed(self, fields: Sequence[Field], at: int) -> dict[str, int]:
        entries = self.entries(at)
        if len(entries) != len(fields):
            raise self.tokens.fail(at, f"{len(fields)} parameters", f"{len(entries)}")
        return {field.name: entry for field, entry in zip(fields, entries, strict=True)}

    def _named(self, fields: Sequence[Field], at: int) -> dict[str, int]:
        """Return where the value of each parameter begins."""
        tokens, known = self.tokens, [field.name for field in fields]
        end = skipped(tokens, at)
        if tokens.peek(at) not in _OPENING:
            raise tokens.fail(at, "parameters")
        places: dict[str, int] = {}
        at += 1
        while at < end - 1:
            name = unquote(tokens.peek(at)).rstrip(": ").lower()
            if name not in known or name in places:
                raise tokens.fail(at, f"the parameters {', '.join(known)}, once each")
            places[name] = at + 1
            at = skipped(tokens, at + 1)
        if missing := [field.name for field in fields if field.name not in places and not field.absent]:
            raise tokens.fail(end - 1, f"the parameter {missing[0]!r}")
        return places

    def entries(self, at: int) -> list[int]:
        """Return where the entries of a list begin."""
        if self.tokens.peek(at) not in _OPENING:
            raise self.tokens.fail(at, "a list")
        end = skipped(self.tokens, at)
        found = []
        at += 1
        while at < end - 1:
            found.append(at)
            at = skipped(self.tokens, at)
        return found

    def _list(self, field: Field, lists: str, at: int) -> Any:
        if not lists:
            return self._entry(field, at)
        entries = self.entries(at)
        if lists[0] == "S" and len(entries) != self.arity:
            raise self.tokens.fail(at, f"a list of {self.arity} entries, one for each variable", f"{len(entries)}")
        return [self._list(field, lists[1:], entry) for entry in entries]

    def _entry(self, field: Field, at: int) -> Any:
        if len(field.letters) == 1:
            return self._item(field.letters, at)
        entries, letters = self.entries(at), field.letters
        if len(entries) == len(letters) + len(field.optional):
            letters += field.optional
        if len(entries) != len(letters):
            raise self.tokens.fail(at, f"a list of {len(letters)} items", f"{len(entries)}")
        return tuple([self._item(letter, entry) for letter, entry in zip(letters, entries, strict=True)])

    def _item(self, letter: str, at: int) -> Any:
        if letter == "W":
            return at
        tokens, word = self.tokens, unquote(self.tokens.peek(at))
        if word in (*_OPENING, *_CLOSING, ""):
            raise tokens.fail(at, "a parameter")
        if letter == "K":
            return word
        if letter in "cC":
            return CfnCost(read_numbers(tokens, [word], lambda _: at)[0], letter == "C")
        if letter == "V":
            named = self.variables.get(word)
            return tokens.integer(at, "a variable, by name or", 0, len(self.variables) - 1) if named is None else named
        what, low = ("an integer", -FORBIDDEN) if letter == "N" else ("the index of a value", 0)
        return tokens.integer(at, what, low)


def skipped(tokens: Tokens, at: int) -> int:
    """Return the index behind the value at an index."""
    depth = 0
    while True:
        token = tokens.peek(at)
        if token == "":
            raise tokens.fail(at, "']' or '}'")
        depth += (token in _OPENING) - (token in _CLOSING)
        at += 1
        if depth <= 0:
            return at


def costs_of(given: Any) -> Iterator[CfnCost]:
    """Yield all costs of parameters."""
    if isinstance(given, CfnCost):
        yield given
    elif isinstance(given, dict | list | tuple):
        for entry in given.values() if isinstance(given, dict) else given:
            yield from costs_of(entry)


def with_stored(given: Any, stored: Callable[[Number], int]) -> Any:
    """Return parameters with stored costs.

    Raises
    ------
    GlobalFunctionError
        If one is negative that may not be.
    """
    if isinstance(given, CfnCost):
        cost = stored(given.number)
        if cost < 0 and not given.signed:
            raise GlobalFunctionError("costs of at least 0, or utilities of at most 0", shorten(str(given.number)))
        return cost
    if isinstance(given, dict):
        return {name: with_stored(entry, stored) for name, entry in given.items()}
    if isinstance(given, list | tuple):
        return type(given)([with_stored(entry, stored) for entry in given])
    return given
