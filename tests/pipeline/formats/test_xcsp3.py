"""XCSP3 against brute force: every constraint of the core, as a table and as a chain of hidden states; objectives."""

from __future__ import annotations

import itertools
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.errors import BucketflowError, BudgetError, FormatError
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.model import Model

Read = Callable[[str], Model]
# Domains of x[0] to x[3], and of y and z.
DOMAINS = [range(4), range(4), (0, 2, 3), range(4), (-1, 0, 1, 2), (0, 1)]
HEAD = """<instance format="XCSP3" type="{kind}"><variables>
<array id="x" size="[4]"><domain for="x[0..1] x[3]"> 0..3 </domain><domain for="others"> 0 2 3 </domain></array>
<var id="y"> -1..2 </var><var id="z"> 0 1 </var></variables>
<constraints>{constraints}</constraints>{objectives}</instance>"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> Model:
        path = tmp_path / "a.xml"
        path.write_text(text)
        return load(path)

    return read


@pytest.fixture(params=[1 << 10, 1], ids=["tables", "chains"])
def cells(request: pytest.FixtureRequest) -> Iterator[int]:
    with FormatPolicy.using(global_table_cells=request.param):
        yield request.param


def problem(constraints: str, objective: str = "") -> str:
    objectives = f"<objectives>{objective}</objectives>" if objective else ""
    return HEAD.format(kind="COP" if objective else "CSP", constraints=constraints, objectives=objectives)


X = "<list> x[] </list>"
CONSTRAINTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "supports": (
        "<extension><list> x[0] z y </list><supports> (0,1,-1)(1,*,2)(2,0,7)(3,0..1,0) </supports></extension>",
        lambda x, y, z: (x[0], z, y) in {(0, 1, -1), (1, 0, 2), (1, 1, 2), (3, 0, 0), (3, 1, 0)},
    ),
    "conflicts": (
        "<extension><list> x[0] x[1] </list><conflicts> (0,1)(1,*)(9,9) </conflicts></extension>",
        lambda x, y, z: (x[0], x[1]) != (0, 1) and x[0] != 1,
    ),
    "unary": (
        "<extension><list> y </list><supports> -1 1..5 </supports></extension>",
        lambda x, y, z: y in (-1, 1, 2),
    ),
    "intension": (
        "<intension> or(eq(add(x[0],mul(2,y)),x[1]),and(z,lt(dist(x[2],y),2))) </intension>",
        lambda x, y, z: x[0] + 2 * y == x[1] or (z and abs(x[2] - y) < 2),
    ),
    "intension of truth values": (
        "<intension> ge(add(eq(x[0],1),gt(x[1],y),z),2) </intension>",
        lambda x, y, z: (x[0] == 1) + (x[1] > y) + z >= 2,
    ),
    "intension of sets": (
        "<intension><function> imp(in(x[0],set(1,3)),not(in(y,set(2)))) </function></intension>",
        lambda x, y, z: x[0] not in (1, 3) or y != 2,
    ),
    "if": (
        "<intension> eq(if(z,x[0],sqr(y)),x[1]) </intension>",
        lambda x, y, z: (x[0] if z else y * y) == x[1],
    ),
    "eq of several": (
        "<intension> eq(x[0],x[1],x[3]) </intension>",
        lambda x, y, z: x[0] == x[1] == x[3],
    ),
    "allDifferent": ("<allDifferent> x[] </allDifferent>", lambda x, y, z: len({*x}) == 4),
    "allDifferent except": (
        f"<allDifferent>{X}<except> 0 </except></allDifferent>",
        lambda x, y, z: all(a != b or a == 0 for a, b in itertools.combinations(x, 2)),
    ),
    "allEqual": ("<allEqual> x[0..2] </allEqual>", lambda x, y, z: x[0] == x[1] == x[2]),
    "ordered": (
        f"<ordered>{X}<operator> le </operator></ordered>",
        lambda x, y, z: [*x] == sorted(x),
    ),
    "sum": (
        f"<sum>{X}<coeffs> 1 -2 3 1 </coeffs><condition> (le,4) </condition></sum>",
        lambda x, y, z: x[0] - 2 * x[1] + 3 * x[2] + x[3] <= 4,
    ),
    "sum of repeated coefficients": (
        f"<sum>{X}<coeffs> 2x4 </coeffs><condition> (gt,6) </condition></sum>",
        lambda x, y, z: 2 * sum(x) > 6,
    ),
    "sum and a variable": (f"<sum>{X}<condition> (eq,y) </condition></sum>", lambda x, y, z: sum(x) == y),
    "sum of one variable twice": (
        "<sum><list> y x[0] y </list><condition> (ne,y) </condition></sum>",
        lambda x, y, z: 2 * y + x[0] != y,
    ),
    "sum in a range": (f"<sum>{X}<condition> (in,3..5) </condition></sum>", lambda x, y, z: 3 <= sum(x) <= 5),
    "sum in a set": (f"<sum>{X}<condition> (in,{{3,5,9}}) </condition></sum>", lambda x, y, z: sum(x) in (3, 5, 9)),
    "sum not in": (f"<sum>{X}<condition> (notin,2..4) </condition></sum>", lambda x, y, z: not 2 <= sum(x) <= 4),
    "count": (
        f"<count>{X}<values> 0 2 </values><condition> (ge,2) </condition></count>",
        lambda x, y, z: sum(v in (0, 2) for v in x) >= 2,
    ),
    "count and a variable": (
        f"<count>{X}<values> 3 </values><condition> (lt,y) </condition></count>",
        lambda x, y, z: x.count(3) < y,
    ),
    "nValues": (f"<nValues>{X}<condition> (eq,2) </condition></nValues>", lambda x, y, z: len({*x}) == 2),
    "nValues except": (
        f"<nValues>{X}<except> 3 </except><condition> (le,z) </condition></nValues>",
        lambda x, y, z: len({*x} - {3}) <= z,
    ),
    "cardinality": (
        f"<cardinality>{X}<values> 0 2 3 </values><occurs> 1..2 z 1 </occurs></cardinality>",
        lambda x, y, z: 1 <= x.count(0) <= 2 and x.count(2) == z and x.count(3) == 1,
    ),
    "closed cardinality": (
        f'<cardinality>{X}<values closed="true"> 0 2 </values><occurs> 2 2 </occurs></cardinality>',
        lambda x, y, z: x.count(0) == 2 == x.count(2),
    ),
    "maximum": (f"<maximum>{X}<condition> (le,y) </condition></maximum>", lambda x, y, z: max(x) <= y),
    "minimum": (f"<minimum>{X}<condition> (in,1..2) </condition></minimum>", lambda x, y, z: 1 <= min(x) <= 2),
    "element": (
        f"<element>{X}<index> y </index><value> x[1] </value></element>",
        lambda x, y, z: y >= 0 and x[y] == x[1],
    ),
    "element of a value": (
        f"<element>{X}<index> z </index><value> 2 </value></element>",
        lambda x, y, z: x[z] == 2,
    ),
    "element with a condition": (
        f"<element>{X}<index> x[0] </index><condition> (gt,z) </condition></element>",
        lambda x, y, z: x[x[0]] > z,
    ),
    "element of numbers": (
        "<element><list> 3 1 2 </list><index> x[0] </index><value> x[1] </value></element>",
        lambda x, y, z: x[0] < 3 and (3, 1, 2)[x[0]] == x[1],
    ),
    "channel": (
        "<channel> x[] </channel>",
        lambda x, y, z: all(x[x[i]] == i for i in range(4)),
    ),
    "channel of two lists": (
        "<channel><list> x[0] z </list><list> x[1] x[3] </list></channel>",
        lambda x, y, z: (
            {x[0], z} <= {0, 1}
            and {x[1], x[3]} <= {0, 1}
            and all(((x[0], z)[i] == j) == ((x[1], x[3])[j] == i) for i in (0, 1) for j in (0, 1))
        ),
    ),
    "channel of a shorter list": (
        "<channel><list> y z </list><list> x[0] x[1] x[3] </list></channel>",
        lambda x, y, z: y in (0, 1, 2) and (x[0], x[1], x[3])[y] == 0 and (x[0], x[1], x[3])[z] == 1,
    ),
    "channel of a value": (
        "<channel><list> z x[0] x[1] </list><value> x[3] </value></channel>",
        lambda x, y, z: x[3] < 3 and all((z, x[0], x[1])[k] == int(x[3] == k) for k in range(3)),
    ),
    "regular": (
        f"<regular>{X}<transitions> (a,0,a)(a,2,b)(a,2,a)(b,3,b)(b,0,a) </transitions><start> a </start>"
        "<final> b </final></regular>",
        lambda x, y, z: accepted(x),
    ),
    "mdd": (
        "<mdd><list> x[0] z </list><transitions> (r,0,n)(r,3,m)(n,1,t)(m,0..1,t) </transitions></mdd>",
        lambda x, y, z: (x[0], z) in {(0, 1), (3, 0), (3, 1)},
    ),
    "instantiation": (
        "<instantiation><list> x[0] y </list><values> 3 -1 </values></instantiation>",
        lambda x, y, z: (x[0], y) == (3, -1),
    ),
    "group": (
        "<group><intension> le(%0,add(%1,1)) </intension><args> x[0] y </args><args> y x[3] </args></group>",
        lambda x, y, z: x[0] <= y + 1 and y <= x[3] + 1,
    ),
    "group of the rest": (
        "<block><group><sum><list> %... </list><condition> (le,%0) </condition></sum><args> 5 x[] </args>"
        "<args> 3 y z </args></group></block>",
        lambda x, y, z: sum(x) <= 5 and y + z <= 3,
    ),
}


def accepted(word: tuple[int, ...]) -> bool:
    moves = {("a", 0): "a", ("a", 2): "ba", ("b", 3): "b", ("b", 0): "a"}
    states = {"a"}
    for value in word:
        states = {to for state in states for to in moves.get((state, value), "")}
    return "b" in states


def assignments() -> Iterator[tuple[tuple[int, ...], int, int]]:
    for *x, y, z in itertools.product(*DOMAINS):
        yield tuple(x), y, z


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_constraints_allow_what_they_should(read: Read, cells: int, kind: str) -> None:
    text, allowed = CONSTRAINTS[kind]
    model = read(problem(text))
    assert model.own_names == ("x[0]", "x[1]", "x[2]", "x[3]", "y", "z")
    assert bucketflow.solve(model, "count").value == sum(bool(allowed(*each)) for each in assignments())


OBJECTIVES: dict[str, tuple[str, Callable[..., int]]] = {
    "a variable": ("<minimize> y </minimize>", lambda x, y, z: y),
    "an expression": ("<maximize> sub(mul(x[0],y),x[1]) </maximize>", lambda x, y, z: x[0] * y - x[1]),
    "a sum": (
        '<maximize type="sum"><list> x[] y </list><coeffs> 1 -2 1 1 3 </coeffs></maximize>',
        lambda x, y, z: x[0] - 2 * x[1] + x[2] + x[3] + 3 * y,
    ),
    "a sum of expressions": (
        '<minimize type="sum"><list> x[0] mul(y, z) eq(x[1],x[3]) </list><coeffs> 1 2 -3 </coeffs></minimize>',
        lambda x, y, z: x[0] + 2 * y * z - 3 * (x[1] == x[3]),
    ),
    "a maximum": ('<minimize type="maximum"> x[] </minimize>', lambda x, y, z: max(x)),
    "a minimum": ('<maximize type="minimum"><list> x[] </list></maximize>', lambda x, y, z: min(x)),
    "a number of values": ('<minimize type="nValues"> x[] </minimize>', lambda x, y, z: len({*x})),
}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_objectives_are_what_is_best(read: Read, cells: int, kind: str) -> None:
    text, value = OBJECTIVES[kind]
    model = read(problem(f"<sum>{X}<condition> (ge,y) </condition></sum><intension> ne(x[0],x[3]) </intension>", text))
    totals = [value(x, y, z) for x, y, z in assignments() if sum(x) >= y and x[0] != x[3]]
    found = bucketflow.solve(model)
    assert found.value == (max if "maximize" in text else min)(totals)
    assert found.assignment is not None
    labels = {name: int(str(state)) for name, state in found.assignment.items()}
    states = [DOMAINS[v].index(labels[name]) for v, name in enumerate(model.own_names)]
    own = [values[state] for values, state in zip(DOMAINS, states, strict=True)]
    assert value(tuple(own[:4]), own[4], own[5]) == found.value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<cumulative/>", "the constraint 'cumulative', which is not read"),
        ("<slide/>", "the constraint 'slide', which is not read"),
        (
            '<allDifferent reifiedBy="z"> x[] </allDifferent>',
            "the reified constraint 'allDifferent'",
        ),
        ("<allDifferent> w </allDifferent>", "a variable of the problem, found 'w'"),
        ("<allDifferent> x[4] </allDifferent>", "an index from 0 to 3, found '4'"),
        ("<allDifferent> x[][] </allDifferent>", "1 indices"),
        ("<allDifferent><matrix>(x[0],x[1])</matrix></allDifferent>", "a matrix, which is not read"),
        (f"<sum>{X}</sum>", "a condition such as (le,10), found 0 of them"),
        (f"<sum>{X}<condition> (about,3) </condition></sum>", "an operator lt, le, ge, gt, eq, ne, in, notin"),
        (f"<sum>{X}<coeffs> 1 </coeffs><condition> (le,3) </condition></sum>", "4 coefficients, found 1"),
        ("<intension> eq(x[0],w) </intension>", "a variable of the problem, found 'w'"),
        ("<intension> foo(x[0],1) </intension>", "the operator 'foo', which is none of"),
        ("<intension> eq(x[0],set(1)) </intension>", "a set that does not stand behind in"),
        (
            "<extension><list> y z </list><supports> (1,1,1) </supports></extension>",
            "tuples of 2 values, found one",
        ),
        ("<extension><list> y z </list></extension>", "<supports> or <conflicts>, found 0 of them"),
        (f"<element>{X}<value> 3 </value></element>", "a list from index 0, and an index"),
    ],
)
def test_what_is_wrong_with_a_constraint_is_said(read: Read, text: str, told: str) -> None:
    with pytest.raises(FormatError, match=r"a\.xml:4: ") as caught:
        read(problem(text))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('<var id="z">', '<var id="z" type="symbolic">', "one of type 'symbolic', which is not read"),
        ('<var id="z">', '<var id="y">', "a variable with a name of its own, found 'y'"),
        ("0 2 3", "0 2 a", "integers, such as 1 or 3..7, found 'a'"),
        ('size="[4]"', 'size="4"', "an array of sizes such as [3][4]"),
        ("</instance>", "<more/></instance>", "<more>, which is not read"),
    ],
)
def test_what_is_wrong_with_variables_is_said(read: Read, old: str, new: str, told: str) -> None:
    text = problem("")
    assert old in text
    with pytest.raises(FormatError) as caught:
        read(text.replace(old, new))
    assert told in str(caught.value)


def test_large_constraints_are_refused_with_their_number(read: Read) -> None:
    many = "<array id='w' size='[40]'> 0..30 </array></variables>"
    wide = problem("<nValues><list> w[] </list><condition> (le,20) </condition></nValues>")
    told = "the constraint nValues of line 4 over 40 variables needs more than 16384 states"
    with pytest.raises(BudgetError, match=told):
        read(wide.replace("</variables>", many))
    expression = problem("<intension> le(add(w[0],w[1],w[2],w[3],w[4],w[5]),9) </intension>")
    told = r"a\.xml:4: an expression has 8\.88e\+08 joint values, and at most 4\.19e\+06 are tried"
    with pytest.raises(BudgetError, match=told):
        read(expression.replace("</variables>", many))


def test_a_variable_may_have_the_domain_of_another(read: Read) -> None:
    text = problem("").replace("</variables>", '<var id="v" as="y"/><var id="u" as="x"/></variables>')
    assert read(text).dims == (4, 4, 3, 4, 4, 2, 4, 4)


ABSURD = (
    *("-1", "99999999999999999999", "", "*", "x[]", "x[9]", "(", ")", "()", "%0", "%...", "3..1", "0..999999999"),
    *("w", "9x999999999", "<", "</list>", "set(", "{", "}", "nan"),
)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused(read: Read, seed: int) -> None:
    rng = random.Random(seed)
    texts = [problem(text) for text, _ in CONSTRAINTS.values()]
    texts += [problem("", text) for text, _ in OBJECTIVES.values()]
    for _ in range(100):
        parts = re.split(r"(\s+|[<>(),])", rng.choice(texts))
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(parts))
            if rng.random() < 0.3:
                parts.insert(place, rng.choice(parts))
            elif rng.random() < 0.3:
                del parts[place]
            else:
                parts[place] = rng.choice(ABSURD)
        with suppress(BucketflowError):
            read("".join(parts))


SMALL = '<instance format="XCSP3" type="CSP"><variables>{}</variables><constraints>{}</constraints></instance>'


@pytest.mark.parametrize(
    ("variables", "constraints"),
    [
        ('<array id="x" size="[99999][99999]"> 0 1 </array>', ""),
        ('<array id="x" size="[99999999]"> 0 1 </array>', ""),
        (f'<array id="x" size="{"[9]" * 9}"> 0 1 </array>', ""),
        ('<array id="x" size="[99999][99999]"><domain for="others"> 0 1 </domain></array>', ""),
        ('<array id="x" size="[99999][99999]"><domain for="x[][7] x[0..9][]"> 0 1 </domain></array>', ""),
        ('<var id="x"> 0..99999999 </var>', ""),
        ('<array id="x" size="[2]"> 0 1 </array>', "<sum><list> x[] </list><coeffs> 1x99999999 </coeffs></sum>"),
        ('<array id="x" size="[900]"> 0 1 </array>', f"<allDifferent> {'x[] ' * 1000} </allDifferent>"),
        (
            '<array id="x" size="[2]"> 0 1 </array>',
            "<group><allDifferent> %... </allDifferent><args> 0..99999999 </args></group>",
        ),
        (
            '<array id="x" size="[900]"> 0 1 </array>',
            f"<group><allDifferent> {'%... ' * 9000} </allDifferent><args> x[] </args></group>",
        ),
        (
            '<array id="x" size="[6]"> 0..9 </array>',
            f"<extension><list> x[] </list><supports> {'(*,*,*,*,*,*)' * 9} </supports></extension>",
        ),
        ('<var id="x"> 0 1 </var>', "<mdd><list> x </list><transitions> (a,0..9999999,b) </transitions></mdd>"),
    ],
)
def test_small_files_cannot_ask_for_much_memory(tmp_path: Path, variables: str, constraints: str) -> None:
    path = tmp_path / "a.xml"
    path.write_text(SMALL.format(variables, constraints))
    tracemalloc.start()
    try:
        with pytest.raises(BudgetError, match="reading it needs at least"):
            load(path, memory=50_000_000)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_cells_without_a_domain_are_no_variables(read: Read) -> None:
    array = '<array id="x" size="[99999][99999]"><domain for="x[3..4][2] x[0][1]"> 0..2 </domain></array>'
    model = read(SMALL.format(array, "<allDifferent> x[][] </allDifferent>"))
    assert model.own_names == ("x[0][1]", "x[3][2]", "x[4][2]")
    assert bucketflow.solve(model, "count").value == 6


def test_arrays_may_begin_at_another_index(read: Read) -> None:
    array = '<array id="x" size="[2][3]" startIndex="1"> 0..2 </array>'
    model = read(SMALL.format(array, "<ordered><list> x[2][] x[1][3] </list><operator> lt </operator></ordered>"))
    assert model.own_names[0] == "x[1][1]"
    assert bucketflow.solve(model, "count").value == 0
    with pytest.raises(FormatError, match="an index from 1 to 3, found '0'"):
        read(SMALL.format(array, "<allDifferent> x[1][0] </allDifferent>"))


def test_variables_of_one_domain_share_the_names_of_its_states(read: Read) -> None:
    model = read(SMALL.format('<array id="x" size="[2]"> 1..3 </array>', ""))
    assert model.states[0] == ("1", "2", "3")
    assert model.states[0] is model.states[1]
    with pytest.raises(FormatError, match="a variable that is declared before, found 'x'"):
        read(SMALL.format('<array id="x" size="[0]"> 0 1 </array><var id="y" as="x"/>', ""))
