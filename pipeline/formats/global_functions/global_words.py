"""Parameters of a global cost function in a .wcsp: words in a fixed order, and lists preceded by their lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...models.function import FORBIDDEN
from ..text.tokens import Tokens
from .global_kinds import KINDS, Field

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
    """

    tokens: Tokens
    at: int
    arity: int
    variables: int
    cost: Callable[[int], int]

    def given(self, name: str) -> dict[str, Any]:
        """Return the parameters of a function of a kind."""
        found: dict[str, Any] = {}
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

    def _list(self, field: Field, lists: str, weighted: bool) -> Any:
        if not lists:
            return self._entry(field.letters + (field.optional if weighted else ""))
        count = self.arity if lists[0] == "S" else self._integer("the length of a list", 0, len(self.tokens))
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
