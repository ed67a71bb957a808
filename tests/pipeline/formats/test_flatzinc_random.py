"""Random FlatZinc against brute force: every constraint, with constants and variables in every position."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.formats.flatzinc.flatzinc_constraints import KINDS
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.linear import wide_sums
from bucketflow.pipeline.models.model import Model

Read = Callable[[str, str], Model]
ROUNDS = 8


def quotient(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if x * y >= 0 else -1)


def power(x: int, y: int) -> int | None:
    if y >= 0:
        return x**y
    return None if x == 0 else 0 if abs(x) > 1 else x ** (-y % 2)


COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "le": lambda x, y: x <= y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
}
COUNTED = {"eq": "eq", "neq": "ne", "leq": "le", "geq": "ge", "lt": "lt", "gt": "gt"}


def element(k: int, entries: list[int], out: int) -> bool:
    return 1 <= k <= len(entries) and entries[k - 1] == out


def total(weights: list[int], own: list[int]) -> int:
    return sum(w * x for w, x in zip(weights, own, strict=True))


def different(own: list[int], but: Any = ()) -> bool:
    kept = [x for x in own if x not in but]
    return len({*kept}) == len(kept)


def inverse(first: list[int], second: list[int]) -> bool:
    inside = all(1 <= x <= len(second) for x in first) and all(1 <= y <= len(first) for y in second)
    pairs = itertools.product(range(1, len(first) + 1), range(1, len(second) + 1))
    return inside and all((first[i - 1] == j) == (second[j - 1] == i) for i, j in pairs)


def word(own: list[int], states: int, symbols: int, moves: list[int], start: int, ends: Any) -> bool:
    for x in own:
        if not 1 <= x <= symbols or not (start := moves[(start - 1) * symbols + x - 1]):
            return False
    return start in ends


def precede(values: list[int], own: list[int]) -> bool:
    pairs = [(s, t) for s, t in itertools.pairwise(values) if s != t]
    return all(t not in own or s in own[: own.index(t)] for s, t in pairs)


def circuit(own: list[int]) -> bool:
    """Whether all nodes are on one circuit."""
    at, seen = 1, set[int]()
    while at not in seen and 1 <= at <= len(own):
        seen.add(at)
        at = own[at - 1]
    return at == 1 and len(seen) == len(own)


def subcircuit(own: list[int]) -> bool:
    inside = [k for k, to in enumerate(own, 1) if to != k]
    return {*inside} == {own[k - 1] for k in inside} and circuit([inside.index(own[k - 1]) + 1 for k in inside] or [1])


def apart(strict: bool, *axes: tuple[list[int], list[int]]) -> bool:
    """Whether boxes, given by origins and lengths along each axis, do not overlap."""
    boxes = range(len(axes[0][0]))
    return all(
        any(x[i] + d[i] <= x[j] or x[j] + d[j] <= x[i] or (not strict and 0 in (d[i], d[j])) for x, d in axes)
        for i, j in itertools.combinations(boxes, 2)
    )


def cumulative(starts: list[int], lengths: list[int], heights: list[int], limit: int) -> bool:
    tasks = [*zip(starts, lengths, heights, strict=True)]
    peak = max(sum(h for s, d, h in tasks if s <= time < s + d) for time in range(-4, 12))
    return min(*lengths, *heights) >= 0 and peak <= limit


def loads(own: list[int], sizes: list[int], bins: Any) -> list[int]:
    return [sum(size for size, at in zip(sizes, own, strict=True) if at == number) for number in bins]


def fits(limits: list[int], own: list[int], sizes: list[int], compare: Callable[[int, int], bool]) -> bool:
    bins = range(1, len(limits) + 1)
    return all(at in bins for at in own) and all(map(compare, loads(own, sizes, bins), limits))


# Kinds of arguments: i an integer, b a boolean, I and B lists of them, E a list of them that is not empty, c and C
# constants, t a truth value; k an index, s a set; W as many constants as the list that follows has; J a list as long as
# the list before it, H as many constants of at least 0.
Case = tuple[str, Callable[..., Any]]
CASES: dict[str, Case] = {
    "bool2int": ("bi", lambda x, y: x == y),
    "bool_not": ("bb", lambda x, y: x != y),
    "bool_xor": ("bbb", lambda x, y, t: (x != y) == t),
    "bool_and": ("bbb", lambda x, y, t: (x and y) == t),
    "bool_or": ("bbb", lambda x, y, t: (x or y) == t),
    "bool_clause": ("BB", lambda x, y: any(x) or not all(y)),
    "bool_clause_reif": ("BBb", lambda x, y, t: (any(x) or not all(y)) == t),
    "array_bool_and": ("Bb", lambda x, t: all(x) == t),
    "array_bool_or": ("Bb", lambda x, t: any(x) == t),
    "array_bool_and_imp": ("Bb", lambda x, t: all(x) or not t),
    "array_bool_or_imp": ("Bb", lambda x, t: any(x) or not t),
    "array_bool_xor": ("B", lambda x: sum(x) % 2 == 1),
    "int_plus": ("iii", lambda x, y, z: x + y == z),
    "int_minus": ("iii", lambda x, y, z: x - y == z),
    "int_times": ("iii", lambda x, y, z: x * y == z),
    "int_div": ("iii", lambda x, y, z: y and quotient(x, y) == z),
    "int_mod": ("iii", lambda x, y, z: y and x - y * quotient(x, y) == z),
    "int_pow": ("iii", lambda x, y, z: power(x, y) == z),
    "int_min": ("iii", lambda x, y, z: min(x, y) == z),
    "int_max": ("iii", lambda x, y, z: max(x, y) == z),
    "int_abs": ("ii", lambda x, y: abs(x) == y),
    "int_negate": ("ii", lambda x, y: -x == y),
    "array_int_element": ("kCi", element),
    "array_bool_element": ("kTb", element),
    "array_var_int_element": ("kIi", element),
    "array_var_bool_element": ("kBb", element),
    "array_int_maximum": ("iE", lambda z, own: max(own) == z),
    "array_int_minimum": ("iE", lambda z, own: min(own) == z),
    "maximum": ("iE", lambda z, own: max(own) == z),
    "minimum": ("iE", lambda z, own: min(own) == z),
    "set_in": ("is", lambda x, s: x in s),
    "set_in_reif": ("isb", lambda x, s, t: (x in s) == t),
    "set_in_imp": ("isb", lambda x, s, t: x in s or not t),
    **dict.fromkeys(("all_different", "alldifferent", "distinct"), ("I", different)),
    **dict.fromkeys(("all_different_except_0", "alldifferent_except_0"), ("I", lambda own: different(own, (0,)))),
    **dict.fromkeys(("all_different_except", "alldifferent_except"), ("Is", different)),
    **dict.fromkeys(("all_equal", "alleq"), ("I", lambda own: len({*own}) <= 1)),
    "table": ("ER", lambda own, rows: any(rows[k : k + len(own)] == own for k in range(0, len(rows), len(own)))),
    **{f"count_{n}": ("Ici", lambda own, y, c, t=COMPARED[o]: t(c, own.count(y)) ) for n, o in COUNTED.items()},
    "count": ("Ici", lambda own, y, c: own.count(y) == c),
    "at_least": ("cIc", lambda n, own, y: own.count(y) >= n),
    "at_most": ("cIc", lambda n, own, y: own.count(y) <= n),
    "exactly": ("cIc", lambda n, own, y: own.count(y) == n),
    "among": ("iIs", lambda n, own, s: sum(x in s for x in own) == n),
    "global_cardinality": ("IDN", lambda own, cover, n: [*map(own.count, cover)] == n),
    "global_cardinality_closed": (
        "IDN", lambda own, cover, n: [*map(own.count, cover)] == n and {*own} <= {*cover},
    ),
    "global_cardinality_low_up": (
        "IDMM", lambda own, cover, low, up: all(a <= own.count(y) <= b for y, a, b in zip(cover, low, up, strict=True)),
    ),
    "global_cardinality_low_up_closed": (
        "IDMM", lambda own, cover, low, up: {*own} <= {*cover} and all(
            a <= own.count(y) <= b for y, a, b in zip(cover, low, up, strict=True)),
    ),
    "nvalue": ("iI", lambda n, own: len({*own}) == n),
    **dict.fromkeys(("increasing", "increasing_nonstrict"), ("I", lambda own: own == sorted(own))),
    "strictly_increasing": ("I", lambda own: own == sorted({*own})),
    "decreasing": ("I", lambda own: own[::-1] == sorted(own)),
    "strictly_decreasing": ("I", lambda own: own[::-1] == sorted({*own})),
    "inverse": ("II", inverse),
    "lex_less": ("II", lambda x, y: x < y),
    "lex_lesseq": ("II", lambda x, y: x <= y),
    "regular": ("A", word),
    "cumulative": ("EJJi", cumulative),
    "disjunctive": ("IJ", lambda x, d: apart(False, (x, d))),
    "disjunctive_strict": ("IJ", lambda x, d: apart(True, (x, d))),
    "diffn": ("IJJJ", lambda x, y, w, h: apart(True, (x, w), (y, h))),
    "diffn_nonstrict": ("IJJJ", lambda x, y, w, h: apart(False, (x, w), (y, h))),
    "circuit": ("E", circuit),
    "subcircuit": ("E", subcircuit),
    "bin_packing": ("cIH", lambda limit, own, sizes: all(each <= limit for each in loads(own, sizes, {*own}))),
    "bin_packing_capa": ("CIH", lambda limits, own, sizes: fits(limits, own, sizes, lambda x, y: x <= y)),
    "bin_packing_load": ("IIH", lambda limits, own, sizes: fits(limits, own, sizes, lambda x, y: x == y)),
    "value_precede": ("ccI", lambda s, t, own: precede([s, t], own)),
    "value_precede_chain": ("CI", precede),
    "seq_precede_chain": ("I", lambda own: precede([*range(1, 9)], own) and max(own, default=0) <= len(own)),
    **dict.fromkeys(("arg_max", "maximum_arg"), ("Ei", lambda own, k: own.index(max(own)) + 1 == k)),
    **dict.fromkeys(("arg_min", "minimum_arg"), ("Ei", lambda own, k: own.index(min(own)) + 1 == k)),
    "knapsack": ("WWIii", lambda w, p, x, a, b: min([0, *x]) == 0 and total(w, x) == a and total(p, x) == b),
    "sliding_sum": (
        "cccI", lambda low, high, n, own: all(
            low <= sum(own[k : k + max(n, 0)]) <= high for k in range(len(own) - n + 1)),
    ),
    "member": ("Ii", lambda own, x: x in own),
    "symmetric_all_different": ("I", lambda own: inverse(own, own)),
}  # fmt: skip
for _name, _holds in COMPARED.items():
    for _kind, _letter in (("int", "i"), ("bool", "b")):
        CASES[f"{_kind}_{_name}"] = (2 * _letter, _holds)
        CASES[f"{_kind}_{_name}_reif"] = (2 * _letter + "b", lambda x, y, t, h=_holds: h(x, y) == t)
        CASES[f"{_kind}_{_name}_imp"] = (2 * _letter + "b", lambda x, y, t, h=_holds: h(x, y) or not t)
        _sum = f"{_kind}_lin_{_name}"
        CASES[_sum] = (f"W{_letter.upper()}i", lambda w, x, r, h=_holds: h(total(w, x), r))
        CASES[f"{_sum}_reif"] = (f"W{_letter.upper()}ib", lambda w, x, r, t, h=_holds: h(total(w, x), r) == t)
        CASES[f"{_sum}_imp"] = (f"W{_letter.upper()}ib", lambda w, x, r, t, h=_holds: h(total(w, x), r) or not t)


@dataclass
class Drawn:
    """A random file, and what its constraints say of the values of its variables."""

    text: str
    domains: list[list[int]]
    holds: list[tuple[Callable[..., Any], list[Any]]]

    def solutions(self) -> Iterator[tuple[int, ...]]:
        """Yield the assignments that are allowed, as places in the domains."""
        for at in itertools.product(*(range(len(own)) for own in self.domains)):
            own = [values[s] for values, s in zip(self.domains, at, strict=True)]
            if all(holds(*(value_of(each, own) for each in given)) for holds, given in self.holds):
                yield at


def value_of(given: Any, own: list[int]) -> Any:
    if isinstance(given, list):
        return [value_of(each, own) for each in given]
    return own[int(given[1:])] if isinstance(given, str) else given


def written(given: Any) -> str:
    if isinstance(given, list):
        return f"[{','.join(map(written, given))}]"
    if isinstance(given, set):
        return f"{{{','.join(map(str, sorted(given)))}}}"
    return f"{given.start}..{given.stop - 1}" if isinstance(given, range) else str(given).lower()


class Drawing:
    """Draws arguments; variables are texts such as ``v0``, of which the first are integers and the others booleans."""

    def __init__(self, seed: Any, integers: int = 3, booleans: int = 2) -> None:
        self.random = random.Random(str(seed))
        self.domains: list[list[int]] = []
        for _ in range(integers):
            low, size = self.random.randint(-3, 2), self.random.randint(1, 4)
            self.domains.append(sorted(self.random.sample(range(low, low + 6), size)))
        self.domains += [[0, 1]] * booleans
        self.integers = [f"v{k}" for k in range(integers)]
        self.booleans = [f"v{k}" for k in range(integers, integers + booleans)]

    def operand(self, boolean: bool) -> Any:
        if self.random.random() < 0.4:
            return bool(self.random.randrange(2)) if boolean else self.random.randint(-3, 5)
        return self.random.choice(self.booleans if boolean else self.integers)

    def arguments(self, letters: str) -> list[Any]:
        draw, given = self.random, list[Any]()
        count = draw.choice((0, 1, 2, 3, 3))
        for letter in letters:
            if letter in "ib":
                given.append(self.operand(letter == "b"))
            elif letter in "IBE":
                length = max(count, letter == "E") if "W" in letters else draw.randint(letter == "E", 3)
                given.append([self.operand(letter == "B") for _ in range(length)])
            elif letter in "JH":
                length = len(next(each for each in reversed(given) if isinstance(each, list)))
                given.append([draw.randint(0, 3) if letter == "H" else self.operand(False) for _ in range(length)])
            elif letter == "k":
                given.append(draw.randint(0, 4) if draw.random() < 0.3 else draw.choice(self.integers))
            elif letter == "c":
                given.append(draw.randint(-2, 3))
            elif letter in "CTW":
                length = count if letter == "W" else draw.randint(0, 3)
                given.append([bool(draw.randrange(2)) if letter == "T" else draw.randint(-3, 4) for _ in range(length)])
            elif letter == "s":
                low = draw.randint(-3, 3)
                members = range(low, low + draw.randint(0, 4)), {draw.randint(-3, 4) for _ in range(draw.randint(0, 3))}
                given.append(draw.choice(members))
            elif letter == "R":
                given.append([draw.randint(-2, 3) for _ in range(draw.randint(0, 4) * len(given[0]))])
            elif letter == "D":
                given.append(draw.sample(range(-2, 4), draw.randint(0, 2)))
            elif letter == "N":
                given.append([draw.randint(0, 2) if draw.random() < 0.4 else self.operand(False) for _ in given[1]])
            elif letter == "M":
                given.append([draw.randint(0, 3) for _ in given[1]])
            else:
                states, symbols = draw.randint(1, 3), draw.randint(1, 3)
                moves = [draw.randint(0, states) for _ in range(states * symbols)]
                ends = {draw.randint(1, states) for _ in range(2)}
                own = [self.operand(False) for _ in range(draw.randint(0, 3))]
                given += [own, states, symbols, moves, draw.randint(1, states), ends]
        return given

    def file(self, names: list[str], goal: str = "satisfy") -> Drawn:
        """Draw a constraint of each name."""
        lines = []
        for k, own in enumerate(self.domains):
            contiguous = own == [*range(own[0], own[-1] + 1)]
            domain = f"{own[0]}..{own[-1]}" if contiguous and self.random.random() < 0.7 else written({*own})
            lines.append(f"var {'bool' if k >= len(self.integers) else domain}: v{k};")
        holds = []
        for name in names:
            letters, relation = CASES[name]
            given = self.arguments(letters)
            holds.append((relation, given))
            lines.append(f"constraint {name}({','.join(map(written, given))});")
        return Drawn("\n".join([*lines, f"solve {goal};"]) + "\n", self.domains, holds)


def test_every_kind_is_drawn() -> None:
    assert {re.sub("_(int|bool)$", "", name) for name in CASES} >= {re.sub("_(int|bool)$", "", name) for name in KINDS}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("cells", [1, 1 << 10])
def test_a_constraint_allows_what_it_says(read: Read, name: str, cells: int) -> None:
    for seed in range(ROUNDS):
        drawn = Drawing((name, seed)).file([name])
        with FormatPolicy.using(global_table_cells=cells):
            model = read(drawn.text, "a.fzn")
        assert model.dims[: len(drawn.domains)] == tuple(map(len, drawn.domains)), drawn.text
        wanted = {*drawn.solutions()}
        if not model.hidden:
            every = itertools.product(*(range(len(own)) for own in drawn.domains))
            assert {at for at in every if model.cost(at) is not None} == wanted, drawn.text
        assert bucketflow.solve(model, "count").value == len(wanted), drawn.text


@pytest.mark.parametrize("name", CASES)
def test_reduced_domains_keep_every_solution(read: Read, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_sums, "is_wide", lambda _: True)
    for seed in range(ROUNDS):
        drawn = Drawing((name, "wide", seed)).file([name])
        with FormatPolicy.using(predicate_cells=1 + 100 * (seed % 2), wide_values=0):
            assert bucketflow.solve(read(drawn.text, "a.fzn"), "count").value == len([*drawn.solutions()]), drawn.text


LINEAR = [name for name in CASES if "lin" in name or CASES[name][0] in ("ii", "iii", "iib")]


@pytest.mark.parametrize("seed", range(40))
def test_expressions_by_other_variables_keep_every_solution(
    read: Read, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_sums, "is_wide", lambda _: True)
    drawing = Drawing((seed, "views"), integers=5, booleans=1)
    names = drawing.random.choices(["int_lin_eq", "int_plus", "int_eq"], k=2) + drawing.random.choices(LINEAR, k=2)
    drawn = drawing.file(names)
    with FormatPolicy.using(predicate_cells=1, wide_values=0):
        assert bucketflow.solve(read(drawn.text, "a.fzn"), "count").value == len([*drawn.solutions()]), drawn.text


@pytest.mark.parametrize("seed", range(40))
def test_several_constraints_and_an_objective(read: Read, seed: int) -> None:
    drawing = Drawing(seed)
    goal = drawing.random.choice(["satisfy", "minimize v0", "maximize v1", "minimize v4"])
    drawn = drawing.file(drawing.random.choices([*CASES], k=3), goal)
    model = read(drawn.text, "a.fzn")
    wanted = [*drawn.solutions()]
    assert bucketflow.solve(model, "count").value == len(wanted), drawn.text
    assert prod(map(len, drawn.domains)) >= len(wanted)
    if goal == "satisfy":
        return
    place = int(goal[-1])
    values = [drawn.domains[place][at[place]] for at in wanted]
    if values:
        assert bucketflow.solve(model).value == (min if "min" in goal else max)(values), drawn.text
