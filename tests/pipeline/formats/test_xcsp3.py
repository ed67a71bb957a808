"""XCSP3 against brute force: every constraint of the core, as a table and as a chain of hidden states; objectives."""

from __future__ import annotations

import itertools
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
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
    "expressions in lists": (
        "<allDifferent> add(x[0],0) add(x[1],1) add(x[3], 2) </allDifferent>",
        lambda x, y, z: len({x[0], x[1] + 1, x[3] + 2}) == 3,
    ),
    "integers in lists": (
        "<maximum><list> x[0] 2 mul(y,z) </list><condition> (eq,add(z,2)) </condition></maximum>",
        lambda x, y, z: max(x[0], 2, y * z) == z + 2,
    ),
    "allDifferent of lists": (
        "<allDifferent><list> x[0] y </list><list> x[1] z </list><list> x[3] 1 </list></allDifferent>",
        lambda x, y, z: len({(x[0], y), (x[1], z), (x[3], 1)}) == 3,
    ),
    "allDifferent of lists but some": (
        "<allDifferent><list> x[0] y </list><list> x[1] z </list><except> (1,1)(2,0) </except></allDifferent>",
        lambda x, y, z: (x[0], y) != (x[1], z) or (x[0], y) in ((1, 1), (2, 0)),
    ),
    "allDifferent of a matrix": (
        "<allDifferent><matrix> (x[0],x[1])(x[2],x[3]) </matrix></allDifferent>",
        lambda x, y, z: x[0] != x[1] and x[2] != x[3] and x[0] != x[2] and x[1] != x[3],
    ),
    "allEqual except": (
        f"<allEqual>{X}<except> 0 </except></allEqual>",
        lambda x, y, z: len({*x} - {0}) <= 1,
    ),
    "allEqual of lists": (
        "<allEqual><list> x[0] y </list><list> x[1] z </list></allEqual>",
        lambda x, y, z: (x[0], y) == (x[1], z),
    ),
    "ordered with lengths": (
        "<ordered><list> x[0] x[1] x[3] </list><lengths> 1 y </lengths><operator> lt </operator></ordered>",
        lambda x, y, z: x[0] + 1 < x[1] and x[1] + y < x[3],
    ),
    "count of variables": (
        f"<count>{X}<values> y z </values><condition> (eq,2) </condition></count>",
        lambda x, y, z: sum(v in (y, z) for v in x) == 2,
    ),
    "cardinality of variables": (
        f'<cardinality>{X}<values closed="true"> y z </values><occurs> 1..2 2 </occurs></cardinality>',
        lambda x, y, z: 1 <= x.count(y) <= 2 and x.count(z) == 2 and {*x} <= {y, z},
    ),
    "element from 1": (
        '<element><list startIndex="1"> x[] </list><index> y </index><value> x[1] </value></element>',
        lambda x, y, z: y >= 1 and x[y - 1] == x[1],
    ),
    "element of numbers from 2": (
        '<element><list startIndex="2"> 3 1 2 </list><index> x[0] </index><value> x[1] </value></element>',
        lambda x, y, z: x[0] >= 2 and (3, 1)[x[0] - 2] == x[1],
    ),
    "element anywhere": (f"<element>{X}<value> y </value></element>", lambda x, y, z: y in x),
    "element of a matrix": (
        "<element><matrix> (x[0],x[1])(x[2],2) </matrix><index> z y </index><condition> (le,x[3]) </condition>"
        "</element>",
        lambda x, y, z: 0 <= y < 2 and ((x[0], x[1]), (x[2], 2))[z][y] <= x[3],
    ),
    "element of a matrix of numbers": (
        '<element><matrix startRowIndex="1" startColIndex="-1"> (3,1,2)(0,2,3) </matrix><index> x[0] y </index>'
        "<value> x[1] </value></element>",
        lambda x, y, z: 1 <= x[0] <= 2 and y <= 1 and ((3, 1, 2), (0, 2, 3))[x[0] - 1][y + 1] == x[1],
    ),
    "channel from 1": (
        '<channel><list startIndex="1"> x[] </list></channel>',
        lambda x, y, z: all(1 <= v <= 4 and x[v - 1] == k for k, v in enumerate(x, 1)),
    ),
    "instantiation of some": (
        "<instantiation><list> x[0..1] y </list><values> 3 * -1 </values></instantiation>",
        lambda x, y, z: (x[0], y) == (3, -1),
    ),
    "lex": (
        "<lex><list> x[0] y z </list><list> x[1] z y </list><operator> lt </operator></lex>",
        lambda x, y, z: (x[0], y, z) < (x[1], z, y),
    ),
    "lex downwards": (
        "<lex><list> x[0] y </list><list> x[1] z </list><list> x[3] 1 </list><operator> ge </operator></lex>",
        lambda x, y, z: (x[0], y) >= (x[1], z) >= (x[3], 1),
    ),
    "lex of a matrix": (
        "<lex><matrix> (x[0],x[1],y)(x[2],x[3],z) </matrix><operator> le </operator></lex>",
        lambda x, y, z: (x[0], x[1], y) <= (x[2], x[3], z) and (x[0], x[2]) <= (x[1], x[3]) <= (y, z),
    ),
    "lex of a matrix downwards": (
        "<lex><matrix> (x[0],x[1])(x[2],x[3]) </matrix><operator> gt </operator></lex>",
        lambda x, y, z: (x[0], x[1]) > (x[2], x[3]) and (x[0], x[2]) > (x[1], x[3]),
    ),
    "precedence": (
        f"<precedence>{X}<values> 2 0 3 </values></precedence>",
        lambda x, y, z: precede(x, (2, 0, 3)),
    ),
    "covered precedence": (
        f'<precedence>{X}<values covered="true"> 2 0 </values></precedence>',
        lambda x, y, z: precede(x, (2, 0)) and {0, 2} <= {*x},
    ),
    "precedence of all values": ("<precedence> x[] </precedence>", lambda x, y, z: precede(x, (0, 1, 2, 3))),
    "maximumArg": (
        f"<maximumArg>{X}<condition> (eq,y) </condition></maximumArg>",
        lambda x, y, z: y >= 0 and x[y] == max(x),
    ),
    "first maximumArg": (
        f'<maximumArg rank="first">{X}<condition> (gt,z) </condition></maximumArg>',
        lambda x, y, z: x.index(max(x)) > z,
    ),
    "last minimumArg": (
        '<minimumArg rank="last"><list startIndex="5"> x[] </list><condition> (in,{5,7}) </condition></minimumArg>',
        lambda x, y, z: 3 - x[::-1].index(min(x)) in (0, 2),
    ),
    "circuit": ("<circuit> x[] </circuit>", lambda x, y, z: circuit_length(x) >= 2),
    "circuit of a size": (
        f"<circuit>{X}<size> add(y,1) </size></circuit>",
        lambda x, y, z: circuit_length(x) == y + 1 >= 2,
    ),
    "circuit from 1": (
        '<circuit><list startIndex="1"> x[0..2] </list><size> 3 </size></circuit>',
        lambda x, y, z: circuit_length([v - 1 for v in x[:3]]) == 3,
    ),
    "cumulative": (
        "<cumulative><origins> x[] </origins><lengths> 1 3 z 2 </lengths><heights> 2 1 3 z </heights>"
        "<condition> (le,add(y,1)) </condition></cumulative>",
        lambda x, y, z: peak(x, (1, 3, z, 2), (2, 1, 3, z)) <= y + 1,
    ),
    "cumulative with ends": (
        "<cumulative><origins> x[0..1] </origins><lengths> 2 x[2] </lengths><ends> x[3] 4 </ends>"
        "<heights> 1 z </heights><condition> (lt,2) </condition></cumulative>",
        lambda x, y, z: x[0] + 2 == x[3] and x[1] + x[2] == 4 and peak(x[:2], (2, x[2]), (1, z)) < 2,
    ),
    "noOverlap": (
        "<noOverlap><origins> x[0] x[1] x[3] </origins><lengths> x[2] 1 2 </lengths></noOverlap>",
        lambda x, y, z: apart([(x[0],), (x[1],), (x[3],)], [(x[2],), (1,), (2,)], True),
    ),
    "noOverlap of nothing": (
        '<noOverlap zeroIgnored="false"><origins> x[0] x[1] x[3] </origins><lengths> x[2] 1 2 </lengths></noOverlap>',
        lambda x, y, z: apart([(x[0],), (x[1],), (x[3],)], [(x[2],), (1,), (2,)], False),
    ),
    "noOverlap of boxes": (
        "<noOverlap><origins> (x[0],y)(x[1],z)(1,x[3]) </origins><lengths> (2,1)(x[2],2)(1,1) </lengths></noOverlap>",
        lambda x, y, z: apart([(x[0], y), (x[1], z), (1, x[3])], [(2, 1), (x[2], 2), (1, 1)], True),
    ),
    "binPacking": (
        f"<binPacking>{X}<sizes> 4 3 5 2 </sizes><condition> (le,7) </condition></binPacking>",
        lambda x, y, z: all(weight_of(x, (4, 3, 5, 2), b) <= 7 for b in range(4)),
    ),
    "binPacking with limits": (
        f"<binPacking>{X}<sizes> 4 3 5 2 </sizes><limits> 7 6 add(y,5) </limits></binPacking>",
        lambda x, y, z: (
            max(x) <= 2 and all(weight_of(x, (4, 3, 5, 2), b) <= limit for b, limit in enumerate((7, 6, y + 5)))
        ),
    ),
    "binPacking with loads": (
        f"<binPacking>{X}<sizes> 1 1 1 1 </sizes><loads> 1 y z 2 </loads></binPacking>",
        lambda x, y, z: [x.count(b) for b in range(4)] == [1, y, z, 2],
    ),
    "binPacking with conditions": (
        f"<binPacking>{X}<sizes> 4 3 5 2 </sizes><conditions> (le,9) (ge,3) (in,0..5) </conditions></binPacking>",
        lambda x, y, z: (
            max(x) <= 2
            and weight_of(x, (4, 3, 5, 2), 0) <= 9
            and weight_of(x, (4, 3, 5, 2), 1) >= 3
            and weight_of(x, (4, 3, 5, 2), 2) <= 5
        ),
    ),
    "knapsack": (
        f"<knapsack>{X}<weights> 3 2 4 1 </weights><condition> (le,12) </condition><profits> 2 5 1 3 </profits>"
        "<condition> (gt,add(y,9)) </condition></knapsack>",
        lambda x, y, z: 3 * x[0] + 2 * x[1] + 4 * x[2] + x[3] <= 12 and 2 * x[0] + 5 * x[1] + x[2] + 3 * x[3] > y + 9,
    ),
    "knapsack with a limit": (
        f"<knapsack>{X}<weights> 3 2 4 1 </weights><profits> 2 5 1 3 </profits><limit> 9 </limit>"
        "<condition> (ge,11) </condition></knapsack>",
        lambda x, y, z: 3 * x[0] + 2 * x[1] + 4 * x[2] + x[3] <= 9 and 2 * x[0] + 5 * x[1] + x[2] + 3 * x[3] >= 11,
    ),
    "sum of variable coefficients": (
        f"<sum>{X}<coeffs> y z -1 z </coeffs><condition> (eq,y) </condition></sum>",
        lambda x, y, z: y * x[0] + z * x[1] - x[2] + z * x[3] == y,
    ),
    "sum of expressions": (
        "<sum><list> mul(x[0],y) eq(x[1],x[3]) 2 </list><coeffs> 1 3 1 </coeffs><condition> (ge,5) </condition></sum>",
        lambda x, y, z: x[0] * y + 3 * (x[1] == x[3]) + 2 >= 5,
    ),
    "slide": (
        f"<slide>{X}<intension> le(%0,add(%1,1)) </intension></slide>",
        lambda x, y, z: all(one <= other + 1 for one, other in itertools.pairwise(x)),
    ),
    "circular slide": (
        '<slide circular="true"><list offset="2"> x[] </list><intension> or(ne(%0,%1),ne(%1,%2)) </intension></slide>',
        lambda x, y, z: (x[0] != x[1] or x[1] != x[2]) and (x[2] != x[3] or x[3] != x[0]),
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


def precede(x: Sequence[int], values: Sequence[int]) -> bool:
    return all(
        value not in x or (before in x and x.index(before) < x.index(value))
        for before, value in itertools.pairwise(values)
    )


def circuit_length(x: Sequence[int]) -> int:
    """Return the length of the one circuit of successors; 0 if they form none, or several."""
    inside = [k for k, to in enumerate(x) if to != k]
    seen: list[int] = []
    at = inside[0] if inside else -1
    while at in inside and at not in seen:
        seen.append(at)
        at = x[at]
    return len(seen) if inside and at == seen[0] and len(seen) == len(inside) else 0


def peak(starts: Sequence[int], lengths: Sequence[int], heights: Sequence[int]) -> int:
    tasks = [*zip(starts, lengths, heights, strict=True)]
    return max(sum(h for s, d, h in tasks if s <= time < s + d) for time in range(-3, 12))


def apart(origins: Sequence[Sequence[int]], lengths: Sequence[Sequence[int]], zero_ignored: bool) -> bool:
    boxes = [*zip(origins, lengths, strict=True)]
    boxes = [box for box in boxes if not zero_ignored or 0 not in box[1]]
    return all(
        any(a + m <= b or b + n <= a for a, m, b, n in zip(*one, *other, strict=True))
        for one, other in itertools.combinations(boxes, 2)
    )


def weight_of(x: Sequence[int], sizes: Sequence[int], number: int) -> int:
    return sum(size for at, size in zip(x, sizes, strict=True) if at == number)


def accepted(word: tuple[int, ...]) -> bool:
    moves = {("a", 0): "a", ("a", 2): "ba", ("b", 3): "b", ("b", 0): "a"}
    states = {"a"}
    for value in word:
        states = {to for state in states for to in moves.get((state, value), "")}
    return "b" in states


def assignments() -> Iterator[tuple[tuple[int, ...], int, int]]:
    for *x, y, z in itertools.product(*DOMAINS):
        yield tuple(x), y, z


NO_PROBLEM = '<instance format="XCSP3" type="WCSP"><variables><var id="x"> 0 1 </var></variables></instance>'


def test_soft_problems_are_refused(read: Read) -> None:
    with pytest.raises(FormatError, match="a problem of type CSP or COP, found one of type 'WCSP'"):
        read(NO_PROBLEM)


def test_every_kind_is_tested(read: Read) -> None:
    with pytest.raises(FormatError) as caught:
        read(problem("<unheard/>"))
    names = re.findall(r"\w+", str(caught.value).partition("(")[2].partition(")")[0])
    assert len(names) > 20
    assert {name for name in names if not any(f"<{name}" in text for text, _ in CONSTRAINTS.values())} == set()


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_constraints_allow_what_they_should(read: Read, cells: int, kind: str) -> None:
    text, allowed = CONSTRAINTS[kind]
    model = read(problem(text))
    assert model.own_names == ("x[0]", "x[1]", "x[2]", "x[3]", "y", "z")
    assert bucketflow.solve(model, "count").value == sum(bool(allowed(*each)) for each in assignments())


@pytest.mark.parametrize("kind", [kind for kind in CONSTRAINTS if kind.startswith(("circuit", "noOverlap"))])
def test_larger_circuits_and_boxes_are_decomposed_further(read: Read, kind: str) -> None:
    """Circuits by positions, and boxes by comparisons, as if their machines and tables were too large."""
    text, allowed = CONSTRAINTS[kind]
    with FormatPolicy.using(machine_states=6, predicate_cells=1):
        model = read(problem(text))
    tried = [(allowed(*each), each) for each in assignments()]
    assert bucketflow.solve(model, "count").value == sum(bool(truth) for truth, _ in tried)
    for truth, (x, y, z) in tried[::31]:
        states = [own.index(value) for own, value in zip(DOMAINS, (*x, y, z), strict=True)]
        assert (model.cost(states) is not None) == bool(truth)


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
    "a sum of variable coefficients": (
        '<maximize type="sum"><list> x[0..1] </list><coeffs> y z </coeffs></maximize>',
        lambda x, y, z: y * x[0] + z * x[1],
    ),
    "a sum of coefficients that are expressions and ranges": (
        '<maximize type="sum"><list> x[0..1] 3..4 y </list><coeffs> add(y,1) z y 1..2 </coeffs></maximize>',
        lambda x, y, z: (y + 1) * x[0] + z * x[1] + 3 * y + 4 + 2 * y,
    ),
    "a weighted maximum": (
        '<minimize type="maximum"><list> x[0..1] add(x[3],y) </list><coeffs> 2 -1 1 </coeffs></minimize>',
        lambda x, y, z: max(2 * x[0], -x[1], x[3] + y),
    ),
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
        ("<stretch/>", "the constraint 'stretch', which is not read"),
        ("<slide/>", "one list and a constraint in <slide>, found 0 elements before it"),
        (f"<slide>{X}<allEqual> %... </allEqual></slide>", "a constraint over %0, %1 and so on"),
        (f"<maximum>{X}<index> y </index></maximum>", "<list>, <condition> in <maximum>, found <index>"),
        (f"<allDifferent>{X}<cost> 3 </cost></allDifferent>", "the reified or soft constraint 'allDifferent'"),
        (f"<lex>{X}</lex>", "two lists or more, of one length"),
        (f"<lex>{X}{X}<operator/><operator/></lex>", "an operator lt, le, ge or gt"),
        (f"<lex>{X}{X}<operator> eq </operator></lex>", "an operator lt, le, ge or gt, found 'eq'"),
        ("<lex><matrix> x[] </matrix></lex>", "a matrix with two free indices, found 'x[]'"),
        ("<lex><matrix> (x[0],x[1])(y) </matrix></lex>", "a matrix whose rows have one length"),
        ("<noOverlap><origins> x[] </origins><lengths> 1 </lengths></noOverlap>", "one origin and one length"),
        ("<noOverlap><origins> z z </origins><lengths> y y </lengths></noOverlap>", "<lengths> of at least 0"),
        (
            "<cumulative><origins> x[] </origins><lengths> 2x4 </lengths><heights> 1x4 </heights>"
            "<condition> (ge,1) </condition></cumulative>",
            "a condition le or lt, found 'ge'",
        ),
        (f"<binPacking>{X}<sizes> 1 2 </sizes><limits> 9 9 9 9 </limits></binPacking>", "4 sizes, found 2"),
        (f"<knapsack>{X}<weights> 1x4 </weights><profits> 1x4 </profits></knapsack>", "a condition for weights"),
        (f"<precedence>{X}<values> 1 2 1 </values></precedence>", "different values, found a value twice"),
        (f'<maximumArg rank="best">{X}<condition> (eq,1) </condition></maximumArg>', "a rank any, first or last"),
        (
            '<allDifferent reifiedBy="z"> x[] </allDifferent>',
            "the reified or soft constraint 'allDifferent'",
        ),
        ("<allDifferent> w </allDifferent>", "a variable of the problem, found 'w'"),
        ("<allDifferent/>", "a list of variables, found none"),
        (
            "<element><list> 3x0 </list><index> y </index><value> 3 </value></element>",
            "a list of variables, found none",
        ),
        ("<allDifferent> x[4] </allDifferent>", "an index from 0 to 3, found '4'"),
        ("<allDifferent> x[][] </allDifferent>", "1 indices"),
        ("<allDifferent><matrix>x</matrix></allDifferent>", "a matrix with two free indices"),
        ("<ordered><matrix>(x[0],x[1])</matrix></ordered>", "<list>, <lengths>, <operator> in <ordered>"),
        (f"<sum>{X}</sum>", "a condition such as (le,10), found 0 of them"),
        (f"<sum>{X}<condition> (about,3) </condition></sum>", "an operator lt, le, ge, gt, eq, ne, in, notin"),
        (f"<sum>{X}<coeffs> 1 </coeffs><condition> (le,3) </condition></sum>", "4 coefficients, found 1"),
        ("<intension> eq(x[0],w) </intension>", "a variable of the problem, found 'w'"),
        ("<intension> foo(x[0],1) </intension>", "the unknown operator 'foo' (known are"),
        ("<intension> eq(x[0],set(1)) </intension>", "a set that does not follow 'in'"),
        (
            "<extension><list> y z </list><supports> (1,1,1) </supports></extension>",
            "tuples of 2 values, found one",
        ),
        ("<extension><list> y z </list></extension>", "<supports> or <conflicts>, found 0 of them"),
        ("<element><index> y </index><value> 3 </value></element>", "a list or a matrix, found none"),
        (
            "<extension><list> y z </list><supports> 1 1 </supports></extension>",
            "such as (1,2)(3,4), found '1 1'",
        ),
        ("<extension><list> y z </list><supports> (1,1)(0,0 </supports></extension>", "(1,2)(3,4), found '(0,0'"),
        (
            "<extension><list> y </list><conflicts> 0 (1) </conflicts></extension>",
            "such as (1,2)(3,4), found '0'",
        ),
        ('<extension><list> y z </list><supports as="t"/></extension>', "<supports>, found 'as', which is not read"),
        ('<ordered case="strictlyIncreasing"> x[] </ordered>', "in <ordered>, found 'case', which is not read"),
        ('<cardinality closed="true"><list> x[] </list></cardinality>', "in <cardinality>, found 'closed'"),
        ('<slide circular="1"><list> x[] </list><allEqual> %0 %1 </allEqual></slide>', "true or false, found '1'"),
        (f"<mdd>{X}<transitions> (a,0,b)(b,1,c) d </transitions></mdd>", "tuples such as (1,2)(3,4), found 'd'"),
        ("<noOverlap><origins> (y,z) 3 </origins><lengths> (1,1) </lengths></noOverlap>", "(3,4), found '3'"),
        ("<lex><matrix> (x[0],x[1])(y,z </matrix></lex>", "tuples such as (1,2)(3,4), found '(y,z' without ')'"),
        ("<sum> x[] <condition> (eq,0) </condition></sum>", "no text beside <condition>, found 'x[]'"),
        ("<group/>", "a constraint at the beginning of <group>, found none"),
        ("<group><args> x[] </args></group>", "a constraint at the beginning of <group>, found <args>"),
    ],
)
def test_what_is_wrong_with_a_constraint_is_said(read: Read, text: str, told: str) -> None:
    with pytest.raises(FormatError, match=r"a\.xml:4: ") as caught:
        read(problem(text))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<minimize/>", "an objective, found none"),
        ('<minimize type="sum"><list> </list></minimize>', "an objective, found none"),
        (
            '<minimize type="sum"><list> x[] </list><weights> 1 </weights></minimize>',
            "found <weights>, which is not read",
        ),
        ('<maximize type="sum"> x[] <coeffs> 1x4 </coeffs></maximize>', "no text beside <coeffs>, found 'x[]'"),
    ],
)
def test_what_is_wrong_with_an_objective_is_said(read: Read, text: str, told: str) -> None:
    with pytest.raises(FormatError, match=r"a\.xml:4: ") as caught:
        read(problem("", text))
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
    expression = problem("<intension> le(max(w[0],w[1],w[2],w[3],w[4],w[5]),9) </intension>")
    told = r"a\.xml:4: an expression has 8\.88e\+08 joint values, and at most 4\.19e\+06 are tried"
    with pytest.raises(BudgetError, match=told):
        read(expression.replace("</variables>", many))


def test_sums_of_large_numbers_are_exact(read: Read) -> None:
    array = '<array id="w" size="[3]"> 0..100 </array>'
    largest = 999_999_999_999_999_999
    coefficients = f"<coeffs> {largest} 1 {largest} </coeffs>"
    some = f"<sum><list> w[0] w[1] w[0] </list>{coefficients}<condition> (le,3) </condition></sum>"
    assert bucketflow.solve(read(SMALL.format(array, some)), "count").value == 4 * 101
    factors = array + f'<var id="c"> 0 {largest} </var>'
    with pytest.raises(FormatError, match=r"products below 10\^18 in the constraint sum of line 1, found larger ones"):
        read(SMALL.format(factors, "<sum><list> w[0] </list><coeffs> c </coeffs><condition> (le,3) </condition></sum>"))


def test_large_expressions_are_taken_apart(read: Read) -> None:
    array = '<array id="w" size="[5]"> 0..30 </array>'
    text = "and(eq(add(w[0],mul(2,w[1]),neg(w[2])),sub(dist(w[3],w[4]),3)),le(add(w[0],w[1],w[2],w[3],w[4]),6))"
    model = read(SMALL.format(array, f"<intension> {text} </intension>"))
    wanted = sum(
        w[0] + 2 * w[1] - w[2] == abs(w[3] - w[4]) - 3 and sum(w) <= 6 for w in itertools.product(range(7), repeat=5)
    )
    assert model.own_names == tuple(f"w[{k}]" for k in range(5))
    assert bucketflow.solve(model, "count").value == wanted
    product_ = "gt(mul(w[0],w[1],w[2],2),sub(mul(w[3],3),mul(w[4],w[0])))"
    small = array.replace("0..30", "0..3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketflow.pipeline.formats.xcsp3.xcsp3_constraints.MOST_CELLS", 100)
        model = read(SMALL.format(small, f"<intension> {product_} </intension>"))
    wanted = sum(2 * a * b * c > 3 * d - e * a for a, b, c, d, e in itertools.product(range(4), repeat=5))
    assert bucketflow.solve(model, "count").value == wanted


@pytest.mark.parametrize("values", [(1, 4, 9), (3, 4, 5)])
def test_a_large_membership_is_a_sum_in_a_set_of_integers(
    read: Read, values: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = '<array id="w" size="[4]"> 0..3 </array>'
    text = f"in(add(w[0],mul(2,w[1]),1,neg(w[2]),w[3]), set({', '.join(map(str, values))}))"
    monkeypatch.setattr("bucketflow.pipeline.formats.xcsp3.xcsp3_constraints.MOST_CELLS", 100)
    model = read(SMALL.format(array, f"<intension> {text} </intension>"))
    wanted = sum(a + 2 * b + 1 - c + d in values for a, b, c, d in itertools.product(range(4), repeat=4))
    assert bucketflow.solve(model, "count").value == wanted


def test_a_large_membership_in_a_set_with_variables_is_refused(read: Read) -> None:
    array = '<array id="w" size="[3]"> 0..999 </array>'
    with pytest.raises(BudgetError, match=r"an expression has 1e\+09 joint values"):
        read(SMALL.format(array, "<intension> in(add(w[0],w[1]),set(w[2],3)) </intension>"))


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
