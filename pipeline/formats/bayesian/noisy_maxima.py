"""Noisy-MAX distributions as GeNIe writes them: the effects of each parent, by its states from the strongest to the
weakest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import shorten
from ...models.parent_chains import ParentChain, noisy_extreme
from .network_draft import NetworkDraft, P


def strength_ordered(
    draft: NetworkDraft[P], at: P, scope: tuple[int, ...], words: Sequence[str], strengths: Sequence[str]
) -> ParentChain:
    """Return a noisy maximum of GeNIe: a column for each state of each parent, and a last one of the leak.

    The effect is the first of its states that any cause brings about. The last state means no effect (SMILE
    programmer's manual, Noisy-MAX: the table follows the order of strengths, and the last column of each parent is 0
    except for its last element).

    Parameters
    ----------
    draft : NetworkDraft
    at : place
    scope : tuple of int
        The parents, and last the child.
    words : sequence of str
        The columns, one after another.
    strengths : sequence of str
        For each parent its states, from the strongest one on; empty for their own order.

    Raises
    ------
    FormatError
        If the number of parameters is wrong, the strengths are not an order, or the weakest state of a parent has an
        effect.
    """
    *dims, size = [len(draft.states[v]) for v in scope]
    count = sum(dims) + 1
    if len(words) != count * size:
        expected = f"{count * size} parameters, of every state of the parents and of the leak"
        raise draft.refuse(at, expected, f"{len(words)}")
    if strengths and len(strengths) != count - 1:
        raise draft.refuse(at, f"{count - 1} strengths, one for each state of the parents", f"{len(strengths)}")
    columns, causes, start = draft.numbers(at, words).reshape(count, size), [], 0
    for width in dims:
        order = strengths[start : start + width] or [*map(str, range(width))]
        if sorted(order) != sorted(map(str, range(width))):
            raise draft.refuse(at, f"strengths that order {width} states", repr(shorten(" ".join(order))))
        cause = np.empty((width, size))
        cause[[*map(int, order)]] = columns[start : start + width]
        if cause[int(order[-1]), :-1].any():
            raise draft.refuse(at, "no effect of the weakest state of each parent", "one in its last column")
        causes.append(cause)
        start += width
    return noisy_extreme(scope, causes, columns[-1], greatest=False)
