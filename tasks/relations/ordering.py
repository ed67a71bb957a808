"""Rows in the order that is asked for: keys in another layout, sorting, runs of equal keys, merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..rows.keys import Keys, Words
from ..steps.semiring import Semiring
from .relation import Relation, dims_of
from .sides import side_of


def layout(relation: Relation, variables: Sequence[int]) -> Keys:
    """Return the layout of some of a relation's variables in this order."""
    dims = dims_of(relation.keys)
    return Keys(tuple(variables), tuple([dims[v] for v in variables]))


def order_holds(keys: Keys, target: Keys) -> bool:
    """Whether rows in ascending order of some keys are in ascending order of other keys too, whatever they are.

    Variables of one state do not matter.
    """
    ours, theirs = _varying(keys), _varying(target)
    return ours[: len(theirs)] == theirs


def _varying(keys: Keys) -> list[int]:
    return [v for v, d in dims_of(keys).items() if d > 1]


def repacked(relation: Relation, target: Keys) -> tuple[Words, bool]:
    """Return the keys of all rows in another layout, and whether they are surely in ascending order.

    Variables that `target` lacks fall away: equal keys may then be there more than once.
    """
    words = relation.words
    if target != relation.keys:
        words = side_of(words).repacked(words, relation.keys.moves(target), target.n_words)
    return words, order_holds(relation.keys, target)


def sorted_rows(keys: Keys, words: Words, values: Any) -> tuple[Words, Any]:
    """Return rows in stable ascending order of their keys, which may be there more than once."""
    order = side_of(words).order(words)
    return (words, values) if order is None else (words[order], values[order])


def reordered(relation: Relation, variables: Sequence[int]) -> Relation:
    """Return the same table with its variables in another order."""
    target = layout(relation, variables)
    words, holds = repacked(relation, target)
    if holds:
        return Relation(target, words, relation.values)
    return Relation(target, *sorted_rows(target, words, relation.values))


def runs(words: Words) -> Any:
    """Return where runs of equal keys begin, ``(runs,) int64``."""
    return side_of(words).starts(words)


def distinct(keys: Keys, words: Any) -> Any:
    """Return every key once, in ascending order."""
    side = side_of(words)
    order = side.order(words)
    words = words if order is None else words[order]
    return words[side.starts(words)]


def gathered(keys: Keys, words: Words, values: Any, semiring: Semiring) -> Relation:
    """Return the table of rows in any order; what is there more than once is summed in this order, zeros fall away."""
    return summed(keys, *sorted_rows(keys, words, values), semiring)


def summed(keys: Keys, words: Words, values: Any, semiring: Semiring) -> Relation:
    """Return the table of rows in ascending order; what is there more than once is summed, zeros fall away."""
    side = side_of(words)
    starts = side.starts(words)
    if len(starts) < len(words):
        words, values = words[starts], side.sums(values, starts, semiring)
    return without_zeros(Relation(keys, words, values), semiring)


def without_zeros(relation: Relation, semiring: Semiring) -> Relation:
    """Return a relation without rows of value zero, which sums and products may have made."""
    kept = relation.values != semiring.zero
    return relation if bool(kept.all()) else relation.rows(kept)


def merged(parts: Sequence[Relation], semiring: Semiring) -> Relation:
    """Return the sum of relations of one layout; equal keys are summed in the order of the parts.

    Raises
    ------
    ValueError
        If there are no parts.
    """
    if not parts:
        raise ValueError("nothing to merge")
    if len(parts) == 1:
        return parts[0]
    arrays = side_of(parts[0].words).arrays
    words = arrays.concatenate([part.words for part in parts])
    values = arrays.concatenate([part.values for part in parts])
    return gathered(parts[0].keys, words, values, semiring)


def reduced(relation: Relation, scope: Sequence[int], semiring: Semiring) -> Relation:
    """Sum the variables out that `scope` lacks; those that stay come in its order."""
    target = layout(relation, scope)
    words, holds = repacked(relation, target)
    finish = summed if holds else gathered
    return finish(target, words, relation.values, semiring)
