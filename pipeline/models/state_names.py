"""States by label or by index: the one place that decides which state a caller means.

A text that is a label is that label. A number is a label if a bridge or a reader knows that the labels are numbers
(:class:`TypedLabel`). Other labels are texts. If every label that looks like a number stands at its own index, a number
is an index, counted from 0. Otherwise, as with the labels "1", "2" and "3", a number that may be a label and an index
is refused. Command lines, files, Python and bridges all ask here.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from decimal import Decimal
from enum import Enum
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from ..drawings.shown import LISTED_MEMBERS
from ..errors import ModelError, meant, shorten

_INTEGER = re.compile(r"-?(0|[1-9]\d{0,299})", re.ASCII)
_NUMBER_TEXT = re.compile(r"\s*[+-]?\d{1,300}(\.0*)?\s*", re.ASCII)
# Types whose values may be an index; Decimal is no Real to Python.
_NUMBERS: tuple[type, ...] = (Real, Decimal)


class TypedLabel(str):
    """The label of a state that is no text in the library it comes from: its text, with the ``value`` itself."""

    value: Any

    def __new__(cls, value: Any) -> TypedLabel:
        """Return the text of a value as a label that keeps the value."""
        label = super().__new__(cls, value)
        label.value = value
        return label


def typed_label(value: Any) -> str:
    """Return the label of a value: a text as it is, anything else as a text that keeps the value."""
    return str(value) if type(value) is str else TypedLabel(plain(value))


def integer_labels(values: Sequence[int]) -> tuple[str, ...] | None:
    """Return the labels of ascending, different integers as states; None if they are the indices, counted from 0."""
    indices = values[0] == 0 and values[-1] == len(values) - 1
    return None if indices else tuple(map(typed_label, values))


def plain(state: Any) -> Any:
    """Return a NumPy scalar, or an array without axes, as a plain object of Python; anything else as it is."""
    if isinstance(state, np.ndarray) and not state.ndim and state.dtype.kind in "biufUO":
        return state.item()
    return state.item() if isinstance(state, np.bool_ | np.integer | np.floating | np.str_) else state


class StateNames:
    """The states of one variable, found by label or by index.

    Parameters
    ----------
    name : str
        The name of the variable, for messages.
    size : int
        How many states it has.
    labels : sequence of str or None
        Their labels; None where states are plain indices.
    """

    def __init__(self, name: str, size: int, labels: Sequence[str] | None) -> None:
        self.name, self.size, self.labels = name, size, labels

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each label."""
        return {str(label): k for k, label in enumerate(self.labels or ())}

    @cached_property
    def typed(self) -> dict[Hashable, int]:
        """The index of each value that a bridge knows behind a label."""
        found = [(label.value, k) for k, label in enumerate(self.labels or ()) if isinstance(label, TypedLabel)]
        return {value: k for value, k in found if isinstance(value, Hashable)}

    @cached_property
    def numbers(self) -> dict[int | float, list[int]]:
        """The indices of text labels that look like a number, by number."""
        found: dict[int | float, list[int]] = {}
        for k, label in enumerate(self.labels or ()):
            number = None if isinstance(label, TypedLabel) else _number_of_text(label)
            if number is not None:
                found.setdefault(number, []).append(k)
        return found

    @cached_property
    def are_values(self) -> bool:
        """Whether some label is a number other than its index, so that numbers are not indices."""
        if any(isinstance(value, _NUMBERS) and value != k for value, k in self.typed.items()):
            return True
        return any(number != k for number, places in self.numbers.items() for k in places)

    def is_label(self, state: Any) -> bool:
        """Whether something that may also be a list of likelihoods is the value behind a label."""
        return bool(self.typed) and not isinstance(state, list | np.ndarray) and self._of_type(state) is not None

    def index(self, state: Any) -> int:
        """Return the index of a state.

        Raises
        ------
        ModelError
            If the variable has no such state, or several labels stand for it.
        """
        state = plain(state)
        found = self._of_text(state) if type(state) is str else self._of_value(state)
        if found is None:
            raise self._unknown(state)
        return found

    def _of_text(self, text: str) -> int | None:
        if (place := self.places.get(text)) is not None:
            return place
        return self._of_number(int(text.partition(".")[0])) if _NUMBER_TEXT.fullmatch(text) else None

    def _of_type(self, state: Any) -> int | None:
        """Return the state whose value in the library that it comes from is this one."""
        try:
            return self.typed.get(state)
        except TypeError:  # a tuple that holds a list has no hash
            return None

    def _of_value(self, state: Any) -> int | None:
        if (place := self._of_type(state)) is not None:
            return place
        if isinstance(state, Enum):
            return self._of_enum(state)
        if isinstance(state, str):
            return self._of_text(str(state))
        if isinstance(state, bool) and self.labels is not None:
            return self._of_truth(state)
        return self._of_number(state) if isinstance(state, _NUMBERS) else self.places.get(str(state))

    def _of_number(self, number: Any) -> int | None:
        """Return the label that a number is, or the state with this index; None where both may be meant."""
        if (place := self._of_type(number)) is not None:
            return place
        is_index = 0 <= number < self.size and number == int(number)
        if not self.are_values:
            return int(number) if is_index else None
        places = self.numbers.get(number, [])
        return places[0] if len(places) == 1 and (not is_index or places[0] == number) else None

    def _of_enum(self, state: Enum) -> int | None:
        """Return the one state that an enumeration's member, its name or its value stands for."""
        candidates = (str(state), state.name, state.value)
        places = {self.places[text] for text in candidates if type(text) is str and text in self.places}
        if not places and not isinstance(state.value, Enum):
            return self._of_value(plain(state.value)) if type(state.value) is not str else None
        return places.pop() if len(places) == 1 else None

    def _of_truth(self, truth: bool) -> int | None:
        """Return the one label that says a truth value; None where none does, such as yes, or several do."""
        texts = (str(truth).casefold(), str(int(truth)))
        found = [k for text, k in self.places.items() if text.casefold() in texts]
        return found[0] if len(found) == 1 else None

    def _unknown(self, state: Any) -> ModelError:
        """Return the refusal of a state, with the states that there are."""
        shown = shorten(repr(state))
        if self.labels is None:
            return ModelError(f"variable {self.name!r} has no state {shown}; its states are 0..{self.size - 1}")
        more = "" if self.size <= LISTED_MEMBERS else f" and {self.size - LISTED_MEMBERS} more"
        if isinstance(state, _NUMBERS) and type(state) is not bool and state in self.numbers:
            return ModelError(
                f"the number {shown} may be a label or an index of variable {self.name!r}; give a label as a text, one "
                f"of {', '.join(map(repr, map(str, self.labels[:LISTED_MEMBERS])))}{more}"
            )
        hint = meant(state, self.labels) if isinstance(state, str) else ""
        if self.are_values and (isinstance(state, _NUMBERS) or _NUMBER_TEXT.fullmatch(str(state))):
            hint = hint or "; the labels are numbers, so that a number is not an index"
        known = ", ".join(map(str, self.labels[:LISTED_MEMBERS])) + more
        return ModelError(f"variable {self.name!r} has no state {shown}; its states are {known}{hint}")


def _number_of_text(label: str) -> int | float | None:
    """Return the number that a label looks like, written as Python writes it; None of any other text."""
    if _INTEGER.fullmatch(label):
        return int(label)
    if label[-1:].isdigit() and label.isascii():
        try:
            number = float(label)
        except ValueError:
            return None
        return number if repr(number) == label else None
    return None
