"""Rows in the order that is asked for: keys in another layout, sorting, runs of equal keys, merging."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

import numpy as np

from ..rows.keys import Keys, Words
from ..steps.semiring import Semiring
from .memo import Memo
from .relation import Relation
from .sides.sides import side_of

#: Layouts, and how keys become those of others: the same for all slices of a plan. Beside what a run may take.
_KEPT: Final[Memo[Any]] = Memo(8 << 20)
#: What a layout takes, and each of its variables.
_LAYOUT_BYTES, _VARIABLE_BYTES = 1 << 10, 200


def layout(keys: Keys, variables: Sequence[int]) -> Keys:
    """Return the layout of some of the variables of other keys in this order."""
    asked = "layout", keys, tuple(variables)
    found: Keys = _KEPT.get(asked) or _kept(asked, Keys(asked[2], tuple([keys.sizes[v] for v in variables])))
    return found


def joined(a: Keys, b: Keys) -> Keys:
    """Return the layout of a join."""
    asked = "joined", a, b
    found: Keys | None = _KEPT.get(asked)
    if found is None:
        dims = a.sizes | b.sizes
        found = _kept(asked, Keys(tuple(dims), tuple(dims.values())))
    return found


def _kept(asked: tuple[Any, ...], found: Any) -> Any:
    """Keep what was found, by what was asked: a name, and layouts or variables."""
    variables = [part.variables if isinstance(part, Keys) else part for part in (*asked[1:], found)]
    return _KEPT.put(asked, found, sum([_LAYOUT_BYTES + _VARIABLE_BYTES * len(part) for part in variables]))


def forget_layouts() -> None:
    """Drop what is kept of layouts: tables within ranges are each met once."""
    _KEPT.forget()


def order_holds(keys: Keys, target: Keys) -> bool:
    """Whether rows in ascending order of some keys are in ascending order of other keys too, whatever they are."""
    theirs = target.varying
    return keys.varying[: len(theirs)] == theirs


class Disorder(NamedTuple):
    """Bits by which rows must be sorted; see :meth:`.sides.Side.gathered`."""

    group: Words
    mask: Words


def disorder(order: Sequence[int], target: Keys) -> Disorder:
    """Return what is missing for rows in ascending order of some variables to be in that of other keys."""
    asked = "disorder", tuple(order), target
    found: Disorder = _KEPT.get(asked) or _kept(asked, _disorder(order, target))
    return found


def _disorder(order: Sequence[int], target: Keys) -> Disorder:
    order = [v for v in order if target.sizes.get(v, 2) > 1]
    wanted = target.varying
    common = len([*takewhile(lambda pair: pair[0] == pair[1], zip(order, wanted, strict=False))])
    done = common
    while [v for v in order if v not in wanted[:done]][: len(wanted) - done] != wanted[done:]:
        done += 1
    return Disorder(_bits(target, wanted[:common]), _bits(target, wanted[common:done]))


def _bits(keys: Keys, variables: Sequence[int]) -> Words:
    """Return a key with ones in the fields of some variables alone."""
    return np.invert(keys.mask(variables))


def repacked(relation: Relation, target: Keys) -> tuple[Any, bool]:
    """Return the keys of all rows in another layout, ``(rows, words) uint64``, and whether they are surely ascending.

    Variables that `target` lacks fall away: equal keys may then be there more than once.
    """
    return moved(relation.words, relation.keys, target), order_holds(relation.keys, target)


def moved(words: Any, keys: Keys, target: Keys) -> Any:
    """Return keys in another layout; what `keys` lacks becomes 0."""
    if target == keys:
        return words
    asked = "moves", keys, target
    moves = _KEPT.get(asked)
    if moves is None:
        moves = _kept(asked, keys.moves(target))
    return side_of(words).repacked(words, moves, target.n_words)


def reordered(relation: Relation, variables: Sequence[int]) -> Relation:
    """Return the same table with its variables in another order."""
    target = layout(relation.keys, variables)
    words, holds = repacked(relation, target)
    if holds:
        return Relation(target, words, relation.values)
    missing = disorder(relation.keys.variables, target)
    return Relation(target, *side_of(words).gathered(words, relation.values, None, *missing))


def gathered(keys: Keys, words: Any, values: Any, semiring: Semiring) -> Relation:
    """Return the table of rows in any order; what is there more than once is summed in this order, zeros fall away."""
    return Relation(keys, *side_of(words).gathered(words, values, semiring, *disorder((), keys)))


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
    whole = concatenated(parts)
    return gathered(whole.keys, whole.words, whole.values, semiring)


def concatenated(parts: Sequence[Relation]) -> Relation:
    """Return the rows of relations of one layout, one after the other."""
    if len(parts) == 1:
        return parts[0]
    arrays = side_of(parts[0].words).arrays
    words = arrays.concatenate([part.words for part in parts])
    return Relation(parts[0].keys, words, arrays.concatenate([part.values for part in parts]))
