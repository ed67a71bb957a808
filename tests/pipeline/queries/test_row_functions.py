"""Functions that list few of their assignments: never dense on their way in and out, whatever they range over."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, ModelError
from bucketflow.pipeline.models.function import Function, compact
from bucketflow.pipeline.models.model import Model
from bucketflow.pipeline.preprocessing.preprocess import reduce_model
from bucketflow.pipeline.queries.formula import QueryPolicy
from tests.policies import InForce

COUNT = 5_000


def listed(dims: tuple[int, ...], count: int = COUNT, seed: int = 0) -> Model:
    """A cost model with one function of so many tuples, and one that is dense."""
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, dims, (2 * count, len(dims))), axis=0)
    rows = rng.permutation(rows)[:count]
    names = [f"x{v}" for v in range(len(dims))]
    functions = [(names, rows, rng.integers(0, 50, len(rows)), 1000), (names[:1], np.arange(dims[0]))]
    return Model.build("cost", dict(zip(names, dims, strict=True)), functions, top=1000)


def as_cfn(model: Model) -> str:
    """Write a cost model whose functions are by rows, or over one variable, as .cfn."""
    variables = ",".join(f'"{name}":{dim}' for name, dim in zip(model.names, model.dims, strict=True))
    functions = []
    for k, f in enumerate(model.functions):
        rows = np.arange(model.dims[0])[:, None] if f.rows is None else f.rows
        costs = ",".join(map(str, np.column_stack([rows, f.values]).ravel().tolist()))
        scope = ",".join(f'"{model.names[v]}"' for v in f.scope)
        functions.append(f'"f{k}":{{"scope":[{scope}],"defaultcost":{f.default},"costs":[{costs}]}}')
    problem = f'"problem":{{"mustbe":"<{model.top}"}}'
    return f'{{{problem},"variables":{{{variables}}},"functions":{{{",".join(functions)}}}}}'


def same(a: Function, b: Function) -> bool:
    """Whether two functions by rows list the same tuples."""
    assert a.rows is not None
    assert b.rows is not None
    left, right = (sorted(zip(map(tuple, f.rows.tolist()), f.values.tolist(), strict=True)) for f in (a, b))
    return a.scope == b.scope and a.default == b.default and left == right


@pytest.mark.parametrize("dims", [(100,) * 6, (10,) * 12, (2,) * 100, (300, 70_000, 2)])
def test_tuples_are_read_and_written_as_tuples(tmp_path: Path, dims: tuple[int, ...]) -> None:
    model = listed(dims)
    bucketflow.save(model, tmp_path / "m.wcsp")
    (tmp_path / "m.cfn").write_text(as_cfn(model))
    for name in ("m.wcsp", "m.cfn"):
        read = bucketflow.load(tmp_path / name)
        f = read.functions[0]
        assert same(f, model.functions[0])
        assert f.rows is not None
        assert f.rows.itemsize == (1 if max(dims) <= 256 else 4)
    assert read.nbytes < COUNT * (len(dims) * 4 + 8) + 8 * dims[0] * 2


def test_repeated_tuples_keep_the_last_cost(tmp_path: Path) -> None:
    count, scope = 200, " ".join(map(str, range(80)))
    row = " ".join(["1"] * 80)
    lines = [f"{row} {cost}" for cost in range(count)]
    (tmp_path / "m.wcsp").write_text("m 80 2 1 999\n" + "2 " * 80 + f"\n80 {scope} 5 {count}\n" + "\n".join(lines))
    (f,) = bucketflow.load(tmp_path / "m.wcsp").functions
    assert f.at([1] * 80) == count - 1
    assert f.values.tolist() == [count - 1]


def test_a_repeated_assignment_is_found_among_many_words() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (500, 200))
    rows[321] = rows[123]
    names = [f"x{v}" for v in range(200)]
    with pytest.raises(ModelError, match="lists an assignment twice"):
        Model.build("cost", dict.fromkeys(names, 2), [(names, rows, np.ones(500, int), 0)])


def test_models_are_built_from_rows() -> None:
    model = Model.build("markov", {"a": 2, "b": ["no", "yes"]}, [(["a", "b"], [[0, 1], [1, 1]], [0.5, 2.0], 0.25)])
    assert [model.functions[0].at(states) for states in ((0, 0), (0, 1), (1, 0), (1, 1))] == [0.25, 0.5, 0.25, 2.0]
    nothing = Model.build("cost", {"a": 2, "b": 3}, [(["a", "b"], [], [], 7)])
    assert bucketflow.solve(nothing).value == 7
    assert bucketflow.solve(model, "partition").log10 == pytest.approx(np.log10(3.0))


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        (([[0, 2]], [1], 0), "outside"),
        (([[0, 1]], [1, 2], 0), "shape"),
        (([[0, 1]], [[1]], 0), "shape"),
        (([[0, 1]], [1], "x"), "not a number"),
        (([[0, 1]], [1]), "parts"),
        (([[0.5, 1]], [1], 0), "integers"),
    ],
)
def test_faults_of_rows_are_named(parts: tuple[object, ...], fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        Model.build("markov", {"a": 2, "b": 2}, [(["a", "b"], *parts)])  # type: ignore[list-item]


def test_what_is_dense_is_refused_with_both_numbers() -> None:
    model = listed((100,) * 6)
    for ask in (lambda: bucketflow.solve(model, method="search"), lambda: bucketflow.bound(model)):
        with pytest.raises(BudgetError, match=r"take 8 TB as tables of all their assignments, allowed"):
            ask()


def test_tables_that_no_text_holds_are_not_written_out(tmp_path: Path) -> None:
    names = [f"x{v}" for v in range(40)]
    model = Model.build("markov", dict.fromkeys(names, 2), [(names, [[1] * 40], [2.0], 0.5)])
    with pytest.raises(ModelError, match=r"1 rows over 40 variables has 1.1e\+12, 4.4 TB of text"):
        bucketflow.save(model, tmp_path / "m.uai")


def zero_heavy(seed: int) -> np.ndarray:
    """A distribution of the last of 17 variables: a function of the others with few exceptions."""
    rng = np.random.default_rng(seed)
    table = np.zeros((2,) * 17)
    hot = rng.integers(0, 2, (300, 16))
    table[tuple(hot.T)] = rng.dirichlet((1, 1), 300)
    return table


@pytest.mark.parametrize("kind", ["markov", "bayes"])
def test_wide_tables_of_zeros_are_kept_by_rows(tmp_path: Path, kind: str) -> None:
    table = zero_heavy(0)
    scope = " ".join(map(str, range(17)))
    text = " ".join(map(repr, table.ravel().tolist()))
    roots = range(16) if kind == "bayes" else ()
    scopes = f"17 {scope}\n" + "".join(f"1 {v}\n" for v in roots)
    tables = f"{table.size}\n{text}\n" + "2\n0.5 0.5\n" * len(roots)
    count = 1 + len(roots)
    (tmp_path / "m.uai").write_text(f"{kind.upper()}\n17\n{'2 ' * 17}\n{count}\n{scopes}{tables}")
    read = bucketflow.load(tmp_path / "m.uai")
    f = read.functions[0]
    assert f.rows is not None
    assert len(f.rows) == np.count_nonzero(table)
    assert f.child == (16 if kind == "bayes" else None)
    assert all(f.at(row) == table[tuple(row)] for row in [*f.rows[:20].tolist(), [0] * 17, [1] * 17])
    bucketflow.save(read, tmp_path / "again.uai")
    again = (tmp_path / "again.uai").read_text().split()
    assert again[1:] == (tmp_path / "m.uai").read_text().split()[1:]
    assert again[0] == "MARKOV"  # most rows of the distributions are 0
    assert bucketflow.solve(read, "partition").log10 == pytest.approx(np.log10(table.sum() / 2 ** len(roots)))


def test_few_zeros_stay_dense() -> None:
    values = np.ones((2,) * 16)
    assert compact(Function(tuple(range(16)), values)).rows is None
    small = np.zeros((4, 4))
    assert compact(Function((0, 1), small)).rows is None


@pytest.mark.parametrize("normalised", [True, False])
def test_barren_variables_with_rows(normalised: bool) -> None:
    states = [(a, b, (a + b) % 3) for a in range(3) for b in range(3)]
    rows = np.array(states if normalised else states[:-1])[:, [2, 0, 1]]
    function = Function((2, 0, 1), np.ones(len(rows)), rows, 0.0, child=2)
    roots = [Function((v,), np.full(3, 1 / 3), child=v) for v in range(2)]
    model = Model("bayes", ("a", "b", "c"), (3, 3, 3), (None,) * 3, (*roots, function))
    assert (2 in reduce_model(model, "partition", {}).barren) is normalised
    assert 10 ** bucketflow.solve(model, "partition").log10 == pytest.approx(1.0 if normalised else 8 / 9)


def test_a_child_that_is_not_last_is_written_from_rows(tmp_path: Path) -> None:
    rows = np.array([(a, b, (a + b) % 3) for a in range(3) for b in range(3)])[:, [2, 0, 1]]
    function = Function((2, 0, 1), np.ones(len(rows)), rows, 0.0, child=2)
    roots = [Function((v,), np.full(3, 1 / 3), child=v) for v in range(2)]
    model = Model("bayes", ("x0", "x1", "x2"), (3, 3, 3), (None,) * 3, (*roots, function))
    bucketflow.save(model, tmp_path / "m.uai")
    f = bucketflow.load(tmp_path / "m.uai").functions[2]
    assert f.scope == (0, 1, 2)
    assert all(f.values[a, b, c] == ((a + b) % 3 == c) for a in range(3) for b in range(3) for c in range(3))


@pytest.mark.parametrize("top", [40, 60])
def test_counts_look_at_the_costs_of_rows(top: int, in_force: InForce) -> None:
    in_force(QueryPolicy, inspected_cells=1)
    dims = (6, 6, 6, 6)
    rng = np.random.default_rng(top)
    rows = rng.permutation(np.array(list(np.ndindex(dims))))[:200]
    values = rng.integers(0, 50, 200)
    names = list("abcd")
    functions = [(names, rows, values, 1000), (["a"], np.arange(6))]
    model = Model.build("cost", dict.fromkeys(names, 6), functions, top=top)
    expected = int((values + rows[:, 0] < top).sum())
    assert prod(dims) > expected > 0
    assert bucketflow.solve(model, "count").value == expected


def bijections(states: int) -> Model:
    """A ring of variables of which each is a function of the one before, and one of them has costs."""
    rng = np.random.default_rng(3)
    names = [f"x{k}" for k in range(4)]
    every = np.arange(states)
    pairs = [np.column_stack([every, rng.permutation(states)]) for _ in names]
    nothing = np.zeros(states, np.int64)
    functions = [([names[k], names[k + 1]], pairs[k], nothing, 10**6) for k in range(3)]
    costs = rng.integers(1, 10**5, states)
    return Model.build("cost", dict.fromkeys(names, states), [*functions, ([names[3]], costs)], top=10**6)


def test_what_is_large_is_swept_by_rows_within_a_time_and_a_bound() -> None:
    model = bijections(20_000)
    expected = bucketflow.solve(model)
    assert expected.status == "optimal"
    assert expected.value == int(model.functions[3].values.min())
    for limits in ({"time": 600.0}, {"gap": 0.5}, {"upper_bound": expected.value}):
        found = bucketflow.solve(model, **limits)
        assert (found.status, found.value) == ("optimal", expected.value)
    assert bucketflow.solve(model, upper_bound=expected.value - 1).status == "infeasible"


def test_what_is_large_is_joined_where_the_method_rows_is_asked_for() -> None:
    model = bijections(70_000)
    found = bucketflow.solve(model, method="rows", memory="4GB")
    assert (found.status, found.value) == ("optimal", int(model.functions[3].values.min()))
