"""Bayesian networks as readers make them: variables, distributions as tables or chains, and where each stands.

Noisy-MAX distributions are read as GeNIe writes them: the effects of each parent, from its strongest state to its
weakest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, shorten
from ...models.function import compact
from ...models.model import Function, Model
from ...models.parent_chains import ParentChain, noisy_extreme
from ..format_policy import FormatPolicy
from ..text.source import Source
from ..text.tables import MAX_AXES, cell_count
from .network_checks import Properties, checked

P = TypeVar("P")


@dataclass
class NetworkDraft(Generic[P]):
    """Variables and distributions as they are read.

    Parameters
    ----------
    source : Source
    refuse : callable
        Builds the error at a place of the file from the expected and the found content.
    """

    source: Source
    refuse: Callable[[P, str, str], FormatError]
    names: dict[str, int] = field(default_factory=dict)
    states: list[tuple[str, ...]] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    places: list[P] = field(default_factory=list)
    chains: list[tuple[P, ParentChain]] = field(default_factory=list)
    properties: Properties = field(default_factory=Properties)

    def variable(self, at: P, name: str, labels: Sequence[str]) -> None:
        """Add a variable."""
        if not name or name in self.names:
            raise self.refuse(at, "a variable with a name of its own", repr(shorten(name)))
        if not labels or len(set(labels)) < len(labels):
            raise self.refuse(at, f"different states of variable {shorten(name)!r}", f"{len(labels)} states")
        self.names[name] = len(self.names)
        self.states.append(tuple(labels))

    def scope(self, at: P, child: str, parents: Sequence[str], most: int = MAX_AXES) -> tuple[int, ...]:
        """Return the indices of the parents and, last, of the child."""
        unknown = [name for name in (*parents, child) if name not in self.names]
        if unknown:
            raise self.refuse(at, "a variable of the network", repr(shorten(unknown[0])))
        scope = tuple(self.names[name] for name in (*parents, child))
        if len(set(scope)) < len(scope) or len(scope) > most:
            found = f"{len(scope)} variables, of which at most {most} are read, or some twice"
            raise self.refuse(at, f"one distribution of {shorten(child)!r}, over different variables", found)
        return scope

    @property
    def dims(self) -> list[int]:
        """Domain sizes."""
        return [*map(len, self.states)]

    def probabilities(self, at: P, scope: tuple[int, ...], words: Sequence[str]) -> None:
        """Add a distribution; the first parent varies slowest, the child fastest."""
        self._check_count(at, scope, words, len(scope), "probabilities")
        self.add(at, scope, self.numbers(at, words))

    def results(self, at: P, scope: tuple[int, ...], words: Sequence[str]) -> None:
        """Add a deterministic function of the parents, given the child's state for each parent configuration."""
        self._check_count(at, scope, words, -1, "resulting states")
        index = {label: k for k, label in enumerate(self.states[scope[-1]])}
        if unknown := [word for word in words if word not in index]:
            raise self.refuse(at, "states of the node", repr(shorten(unknown[0])))
        self.add(at, scope, np.eye(len(index))[[index[word] for word in words]])

    def _check_count(self, at: P, scope: tuple[int, ...], words: Sequence[str], stop: int, what: str) -> None:
        """Refuse another number of words than some variables of a scope have joint states."""
        if len(words) != (count := cell_count(scope[:stop], self.dims)):
            raise self.refuse(at, f"{count} {what} of {shorten([*self.names][scope[-1]])!r}", f"{len(words)}")
        cells = cell_count(scope, self.dims)
        self.source.allowance.take(40 * cells, f"a table of {cells} entries")

    def add(self, at: P, scope: tuple[int, ...], values: NDArray[np.float64]) -> None:
        """Add a distribution by its table, of a value an assignment."""
        shape = [len(self.states[v]) for v in scope]
        self.functions.append(compact(Function(scope, values.reshape(shape), child=scope[-1])))
        self.places.append(at)

    def chain(self, at: P, chain: ParentChain) -> None:
        """Add a distribution that takes its parents one after another: as its table if that is small."""
        if chain.cells <= FormatPolicy.current().chained_cells and len(chain.scope) <= MAX_AXES:
            self.source.allowance.take(8 * chain.cells, f"a table of {chain.cells} entries")
            self.add(at, chain.scope, chain.table().values)
        else:
            self.source.allowance.take(8 * sum(step.size for step in chain.steps), "the distributions of its chains")
            self.chains.append((at, chain))

    def numbers(self, at: P, words: Sequence[str]) -> NDArray[np.float64]:
        """Return words as finite numbers of at least 0."""
        text = "".join(words)
        if text.isascii() and "_" not in text:  # float() takes "1_000" and digits of any script, which no format has
            try:
                values = np.array([*map(float, words)], np.float64)
            except ValueError:
                values = np.array([math.nan])
            if not values.size or (values.min() >= 0.0 and values.max() < math.inf):
                return values
        return np.array([self._number(at, word) for word in words], np.float64)

    def _number(self, at: P, word: str) -> float:
        try:
            number = float(word) if word.isascii() and "_" not in word else math.nan
        except ValueError:
            number = math.nan
        if not 0.0 <= number < math.inf:
            raise self.refuse(at, "finite numbers of at least 0", repr(shorten(word)))
        return number

    def model(self, root: P, name: str, *, counts: bool = False) -> Model:
        """Return the network, checked.

        Parameters
        ----------
        root : P
            Place of the network in the file.
        name : str
        counts : bool
            Whether tables may hold counts instead of probabilities.
        """
        if not self.names:
            raise self.refuse(root, "a network with variables", "none")
        names, dims = [*self.names], self.dims
        states: list[tuple[str, ...] | None] = [*self.states]
        functions, places = [*self.functions], [*self.places]
        for at, chain in self.chains:
            # hidden variables of chains come after all variables of the file
            functions += chain.links(len(dims))
            places += [at] * len(chain.steps)
            names += _between(names, chain)
            dims += chain.hidden
            states += [None] * len(chain.hidden)
        model = Model(
            "bayes",
            tuple(names),
            tuple(dims),
            tuple(states),
            tuple(functions),
            name=name or self.source.stem,
            notes=self.properties.notes(),
            hidden=len(names) - len(self.names),
            summed=self._summed(),
        )
        if not self.source.checked:
            return model
        return checked(model, lambda f, *what: self.refuse(root if f is None else places[f], *what), counts=counts)

    def _summed(self) -> str:
        """Say which distribution has hidden variables that do not follow from the others; nothing if none has."""
        random = [(at, chain) for at, chain in self.chains if chain.is_random]
        if not random:
            return ""
        at, chain = random[0]
        where, name = self.refuse(at, "", ""), shorten([*self.names][chain.scope[-1]])
        return (
            f"{where.path}:{where.line}: the table of {name!r} would have {chain.cells} entries, so that it "
            "is replaced by hidden variables, which are summed out"
        )


def _between(names: Sequence[str], chain: ParentChain) -> list[str]:
    """Name the hidden variables of a chain, unlike all others."""
    child, found, taken = names[chain.scope[-1]], [""][:0], {*names}
    for parent in chain.scope[: len(chain.hidden)]:
        name = f"{child} up to {names[parent]}"
        while name in taken:
            name += "'"
        found.append(name)
        taken.add(name)
    return found


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
