"""Global constraints of XCSP 2.1 that are read: allDifferent, as a constraint of each two variables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from ...errors import shorten
from ...models.model import FORBIDDEN
from ..text.xml import Element
from .draft import Draft, Given

_ALL_DIFFERENT = "global:alldifferent"


def is_all_different(reference: str) -> bool:
    """Whether a constraint refers to allDifferent."""
    return "".join(reference.split()).lower() == _ALL_DIFFERENT


def all_different(name: str, element: Element, scope: tuple[int, ...], draft: Draft) -> Iterator[Given]:
    """Yield what forbids that two variables have one value; their values count, not the places in their domains.

    Raises
    ------
    FormatError
        If parameters are not the variables of the scope.
    """
    words = " ".join(element.words("parameters")).replace("[", " ").replace("]", " ").split()
    if words and {*words} != {other for other, v in draft.names.items() if v in scope}:
        raise draft.fail(element.line, "the variables of the scope as parameters", repr(shorten(" ".join(words))))
    for k, (x, y) in enumerate(combinations(scope, 2)):
        draft.take_costs(element.line, 0, (x, y), dense=True)
        equal = np.equal.outer(*(np.array(draft.labels[v], object) for v in (x, y)))
        costs = np.where(equal.astype(bool), FORBIDDEN, 0).ravel()
        yield Given(f"{name}.{k}" if len(scope) > 2 else name, element.line, (x, y), costs)
