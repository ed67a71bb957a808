"""Global cost functions by their definitions, to compare with: random parameters, both syntaxes, what they charge."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

TOP = 1000
Charge = Callable[[Sequence[int]], float]
"""What the states of a scope cost; infinity is forbidden."""


@dataclass(frozen=True)
class Global:
    """A global cost function: its scope, its parameters as in a .wcsp and a .cfn, and what it charges."""

    kind: str
    scope: tuple[int, ...]
    words: str
    params: str
    charge: Charge


def _scope(rng: Random, dims: Sequence[int], count: int = 4) -> tuple[int, ...]:
    return tuple(rng.sample(range(len(dims)), count))


def _cost(rng: Random) -> int:
    return rng.choice([1, 3, 7, TOP])


def _gap(metric: str, cost: int, gap: int) -> float:
    return {"hard": cost * (gap > 0), "quad": cost * gap**2}.get(metric, cost * gap)


def _outside(count: int, low: int, high: int) -> int:
    return max(0, low - count, count - high)


def _missed(comparator: str, left: int, right: int) -> int:
    """How many steps a number is from what a comparator wants."""
    wanted = {
        "==": lambda n: n == right,
        "!=": lambda n: n != right,
        "<": lambda n: n < right,
        "<=": lambda n: n <= right,
        ">": lambda n: n > right,
        ">=": lambda n: n >= right,
    }[comparator]
    return min(abs(left - n) for n in range(-60, 61) if wanted(n))


def _listed(items: Iterable[object]) -> str:
    return "[" + " ".join("[" + " ".join(map(str, i)) + "]" if isinstance(i, tuple) else str(i) for i in items) + "]"


def _counted(items: Sequence[object]) -> str:
    flat = [str(part) for item in items for part in (item if isinstance(item, tuple) else (item,))]
    return " ".join([str(len(items)), *flat])


def alldifferent(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    cost = TOP if kind == "salldiffkp" else _cost(rng)

    def charge(states: Sequence[int]) -> float:
        counts = Counter(states).values()
        if metric in ("dec", "decbi"):
            return cost * sum(a == b for a, b in itertools.combinations(states, 2))
        return sum(_gap(metric, cost, n - 1) for n in counts)

    return Global(kind, _scope(rng, dims), f"{metric} {cost}", f"{{metric: {metric} cost: {cost}}}", charge)


def excepted_alldifferent(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope = _scope(rng, dims, 3)
    free = rng.sample(range(3), rng.randrange(3))
    moved = [(v, rng.randrange(9)) for v in rng.sample(range(3), rng.randrange(3))]

    def charge(states: Sequence[int]) -> float:
        counts = Counter(states)
        if any(number > 1 and state not in free for state, number in counts.items()):
            return math.inf
        return sum(cost * ((len(states) if v in free else 1) - counts[v]) for v, cost in moved)

    params = f"{{exceptedvalues: {_listed(free)} deltacosts: {_listed(moved)}}}"
    return Global(kind, scope, f"{_counted(free)} {_counted(moved)}", params, charge)


def hard_cardinality(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, bounds = _scope(rng, dims), list[tuple[int, int, int]]()
    for value in rng.sample(range(3), rng.randrange(1, 4)):
        low = rng.randrange(2)
        bounds.append((value, low, rng.randrange(low, 4)))

    def charge(states: Sequence[int]) -> float:
        return math.inf if any(_outside(states.count(v), low, high) for v, low, high in bounds) else 0

    return Global(kind, scope, f"{_counted(bounds)} 0", f"{{bounds: {_listed(bounds)} deltacosts: []}}", charge)


def cardinality(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, cost = _scope(rng, dims), _cost(rng)
    values = rng.sample(range(3), rng.randrange(1, 4))
    bounds: list[tuple[int, ...]] = []
    for value in values:
        low = rng.randrange(3)
        bounds.append((value, low, rng.randrange(low, 4), *([rng.randrange(4), rng.randrange(4)] * (metric == "wdec"))))

    def charge(states: Sequence[int]) -> float:
        counts = Counter(states)
        if metric == "wdec":
            return sum(
                max(0, low - counts[v]) * short + max(0, counts[v] - high) * more
                for v, low, high, short, more in bounds
            )
        if kind == "sgcc" and metric == "var":
            choices = itertools.product(sorted({s for v in scope for s in range(dims[v])}), repeat=len(scope))
            kept = [c for c in choices if all(low <= c.count(v) <= high for v, low, high in bounds)]
            return min((cost * sum(a != b for a, b in zip(states, c, strict=True)) for c in kept), default=math.inf)
        return sum(_gap(metric, cost, _outside(counts[v], low, high)) for v, low, high in bounds)

    params = f"{{metric: {metric} cost: {cost} bounds: {_listed(bounds)}}}"
    return Global(kind, scope, f"{metric} {cost} {_counted(bounds)}", params, charge)


def same(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, cost = _scope(rng, dims), _cost(rng)
    bounds = [(v, 0, rng.randrange(3)) for v in rng.sample(range(3), 2)] if kind == "wsamegcc" else []

    def charge(states: Sequence[int]) -> float:
        left, right = Counter(states[:2]), Counter(states[2:])
        if kind == "ssame":
            return cost * sum((left - right).values())
        total = sum(_gap(metric, cost, abs(left[v] - right[v])) for v in range(3))
        sides = (left, right)
        return total + sum(_gap(metric, cost, _outside(n[v], low, high)) for v, low, high in bounds for n in sides)

    if kind == "ssame":
        words = f"{cost} 2 2 {' '.join(map(str, scope))}"
        params = f"{{cost: {cost} vars1: {_listed(scope[:2])} vars2: {_listed(scope[2:])}}}"
    else:
        words = f"{metric} {cost}" + (f" {_counted(bounds)}" if bounds else "")
        params = f"{{metric: {metric} cost: {cost}" + (f" bounds: {_listed(bounds)}}}" if bounds else "}")
    return Global(kind, scope, words, params, charge)


def among(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, cost, values = _scope(rng, dims), _cost(rng), rng.sample(range(3), rng.randrange(1, 3))
    low = rng.randrange(4)
    high = rng.randrange(low, 5)

    def charge(states: Sequence[int]) -> float:
        if kind == "wvaramong":
            return cost * (sum(s in values for s in states[:-1]) != states[-1])
        return _gap(metric, cost, _outside(sum(s in values for s in states), low, high))

    words, params = f"{metric} {cost}", f"metric: {metric} cost: {cost}"
    if kind == "wvaramong":
        return Global(kind, scope, f"{words} {_counted(values)}", f"{{{params} values: {_listed(values)}}}", charge)
    if kind == "wamong":
        words, params = f"{words} {_counted(values)} {low} {high}", f"{params} values: {_listed(values)} min: {low}"
        return Global(kind, scope, words, f"{{{params} max: {high}}}", charge)
    words = f"{words} {low} {high} {_counted(values)}"
    return Global(kind, scope, words, f"{{{params} min: {low} max: {high} values: {_listed(values)}}}", charge)


def _automaton(rng: Random) -> tuple[list[int], list[int], list[tuple[int, int, int]]]:
    states = range(rng.randrange(2, 4))
    arcs = {(rng.choice(states), rng.randrange(3), rng.choice(states)) for _ in range(rng.randrange(3, 8))}
    return rng.sample(states, rng.randrange(1, 3)), rng.sample(states, rng.randrange(1, 3)), sorted(arcs)


def regular(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, cost = _scope(rng, dims), _cost(rng)
    starts, ends, arcs = _automaton(rng)
    if kind == "sregulardp":  # of which toulbar2 reads deterministic ones
        starts, arcs = starts[:1], [(*first, to) for first, to in {arc[:2]: arc[2] for arc in arcs}.items()]

    @cache
    def accepted(length: int) -> tuple[tuple[int, ...], ...]:
        words = set()
        paths: list[tuple[int, tuple[int, ...]]] = [(s, ()) for s in starts]
        for _ in range(length):
            paths = [*{(to, (*word, v)) for at, word in paths for first, v, to in arcs if first == at}]
        words.update(word for at, word in paths if at in ends)
        return tuple(words)

    def charge(states: Sequence[int]) -> float:
        if metric == "var":
            distances = (sum(a != b for a, b in zip(states, word, strict=True)) for word in accepted(len(states)))
            return cost * min(distances, default=math.inf)
        words = (word for length in range(len(states) + 4) for word in accepted(length))
        return cost * min((_edits(states, word) for word in words), default=math.inf)

    words = f"{metric} {cost} 3 {_counted(starts)} {_counted(ends)} {_counted(arcs)}"
    params = f"{{metric: {metric} cost: {cost} nb_states: 3 starts: {_listed(starts)} ends: {_listed(ends)}"
    return Global(kind, scope, words, f"{params} transitions: {_listed(arcs)}}}", charge)


def _edits(first: Sequence[int], second: Sequence[int]) -> int:
    """The Levenshtein distance."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first):
        before, row[0] = row[0], i + 1
        for j, b in enumerate(second):
            before, row[j + 1] = row[j + 1], min(row[j + 1] + 1, row[j] + 1, before + (a != b))
    return row[-1]


def weighted_regular(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope = _scope(rng, dims)
    starts, ends, arcs = _automaton(rng)
    begin = [(s, rng.randrange(4)) for s in starts]
    end = [(s, rng.randrange(4)) for s in ends]
    weighted = [(*arc, rng.randrange(5)) for arc in arcs]
    costs = {arc[:3]: arc[3] for arc in weighted}

    def charge(states: Sequence[int]) -> float:
        best = math.inf
        for path in itertools.product(range(3), repeat=len(states) + 1):
            first, last = dict(begin).get(path[0]), dict(end).get(path[-1])
            steps = [costs.get(step) for step in zip(path, states, path[1:], strict=False)]
            if first is not None and last is not None and None not in steps:
                best = min(best, first + last + sum(step for step in steps if step is not None))
        return best

    words = f"3 {_counted(begin)} {_counted(end)} {_counted(weighted)}"
    params = f"{{nb_states: 3 starts: {_listed(begin)} ends: {_listed(end)} transitions: {_listed(weighted)}}}"
    return Global(kind, scope, words, params, charge)


def grammar(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, cost = _scope(rng, dims), _cost(rng)
    weight = [()] if metric == "var" else [(w,) for w in range(3)]
    # toulbar2 takes it that one symbol alone derives a value
    terminals = [(rng.randrange(3), v, *rng.choice(weight)) for v in rng.sample(range(3), rng.randrange(2, 4))]
    rules = [
        (rng.randrange(3), rng.randrange(3), rng.randrange(3), *rng.choice(weight)) for _ in range(rng.randrange(2, 5))
    ]

    def charge(states: Sequence[int]) -> float:
        @cache
        def least(symbol: int, first: int, last: int) -> float:
            if first == last:
                found = [
                    (w[0] if w else 0) + (cost if v != states[first] else 0)
                    for s, v, *w in terminals
                    if s == symbol and (metric == "var" or v == states[first])
                ]
                return min(found, default=math.inf)
            splits = [
                (w[0] if w else 0) + least(a, first, k) + least(b, k + 1, last)
                for s, a, b, *w in rules
                if s == symbol
                for k in range(first, last)
            ]
            return min(splits, default=math.inf)

        return least(0, 0, len(states) - 1)

    kinds = (0, 1) if metric == "var" else (2, 3)
    written = [(kinds[0], *t) for t in terminals] + [(kinds[1], *r) for r in rules]
    words = f"{metric} {cost} 3 3 0 {_counted(written)}"
    params = f"{{metric: {metric} cost: {cost} nb_symbols: 3 nb_values: 3 start: 0 terminals: {_listed(terminals)}"
    return Global(kind, scope, words, f"{params} non_terminals: {_listed(rules)}}}", charge)


def sums(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, cost = _scope(rng, dims), _cost(rng)
    comparator, right = rng.choice(["==", "!=", "<", "<=", ">", ">="]), rng.randrange(6)

    def charge(states: Sequence[int]) -> float:
        if kind == "wvarsum":
            return _gap(metric, cost, _missed(comparator, sum(states[:-1]), states[-1]))
        if kind == "woverlap":
            pairs = sum(a == b != 0 for a, b in zip(states[:2], states[2:], strict=True))
            return _gap(metric, cost, _missed(comparator, pairs, right))
        return _gap(metric, cost, _missed(comparator, sum(states), right))

    words, params = f"{metric} {cost} {comparator}", f'{{metric: {metric} cost: {cost} comparator: "{comparator}"'
    if kind == "wvarsum":
        return Global(kind, scope, words, f"{params}}}", charge)
    return Global(kind, scope, f"{words} {right}", f"{params} to: {right}}}", charge)


def diverse(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, distance = _scope(rng, dims), rng.randrange(1, 4)
    values = [rng.randrange(dims[v]) for v in scope]

    def charge(states: Sequence[int]) -> float:
        return math.inf if sum(a != b for a, b in zip(states, values, strict=True)) < distance else 0

    params = f"{{distance: {distance} values: {_listed(values)}}}"
    return Global(kind, scope, f"{distance} {' '.join(map(str, values))}", params, charge)


def maximum(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, default = _scope(rng, dims), rng.randrange(6)
    prices = {(v, s): rng.randrange(9) for v in scope for s in range(dims[v]) if rng.random() < 0.6}

    def charge(states: Sequence[int]) -> float:
        return max(prices.get((v, s), default) for v, s in zip(scope, states, strict=True))

    tuples = [(*key, price) for key, price in prices.items()]
    params = f"{{defaultcost: {default} tuples: {_listed(tuples)}}}"
    return Global(kind, scope, f"{default} {_counted(tuples)}", params, charge)


def tree(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope = _scope(rng, dims)

    def charge(states: Sequence[int]) -> float:
        roots = [k for k, parent in enumerate(states) if parent == k]
        if len(roots) != 1:
            return math.inf
        for k in range(len(states)):
            at = k
            for _ in states:
                at = states[at]
            if at != roots[0]:
                return math.inf
        return 0

    return Global(kind, scope, "", "[]", charge)


def clique(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope = _scope(rng, dims)
    sets = [rng.sample(range(dims[v]), rng.randrange(1, dims[v] + 1)) for v in scope]

    def charge(states: Sequence[int]) -> float:
        return math.inf if sum(s in own for s, own in zip(states, sets, strict=True)) > 1 else 0

    words = f"1 {' '.join(map(_counted, sets))}"
    return Global(kind, scope, words, f"{{rhs: 1 values: [{' '.join(map(_listed, sets))}]}}", charge)


def knapsack(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    of_ones = kind in ("knapsack", "knapsackc")
    scope, capacity = _scope(rng, dims), rng.randrange(-4, 9)
    # of a weight of 0 toulbar2 forgets the at-most-one constraint
    choice = [w for w in range(-3, 6) if w or kind != "knapsackc"]
    weights = {(v, s): rng.choice(choice) for v in scope for s in ([1] if of_ones else range(dims[v]))}
    group = rng.sample(scope, 2) if kind == "knapsackc" else []

    def charge(states: Sequence[int]) -> float:
        total = sum(weights.get(pair, 0) for pair in zip(scope, states, strict=True))
        taken = sum(s == 1 for v, s in zip(scope, states, strict=True) if v in group)
        return math.inf if total < capacity or taken > 1 else 0

    own = [[(s, w) for (u, s), w in weights.items() if u == v] for v in scope]
    lists = " ".join(map(_counted, own))
    if kind == "knapsack":
        plain = [weights.get((v, 1), 0) for v in scope]
        params = f"{{capacity: {capacity} weights: {_listed(plain)}}}"
        return Global(kind, scope, f"{capacity} {' '.join(map(str, plain))}", params, charge)
    if kind == "knapsackv":
        triples = [(*key, weight) for key, weight in weights.items()]
        params = f"{{capacity: {capacity} weightedvalues: {_listed(triples)}}}"
        return Global(kind, scope, f"{capacity} {_counted(triples)}", params, charge)
    params = f"{{capacity: {capacity} weights: [{' '.join(map(_listed, own))}]"
    if kind == "knapsackp":
        return Global(kind, scope, f"{capacity} {lists}", f"{params}}}", charge)
    pairs = [(v, 1) for v in group]
    return Global(kind, scope, f"{capacity} {lists} 1 {_counted(pairs)}", f"{params} amo: [{_listed(pairs)}]}}", charge)


def pair(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, cst, delta = _scope(rng, dims, 2), rng.randrange(-1, 3), rng.randrange(3)

    def charge(states: Sequence[int]) -> float:
        x, y = states
        missed = {
            ">=": y + cst - x,
            ">": y + cst + 1 - x,
            "<=": x - cst - y,
            "<": x - cst + 1 - y,
            "=": abs(y + cst - x),
        }[kind]
        return math.inf if missed > delta else max(0, missed)

    return Global(kind, scope, f"{cst} {delta}", f"[{cst}, {delta}]", charge)


def disjunction(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope, near, far = _scope(rng, dims, 2), rng.randrange(3), rng.randrange(3)
    ends, prices = (rng.randrange(4), rng.randrange(4)), (rng.randrange(5), rng.randrange(5))

    def charge(states: Sequence[int]) -> float:
        x, y = states
        apart = x >= y + far or y >= x + near
        if kind == "disj":
            return 0 if apart else prices[0]
        allowed = x <= ends[0] and y <= ends[1] and (apart or x == ends[0] or y == ends[1])
        return prices[0] * (x == ends[0]) + prices[1] * (y == ends[1]) if allowed else math.inf

    items = (near, far, prices[0]) if kind == "disj" else (near, far, *ends, *prices)
    return Global(kind, scope, " ".join(map(str, items)), _listed(items), charge)


def nested(rng: Random, dims: Sequence[int], kind: str, metric: str) -> Global:
    scope = _scope(rng, dims, 3)
    sizes = [dims[v] for v in scope]
    pairs = [(0, 1), (0, 2), (1, 2)]
    tables = [{s: rng.randrange(5) for s in itertools.product(range(sizes[a]), range(sizes[b]))} for a, b in pairs]
    low = rng.randrange(6)
    high = rng.randrange(low + 1, 12)

    def charge(states: Sequence[int]) -> float:
        total = sum(t[states[a], states[b]] for (a, b), t in zip(pairs, tables, strict=True))
        return 0 if low <= total < min(high, 11) else math.inf

    words = f"{low} {high} 0 0 inner 3 {max(sizes)} 3 11 {' '.join(map(str, sizes))}"
    for (a, b), table in zip(pairs, tables, strict=True):
        words += f" 2 {a} {b} 0 {len(table)} " + " ".join(f"{x} {y} {cost}" for (x, y), cost in table.items())
    functions = " ".join(
        f"{{scope: [{a} {b}] costs: {_listed(t.values())}}}" for (a, b), t in zip(pairs, tables, strict=True)
    )
    inner = (
        f'{{problem: {{name: inner mustbe: "<11"}} variables: [{" ".join(map(str, sizes))}] functions: [{functions}]}}'
    )
    params = f"{{cfn: {inner} lb: {low} ub: {high} duplicatehard: 0 strongduality: 0}}"
    return Global(kind, scope, words, params, charge)


Make = Callable[[Random, Sequence[int], str, str], Global]
MAKERS: dict[tuple[str, str], Make] = {
    **{("salldiff", metric): alldifferent for metric in ("var", "dec", "decbi")},
    ("salldiffdp", "var"): alldifferent,
    ("salldiffkp", "hard"): alldifferent,
    **{("walldiff", metric): alldifferent for metric in ("hard", "lin", "quad")},
    ("alldiff", ""): excepted_alldifferent,
    ("gcc", ""): hard_cardinality,
    **{("sgcc", metric): cardinality for metric in ("var", "dec", "wdec")},
    ("sgccdp", "var"): cardinality,
    **{("wgcc", metric): cardinality for metric in ("hard", "lin", "quad")},
    ("ssame", ""): same,
    **{("wsame", metric): same for metric in ("hard", "lin", "quad")},
    **{("wsamegcc", metric): same for metric in ("hard", "lin", "quad")},
    ("samong", "var"): among,
    ("samongdp", "var"): among,
    **{("wamong", metric): among for metric in ("hard", "lin", "quad")},
    ("wvaramong", "hard"): among,
    **{("sregular", metric): regular for metric in ("var", "edit")},
    ("sregulardp", "var"): regular,
    ("wregular", ""): weighted_regular,
    **{("sgrammar", metric): grammar for metric in ("var", "weight")},
    **{("sgrammardp", metric): grammar for metric in ("var", "weight")},
    **{("wsum", metric): sums for metric in ("hard", "lin", "quad")},
    **{("wvarsum", metric): sums for metric in ("hard", "lin", "quad")},
    **{("woverlap", metric): sums for metric in ("hard", "lin", "quad")},
    **{(kind, ""): diverse for kind in ("wdiverse", "whdiverse", "wtdiverse")},
    **{(kind, ""): maximum for kind in ("max", "smaxdp")},
    **{(kind, ""): tree for kind in ("MST", "smstdp")},
    ("clique", ""): clique,
    **{(kind, ""): knapsack for kind in ("knapsack", "knapsackc", "knapsackp", "knapsackv")},
    **{(kind, ""): pair for kind in (">=", ">", "<=", "<", "=")},
    **{(kind, ""): disjunction for kind in ("disj", "sdisj")},
    ("wcsp", ""): nested,
}
