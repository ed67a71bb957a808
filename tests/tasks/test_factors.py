"""Factors on decision diagrams are their tables, and products and sums of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bucketflow.tasks.diagrams.diagram import DiagramPolicy
from bucketflow.tasks.diagrams.min_plus import DiagramStoppedError, NoRoomError
from bucketflow.tasks.diagrams.sum_product import Factor, Means, VanishedError, from_table, product, values_of
from bucketflow.tasks.steps.number_limits import LEAST_FACTOR
from tests.policies import InForce

Table = tuple[NDArray[np.int64], NDArray[np.float64]]
SIZES = np.array([2, 3, 1, 4, 2, 3])
PRIME = 2**31 - 1
# the fixture does the same for every example
quick = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A scope and a table with zeros, equal entries and entries of any size."""
    scope = sorted(draw(st.lists(st.integers(0, len(SIZES) - 1), min_size=1, max_size=4, unique=True)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = SIZES[scope]
    values = rng.integers(1, 4, size=shape) * 0.1
    if draw(st.booleans()):
        values = 10.0 ** rng.uniform(-40, 0, size=shape)
    values[rng.random(shape) < draw(st.sampled_from([0.0, 0.5]))] = 0.0
    return np.array(scope), values


def residues(made: Table) -> Table:
    return made[0], np.round(made[1] * 2**40) % PRIME


def spread(scope: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The table over all variables."""
    return np.broadcast_to(values.reshape([d if v in scope else 1 for v, d in enumerate(SIZES)]), SIZES)


def entries(factor: Factor, modulus: int = 0) -> NDArray[np.float64]:
    if factor.diagram is None:
        return np.zeros(SIZES)
    return spread(factor.diagram.scope, values_of(factor, SIZES, modulus))


@pytest.fixture(params=[DiagramPolicy().hash_factor, 0], ids=["hashes", "equal hashes"], autouse=True)
def scatter(request: pytest.FixtureRequest, in_force: InForce) -> None:
    """Everything holds also where all hashes are the same."""
    in_force(DiagramPolicy, hash_factor=request.param)


@quick
@given(tables())
def test_a_diagram_is_its_table(made: Table) -> None:
    np.testing.assert_allclose(entries(from_table(*made, Means())), spread(*made), rtol=1e-13)
    scope, values = residues(made)
    assert np.array_equal(entries(from_table(scope, values, Means(PRIME)), PRIME), spread(scope, values))


@quick
@given(tables(), tables(), st.booleans())
def test_products_and_sums(a: Table, b: Table, add_up: bool) -> None:
    check_floats(a, b, add_up)
    check_residues(residues(a), residues(b), add_up)


def check_floats(a: Table, b: Table, add_up: bool) -> None:
    x, y = from_table(*a, Means()), from_table(*b, Means())
    want = spread(*a) * spread(*b)
    if add_up:
        want = np.broadcast_to(want.sum(max(a[0][-1], b[0][-1]), keepdims=True), SIZES)
    if x.diagram is None or y.diagram is None:
        return
    found = product(x.diagram, y.diagram, sizes=SIZES, means=Means(), add_up=add_up)
    off = (x.moved + y.moved + found.moved) * 2.0**-52
    np.testing.assert_allclose(entries(found) * x.number * y.number, want, rtol=off + 1e-14)
    assert off < 1e-11


def check_residues(a: Table, b: Table, add_up: bool) -> None:
    x, y = from_table(*a, Means(PRIME)), from_table(*b, Means(PRIME))
    if x.diagram is None or y.diagram is None:
        return
    want = spread(*a).astype(np.int64).astype(object) * spread(*b).astype(np.int64).astype(object) % PRIME
    if add_up:
        want = np.broadcast_to(want.sum(max(a[0][-1], b[0][-1]), keepdims=True) % PRIME, SIZES)
    found = entries(product(x.diagram, y.diagram, sizes=SIZES, means=Means(PRIME), add_up=add_up), PRIME)
    assert np.array_equal(found.astype(np.int64).astype(object) * int(x.number) * int(y.number) % PRIME, want)


def test_multiples_are_one_node() -> None:
    rng = np.random.default_rng(1)
    values = np.multiply.outer(rng.uniform(1e-3, 1, 7), rng.uniform(1e-3, 1, (5, 3)))
    made = from_table(np.arange(3), values, Means())
    assert made.diagram is not None
    assert made.diagram.nodes.tolist() == [1, 1, 5, 1]
    factors = rng.integers(1, PRIME, 7).astype(object)
    whole = np.multiply.outer(factors, rng.integers(1, PRIME, (5, 3)).astype(object)) % PRIME
    made = from_table(np.arange(3), whole.astype(float), Means(PRIME))
    assert made.diagram is not None
    assert made.diagram.nodes.tolist() == [1, 1, 5, 1]


@pytest.mark.parametrize("ulps", [1, 63])
@pytest.mark.parametrize("first", [0.7, 1.0, 0.5, 0.3])
def test_what_rounding_moved_is_the_same(first: float, ulps: int) -> None:
    near = (np.array([first]).view(np.int64) - ulps).view(np.float64)[0]
    made = from_table(np.arange(2), np.array([[1.0, first], [1.0, near]]), Means())
    assert made.diagram is not None
    assert made.diagram.nodes.tolist() == [1, 1, 1]
    assert ulps <= made.moved < ulps + 20


def test_what_differs_stays_different() -> None:
    values = np.array([[1.0, 0.7], [1.0, 0.7 * (1 - 1e-13)], [1.0, 1 - 1e-13]])
    made = from_table(np.arange(2), values, Means())
    assert made.diagram is not None
    assert made.diagram.nodes.tolist() == [1, 3, 1]


def random_pair(k: int) -> tuple[Factor, Factor, NDArray[np.int64]]:
    """Two factors of k and k + 1 variables that take turns and share the first; no two rows are alike."""
    rng = np.random.default_rng(3)
    sizes = np.full(2 * k, 4)
    scopes = (np.arange(0, 2 * k, 2), np.array([0, *range(1, 2 * k, 2)]))
    a, b = (from_table(scope, rng.uniform(0.1, 1, [4] * len(scope)), Means()) for scope in scopes)
    return a, b, sizes


@pytest.mark.parametrize("scatter", [DiagramPolicy().hash_factor], indirect=True)
def test_limits_are_held() -> None:
    a, b, sizes = random_pair(4)
    assert a.diagram is not None
    assert b.diagram is not None
    found = product(a.diagram, b.diagram, sizes=sizes, means=Means())
    assert found.edges > 20_000
    assert found.diagram is not None
    product(a.diagram, b.diagram, sizes=sizes, means=Means(edges=found.edges))
    for means in (Means(edges=found.edges - 1), Means(memory_bytes=found.edges * 8), Means(memory_bytes=100)):
        with pytest.raises(NoRoomError):
            product(a.diagram, b.diagram, sizes=sizes, means=means)
    with pytest.raises(NoRoomError):
        from_table(np.arange(2), np.ones((100, 100)), Means(memory_bytes=10_000))
    with pytest.raises(DiagramStoppedError):
        product(a.diagram, b.diagram, sizes=sizes, means=Means(stop=lambda: True))


def test_what_is_too_small_is_refused() -> None:
    sizes = np.array([2, 2])
    with pytest.raises(VanishedError):
        from_table(np.arange(1), np.array([1.0, LEAST_FACTOR / 2]), Means())
    a = from_table(np.arange(1), np.array([1e-200, 1.0]), Means()).diagram
    b = from_table(np.arange(1), np.array([1.0, 1e-200]), Means()).diagram
    c = from_table(np.arange(1), np.array([1e-200, 0.0]), Means())
    assert a is not None
    assert c.diagram is not None
    assert c.number == 1e-200
    assert product(a, c.diagram, sizes=sizes, means=Means()).number == 1e-200
    both = product(a, b, sizes=sizes, means=Means())
    np.testing.assert_allclose(values_of(both, sizes), 1e-200, rtol=1e-13)
    with pytest.raises(VanishedError):
        product(a, a, sizes=sizes, means=Means())
