"""Linear and pseudo-Boolean problems against brute force: optima, counts, and what is refused."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.global_functions.decomposition import Decomposition
from bucketflow.pipeline.formats.linear import wide_sums
from bucketflow.pipeline.formats.linear.wide_sums import decided, linear_machine
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.formats.text.source import Allowance
from bucketflow.pipeline.formats.text.tokens import Tokens
from bucketflow.pipeline.models.model import FORBIDDEN, Model

Read = Callable[[str, str], Model]
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


@pytest.fixture(params=[1 << 10, 1], ids=["tables", "chains"])
def cells(request: pytest.FixtureRequest) -> Iterator[int]:
    """Constraints of at most so many assignments are tables, others chains of hidden sums."""
    with FormatPolicy.using(global_table_cells=request.param):
        yield request.param


def check(model: Model, best: Any, count: int) -> None:
    """The optimum, its assignment by the file's own names, and the count are those that are given."""
    found = bucketflow.solve(model)
    assert found.value == best
    assert bucketflow.solve(model, "count").value == count
    if best is not None:
        assert found.assignment is not None
        assert {*found.assignment} == {*model.own_names}


@pytest.mark.parametrize("seed", range(6))
def test_random_pseudo_boolean_problems(read: Read, cells: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    literals = [f"{'~' if rng.random() < 0.3 else ''}x{k}" for k in range(1, 8)]
    lines, tests = [f"* #variable= 8 #constraint= 4\n{'min' if seed % 2 else 'max'}:"], []
    weights = rng.integers(-5, 6, 7)
    lines[0] += "".join(f" {w:+d} {literal}" for w, literal in zip(weights, literals, strict=True)) + " +3 x1 ~x2 ;"
    for relation in RELATIONS:
        own, right = rng.integers(-4, 5, 7), int(rng.integers(-3, 4))
        total = "".join(f" {w:+d} {x}" for w, x in zip(own, literals, strict=True))
        lines.append(f"{total} -2 x3 x4 {relation} {right};")
        tests.append((own, relation, right))
    model = read("\n".join(lines), "a.opb")
    totals = []
    for state in itertools.product((0, 1), repeat=8):
        value = [1 - s if x.startswith("~") else s for s, x in zip(state, literals, strict=False)]
        if all(RELATIONS[r](int(own @ value) - 2 * state[2] * state[3], right) for own, r, right in tests):
            totals.append(int(weights @ value) + 3 * state[0] * (1 - state[1]))
    best = (min if seed % 2 else max)(totals, default=None)
    check(model, best, len(totals))
    assert model.own_names == tuple(f"x{k}" for k in range(1, 9))
    assert model.notes == ("1 of the 8 variables in the header are in no constraint: they are free",)


def test_violations_of_a_wbo_cost(read: Read, cells: int) -> None:
    text = "soft: {};\n[2] +1 x1 >= 1 ;\n[3] +1 x2 >= 1 ;\n[4] +1 x3 >= 1 ;\n[5] +1 x4 >= 1 ;\n"
    text += "-1 x1 -1 x2 >= -1 ;\n-1 x3 -1 x4 >= -1 ;\n"
    totals = []
    for a, b, c, d in itertools.product((0, 1), repeat=4):
        if a + b <= 1 and c + d <= 1:
            totals.append(2 * (1 - a) + 3 * (1 - b) + 4 * (1 - c) + 5 * (1 - d))
    for top in (8, 6):
        check(
            read(text.format(top), "a.wbo"),
            min(t for t in [*totals, 99] if t < top or t == 99) if top > 6 else None,
            sum(total < top for total in totals),
        )
    check(read(text.format(""), "nameless"), 6, len(totals))


def test_numbers_of_an_opb_may_have_exponents(read: Read) -> None:
    model = read("min: +2.5e1 x1 3e3 ~x1 ;\n+1E16 x1 -1e-1 x2 >= -1 ;\n", "a.opb")
    assert model.own_names == ("x1", "x2")
    assert bucketflow.solve(model).value == 25


def test_a_constraint_of_sixty_variables_is_a_chain(read: Read) -> None:
    terms = " ".join(f"+1 x{k}" for k in range(1, 61))
    model = read(f"min: {terms} ;\n{terms} >= 30 ;\n{terms} <= 31 ;\n", "a.opb")
    assert model.hidden > 100
    found = bucketflow.solve(model)
    assert found.value == 30
    assert bucketflow.solve(model, "count").value == math.comb(60, 30) + math.comb(60, 31)
    assert bucketflow.solve(model, evidence={f"x{k}": 1 for k in range(1, 32)}).value == 31


def test_sums_of_too_many_values_are_refused_with_their_number(read: Read) -> None:
    terms = " ".join(f"+{3**k} x{k}" for k in range(1, 30))
    told = r"the linear constraint of line 1 over 29 variables needs [0-9,]+ partial sums between"
    with pytest.raises(BudgetError, match=told):
        read(f"{terms} >= {3**29} ;", "a.opb")
    with pytest.raises(BudgetError, match=r"the product of .* has a table of .* entries, and at most"):
        read("min: +1 " + " ".join(f"x{k}" for k in range(20)) + " ;", "a.opb")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("min: +1 x1\n+1 x1 >= 1 ;", "expected ';', found '>='"),
        ("+1 x1 >= ;", "a number, found ';'"),
        ("+1 x1 > 1 ;", "a term, or one of <=, >=, =, !=, found '>'"),
        ("+1 x1 >= 1 ;\nmin: +1 x1 ;", "the objective before all constraints"),
        ("[2 +1 x1 >= 1 ;", "expected ']'"),
        ("[-2] +1 x1 >= 1 ;", "a cost of at least 0"),
        ("min: +1 x1 ;\n[2] +1 x1 >= 1 ;", "an objective or constraints with costs, found both"),
        ("min: +10000000000000000000000 x1 ;", "numbers of at most 18 digits"),
        ("min: 9500000000000000000 ;\n+1 x1 >= 1 ;", "costs of at most 18 digits"),
        ("[5000000000000000000] +1 x1 >= 1 ;\n[1] -1 x1 >= 0 ;", "costs of at most 18 digits"),
        ("min: " + "900000000000000000 x1 " * 6 + ";", "costs of at most 18 digits"),
        (
            "min: +1 e1 ;\n+1e1 +1 e2 >= 1 ;",
            "a variable after a number, with a space before it if it is e1, found '+1e1'",
        ),
        ("min: 9.5 x1 0.000000000000000001 x2 ;", "costs of at most 18 digits (here with 18 decimals)"),
        ("+1 x1 * a remark\n+1 x2 >= 1;", "'*' between all variables of a product or none"),
    ],
)
def test_what_is_wrong_with_an_opb_is_said(read: Read, text: str, told: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text, "a.opb")
    assert told in str(caught.value)


LP = r"""\ an example
Maximize
 obj: 3 x + 2 y - 0.5 z + [ 2 x * y + z ^ 2 ] / 2 + 10
Subject To
 c1: x + y + 2 z <= 7
 c2: -1 <= x - y <= 2
 2.5 z - x >= -1.5
Bounds
 0 <= x <= 4
 y <= 5
 -2 <= z <= 3
Generals
 x y z
End
"""


def test_lp_has_bounded_integers(read: Read, cells: int) -> None:
    totals = []
    for x, y, z in itertools.product(range(5), range(6), range(-2, 4)):
        if x + y + 2 * z <= 7 and -1 <= x - y <= 2 and 2.5 * z - x >= -1.5:
            totals.append(3 * x + 2 * y + Decimal("-0.5") * z + x * y + Decimal(z * z) / 2 + 10)
    for name in ("a.lp", "nameless"):
        model = read(LP, name)
        check(model, max(totals), len(totals))
        assert model.states[2] == ("-2", "-1", "0", "1", "2", "3")
    least = read(LP.replace("Maximize", "minimum").replace("Subject To", "s.t."), "a.lp")
    check(least, min(totals), len(totals))


def test_lp_multiplies_variables_of_constraints(read: Read, cells: int) -> None:
    text = "min\n x + y\nst\n q: [ x * y + 2 x ^ 2 ] - 3 b >= 7\n b + x = 3\nbounds\n x <= 3\n 1 <= y <= 4\n"
    text += "general\n x\n y\nbinary\n b\nend\n"
    allowed = [
        x + y
        for x, y, b in itertools.product(range(4), range(1, 5), (0, 1))
        if x * y + 2 * x * x - 3 * b >= 7 and b + x == 3
    ]
    check(read(text, "a.lp"), min(allowed), len(allowed))


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("x y z", "x y", 3, "integer variables (Generals, Binaries), found 'z', a continuous one"),
        (" y <= 5\n", "", 3, "both bounds of 'y', found none from above or from below"),
        ("Generals", "Semi-continuous", 12, "semi-continuous variables, which are not read"),
        ("Generals", "SOS", 12, "special ordered sets, which are not read"),
        ("<= 7", "<= 7 + x", 5, "a constraint with one number behind its relation"),
        ("<= 7", "<= y", 5, "a number, found 'y'"),
        ("<= 7", "<= 1e9999999", 5, "a number, found '1e9999999'"),
        ("y <= 5", "y <= -5", 10, "a lower bound of 'y' first, as its upper one is negative"),
        ("<= x <= 4", "<= x <= -4", 9, "a lower bound of 'x' first"),
        ("-2 <= z <= 3", "2.25 <= z <= 2.75", 3, "bounds of 'z' with a whole number, found 2.25 to 2.75"),
        ("Maximize", "Maximal", 1, "Minimize or Maximize, found 'Maximal'"),
        ("[ 2 x * y", "[ 2 x y", 3, "'^ 2' or '*' in a product"),
        ("Bounds", "Ranges", 9, "'+' or '-' between two terms, found '0'"),
        ("3 x + 2 y", "3 x 2 y", 3, "'+' or '-' between two terms, found '2'"),
        ("3 x + 2 y", "3 x y", 3, "'+' or '-' between two terms, found 'y'"),
        ("y + z ^ 2 ]", "y z ^ 2 ]", 3, "'+' or '-' between two terms, found 'z'"),
        ("z + [ 2", "z [ 2", 3, "'+' or '-' between two terms, found '['"),
    ],
)
def test_what_is_wrong_with_an_lp_is_said(read: Read, old: str, new: str, line: int, told: str) -> None:
    assert old in LP
    with pytest.raises(FormatError) as caught:
        read(LP.replace(old, new), "a.lp")
    assert told in str(caught.value)
    assert caught.value.line == line + (new == "Maximal")


@pytest.mark.parametrize("term", ["x * y", "x ^ 2"])
def test_products_that_64_bits_do_not_hold_are_refused(read: Read, term: str) -> None:
    """The least of them is 0 modulo 2**64."""
    bounds = f"{2**32} <= x <= {2**32 + 1}\n{2**32} <= y <= {2**32 + 1}"
    with pytest.raises(FormatError, match=r":3: expected products below 10\^18"):
        read(f"Minimize x + y\nSubject To\n [ {term} ] <= 5\nBounds\n{bounds}\nGeneral\nx y\nEnd\n", "a.lp")


@pytest.mark.parametrize("count", [4, -4])
@pytest.mark.parametrize("maximize", [False, True])
def test_qpbo_is_a_symmetric_matrix(read: Read, count: int, maximize: bool) -> None:
    rng = np.random.default_rng(count + 9)
    entries = [(i, j, Decimal(int(rng.integers(-50, 50))) / 10) for i in range(1, 5) for j in range(i, 5)]
    head = f"{count} {-len(entries) if maximize else len(entries)}\n"
    model = read(head + "".join(f"{i} {j} {cost}\n" for i, j, cost in entries), "a.qpbo")
    totals = []
    for x in itertools.product((0, 1) if count > 0 else (1, -1), repeat=4):
        totals.append(sum((1 + (i != j)) * cost * x[i - 1] * x[j - 1] for i, j, cost in entries))
    check(model, (max if maximize else min)(totals), 16)
    assert model.states[0] == (None if count > 0 else ("1", "-1"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2 2\n1 1 3\n", "2 entries, three words each, found 3 words"),
        ("2 1\n1 3 3\n", "a variable from 1 to 2, found '3'"),
        ("2 1\n1 2 inf\n", "a finite number, found 'inf'"),
    ],
)
def test_what_is_wrong_with_a_qpbo_is_said(read: Read, text: str, told: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text, "a.qpbo")
    assert told in str(caught.value)


PEDIGREE = "1 1 0 0 1 3 4\n1 2 0 0 2 1 3\n1 3 1 2 2 0 0\n1 4 0 0 1 1 3\n1 5 3 4 1 2 3\n1 6 1 0 1 2 0\n1 9 8 7 1 0 0\n"


def test_pedigrees_count_wrong_genotypings(read: Read) -> None:
    model = read(PEDIGREE, "a.pre")
    assert model.names == ("1", "2", "3", "4", "5", "6")
    assert model.states[0][:3] == ("1/1", "1/2", "1/3") if model.states[0] else False
    genotypes = [(a, b) for a in range(1, 5) for b in range(a, 5)]
    typed = {1: (3, 4), 2: (1, 3), 4: (1, 3), 5: (2, 3), 6: (2, 0)}

    def child(own: tuple[int, int], father: tuple[int, int], mother: tuple[int, int]) -> bool:
        return any(sorted(pair) == [*own] for pair in itertools.product(father, mother))

    least = 99
    for one, two, three, four in itertools.product(genotypes, repeat=4):
        if not child(three, one, two):
            continue
        wrong = sum((one != typed[1], two != typed[2], four != typed[4]))
        fifth = min(int(own != typed[5]) for own in genotypes if child(own, three, four))
        sixth = min(int(2 not in own) for own in genotypes if {*own} & {*one})
        least = min(least, wrong + fifth + sixth)
    assert bucketflow.solve(model).value == least
    assert model.top == len(typed) + 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 1 0 0 1 3 4\n2 2 0 0 1 3 4\n", "one locus, found a second one"),
        ("1 1 0 0 1 3 4 5 6\n", "one locus, seven numbers a line, found 9 numbers: haplotypes are not read"),
        ("1 1 0 0 1\n", "lines of seven numbers, found 5 words"),
        ("1 1 0 0 1 0 0\n", "a pedigree with genotypings, found none"),
        ("1 1 0 0 1 3 4\n1 1 0 0 1 3 4\n", "one line of each individual"),
        ("1 1 2 2 1 3 4\n", "a father and a mother, who are others, found 2 and 2 of 1"),
    ],
)
def test_what_is_wrong_with_a_pedigree_is_said(read: Read, text: str, told: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text, "a.pre")
    assert told in str(caught.value)


@pytest.mark.parametrize("relation", RELATIONS)
def test_machines_of_sums_say_what_a_relation_does(relation: str) -> None:
    weights = [[0, 2, -1], [3, 0], [1, 1, -4]]
    for right in range(-7, 8):
        for low, high in itertools.product(range(-2, 3), repeat=2):
            if low <= high:
                holds = {RELATIONS[relation](total, right) for total in range(low, high + 1)}
                assert decided(low, high, relation, right) in ({*holds} if len(holds) == 1 else {None})
        for cost in (None, 7):
            machine = linear_machine(weights, relation, right, cost)
            for word in itertools.product(range(3), range(2), range(3)):
                states: list[Any] = [*machine.starts]
                for place, value in enumerate(word):
                    states = [to for state in states for to, _ in machine.moves(state, place, value)]
                total = sum(weights[place][value] for place, value in enumerate(word))
                ends = [machine.end(state) for state in states]
                if RELATIONS[relation](total, right):
                    assert ends == [0]
                else:
                    assert ends == ([] if cost is None else [cost])


def test_a_model_with_hidden_sums_is_written_with_them(read: Read, tmp_path: Path) -> None:
    with FormatPolicy.using(global_table_cells=1):
        model = read("min: +1 a +2 b +3 c ;\n+1 a +1 b +1 c >= 2 ;\n", "a.opb")
    notes = bucketflow.save(model, tmp_path / "b.cfn")
    assert notes == (f"{model.hidden} hidden variables, the last ones, are variables of the file",)
    assert bucketflow.solve(load(tmp_path / "b.cfn")).value == 3
    assert bucketflow.solve(load(tmp_path / "b.cfn"), "count").value == 4


def test_lines_are_not_counted_anew_for_every_constraint(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    def count_lines(*_: Any) -> int:
        raise AssertionError("the lines before a token are counted although nothing is wrong")

    monkeypatch.setattr(Tokens, "line_at", count_lines)
    assert read("+1 x1 +1 x2 >= 1 ;", "a.opb").functions


@pytest.mark.parametrize("seed", range(60))
def test_partial_sums_in_arrays_charge_what_the_constraint_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_sums, "is_wide", lambda _: True)
    draw = random.Random(seed)
    sums = [[draw.randint(-4, 4) for _ in range(draw.randint(1, 5))] for _ in range(draw.randint(1, 4))]
    relation, right, cost = draw.choice(["<=", ">=", "=", "!="]), draw.randint(-6, 6), draw.choice([None, None, 3])
    dims = [len(own) for own in sums]
    if decided(sum(map(min, sums)), sum(map(max, sums)), relation, right) is not None:
        return
    parts = Decomposition([*dims], FORBIDDEN, Allowance("a", 1 << 30))
    with FormatPolicy.using(global_table_cells=draw.choice([1, 1024])):
        wide_sums.add_linear(parts, [*range(len(dims))], sums, relation, right, cost)
    names = parts.names([f"x{k}" for k in range(len(dims))])
    model = Model("cost", names, tuple(parts.dims), (None,) * len(names), tuple(parts.functions), hidden=parts.hidden)
    for at in itertools.product(*map(range, dims)):
        total = sum(own[s] for own, s in zip(sums, at, strict=True))
        holds = {"<=": total <= right, ">=": total >= right, "=": total == right, "!=": total != right}[relation]
        found = bucketflow.solve(model, evidence={f"x{k}": s for k, s in enumerate(at)}).value
        assert found == (0 if holds else cost)


def test_empty_sections_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.lp"
    path.write_text(
        "min\n obj: - x + 2 y\nst\n c: x + y >= 1\nbounds\nbin\n x y\ngen\nsemi\nsos2\nlazy constraints\nend\n"
    )
    assert bucketflow.solve(path).value == -1
    path.write_text("min\n obj: - x + 2 y\nst\n c: x + y >= 1\nbin\n x y\nsemi\n x\nend\n")
    with pytest.raises(FormatError, match="semi-continuous variables, which are not read"):
        bucketflow.load(path)


@pytest.mark.parametrize("comment", ["", "/* lp_solve */\n", "// lp_solve\n"])
@pytest.mark.parametrize("name", ["a.lp", "a.LP"])
def test_the_dialect_of_lp_solve_is_named(tmp_path: Path, comment: str, name: str) -> None:
    path = tmp_path / name
    path.write_text(f"{comment}max: 3 + x1 + 2 x2;\nrow: x1 + x2 <= 2;\nx1 <= 9;\nint x1,x2;\n")
    with pytest.raises(FormatError, match="a linear problem in lp_solve's own format, which is not read"):
        bucketflow.load(path)
    path.write_text("minimize\n o;1: x\nst\n c: x + 2 y >= 1\nbin\n x y\nend\n")
    assert bucketflow.load(path).names == ("x", "y")


def test_several_objectives_are_named(tmp_path: Path) -> None:
    text = "c two\nh 1 2 0\no1 3 -1 0\no2 1 -2 0\n"
    for name, sentence in (
        ("a.mcnf", "a MaxSAT problem with several objectives"),
        ("a.wcnf", "a file with several objectives, as in .mcnf"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(FormatError, match=sentence):
            bucketflow.load(tmp_path / name)


def test_texts_that_no_domain_holds_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    words = "domains: {d: {values: [%s]}}\nvariables: {a: {domain: d}, b: {domain: d}}\nagents: [one]\nconstraints:\n"
    words += "  c: {type: intention, function: \"3 if a == 'on' and b in ('off', 'on') else 1\"}\n"
    path.write_text(words % "on, off")
    told = bucketflow.load(path).notes
    assert len(told) == 3
    assert told[0] == (
        "the text 'on' that 'a' is compared with (line 5) is never equal: YAML, and so pyDCOP, reads the domain as "
        "false and true; quote its words"
    )
    path.write_text(words % "'on', 'off'")
    assert bucketflow.load(path).notes == ()
    path.write_text(words % "up, on_")
    assert bucketflow.load(path).notes[0].endswith("is never equal, because the domain does not have it")


@pytest.mark.parametrize(("bound", "noted"), [("<9.5", True), ("<9.50", False), ("<9", True), ("<9.500", False)])
def test_decimals_that_toulbar2_truncates_are_noted(tmp_path: Path, bound: str, noted: bool) -> None:
    path = tmp_path / "a.cfn"
    path.write_text(
        f'{{problem: {{name: p, mustbe: "{bound}"}} variables: {{a: 2}} functions: {{{{scope: [a] costs: [1.25 2]}}}}}}'
    )
    model = bucketflow.load(path)
    assert str(bucketflow.solve(model).value) == "1.25"
    assert len(model.notes) == noted
    assert all(note.startswith("costs with more decimals than 'mustbe' are read exactly") for note in model.notes)
