"""Bayesian networks as readers build them: variables, distributions as tables or chains, checks, normalisation.

Noisy-MAX distributions are read as GeNIe writes them: the effects of each parent, from its strongest state to its
weakest (F. J. Díez and S. F. Galán, Efficient computation for the noisy MAX, International Journal of Intelligent
Systems 18, 2003).

Some distributions take their parents one after another: noisy and deterministic maxima, minima and sums. A hidden state
passes from parent to parent, and the state after the last parent is the child's. Small distributions are expanded into
tables. In larger ones, a hidden variable holds the state between two parents, so that no function has more than one
parent (parent divorcing; K. G. Olesen et al., A MUNIN network for the median nerve, Applied Artificial Intelligence 3,
1989).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import MOST_NAMED, FormatError, printable, shorten
from ...models.bayesian_networks import (
    EVEN,
    MOST_ROUNDED,
    Fault,
    SumSpread,
    children_fault,
    cycle_fault,
    normalised,
    rounding,
    row_fault,
    row_sums,
    spread_of,
)
from ...models.function import compact, joined
from ...models.model import Function, Model
from ..format_policy import FormatPolicy
from ..text.source import Source
from ..text.tables import MAX_AXES, cell_count
from ..text.tokens import has_plain_digits

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ParentChain:
    """A distribution of a child as a walk over its parents.

    Parameters
    ----------
    scope : tuple of int
        The parents, and last the child.
    start : ndarray, shape (states,)
        How likely each state is before the first parent.
    steps : tuple of ndarray, shape (states before, states of the parent, states behind)
        One for each parent; the states behind the last one are the child's.
    """

    scope: tuple[int, ...]
    start: Numbers
    steps: tuple[Numbers, ...]

    @property
    def cells(self) -> int:
        """Entries of the whole table."""
        last = self.steps[-1] if self.steps else self.start
        return math.prod([*(int(step.shape[1]) for step in self.steps), int(last.shape[-1])])

    @property
    def is_random(self) -> bool:
        """Whether hidden states are random given the states of the parents and the child."""
        return not all(np.isin(part, (0.0, 1.0)).all() for part in (self.start, *self.steps))

    @property
    def hidden(self) -> tuple[int, ...]:
        """How many states there are between each two parents."""
        return tuple(step.shape[-1] for step in self.steps[:-1])

    def table(self) -> Function:
        """Return the distribution as one function."""
        found: Numbers = self.start
        for step in self.steps:
            found = np.tensordot(found, step, axes=(-1, 0))
        return Function(self.scope, found, child=self.scope[-1])

    def links(self, first: int) -> list[Function]:
        """Return the distribution as one function per parent, with hidden variables numbered from ``first`` on."""
        behind = [*range(first, first + len(self.steps) - 1), self.scope[-1]]
        first_step = np.tensordot(self.start, self.steps[0], axes=(0, 0))
        found = [Function((self.scope[0], behind[0]), first_step, child=behind[0])]
        for k, step in enumerate(self.steps[1:], 1):
            found.append(Function((behind[k - 1], self.scope[k], behind[k]), step, child=behind[k]))
        return found


def noisy_extreme(
    scope: Sequence[int], causes: Sequence[Numbers], leak: Numbers, *, greatest: bool = True
) -> ParentChain:
    """Return the distribution of the greatest (or least) of the independent effects of each cause and a leak.

    Parameters
    ----------
    scope : sequence of int
        The causes, and last the effect.
    causes : sequence of ndarray, shape (states of the cause, states of the effect)
        How likely each cause, in each of its states, brings the effect into each of its own.
    leak : ndarray, shape (states of the effect,)
        How likely what is not modelled does so.
    """
    states = np.arange(len(leak))
    extreme = (np.maximum if greatest else np.minimum).outer(states, states)
    steps = []
    for cause in causes:
        step = np.zeros((len(states), len(cause), len(states)))
        for own in range(len(states)):
            for before in range(len(states)):
                step[before, :, extreme[before, own]] += cause[:, own]
        steps.append(step)
    return ParentChain(tuple(scope), np.asarray(leak, np.float64), tuple(steps))


def capped_sum(scope: Sequence[int], amounts: Sequence[Sequence[int]], size: int, base: int = 0) -> ParentChain:
    """Return the distribution of a base plus the amounts of the parents' states, clipped to 0 and ``size`` - 1.

    Parameters
    ----------
    scope : sequence of int
        The parents, and last the child.
    amounts : sequence of sequence of int
        Amount of each state of each parent; at least 0.
    size : int
        How many states the child has.
    base : int
        Amount added at the end. Sums below 0 become 0.
    """
    most = max(0, min(size - 1 - base, sum(map(max, amounts))))
    start, steps = np.eye(1, most + 1)[0], []
    for counts in amounts:
        reached = np.minimum(np.add.outer(np.arange(most + 1), counts), most)
        steps.append(np.eye(most + 1)[reached])
    ends = np.eye(size)[np.clip(np.arange(most + 1) + base, 0, size - 1)]
    return ParentChain(tuple(scope), start, (*steps[:-1], steps[-1] @ ends))


Refuse = Callable[[int | None, str, str], FormatError]
"""Builds the error at a function, or at a missing function (None), from the expected and the found content."""

_NAME = re.compile(r"[\w-]+")
# Properties of JavaBayes that make a set of networks of one.
_DENSITIES = ("constant-density-ratio", "constant-density-bounded")
_CREDAL = ("credal-set", "epsilon-contaminated", "total-variation", *_DENSITIES)
UNCHECKED = "to read it as it is: --no-check, or check=False"


def checked(model: Model, refuse: Refuse, *, counts: bool = False) -> Model:
    """Return a network whose rows sum to 1.

    Rows that do not are divided by their sums, with a note: within the digits that they are printed with, or always
    where tables may be ``counts``.

    Raises
    ------
    FormatError
        If a variable has no distribution or two, a row is no distribution, or there is a cycle.
    """
    functions, names = model.functions, model.names
    if (fault := children_fault(functions, names)) is not None:
        raise refused(fault, refuse)
    spread = spread_of(functions, model.dims)
    if uneven := spread.uneven:
        for f in uneven:
            if spread.low[f] <= 0 if counts else not is_rounded(functions[f], model.dims):
                raise refused(row_fault(functions, f, names, model.dims, model.states), refuse)
    if (fault := cycle_fault(functions, names)) is not None:
        raise refused(fault, refuse)
    return _normalised(model, uneven, spread) if uneven else model


def checked_product(model: Model, refuse: Refuse, *, backwards: bool = False) -> Model:
    """Check a network in a UAI format, and return it. Its answers are for the product of the tables as written.

    Their networks may hold evidence or constraints, which exclude configurations: then rows that sum to less than 1 and
    tables of 0 and 1 are left as they are, with a note. Tables whose rows sum to 1 in another order only were written
    in that: they are turned, with a note, if it is known.

    Parameters
    ----------
    backwards : bool
        Whether a program wrote the file that lists tables with the first variable of the scope fastest.

    Raises
    ------
    FormatError
        If a variable has no distribution or two, other rows do not sum to 1, or there is a cycle.
    """
    functions, names, dims = model.functions, model.names, model.dims
    if (fault := children_fault(functions, names)) is not None:
        raise refused(replace(fault, expected=f"{fault.expected}, the last of its scope"), refuse)
    spread = spread_of(functions, dims)
    uneven = spread.uneven
    near = np.maximum(spread.high - 1, 1 - spread.low) <= MOST_ROUNDED
    wrong = [f for f in uneven if not near[f] or not is_rounded(functions[f], dims)]
    if wrong and all(_is_shuffled(functions[f], dims) for f in wrong):
        if (turned := _turned_model(model, backwards)) is None:
            raise refused(row_fault(functions, wrong[0], names, dims, model.states), refuse)
        model, uneven, wrong = turned, [], []
    if (at := _unexplained(functions, spread, wrong)) is not None:
        raise refused(row_fault(functions, at, names, dims, model.states), refuse)
    if not wrong and (fault := cycle_fault(model.functions, names)) is not None:
        raise refused(fault, refuse)
    return _as_written(model, uneven, spread) if uneven else model


def _unexplained(functions: Sequence[Function], spread: SumSpread, wrong: list[int]) -> int | None:
    """Return a function whose rows do not sum to 1 for a reason other than evidence or constraints, or None.

    Where they do, rows of 0 show it; others sum to less than 1, or their table is a relation of 0 and 1.
    """
    if not wrong or spread.low[wrong].min() > 0:
        return wrong[0] if wrong else None
    larger: list[int] = np.intersect1d(wrong, np.flatnonzero(spread.high > 1 + EVEN)).tolist()
    if not larger or _are_relations([functions[f] for f in larger]):
        return None
    return next(f for f in larger if not _are_relations([functions[f]]))


def _are_relations(functions: Sequence[Function]) -> bool:
    values = joined([function.values for function in functions])
    return bool(((values == 0) | (values == 1)).all())


def _turned_model(model: Model, backwards: bool) -> Model | None:
    """Return a model whose tables were written with their first variables fastest, if its rows sum to 1 then.

    With several parents, only rows from a known program show the order of the parents.
    """
    functions, dims = model.functions, model.dims
    turned = [_turned(function, dims) for function in functions]
    known = backwards or all(sum(dims[v] > 1 for v in function.scope) <= 2 for function in functions)
    if not known or not all(is_rounded(function, dims) for function in turned):
        return None
    note = (
        "tables are read with the first variable of each scope fastest, as pgmpy writes them: only so do rows sum to 1"
    )
    return model.with_functions(dict(enumerate(turned)), note)


def _is_shuffled(function: Function, dims: Sequence[int]) -> bool:
    """Whether the entries of a table would form rows that sum to 1 in another order."""
    width = dims[function.child or 0]
    rows = math.prod([dims[v] for v in function.scope]) // width
    return bool(abs(float(function.dense(dims).sum()) - rows) <= rows * rounding(function.values, width))


def _turned(function: Function, dims: Sequence[int]) -> Function:
    """Return a function whose values were written with the first variable fastest."""
    shape = [dims[v] for v in function.scope]
    values = function.dense(dims).reshape(shape[::-1]).transpose()
    return compact(Function(function.scope, np.ascontiguousarray(values), child=function.child))


def _as_written(model: Model, uneven: Sequence[int], spread: SumSpread) -> Model:
    names = listed([model.names[model.functions[f].child or 0] for f in uneven])
    note = (
        f"rows of {names} sum to {_interval(spread)}, not to 1: answers are computed for the product of the tables "
        "as written"
    )
    return replace(model, notes=(*model.notes, note))


def refused(fault: Fault, refuse: Refuse) -> FormatError:
    """Return the error of a fault."""
    return refuse(fault.function, fault.expected, f"{fault.found} ({UNCHECKED})")


def is_rounded(function: Function, dims: Sequence[int]) -> bool:
    """Whether rows differ from 1 by at most the rounding of their printed digits."""
    allowed = rounding(function.values, dims[function.child or 0])
    return bool(np.abs(row_sums(function, dims) - 1).max(initial=0.0) <= allowed)


def _normalised(model: Model, uneven: Sequence[int], spread: SumSpread) -> Model:
    functions = model.functions
    names = [model.names[functions[f].child or 0] for f in uneven]
    note = f"probabilities of {listed(names)} were normalised: rows summed to {_interval(spread)}"
    return model.with_functions({f: normalised(functions[f], model.dims) for f in uneven}, note)


@dataclass
class Properties:
    """Content that programs store beside a network and that is not read, by name."""

    passed: dict[str, None] = field(default_factory=dict)
    observed: list[str] = field(default_factory=list)

    def add(self, text: str, variable: str = "") -> str | None:
        """Take a property of a variable, or of something else; return why the file cannot be read with it."""
        name, *values = _NAME.findall(text) or ("without a name",)
        if name in _CREDAL:
            return f"a set of networks (property {name}), which is not read"
        if name == "observed" and variable:
            self.observed.append(f"{variable} = {' '.join(values)}")
        else:
            self.passed[f"property {name}"] = None
        return None

    def notes(self) -> tuple[str, ...]:
        """Return notes about content that answers do not show."""
        observed = f"observations in the file are not used as evidence: {listed(self.observed)}"
        return (*passed_over(self.passed), *([observed] if self.observed else ()))


def passed_over(what: Iterable[str]) -> tuple[str, ...]:
    """Return the note about what a file says that no answer depends on, if there is something."""
    names = [*dict.fromkeys(what)]
    if not names:
        return ()
    shown = ", ".join(printable(name, 30) for name in names[:MOST_NAMED])
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (f"ignored, because no answer depends on it: {shown}{more}",)


def listed(names: Sequence[str]) -> str:
    """Return names of variables, or how many there are and the first of them."""
    shown = ", ".join(printable(name, 30) for name in names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{len(names)} variables ({shown}, …)"


def _interval(spread: SumSpread) -> str:
    """Return the range of the row sums that differ from 1."""
    ends = dict.fromkeys(f"{end:.7g}" for end in (spread.least, spread.most))
    return " to ".join(ends)


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
        if chain.cells <= FormatPolicy.current().predicate_cells and len(chain.scope) <= MAX_AXES:
            self.source.allowance.take(8 * chain.cells, f"a table of {chain.cells} entries")
            self.add(at, chain.scope, chain.table().values)
        else:
            self.source.allowance.take(8 * sum(step.size for step in chain.steps), "the distributions of its chains")
            self.chains.append((at, chain))

    def numbers(self, at: P, words: Sequence[str]) -> NDArray[np.float64]:
        """Return words as finite numbers of at least 0."""
        text = "".join(words)
        if has_plain_digits(text):
            try:
                values = np.array([*map(float, words)], np.float64)
            except ValueError:
                values = np.array([math.nan])
            if not values.size or (values.min() >= 0.0 and values.max() < math.inf):
                return values
        return np.array([self._number(at, word) for word in words], np.float64)

    def _number(self, at: P, word: str) -> float:
        try:
            number = float(word) if has_plain_digits(word) else math.nan
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
