"""Decomposed constraints on random small problems, from XCSP3 and FlatZinc files, against every assignment."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.errors import BudgetError
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.read import load

Domains = list[list[int]]


@dataclass(frozen=True)
class Instance:
    """A random constraint over variables x[0], x[1] and so on, in XCSP3 and FlatZinc, where these have it."""

    domains: Domains
    holds: Callable[[Sequence[int]], bool]
    xcsp3: str
    flatzinc: str = ""


def some(rng: random.Random, low: int, high: int, most: int = 4) -> list[int]:
    values = range(low, high + 1)
    return sorted(rng.sample(values, rng.randint(1, min(most, len(values)))))


def words(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


def listed(values: Sequence[int]) -> str:
    return f"[{','.join(map(str, values))}]"


def names(first: int, last: int) -> str:
    return f"[{','.join(f'x{k}' for k in range(first, last))}]"


def one_circuit(x: Sequence[int]) -> bool:
    at, seen = 0, set[int]()
    while at not in seen and 0 <= at < len(x):
        seen.add(at)
        at = x[at]
    return at == 0 and len(seen) == len(x)


def circuit(rng: random.Random) -> Instance:
    count = rng.randint(3, 5)
    domains = [some(rng, 1, count + (rng.random() < 0.2)) for _ in range(count)]
    return Instance(
        domains,
        lambda x: one_circuit([to - 1 for to in x]),
        f'<circuit><list startIndex="1"> x[] </list><size> {count} </size></circuit>',
        f"fzn_circuit({names(0, count)})",
    )


def subcircuit(rng: random.Random) -> Instance:
    count = rng.randint(3, 5)

    def holds(x: Sequence[int]) -> bool:
        inside = [k for k, to in enumerate(x) if to != k]
        if not inside or not all(0 <= to < count for to in x):
            return False
        places = {k: place for place, k in enumerate(inside)}
        return {*map(x.__getitem__, inside)} == {*inside} and one_circuit([places[x[k]] for k in inside])

    return Instance([some(rng, 0, count - 1) for _ in range(count)], holds, "<circuit> x[] </circuit>")


def cumulative(rng: random.Random) -> Instance:
    """Three tasks: starts, then two lengths, two heights and the limit."""
    domains = [some(rng, -1, 4, 3) for _ in range(3)] + [some(rng, 0, 3, 2) for _ in range(4)] + [some(rng, 0, 5, 2)]
    length, height = rng.randint(0, 3), rng.randint(1, 3)

    def holds(x: Sequence[int]) -> bool:
        tasks = [(x[0], x[3], x[5]), (x[1], x[4], height), (x[2], length, x[6])]
        return all(sum(h for s, d, h in tasks if s <= time < s + d) <= x[7] for time in range(-2, 9))

    return Instance(
        domains,
        holds,
        f"<cumulative><origins> x[0..2] </origins><lengths> x[3] x[4] {length} </lengths>"
        f"<heights> x[5] {height} x[6] </heights><condition> (le,x[7]) </condition></cumulative>",
        f"fzn_cumulative([x0,x1,x2],[x3,x4,{length}],[x5,{height},x6],x7)",
    )


def no_overlap(rng: random.Random) -> Instance:
    """Three boxes: columns, rows, and the widths of two boxes."""
    domains = [some(rng, 0, 4, 3) for _ in range(6)] + [some(rng, 0, 3, 2) for _ in range(2)]
    width, heights = rng.randint(0, 2), [rng.randint(0, 2) for _ in range(3)]
    strict = rng.random() < 0.5

    def holds(x: Sequence[int]) -> bool:
        boxes = [(x[k], x[3 + k], w, h) for k, w, h in zip(range(3), (x[6], width, x[7]), heights, strict=True)]
        return all(
            (not strict and 0 in (*one[2:], *two[2:]))
            or any(one[k] + one[k + 2] <= two[k] or two[k] + two[k + 2] <= one[k] for k in (0, 1))
            for one, two in itertools.combinations(boxes, 2)
        )

    lengths = f"(x[6],{heights[0]})({width},{heights[1]})(x[7],{heights[2]})"
    return Instance(
        domains,
        holds,
        f'<noOverlap zeroIgnored="{str(not strict).lower()}"><origins> (x[0],x[3])(x[1],x[4])(x[2],x[5]) </origins>'
        f"<lengths> {lengths} </lengths></noOverlap>",
        f"fzn_diffn{'' if strict else '_nonstrict'}([x0,x1,x2],[x3,x4,x5],[x6,{width},x7],{listed(heights)})",
    )


def bins(rng: random.Random) -> Instance:
    domains = [some(rng, 1, 3) for _ in range(4)] + [some(rng, 0, 6, 7) for _ in range(2)]
    sizes, last = [rng.randint(1, 2) for _ in range(4)], rng.randint(0, 3)

    def holds(x: Sequence[int]) -> bool:
        loads = [sum(size for size, at in zip(sizes, x, strict=False) if at == number) for number in (1, 2, 3)]
        return loads == [x[4], x[5], last]

    return Instance(
        domains,
        holds,
        f'<binPacking><list startIndex="1"> x[0..3] </list><sizes> {words(sizes)} </sizes>'
        f"<loads> x[4..5] {last} </loads></binPacking>",
        f"fzn_bin_packing_load([x4,x5,{last}],{names(0, 4)},{listed(sizes)})",
    )


def lists(rng: random.Random) -> Instance:
    domains = [some(rng, 0, 3) for _ in range(6)]
    strict = rng.random() < 0.5

    def holds(x: Sequence[int]) -> bool:
        return x[:3] < x[3:] or (not strict and x[:3] == x[3:])

    return Instance(
        domains,
        holds,
        f"<lex><list> x[0..2] </list><list> x[3..5] </list><operator> {'lt' if strict else 'le'} </operator></lex>",
        f"fzn_lex_less{'' if strict else 'eq'}_int({names(0, 3)},{names(3, 6)})",
    )


def matrix(rng: random.Random) -> Instance:
    domains = [some(rng, 0, 2) for _ in range(6)]

    def holds(x: Sequence[int]) -> bool:
        columns = [x[k::3] for k in range(3)]
        return x[:3] <= x[3:] and columns[0] <= columns[1] <= columns[2]

    rows = "(x[0],x[1],x[2])(x[3],x[4],x[5])"
    return Instance(domains, holds, f"<lex><matrix> {rows} </matrix><operator> le </operator></lex>")


def different_lists(rng: random.Random) -> Instance:
    domains = [some(rng, 0, 2, 3) for _ in range(6)]

    def holds(x: Sequence[int]) -> bool:
        pairs = [x[k : k + 2] for k in (0, 2, 4)]
        return all(one != two or tuple(one) == (0, 1) for one, two in itertools.combinations(pairs, 2))

    return Instance(
        domains,
        holds,
        "<allDifferent><list> x[0..1] </list><list> x[2..3] </list><list> x[4..5] </list><except> (0,1) </except>"
        "</allDifferent>",
    )


def precedence(rng: random.Random) -> Instance:
    domains = [some(rng, 0, 3) for _ in range(5)]
    order = rng.sample(range(4), 3)

    def holds(x: Sequence[int]) -> bool:
        return all(two not in x or one in x[: [*x].index(two)] for one, two in itertools.pairwise(order))

    return Instance(
        domains,
        holds,
        f"<precedence><list> x[] </list><values> {words(order)} </values></precedence>",
        f"fzn_value_precede_chain_int({listed(order)},{names(0, 5)})",
    )


def extreme_place(rng: random.Random) -> Instance:
    domains = [some(rng, 0, 3) for _ in range(4)] + [some(rng, 1, 5)]
    return Instance(
        domains,
        lambda x: x[:4].index(max(x[:4])) + 1 == x[4],
        '<maximumArg rank="first"><list startIndex="1"> x[0..3] </list><condition> (eq,x[4]) </condition></maximumArg>',
        "fzn_arg_max_int([x0,x1,x2,x3],x4)",
    )


def matrix_element(rng: random.Random) -> Instance:
    domains = [some(rng, 0, 3, 2) for _ in range(4)] + [some(rng, -1, 2) for _ in range(2)] + [some(rng, 0, 3)]

    def holds(x: Sequence[int]) -> bool:
        return x[4] in (0, 1) and x[5] in (0, 1) and x[2 * x[4] + x[5]] == x[6]

    return Instance(
        domains,
        holds,
        "<element><matrix> (x[0],x[1])(x[2],x[3]) </matrix><index> x[4] x[5] </index><value> x[6] </value></element>",
    )


def variable_coefficients(rng: random.Random) -> Instance:
    domains = [some(rng, -2, 3) for _ in range(6)] + [some(rng, -9, 9)]
    return Instance(
        domains,
        lambda x: x[0] * x[3] + x[1] * x[4] + x[2] * x[5] == x[6],
        "<sum><list> x[0..2] </list><coeffs> x[3..5] </coeffs><condition> (eq,x[6]) </condition></sum>",
    )


KINDS = (
    *(circuit, subcircuit, cumulative, no_overlap, bins, lists, matrix, different_lists, precedence, extreme_place),
    *(matrix_element, variable_coefficients),
)


def xcsp3_text(instance: Instance, weights: Sequence[int]) -> str:
    domains = "".join(f'<domain for="x[{k}]"> {words(own)} </domain>' for k, own in enumerate(instance.domains))
    array = f'<array id="x" size="[{len(weights)}]">{domains}</array>'
    goal = f'<minimize type="sum"><list> x[] </list><coeffs> {words(weights)} </coeffs></minimize>'
    return (
        f'<instance format="XCSP3" type="COP"><variables>{array}</variables><constraints>{instance.xcsp3}</constraints>'
        f"<objectives>{goal}</objectives></instance>"
    )


def flatzinc_text(instance: Instance, weights: Sequence[int]) -> str:
    variables = "".join(f"var {{{listed(own)[1:-1]}}}: x{k};\n" for k, own in enumerate(instance.domains))
    total = f"int_lin_eq({listed([*weights, -1])},[{names(0, len(weights))[1:-1]},total],0)"
    return (
        f"{variables}var -999..999: total;\nconstraint {instance.flatzinc};\nconstraint {total};\n"
        "solve minimize total;\n"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", [{}, {"global_table_cells": 1, "predicate_cells": 1}], ids=["tables", "chains"])
def test_random_problems(tmp_path: Path, kind: Callable[[random.Random], Instance], policy: dict[str, int]) -> None:
    rng = random.Random(f"{kind.__name__} {len(policy)}")
    allowed = 0
    for turn in range(14):
        instance = kind(rng)
        every = [*itertools.product(*instance.domains)]
        wrong = [x for x in every if not instance.holds(x)]
        if turn % 3 == 0 and wrong:  # no value is left that is allowed
            instance = replace(instance, domains=[[value] for value in rng.choice(wrong)])
        weights = [rng.randint(-3, 3) for _ in instance.domains]
        totals = [
            sum(weight * value for weight, value in zip(weights, x, strict=True))
            for x in itertools.product(*instance.domains)
            if instance.holds(x)
        ]
        allowed += bool(totals)
        texts = {"a.xml": xcsp3_text(instance, weights)}
        if instance.flatzinc:
            texts["a.fzn"] = flatzinc_text(instance, weights)
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
            with FormatPolicy.using(**policy):
                model = load(tmp_path / name)
            found = bucketflow.solve(model)
            assert found.value == (min(totals) if totals else None), text
            assert bucketflow.solve(model, "count").value == len(totals), text
            if found.assignment is not None:
                own = [int(str(found.assignment[each])) for each in model.own_names if each != "total"]
                assert instance.holds(tuple(own)), text
    assert 0 < allowed < 14


def solved(path: Path, *flags: str) -> dict[str, object]:
    result = CliRunner().invoke(main, ["solve", str(path), "--json", *flags], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


TOUR = """<instance format="XCSP3" type="COP">
<variables><array id="next" size="[5]"> 0..4 </array><array id="cost" size="[5]"> 0..9 </array></variables>
<constraints>
<circuit><list> next[] </list><size> 5 </size></circuit>
<element><list> 9 4 7 2 6 </list><index> next[0] </index><value> cost[0] </value></element>
<element><list> 4 9 3 8 5 </list><index> next[1] </index><value> cost[1] </value></element>
<element><list> 7 3 9 6 1 </list><index> next[2] </index><value> cost[2] </value></element>
<element><list> 2 8 6 9 7 </list><index> next[3] </index><value> cost[3] </value></element>
<element><list> 6 5 1 7 9 </list><index> next[4] </index><value> cost[4] </value></element>
</constraints>
<objectives><minimize type="sum"> cost[] </minimize></objectives></instance>
"""


def test_a_tour_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "tour.xml").write_text(TOUR)
    distances = [[9, 4, 7, 2, 6], [4, 9, 3, 8, 5], [7, 3, 9, 6, 1], [2, 8, 6, 9, 7], [6, 5, 1, 7, 9]]
    tours = [(0, *rest) for rest in itertools.permutations(range(1, 5))]
    best = min(sum(distances[a][b] for a, b in itertools.pairwise((*tour, 0))) for tour in tours)
    assert solved(tmp_path / "tour.xml")["value"] == best
    assert solved(tmp_path / "tour.xml", "--query", "count")["value"] == str(len(tours))


SHIFTS = """var 0..6: a; var 0..6: b; var 0..6: c; var 0..9: done;
constraint fzn_cumulative([a,b,c],[3,2,4],[2,2,1],3);
constraint int_lin_le([1,-1],[a,done],-3);
constraint int_lin_le([1,-1],[b,done],-2);
constraint int_lin_le([1,-1],[c,done],-4);
constraint fzn_disjunctive([a,c],[3,4]);
solve minimize done;
"""


def test_shifts_on_the_command_line(tmp_path: Path) -> None:
    """Tasks a and c do not overlap, and neither do a and b: the earliest end is 7, with b beside c."""
    (tmp_path / "shifts.fzn").write_text(SHIFTS)
    answer = solved(tmp_path / "shifts.fzn")
    assert answer["value"] == 7
    assert {*answer["assignment"]} == {"a", "b", "c", "done"}  # type: ignore[misc]
    (tmp_path / "late.fzn").write_text(SHIFTS.replace("var 0..9: done", "var 0..6: done"))
    assert solved(tmp_path / "late.fzn")["status"] == "infeasible"


def test_hidden_variables_are_in_no_answer(tmp_path: Path) -> None:
    (tmp_path / "tour.xml").write_text(TOUR)
    with FormatPolicy.using(machine_states=6):  # circuits by positions
        model = load(tmp_path / "tour.xml")
    assert model.hidden > 5
    found = bucketflow.solve(model)
    assert {*(found.assignment or {})} == {f"{name}[{k}]" for name in ("next", "cost") for k in range(5)}
    assert bucketflow.solve(model, "count").value == 24


LANGFORD = """<instance format="XCSP3" type="CSP">
<variables><array id="at" size="[{n}][2]"> 0..{last} </array></variables>
<constraints>
<group><extension><list> %0 %1 </list><supports> %... </supports></extension>{args}</group>
<allDifferent> at[][] </allDifferent>
</constraints></instance>
"""


@pytest.mark.parametrize(("n", "count"), [(3, 2), (4, 2), (5, 0)])
def test_pairs_of_numbers_that_stand_as_far_apart_as_they_say(tmp_path: Path, n: int, count: int) -> None:
    """Langford's problem by tables of places: the two numbers k have k numbers between them."""
    rows = [" ".join(f"({p},{p + k + 2})" for p in range(2 * n - k - 2)) for k in range(n)]
    args = "".join(f"<args> at[{k}][0] at[{k}][1] {row} </args>" for k, row in enumerate(rows))
    (tmp_path / "langford.xml").write_text(LANGFORD.format(n=n, last=2 * n - 1, args=args))
    assert solved(tmp_path / "langford.xml", "--query", "count")["value"] == str(count)


def test_a_magic_square_by_a_shared_table(tmp_path: Path) -> None:
    triples = [t for t in itertools.permutations(range(1, 10), 3) if sum(t) == 15]
    table = "".join(f"({','.join(map(str, each))})" for each in triples)
    lines = ["m[0][]", "m[1][]", "m[2][]", "m[][0]", "m[][1]", "m[][2]", "m[0][0] m[1][1] m[2][2]"]
    lines.append("m[0][2] m[1][1] m[2][0]")
    text = (
        '<instance format="XCSP3" type="CSP"><variables><array id="m" size="[3][3]"> 1..9 </array></variables>'
        "<constraints><allDifferent> m[][] </allDifferent>"
        f"<group><extension><list> %... </list><supports> {table} </supports></extension>"
        f"{''.join(f'<args> {each} </args>' for each in lines)}</group></constraints></instance>"
    )
    (tmp_path / "magic.xml").write_text(text)
    model = load(tmp_path / "magic.xml")
    assert len({id(f.values) for f in model.functions if len(f.scope) == 3}) == 1
    assert bucketflow.solve(model, "count").value == 8


def test_schedules_of_too_many_states_are_refused_with_their_number(tmp_path: Path) -> None:
    tasks = 30
    text = (
        '<instance format="XCSP3" type="CSP"><variables><array id="s" size="[30]"> 0..20 </array></variables>\n'
        f"<constraints><cumulative><origins> s[] </origins><lengths> 9x{tasks} </lengths>"
        f"<heights> {words([2**k for k in range(tasks)])} </heights><condition> (le,{2**29}) </condition></cumulative>"
        "</constraints></instance>"
    )
    (tmp_path / "wide.xml").write_text(text)
    told = "the constraint cumulative of line 2 over 30 variables needs [0-9,]+ partial sums between two variables"
    with pytest.raises(BudgetError, match=told):
        load(tmp_path / "wide.xml")
