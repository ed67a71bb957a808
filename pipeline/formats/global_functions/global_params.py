"""Parameters of a global cost function: by name in a .cfn, and as words in a fixed order in a .wcsp.

Costs of a .cfn are scaled when all are known. In a .wcsp each list is preceded by its length.
"""

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


#: Letters of items that may be any number from 0 on.
_NUMBERS = frozenset("NvcC")
_GRAMMARS = ("sgrammar", "sgrammardp")
_WHAT = {"v": "the index of a value", "V": "a variable", "N": "an integer", "K": "a word"}


@dataclass
class WordReader:
    """Reads the words of one function.

    Parameters
    ----------
    tokens : Tokens
    at : int
        The next word.
    arity : int
        How many variables the function has.
    variables : int
        How many variables there are in all.
    cost : callable
        Called with the place of a word; returns the stored cost that it is.
    limit : int
        The stored cost of forbidden assignments, at most ``FORBIDDEN``.
    """

    tokens: Tokens
    at: int
    arity: int
    variables: int
    cost: Callable[[int], int]
    limit: int

    def given(self, name: str) -> dict[str, Any]:
        """Return the parameters of a function of a kind."""
        found: dict[str, Any] = {}
        if name in PAIRS and (entries := self._digits("".join([field.letters for field in KINDS[name].fields]), 1)):
            return dict(zip([field.name for field in KINDS[name].fields], entries[0], strict=True))
        for field in KINDS[name].fields:
            if name in _GRAMMARS and field.name == "terminals":
                return {**found, **self._rules()}
            if name == "ssame" and field.name == "vars1":
                sizes = [self._integer("the length of a list", 0, self.arity) for _ in range(2)]
                return {**found, **{f"vars{k + 1}": self._items("V", size) for k, size in enumerate(sizes)}}
            weighted = found.get("metric") == "wdec"
            missing = field.absent and self.at >= len(self.tokens)
            found[field.name] = [] if missing else self._list(field, field.lists, weighted)
        return found

    def _digits(self, letters: str, count: int) -> list[Any]:
        """Read entries together if all their words are digits; otherwise read nothing and return an empty list."""
        words = [word for _, part in self.tokens.parts(self.at, self.at + count * len(letters)) for word in part]
        digits = "".join(words)
        if len(words) < count * len(letters) or not (digits.isascii() and digits.isdecimal()):
            return []
        numbers = list(map(int, words))
        if max(numbers) >= FORBIDDEN:
            return []
        self.at += len(words)
        columns = [numbers[k :: len(letters)] for k in range(len(letters))]
        for k, letter in enumerate(letters):
            if letter in "cC" and max(columns[k]) > self.limit:
                columns[k] = [min(cost, self.limit) for cost in columns[k]]
        return list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]

    def _list(self, field: Field, lists: str, weighted: bool) -> Any:
        if not lists:
            return self._entry(field.letters + (field.optional if weighted else ""))
        count = self.arity if lists[0] == "S" else self._integer("the length of a list", 0, len(self.tokens))
        letters = field.letters + (field.optional if weighted else "")
        if lists in ("+", "S") and count and _NUMBERS.issuperset(letters) and (found := self._digits(letters, count)):
            return found
        return [self._list(field, lists[1:], weighted) for _ in range(count)]

    def _items(self, letter: str, count: int) -> list[Any]:
        return [self._item(letter) for _ in range(count)]

    def _entry(self, letters: str) -> Any:
        items = tuple([self._item(letter) for letter in letters])
        return items if len(items) > 1 else items[0]

    def _item(self, letter: str) -> Any:
        if letter == "K":
            self.at += 1
            word = self.tokens.peek(self.at - 1)
            if not word:
                raise self.tokens.fail(self.at - 1, "a word")
            return word
        if letter in "cC":
            self.at += 1
            return self.cost(self.at - 1)
        low = {"N": -FORBIDDEN}.get(letter, 0)
        return self._integer(_WHAT[letter], low, self.variables - 1 if letter == "V" else None)

    def _integer(self, what: str, low: int, high: int | None = None) -> int:
        self.at += 1
        return self.tokens.integer(self.at - 1, what, low, high)

    def _rules(self) -> dict[str, Any]:
        """Read the rules of a grammar, each behind its type."""
        found: dict[str, Any] = {"terminals": [], "non_terminals": []}
        for _ in range(self._integer("the number of rules", 0, len(self.tokens))):
            kind = self._integer("the type of a rule", 0, 3)
            letters = ("Nv", "NNN")[kind % 2] + ("c" if kind > 1 else "")
            found[("terminals", "non_terminals")[kind % 2]].append(self._entry(letters))
        return found
