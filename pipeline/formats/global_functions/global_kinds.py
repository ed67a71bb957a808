"""All kinds of global cost functions: names, parameters, and translations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.function import FORBIDDEN
from .decomposition import Decomposition, GlobalFunctionError, gap_of, priced
from .machine import Machine, Moves, State
from .occurrences import (
    Given,
    add_alldifferent,
    add_among,
    add_cardinality,
    add_clique,
    add_excepted_alldifferent,
    add_limited_cardinality,
    add_same,
    add_soft_same,
    add_variable_among,
)


def add_sum(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge where the states of all variables do not add up as they should."""
    right, gap = given["to"], gap_of(given["comparator"])
    end = priced(given["metric"], given["cost"], lambda total: gap(total - right))
    parts.machine(scope, Machine.counting(0, lambda total, _, value: total + value, end))


def add_variable_sum(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge where the states of all variables but the last do not add up as the last one says."""
    last = len(scope) - 1
    end = priced(given["metric"], given["cost"], gap_of(given["comparator"]))

    def step(total: int, place: int, value: int) -> State:
        return total - value if place == last else total + value

    parts.machine(scope, Machine.counting(0, step, end))


def add_overlap(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge for how many variables of the first half have the state, not 0, of their partners in the second."""
    half, right, gap = len(scope) // 2, given["to"], gap_of(given["comparator"])
    if len(scope) % 2:
        raise GlobalFunctionError("an even number of variables", f"{len(scope)}")
    end = priced(given["metric"], given["cost"], lambda count: gap(count - right))

    def step(state: tuple[int, int], place: int, value: int) -> State:
        count, first = state
        return (count, value) if place % 2 == 0 else (count + (value == first != 0), 0)

    pairs = [v for k in range(half) for v in (scope[k], scope[k + half])]
    parts.machine(pairs, Machine.counting((0, 0), step, lambda state: end(state[0])))


def add_diverse(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid what differs from an assignment in fewer variables than the distance."""
    values, least = given["values"], given["distance"]
    weights = [{s: int(s != values[k]) for s in range(parts.dims[v])} for k, v in enumerate(scope)]
    _add_at_least(parts, scope, weights, least)


def add_knapsack(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid assignments with a total weight below the capacity.

    Weights belong to state 1 of variables, or to listed states.

    At-most-one constraints of the same list forbid that two of their variables have the states listed.
    """
    if "weights" in given and all(isinstance(weight, int) for weight in given["weights"]):
        if wide := [v for v in scope if parts.dims[v] > 2]:
            raise GlobalFunctionError("a knapsack over variables of two states", f"one of {parts.dims[wide[0]]}")
        weights = [{1: weight} for weight in given["weights"]]
    elif "weights" in given:
        weights = [dict(_distinct(own)) for own in given["weights"]]
    else:
        weights = [{} for _ in scope]
        for variable, value, weight in given["weightedvalues"]:
            k = _place(scope, variable)
            weights[k][value] = weights[k].get(value, 0) + weight
    if "amo" in given and (wide := [v for v in scope if parts.dims[v] > 2]):
        raise GlobalFunctionError("at-most-one constraints of variables of two states", f"one of {parts.dims[wide[0]]}")
    for group in given.get("amo", ()):
        parts.exclusive([scope[_place(scope, v)] for v, _ in group], [{value} for _, value in group])
    _add_at_least(parts, scope, weights, given["capacity"])


def _distinct(pairs: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    if len({value for value, _ in pairs}) < len(pairs):
        raise GlobalFunctionError("each value of a variable once", "a value twice")
    return pairs


def _place(scope: Sequence[int], variable: int) -> int:
    if variable not in scope:
        raise GlobalFunctionError("variables of the scope", f"variable {variable}")
    return scope.index(variable)


def _add_at_least(parts: Decomposition, scope: Sequence[int], weights: Sequence[Mapping[int, int]], least: int) -> None:
    """Forbid smaller totals. A machine's state is a total, or the least total that can no longer be missed."""
    every = [[own.get(s, 0) for s in range(parts.dims[v])] for own, v in zip(weights, scope, strict=True)]
    lows, highs = ([*accumulate(map(end, reversed(every)), initial=0)][::-1] for end in (min, max))

    def step(total: int, place: int, value: int) -> State | None:
        total += every[place][value]
        if total + highs[place + 1] < least:
            return None
        return min(total, least - lows[place + 1])

    start = 0 if scope else min(0, least)
    end = [parts.limit, 0]
    parts.machine(scope, Machine.counting(start, step, lambda total: end[total >= least]))


def add_maximum(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge the greatest cost among the variables' states, at least 0."""
    prices: list[dict[int, int]] = [{} for _ in scope]
    for variable, value, cost in given["tuples"]:
        prices[_place(scope, variable)][value] = cost
    default: int = given["defaultcost"]

    def step(greatest: int, place: int, value: int) -> State:
        return max(greatest, prices[place].get(value, default))

    parts.machine(scope, Machine.counting(0, step, lambda greatest: greatest))


# Global cost functions of words: regular languages by automata, and languages of grammars in Chomsky normal form.

Stack = tuple[int, ...]
_GRAMMAR_WORK = 8


def _check_states(given: Given, starts: Iterable[int], ends: Iterable[int]) -> None:
    """Refuse an automaton that names states which it does not have."""
    count = given["nb_states"]
    for state in (*starts, *ends, *(s for first, _, to, *_ in given["transitions"] for s in (first, to))):
        if not 0 <= state < count:
            raise GlobalFunctionError(f"a state of the automaton from 0 to {count - 1}", str(state))


def add_weighted_regular(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge the least cost of a run of a weighted automaton; words without an accepting run are forbidden."""
    starts, ends = dict(given["starts"]), dict(given["ends"])
    _check_states(given, starts, ends)
    arcs: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for state, value, to, cost in given["transitions"]:
        arcs[state, value][to] = cost

    def moves(state: Any, _: int, value: int) -> Moves:
        return arcs[state, value].items() if (state, value) in arcs else ()

    allowed = {state: cost for state, cost in starts.items() if cost < parts.limit}
    _add_words(parts, scope, Machine(allowed, moves, lambda state: ends.get(state, parts.limit)))


def _add_words(parts: Decomposition, scope: Sequence[int], machine: Machine) -> None:
    if machine.starts:
        parts.machine(scope, machine)
    else:
        parts.forbid()


def add_regular(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge for the least number of changes that make a word of the automaton: substitutions (var), or also insertions
    and deletions (edit).
    """
    cost, edits = given["cost"], given["metric"] == "edit"
    _check_states(given, given["starts"], given["ends"])
    arcs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for state, value, to in given["transitions"]:
        arcs[state].append((value, to))
    named = {*given["starts"], *arcs, *(to for own in arcs.values() for _, to in own)}
    inserted = {state: _insertions(arcs, state) if edits else {state: 0} for state in named}

    def moves(state: Any, _: int, value: int) -> Moves:
        changed = [(to, 0 if symbol == value else cost) for symbol, to in arcs[state]]
        for to, change in [*changed, *([(state, cost)] if edits else [])]:
            yield from ((beyond, change + cost * steps) for beyond, steps in inserted[to].items())

    starts: dict[Any, int] = {}
    for start in given["starts"]:
        for state, steps in inserted[start].items():
            starts[state] = min(cost * steps, starts.get(state, cost * steps))
    ends = {*given["ends"]}
    _add_words(parts, scope, Machine(starts, moves, lambda state: 0 if state in ends else parts.limit))


def _insertions(arcs: dict[int, list[tuple[int, int]]], state: int) -> dict[int, int]:
    """Return how few symbols lead from a state to each."""
    steps, queue = {state: 0}, [state]
    for at in queue:
        for _, to in arcs.get(at, ()):
            if to not in steps:
                steps[to] = steps[at] + 1
                queue.append(to)
    return steps


def add_grammar(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge for the least number of substitutions that make a word of a grammar, or the least weight of a derivation.

    States are the symbols that are still to be derived, leftmost first, as many as variables are left at most.
    """
    weighted, cost = given["metric"] == "weight", given["cost"]
    if not weighted and any(len(rule) > own for own, rules in ((2, "terminals"), (3, "non_terminals"))
                            for rule in given[rules]):  # fmt: skip
        raise GlobalFunctionError("rules with weights in a grammar of metric 'weight'", f"metric {given['metric']!r}")
    words: dict[int, list[tuple[int, int]]] = defaultdict(list)
    pairs: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for symbol, value, *weight in given["terminals"]:
        words[symbol].append((value, *(weight or (0,))))
    for symbol, left, right, *weight in given["non_terminals"]:
        pairs[symbol].append((left, right, *(weight or (0,))))
    _check_symbols(given, [*words, *pairs, *(s for own in pairs.values() for rule in own for s in rule[:2])])

    def moves(stack: Any, place: int, value: int) -> Moves:
        least, room = {stack: 0}, len(scope) - place
        queue: list[Stack] = [stack]
        while queue:
            top = queue.pop()
            if not top:
                continue
            for symbol, weight in words[top[0]]:
                if symbol == value or not weighted:
                    yield top[1:], least[top] + weight + (0 if symbol == value else cost)
            for left, right, weight in pairs[top[0]] if len(top) < room else ():
                derived, total = (left, right, *top[1:]), least[top] + weight
                if derived not in least or total < least[derived]:
                    least[derived] = total
                    queue.append(derived)

    end = [parts.limit, 0]
    _add_words(parts, scope, Machine({(given["start"],): 0}, moves, lambda stack: end[stack == ()], _GRAMMAR_WORK))


def _check_symbols(given: Given, symbols: Sequence[int]) -> None:
    for symbol in (given["start"], *symbols):
        if not 0 <= symbol < given["nb_symbols"]:
            raise GlobalFunctionError(f"a symbol of the grammar from 0 to {given['nb_symbols'] - 1}", str(symbol))


# Functions in intension of two variables, and spanning trees.


def add_comparison(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge how far two variables miss a comparison; beyond a threshold that is forbidden."""
    x, y = scope
    sizes = parts.dims[x], parts.dims[y]
    parts.defer((x, y), partial(_comparison_table, sizes, parts.limit, given["kind"], given["cst"], given["delta"]))


def _comparison_table(sizes: tuple[int, int], limit: int, kind: str, cst: int, delta: int) -> NDArray[np.int64]:
    x, y = np.arange(sizes[0], dtype=np.int64)[:, None], np.arange(sizes[1], dtype=np.int64)[None, :]
    cst = min(cst, FORBIDDEN)  # a distance that no two states have, and that does not overflow
    missed = {
        ">=": y + cst - x,
        ">": y + cst + 1 - x,
        "<=": x - cst - y,
        "<": x - cst + 1 - y,
        "=": np.abs(y + cst - x),
    }[kind]
    costs = np.where(missed > max(delta, 0), FORBIDDEN, np.maximum(missed, 0))
    return np.where(costs >= limit, FORBIDDEN, costs)


def add_disjunction(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Charge a penalty where neither of two variables is far enough behind the other."""
    x, y = scope
    free, penalty = _stored(parts, 0, given["penalty"])
    sizes = parts.dims[x], parts.dims[y]
    parts.defer((x, y), partial(_disjunction_table, sizes, free, penalty, given["cstx"], given["csty"]))


def _stored(parts: Decomposition, *costs: int) -> list[int]:
    return [FORBIDDEN if cost >= parts.limit else cost for cost in costs]


def _disjunction_table(sizes: tuple[int, int], free: int, penalty: int, cst_x: int, cst_y: int) -> NDArray[np.int64]:
    table = np.full(sizes, penalty, np.int64)
    _put_apart(table, cst_x, cst_y, free)
    return table


def _put_apart(table: NDArray[np.int64], cst_x: int, cst_y: int, cost: int) -> None:
    """Put a cost where one variable is far enough behind the other.

    Slices write each cell once. Comparisons of all cells take several times as long.
    """
    for state, row in enumerate(table):
        row[: max(0, state - cst_y + 1)] = cost
        row[max(0, state + cst_x) :] = cost


def add_special_disjunction(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid that both variables are below their last states and near each other; charge for the last states."""
    x, y = scope
    last, distances = (given["xinfty"], given["yinfty"]), (given["cstx"], given["csty"])
    costs = _stored(parts, 0, given["costx"], given["costy"], given["costx"] + given["costy"])
    sizes = parts.dims[x], parts.dims[y]
    parts.defer((x, y), partial(_special_disjunction_table, sizes, costs, last, distances))


def _special_disjunction_table(
    sizes: tuple[int, int], costs: Sequence[int], last: tuple[int, int], distances: tuple[int, int]
) -> NDArray[np.int64]:
    """Return the costs of a special disjunction: of states apart, of each variable's last state, and of both."""
    free, cost_x, cost_y, both = costs
    table = np.full(sizes, FORBIDDEN, np.int64)
    last_x, last_y = last
    below_x, below_y = max(last_x, 0), max(last_y, 0)
    _put_apart(table[:below_x, :below_y], *distances, free)
    if 0 <= last_x < sizes[0]:
        table[last_x, :below_y] = cost_x
    if 0 <= last_y < sizes[1]:
        table[:below_x, last_y] = cost_y
        if 0 <= last_x < sizes[0]:
            table[last_x, last_y] = both
    return table


def add_tree(parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
    """Forbid what is no tree: a variable's state is the place of its parent in the scope, the root's its own.

    A state is, for each variable, where its path leads so far: a variable that has no parent yet, or the root.
    """
    if wide := [v for v in scope if parts.dims[v] > len(scope)]:
        raise GlobalFunctionError(
            f"domains of the {len(scope)} places of the scope", f"one of {parts.dims[wide[0]]} states"
        )
    root = len(scope)

    def step(state: tuple[int, ...], place: int, parent: int) -> State | None:
        top = root if parent == place else state[parent]
        if (parent == place and root in state) or (parent != place and top == place):
            return None
        return tuple([top if own == place else own for own in state])

    parts.machine(scope, Machine.counting(tuple(range(root)), step, lambda _: 0))


Build = Callable[[Decomposition, tuple[int, ...], Given], None]


@dataclass(frozen=True)
class Field:
    """A parameter of a function, by name.

    Parameters
    ----------
    name : str
    items : str
        A letter for each item: a word ``K``, an integer ``N``, a variable ``V``, a value ``v``, a cost ``c``, or a cost
        that may be negative ``C``, or a network ``W``; letters in brackets at the end are all there, or none is.
    lists : str
        Around them, from the outside in: ``+`` a list of any length, ``S`` one of an entry for each variable.
    absent : str
        ``?`` if it may be missing, as files of older versions have it: at the end of a .wcsp, and in a .cfn.
    """

    name: str
    items: str
    lists: str = ""
    absent: str = ""

    @property
    def optional(self) -> str:
        """The letters that may be missing."""
        return self.items.partition("(")[2].rstrip(")")

    @property
    def letters(self) -> str:
        """The letters that are there."""
        return self.items.partition("(")[0]


@dataclass(frozen=True)
class GlobalKind:
    """A kind of global cost function.

    Parameters
    ----------
    fields : tuple of Field
        In the order of a .wcsp; a .cfn names them.
    build : callable
        Adds the functions that it becomes.
    metrics : str
        Possible values of ``metric``.
    """

    fields: tuple[Field, ...]
    build: Build
    metrics: str = ""
    fixed: tuple[tuple[str, Any], ...] = ()

    def add(self, parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
        """Add what a function of this kind becomes.

        Raises
        ------
        GlobalFunctionError
            If what is given contradicts itself.
        BudgetError
            If that needs too many hidden states.
        """
        if self.metrics and given["metric"] not in self.metrics.split():
            raise GlobalFunctionError(f"a metric {', '.join(self.metrics.split())}", repr(given["metric"]))
        build = partial(self.build, parts, scope, {**given, **dict(self.fixed)})
        key = self._key(scope, given)
        if key:
            parts.once(scope, (self.build, self.fixed, key), build)
        else:
            build()

    def _key(self, scope: tuple[int, ...], given: Given) -> str:
        """Return a text that is equal for equal functions over other variables; empty if it is not worth it.

        Functions of two variables are built as fast as a text of their parameters.
        """
        places = {v: place for place, v in enumerate(scope)}
        if len(scope) <= 2 or len(places) < len(scope):
            return ""
        named = [field.name for field in self.fields if "V" in field.items]
        if not named:
            return repr(given)
        try:
            return repr([given | {name: _placed(given[name], places) for name in named}])
        except KeyError:  # a variable that is not of the scope
            return ""


def _placed(entries: Any, places: Mapping[int, int]) -> Any:
    """Return lists of variables, or of tuples that begin with a variable, by places in a scope."""
    if isinstance(entries, list):
        return [_placed(entry, places) for entry in entries]
    return (places[entries[0]], *entries[1:]) if isinstance(entries, tuple) else places[entries]


def _fields(text: str) -> tuple[Field, ...]:
    return tuple([Field(*word.split(":")) for word in text.split()])


def _kind(fields: str, build: Build, metrics: str = "", **fixed: Any) -> GlobalKind:
    return GlobalKind(_fields(fields), build, metrics, tuple(fixed.items()))


COMPARISONS = (">=", ">", "<=", "<", "=")
_MEASURED = "metric:K cost:c"
_AUTOMATON = "nb_states:N starts:N:+ ends:N:+ transitions:NvN:+"
_DECOMPOSED = "hard lin quad var"
_ALL_DIFFERENT = _kind(_MEASURED, add_alldifferent, "var dec decbi")
_REGULAR = _kind(f"{_MEASURED} {_AUTOMATON}", add_regular, "var edit")
_GRAMMAR = _kind(
    f"{_MEASURED} nb_symbols:N nb_values:N start:N terminals:Nv(c):+ non_terminals:NNN(c):+", add_grammar, "var weight"
)
_AMONG = _kind(f"{_MEASURED} min:N max:N values:v:+", add_among, "var")
_MAXIMUM = _kind("defaultcost:c tuples:Vvc:+", add_maximum)
_DIVERSE = _kind("distance:N values:v:S", add_diverse)
_TREE = _kind("", add_tree)

KINDS = {
    "alldiff": _kind("exceptedvalues:v:+ deltacosts:vC:+:?", add_excepted_alldifferent),
    "salldiff": _ALL_DIFFERENT,
    "salldiffdp": _kind(_MEASURED, add_alldifferent, "var"),
    "salldiffkp": _kind(_MEASURED, add_alldifferent, "hard"),
    "walldiff": _kind(_MEASURED, add_alldifferent, _DECOMPOSED),
    "walldifferent": _kind(_MEASURED, add_alldifferent, _DECOMPOSED),
    "gcc": _kind("bounds:vNN:+ deltacosts:vC:+:?", add_limited_cardinality),
    "sgcc": _kind(f"{_MEASURED} bounds:vNN(cc):+", add_cardinality, "var dec wdec"),
    "sgccdp": _kind(f"{_MEASURED} bounds:vNN:+", add_cardinality, "var", by_value=True),
    "wgcc": _kind(f"{_MEASURED} bounds:vNN:+", add_cardinality, _DECOMPOSED, by_value=True),
    "ssame": _kind("cost:c vars1:V:+ vars2:V:+", add_soft_same),
    "wsame": _kind(_MEASURED, add_same, _DECOMPOSED),
    "wsamegcc": _kind(f"{_MEASURED} bounds:vNN:+", add_same, "hard lin quad dec"),
    "sregular": _REGULAR,
    "sregulardp": _kind(f"{_MEASURED} {_AUTOMATON}", add_regular, "var"),
    "wregular": _kind("nb_states:N starts:NC:+ ends:NC:+ transitions:NvNC:+", add_weighted_regular),
    "sgrammar": _GRAMMAR,
    "sgrammardp": _GRAMMAR,
    "samong": _AMONG,
    "samongdp": _AMONG,
    "wamong": _kind(f"{_MEASURED} values:v:+ min:N max:N", add_among, _DECOMPOSED),
    "wvaramong": _kind(f"{_MEASURED} values:v:+", add_variable_among, "hard"),
    "woverlap": _kind(f"{_MEASURED} comparator:K to:N", add_overlap, _DECOMPOSED),
    "wsum": _kind(f"{_MEASURED} comparator:K to:N", add_sum, _DECOMPOSED),
    "wvarsum": _kind(f"{_MEASURED} comparator:K", add_variable_sum, _DECOMPOSED),
    "wdiverse": _DIVERSE,
    "whdiverse": _DIVERSE,
    "wtdiverse": _DIVERSE,
    "max": _MAXIMUM,
    "MAX": _MAXIMUM,
    "smaxdp": _MAXIMUM,
    "MST": _TREE,
    "smstdp": _TREE,
    "clique": _kind("rhs:N values:v:S+", add_clique),
    "knapsack": _kind("capacity:N weights:N:S", add_knapsack),
    "knapsackc": _kind("capacity:N weights:vN:S+ amo:Vv:++", add_knapsack),
    "knapsackp": _kind("capacity:N weights:vN:S+", add_knapsack),
    "knapsackv": _kind("capacity:N weightedvalues:VvN:+", add_knapsack),
    **{sign: _kind("cst:N delta:N", add_comparison, kind=sign) for sign in COMPARISONS},
    "disj": _kind("cstx:N csty:N penalty:c", add_disjunction),
    "sdisj": _kind("cstx:N csty:N xinfty:N yinfty:N costx:c costy:c", add_special_disjunction),
}
# Functions of two variables, with parameters in an unnamed list.
PAIRS = (*COMPARISONS, "disj", "sdisj")
# Maximum nesting depth of networks.
MOST_NESTED = 4
NESTED_FIELDS = _fields("cfn:W lb:C ub:C duplicatehard:N strongduality:N")
NESTED = ("wcsp", "cfnconstraint", "weightedcspconstraint")
