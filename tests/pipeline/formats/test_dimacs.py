"""DIMACS files: formulas, weights of literals and of clauses, against all assignments; what is wrong with a file."""

from __future__ import annotations

import gzip
import itertools
import lzma
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.model import Model

Read = Callable[..., Model]
Clause = tuple[int, ...]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str, name: str = "a.cnf") -> Model:
        path = tmp_path / name
        path.write_text(text)
        return load(path)

    return read


def random_clauses(rng: np.random.Generator, n_vars: int, count: int) -> list[Clause]:
    """Clauses of up to five literals, of which some occur twice or with their opposite."""
    return [
        tuple((rng.integers(1, n_vars + 1, rng.integers(1, 6)) * rng.choice([-1, 1], 1)[0]).tolist())
        if rng.random() < 0.3
        else tuple((rng.integers(1, n_vars + 1, 4) * rng.choice([-1, 1], 4)).tolist())
        for _ in range(count)
    ]


def lines(clauses: list[Clause]) -> str:
    return "".join(" ".join(map(str, clause)) + " 0\n" for clause in clauses)


def holds(clause: Clause, states: tuple[int, ...]) -> bool:
    return any(states[abs(literal) - 1] == (literal > 0) for literal in clause)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["auto", "search"])
def test_counts_and_weighted_counts_agree_with_all_assignments(read: Read, seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 8, 10)
    weights = {literal: float(rng.integers(0, 5)) / 4 for v in (1, 4, 5) for literal in (v, -v)}
    weights[4] = 0.5
    told = "".join(f"c p weight {literal} {weight} 0\n" for literal, weight in weights.items())
    models = [s for s in itertools.product((0, 1), repeat=8) if all(holds(clause, s) for clause in clauses)]
    total = math.fsum(math.prod(weights.get(v if on else -v, 1.0) for v, on in enumerate(s, 1)) for s in models)
    text = f"c any words\np cnf 8 10\n{lines(clauses)}"
    assert bucketflow.solve(read(text), query="count", method=method).value == len(models)
    found = bucketflow.solve(read(f"c t wmc\n{told}{text}"), query="partition", method=method)
    assert found.log10 == pytest.approx(math.log10(total), abs=1e-9) if total else found.status == "infeasible"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", ["top", "h", "decimals", "decimals and h"])
def test_weighted_clauses_cost_what_they_weigh(read: Read, seed: int, dialect: str) -> None:
    rng = np.random.default_rng(seed)
    soft, hard = random_clauses(rng, 7, 14), [(1, 2, -3), (-1, -2, 4)]
    unit = Decimal("0.05") if dialect.startswith("decimals") else Decimal(1)
    weights = [(k + 1) * unit for k in range(len(soft))]
    text = "" if dialect.endswith("h") else "p wcnf 7 16 99\n"
    text += "".join(f"{'h' if dialect.endswith('h') else 99} {lines([clause])}" for clause in hard)
    text += "".join(f"{weight} {lines([clause])}" for weight, clause in zip(weights, soft, strict=True))
    costs = [
        sum(weight for weight, clause in zip(weights, soft, strict=True) if not holds(clause, s))
        for s in itertools.product((0, 1), repeat=7)
        if all(holds(clause, s) for clause in hard)
    ]
    assert bucketflow.solve(read(text, "a.wcnf")).value == min(costs)


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_three_kinds_of_counters(read: Read, seed: int) -> None:
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, 6, 6)
    shares = [1.0, *(rng.integers(1, 8, 5) / 8).tolist()]
    text = f"p cnf 6 6\n{lines(clauses)}"
    cachet = "".join(f"w {v} {share}\n" for v, share in enumerate(shares, 1))
    spoken = "".join(f"c p weight {v} {p} 0\nc p weight -{v} {1 - p} 0\n" for v, p in enumerate(shares, 1))
    listed = "c weights " + " ".join(f"{p} {1 - p}" for p in shares) + "\n"
    total = math.fsum(
        math.prod(p if on else 1 - p for p, on in zip(shares, s, strict=True))
        for s in itertools.product((0, 1), repeat=6)
        if all(holds(clause, s) for clause in clauses)
    )
    for told in (cachet, spoken, listed):
        assert 10 ** bucketflow.solve(read(told + text), query="partition").log10 == pytest.approx(total)
        assert 10 ** bucketflow.solve(read(text + told), query="partition").log10 == pytest.approx(total)


def test_weights_without_a_top_are_all_soft(read: Read) -> None:
    assert bucketflow.solve(read("p wcnf 1 3\n5 1 0\n7 -1 0\n2 0\n")).value == 7


def test_arrays_of_clauses_and_weights_cannot_be_written_to(read: Read) -> None:
    formulas = (
        "p cnf 3 4\n1 -2 0\n-1 2 3 0\n1 1 3 0\n0\nc p weight 1 0.25 0\nc p weight -1 0.75 0\n",
        "3 1 0\nh 1 -2 0\n",
    )
    for text, name in zip(formulas, ("a.cnf", "a.wcnf"), strict=True):
        functions = read(text, name).functions
        assert not any(f.values.flags.writeable or (f.rows is not None and f.rows.flags.writeable) for f in functions)


@pytest.mark.parametrize("name", ["a.cnf", "a.wcnf", "formula"])
def test_clauses_go_over_lines_and_files_end_with_a_percent_sign(read: Read, name: str) -> None:
    model = read("c a\n  c b\n\np  cnf 3 2\n1\n-2\nc between\n3 0 -1 2\n0\n%\n0\n\n", name)
    assert model.names == ("x1", "x2", "x3")
    assert [f.scope for f in model.functions] == [(0, 1, 2), (0, 1)]
    assert model.functions[0].at((0, 1, 0)) == 0.0
    assert bucketflow.solve(model, query="count").value == 5


def test_compressed_files(tmp_path: Path) -> None:
    for name, pack in (("a.cnf.gz", gzip.compress), ("a.cnf.xz", lzma.compress)):
        (tmp_path / name).write_bytes(pack(b"p cnf 2 1\n1 2 0\n"))
        assert bucketflow.solve(load(tmp_path / name), query="count").value == 3


def test_an_empty_clause_leaves_nothing_and_one_that_always_holds_everything(read: Read) -> None:
    assert bucketflow.solve(read("p cnf 3 1\n0\n"), query="count").value == 0
    assert bucketflow.solve(read("p cnf 3 1\n1 -1 0\n"), query="count").value == 8
    assert bucketflow.solve(read("p cnf 3 0\n"), query="count").value == 8


def test_long_clauses_are_rows_and_searched(read: Read) -> None:
    clauses = [tuple(range(1, 201)), tuple(range(-200, 0)), (3, -200, 7)]
    text = f"p cnf 200 3\n{lines(clauses)}"
    model = read(text)
    assert model.nbytes < 1024
    found = bucketflow.solve(model, query="count")
    assert found.search is not None
    assert found.value == 2**200 - 2**197 - 2
    weighted = bucketflow.solve(read(f"{text}c p weight 9 1/4 0\nc p weight -9 3e0 0\n"), query="partition")
    assert weighted.search is not None
    assert weighted.log10 == pytest.approx(math.log10(7 * 3.25 * 2**196), abs=1e-9)


def test_a_wide_clause_is_not_swept_whole(read: Read) -> None:
    """It is searched, or a chain of small functions stands for it."""
    found = bucketflow.solve(read(f"p cnf 24 1\n{lines([tuple(range(1, 25))])}"), query="count")
    assert found.search is not None or (found.plan is not None and found.plan.cells < 2**16)
    assert found.value == 2**24 - 1


def test_rows_of_other_values_are_weights() -> None:
    rows, values = np.array([[0, 1, 1], [1, 1, 0], [1, 0, 1]]), np.array([0.0, 3.0, 0.5])
    model = bucketflow.Model.build("markov", dict.fromkeys("abc", 2), [(("a", "b", "c"), rows, values, 2.0)])
    assert bucketflow.solve(model, query="partition", method="search").log10 == pytest.approx(math.log10(13.5))


DIVIDE = "(costs are 64-bit integers; if all weights have a common factor, divide by it)"
WEIGHED = "a weight above 0, or a literal from -2 to 2, or 0 at the end of a clause"


@pytest.mark.parametrize(
    ("text", "line", "expected", "found"),
    [
        ("1 2 0\n", 1, "'p cnf' or 'p wcnf' before the clauses", "'1'"),
        ("p two 2\n", 1, "'p cnf' or 'p wcnf' before the clauses", "'p two 2'"),
        ("p cnf 2\n1 2 0\n", 1, "a line 'p cnf VARIABLES CLAUSES' or 'p wcnf VARIABLES CLAUSES TOP'", "'p cnf 2'"),
        ("1 2 0\np cnf 2 1\n", 1, "'p cnf' or 'p wcnf' before the clauses", "'1'"),
        ("p cnf 2 1\np cnf 2 1\n", 2, "one header", "another line 'p'"),
        ("p cnf 2 1\n1\n3000000000 0\n", 3, "a literal from -2 to 2, or 0 at the end of a clause", "'3000000000'"),
        ("p cnf 2 1\nz1 2 0\n", 2, "a literal from -2 to 2, or 0 at the end of a clause", "'z1'"),
        ("p cnf 2 1\n1 2\n", 2, "0 at the end of a clause", "the end of the file"),
        ("p wcnf 2 1 9\n0 2 0\n", 2, "the weight of a clause, above 0", "'0'"),
        ("p wcnf 2 1 9\n3 2.5 0\n", 2, "a literal from -2 to 2, or 0 at the end of a clause", "'2.5'"),
        ("p wcnf 2 1 9\nnan 2 0\n", 2, WEIGHED, "'nan'"),
        ("p wcnf 2 1 9\n-0.5 2 0\n", 2, WEIGHED, "'-0.5'"),
        ("p wcnf 2 1 9\n-1 2 0\n", 2, "the weight of a clause, above 0", "'-1'"),
        ("p wcnf 2 1 x\n1 2 0\n", 1, "a top weight above 0", "'x'"),
        ("p wcnf 2 1 nan\n1 2 0\n", 1, "a top weight above 0", "'nan'"),
        ("p wcnf 2 1\n5e18 2 0\n", 2, f"a weight below 4611686018427387904, or of at least the top {DIVIDE}", "'5e18'"),
        (
            "h 1 2 0\n9223372036854775809 -1 0\n18446744073709551615 -2 0\n",
            2,
            f"a weight below 4611686018427387904, or of at least the top {DIVIDE}",
            "'9223372036854775809'",
        ),
        (
            "p wcnf 2 2\n1e18 2 0\n.5 1 0\n",
            2,
            f"a weight below 4611686018427387904 with 1 decimals, or of at least the top {DIVIDE}",
            "'1e18'",
        ),
        ("p wcnf 2 1\n1e-999999999 2 0\n", 2, "at most 18 decimals", "999999999 decimals"),
        ("c p weight 1 0.5 0\np cnf 2 0\n", 1, "weights of 1 and -1", "that of 1"),
        ("p cnf 2 0\nc p weight 3 0.5 0\n", 2, "a literal from -2 to 2", "'3'"),
        ("p cnf 2 0\nc p weight 1 -1 0\n", 2, "a finite weight of at least 0", "'-1'"),
        ("p cnf 2 0\nc p weight 1 1/0 0\n", 2, "a finite weight of at least 0", "'1/0'"),
        ("p cnf 2 0\nc p weight 1 0\n", 2, "weights of 1 and -1", "that of 1"),
        ("p cnf 2 0\nc p weight 1 1 2 0\n", 2, "a literal, its weight and 0", "'1 1 2 0'"),
        ("c p weight 1 1 0\nc p weight 1 2 0\np cnf 2 0\n", 2, "one weight for each literal", "another one of 1"),
        ("c p weight 1 1 0\np wcnf 2 0\n", 1, "weights of clauses", "a weight of a literal"),
    ],
)
def test_what_is_wrong_is_one_sentence(read: Read, text: str, line: int, expected: str, found: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text)
    assert (caught.value.line, caught.value.expected, caught.value.found) == (line, expected, found)


def test_claims_of_a_header_are_within_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.cnf"
    path.write_text("p cnf 2000000000 0\n")
    with pytest.raises(BudgetError, match="2000000000 variables"):
        load(path, memory=1 << 30)
