"""Decision diagrams hold the tables they were made from, and sums and minima of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketflow.tasks.diagrams.diagram import FORBIDDEN, DiagramPolicy, Spaces, as_bits
from bucketflow.tasks.diagrams.min_plus import (
    DiagramStoppedError,
    Integers,
    Join,
    Limits,
    NoRoomError,
    Summed,
    from_dense,
    join,
    table,
)
from bucketflow.tasks.steps.number_limits import FAR_INTEGER
from tests.policies import InForce

SIZES = np.array([2, 3, 1, 4, 2, 3])
# the fixture does the same for every example
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tables(draw: st.DrawFn, largest: int = 4) -> tuple[Integers, Integers]:
    """A scope and a table with ties and forbidden entries, of which one at least is allowed."""
    scope = sorted(draw(st.lists(st.integers(0, len(SIZES) - 1), min_size=1, max_size=4, unique=True)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(draw(st.sampled_from([-2, 0])), largest, size=SIZES[scope])
    values[rng.random(values.shape) < draw(st.sampled_from([0.0, 0.3]))] = FORBIDDEN
    values.flat[rng.integers(values.size)] = 1
    return np.array(scope), values


def spread(scope: Integers, values: Integers) -> Integers:
    """The table over all variables."""
    shape = [d if v in scope else 1 for v, d in enumerate(SIZES)]
    return np.broadcast_to(values.reshape(shape), SIZES)


def entries(function: Summed) -> Integers:
    assert function.diagram is not None
    return spread(function.diagram.scope, table(function, SIZES))


def added(*values: Integers) -> Integers:
    return np.where(np.max(values, axis=0) >= FORBIDDEN, FORBIDDEN, sum(values))


@pytest.fixture(params=[DiagramPolicy().hash_factor, 0], ids=["hashes", "equal hashes"], autouse=True)
def scatter(request: pytest.FixtureRequest, in_force: InForce) -> None:
    """Everything holds also where all hashes are the same."""
    in_force(DiagramPolicy, hash_factor=request.param)


@quick
@given(tables())
def test_a_diagram_is_its_table(made: tuple[Integers, Integers]) -> None:
    function = from_dense(*made, SIZES)
    assert function.diagram is not None
    assert np.array_equal(table(function, SIZES), made[1])
    for i, v in enumerate(function.diagram.scope):
        count = function.diagram.nodes[i] * SIZES[v]
        rows = slice(function.diagram.start[i], function.diagram.start[i] + count)
        weights = function.diagram.weight[rows].reshape(-1, SIZES[v])
        assert (weights.min(axis=1) == 0).all()
        nodes = np.concatenate([function.diagram.child[rows].reshape(weights.shape), weights], axis=1)
        assert len(np.unique(nodes, axis=0)) == len(nodes)


@quick
@given(tables(), tables(), tables())
def test_any_order_of_joins_gives_the_same_arrays(
    a: tuple[Integers, Integers], b: tuple[Integers, Integers], c: tuple[Integers, Integers]
) -> None:
    want = added(spread(*a), spread(*b), spread(*c))
    x, y, z = (from_dense(*made, SIZES) for made in (a, b, c))
    both = join(x, y, sizes=SIZES), join(y, z, sizes=SIZES)
    if both[0].diagram is None or both[1].diagram is None or want.min() >= FORBIDDEN:
        return
    left, right = join(both[0], z, sizes=SIZES), join(x, both[1], sizes=SIZES)
    assert np.array_equal(entries(left), want)
    assert left.constant == right.constant == want.min()
    assert left.left_out == FAR_INTEGER
    assert left.diagram is not None
    assert right.diagram is not None
    for one, other in zip(left.diagram, right.diagram, strict=True):
        assert np.array_equal(one, other)


@quick
@given(tables(), tables(), st.booleans(), st.integers(-4, 8))
def test_what_is_left_out_exceeds_the_budget(
    a: tuple[Integers, Integers], b: tuple[Integers, Integers], minimise: bool, budget: int
) -> None:
    last = max(a[0][-1], b[0][-1])
    want = added(spread(*a), spread(*b))
    if minimise:
        want = np.broadcast_to(want.min(axis=last, keepdims=True), SIZES)
    x, y = from_dense(*a, SIZES), from_dense(*b, SIZES)
    found = join(x, y, sizes=SIZES, minimise=minimise, limits=Limits(budget))
    got = np.full(SIZES, FORBIDDEN) if found.diagram is None else entries(found)
    assert (got >= want).all()
    assert (want[got != want] > budget).all()
    assert (want[got != want] >= found.left_out).all()
    assert found.left_out > budget


@quick
@given(tables(), tables())
def test_one_function_is_minimised_alone(a: tuple[Integers, Integers], b: tuple[Integers, Integers]) -> None:
    both = join(from_dense(*a, SIZES), from_dense(*b, SIZES), sizes=SIZES)
    if both.diagram is not None:
        want = entries(both).min(axis=both.diagram.scope[-1], keepdims=True)
        assert np.array_equal(entries(join(both, sizes=SIZES, minimise=True)), np.broadcast_to(want, SIZES))


def random_functions(k: int, d: int) -> Iterator[Summed]:
    """Two functions of k and k + 1 variables that take turns and share the first; no two rows are alike."""
    rng = np.random.default_rng(3)
    sizes = np.full(2 * k, d)
    for scope in (np.arange(0, 2 * k, 2), np.array([0, *range(1, 2 * k, 2)])):
        yield from_dense(scope, rng.integers(0, 1 << 40, size=[d] * len(scope)), sizes)


@pytest.mark.parametrize("scatter", [DiagramPolicy().hash_factor], indirect=True)
def test_tables_of_states_grow() -> None:
    a, b = random_functions(5, 4)
    sizes = np.full(10, 4)
    found = join(a, b, sizes=sizes)
    assert found.diagram is not None
    assert found.diagram.nodes.max() > 10_000
    left, right = table(a, sizes), table(b, sizes)
    least = left.reshape(4, -1).min(axis=1) + right.reshape(4, -1).min(axis=1)
    while found.diagram is not None and len(found.diagram.scope) > 1:
        found = join(found, sizes=sizes, minimise=True)
    assert np.array_equal(table(found, sizes), least)


def test_too_little_memory_is_said_and_stops_are_heard(in_force: InForce) -> None:
    a, b = random_functions(5, 4)
    with pytest.raises(NoRoomError):
        join(a, b, sizes=np.full(10, 4), limits=Limits(memory_bytes=1 << 20))
    with pytest.raises(NoRoomError):
        from_dense(np.arange(2), np.zeros((2, 3), np.int64), SIZES, limits=Limits(memory_bytes=100))
    in_force(DiagramPolicy, turn_edges=100)
    with pytest.raises(DiagramStoppedError):
        join(a, b, sizes=np.full(10, 4), limits=Limits(stop=lambda: True))


@pytest.mark.parametrize("scatter", [DiagramPolicy().hash_factor], indirect=True)
@pytest.mark.parametrize("minimise", [False, True])
def test_a_join_stops_within_a_level_and_goes_on_there(in_force: InForce, minimise: bool) -> None:
    a, b = random_functions(3, 4)
    sizes, limits = np.full(6, 4), Limits(1 << 40)
    want = join(a, b, sizes=sizes, minimise=minimise, limits=limits)
    in_force(DiagramPolicy, turn_edges=50)
    going, runs, held = Join(a, b, sizes=sizes, minimise=minimise), 0, []
    while True:
        runs += 1
        try:
            found = going.run(replace(limits, stop=lambda: True))
            break
        except DiagramStoppedError:
            held.append(going.nbytes)
    assert runs > want.edges // 50
    assert max(held) > 12 * want.edges
    assert (found.constant, found.left_out, found.edges) == (want.constant, want.left_out, want.edges)
    assert want.diagram is not None
    assert found.diagram is not None
    for one, other in zip(found.diagram, want.diagram, strict=True):
        assert np.array_equal(one, other)


@quick
@given(tables(), tables(), st.integers(-4, 8), st.integers(0, 6))
def test_a_budget_that_falls_meanwhile(
    a: tuple[Integers, Integers], b: tuple[Integers, Integers], budget: int, pruned: int
) -> None:
    """Each entry that is there is right, and each within the least budget is there."""
    want = added(spread(*a), spread(*b))
    going = Join(from_dense(*a, SIZES), from_dense(*b, SIZES), sizes=SIZES)
    found = None
    with DiagramPolicy.using(turn_edges=3):
        for runs in count():
            try:
                found = going.run(Limits(budget if runs < 3 else budget - pruned, stop=lambda: True))
                break
            except DiagramStoppedError:
                pass
    assert found is not None
    got = np.full(SIZES, FORBIDDEN) if found.diagram is None else entries(found)
    assert (got >= want).all()
    assert (want[got != want] > budget - pruned).all()
    assert (want[got != want] >= found.left_out).all()


def test_the_pair_with_the_smallest_union_comes_first() -> None:
    spaces = Spaces([2, 2, 16, 2])
    assert spaces.rows(0b1101) == 6.0
    scopes = [as_bits(v) for v in ([0, 1, 2], [0, 1], [1, 3], [2, 3])]
    assert spaces.closest(scopes) == (1, 2)
