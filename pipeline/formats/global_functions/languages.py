"""Global cost functions of words: regular languages by automata, and languages of grammars in Chomsky normal form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from .decomposition import Decomposition, GlobalFunctionError
from .machine import Machine, Moves

Given = dict[str, Any]
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
