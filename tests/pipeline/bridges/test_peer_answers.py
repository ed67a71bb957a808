"""Networks from other libraries: every posterior and optimum is the one that the library finds itself."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model, ModelError

SEEDS = range(6)


@pytest.fixture
def gum() -> Any:
    """pyAgrum, whose modules in C warn when they are loaded, and crash where that is an error."""
    found = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.MarkovRandomField()
    return found


@pytest.fixture
def pgmpy() -> Any:
    pytest.importorskip("pgmpy", reason="pgmpy is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgmpy.factors.discrete
        import pgmpy.inference
        import pgmpy.models
    return pgmpy


def random_network(seed: int, kind: str = "bayes") -> Model:
    """A model of six variables with labels, zeros and scopes in odd orders."""
    rng = np.random.default_rng(seed)
    names = [f"v{k}" for k in range(6)]
    labels = {name: [f"{name}{s}" for s in "abcd"[: rng.integers(1, 5)]] for name in names}
    functions: list[Any] = []
    for k, name in enumerate(names):
        parents = [names[p] for p in rng.permutation(k)[: rng.integers(0, 3)]]
        table = rng.random([len(labels[each]) for each in (*parents, name)]) * (rng.random() < 0.8) + 0.05
        if kind == "bayes":
            table /= table.sum(axis=-1, keepdims=True)
        functions.append(((*parents, name), table))
    return Model.build("bayes" if kind == "bayes" else "markov", labels, functions)


def compare_with_pyagrum(gum: Any, network: Any, model: Model, evidence: dict[str, str]) -> None:
    directed = isinstance(network, gum.BayesNet)
    inference = gum.LazyPropagation(network) if directed else gum.ShaferShenoyMRFInference(network)
    inference.setEvidence(evidence)
    inference.makeInference()
    found = bucketflow.marginals(model, evidence=evidence)
    for name in model.own_names:
        np.testing.assert_allclose(found[name], np.ravel(inference.posterior(name).tolist()), atol=1e-9)


ROOTS = ("a", "b", "c")
# The method that adds a node, its states, further arguments, and whether its arcs have weights.
IMPLICIT: dict[str, tuple[tuple[int, int], tuple[Any, ...], bool]] = {
    "addNoisyOR": ((0, 1), (0.15,), True),
    "addNoisyORNet": ((0, 1), (0.15,), True),
    "addNoisyORCompound": ((0, 1), (0.15,), True),
    "addNoisyAND": ((0, 1), (0.15,), True),
    "addLogit": ((0, 1), (0.15,), True),
    "addOR": ((0, 1), (), False),
    "addAND": ((0, 1), (), False),
    "addMIN": ((0, 2), (), False),
    "addMAX": ((0, 2), (), False),
    "addMEDIAN": ((0, 2), (), False),
    "addEXISTS": ((0, 1), (1,), False),
    "addFORALL": ((0, 1), (1,), False),
    "addCOUNT": ((0, 3), (1,), False),
    "addSUM": ((0, 6), (), False),
    "addAMPLITUDE": ((0, 2), (), False),
}


def implicit_network(gum: Any, method: str) -> Any:
    """A node whose table is computed, its three parents, and a child of it."""
    (low, high), more, weighted = IMPLICIT[method]
    network, rng = gum.BayesNet(), np.random.default_rng(len(method))
    size = 2 if weighted or method in ("addOR", "addAND") else 3
    for name in ROOTS:
        network.add(gum.RangeVariable(name, name, 0, size - 1))
        network.cpt(name).fillWith(rng.dirichlet(np.ones(size)).tolist())
    getattr(network, method)(gum.RangeVariable("node", "node", low, high), *more)
    for name, weight in zip(ROOTS, (0.3, 0.6, 0.9), strict=True):
        network.addWeightedArc(name, "node", weight) if weighted else network.addArc(name, "node")
    network.add(gum.RangeVariable("leaf", "leaf", 0, 1))
    network.addArc("node", "leaf")
    network.cpt("leaf").fillWith(rng.dirichlet(np.ones(2), high - low + 1).ravel().tolist())
    return network


@pytest.mark.parametrize("method", IMPLICIT)
def test_tables_that_pyagrum_computes_when_asked(gum: Any, method: str) -> None:
    network = implicit_network(gum, method)
    model = bucketflow.from_pyagrum(network)
    compare_with_pyagrum(gum, network, model, {})
    compare_with_pyagrum(gum, network, model, {"leaf": "1"})
    compare_with_pyagrum(gum, network, model, {"a": "1", "leaf": "0"})
    node = next(f for f in model.functions if model.names[f.scope[-1]] == "node")
    assert node.dense(model.dims).sum(axis=-1) == pytest.approx(1.0)


def test_every_kind_of_node_of_pyagrum_is_tested(gum: Any) -> None:
    adding = {name for name in dir(gum.BayesNet) if name.startswith("add")}
    assert adding - {"add", "addArc", "addArcs", "addStructureListener", "addVariables", "addWeightedArc"} <= {
        *IMPLICIT
    }


def test_a_table_whose_cells_are_not_those_of_the_library_is_refused(gum: Any) -> None:
    class Garbage:
        names = ("x",)

        def tolist(self) -> list[float]:
            return [4e-310, 0.0]

        def variable(self, _name: str) -> Any:
            return gum.LabelizedVariable("x", "x", 2)

        def sum(self) -> float:
            return 1.0

    class Network:
        def nodes(self) -> list[int]:
            return [0]

        def variable(self, _node: int) -> Any:
            return gum.LabelizedVariable("x", "x", 2)

        def cpt(self, _name: str) -> Garbage:
            return Garbage()

    with pytest.raises(ModelError, match="pyAgrum gives the sum 1"):
        bucketflow.from_pyagrum(Network())


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_of_pyagrum(gum: Any, seed: int) -> None:
    gum.initRandom(seed + 1)
    network = gum.randomBN(n=7, domain_size=3)
    model = bucketflow.from_pyagrum(network)
    name = model.names[seed]
    compare_with_pyagrum(gum, network, model, {})
    compare_with_pyagrum(gum, network, model, {name: str(model.label(seed, 1))})


@pytest.mark.parametrize("kind", ["bayes", "markov"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_models_in_pyagrum(gum: Any, seed: int, kind: str) -> None:
    model = random_network(seed, kind)
    network = bucketflow.to_pyagrum(model)
    for evidence in ({}, {"v1": "v1a"}):
        compare_with_pyagrum(gum, network, model, evidence)
        compare_with_pyagrum(gum, network, bucketflow.from_pyagrum(network), evidence)


def compare_with_pgmpy(pgmpy: Any, network: Any, model: Model, evidence: dict[str, Any]) -> None:
    inference = pgmpy.inference.VariableElimination(network)
    found = bucketflow.marginals(model, evidence=evidence)
    for name in model.own_names:
        if name in evidence:
            continue
        factor = inference.query([name], evidence=evidence, show_progress=False)
        own = [factor.get_value(**{name: state}) for state in network.states[name]]
        assert [str(state) for state in network.states[name]] == [str(label) for label in found.labels(name)]
        np.testing.assert_allclose(found[name], own, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "states", [[1, 2, 3], [3, 1, 2], [True, False], ["1", "2", "0"], [0.5, 1.5], [0, 1, 2]], ids=str
)
def test_states_of_pgmpy_are_those_of_its_evidence(pgmpy: Any, states: list[Any]) -> None:
    size, rng = len(states), np.random.default_rng(7)
    table = pgmpy.factors.discrete.TabularCPD
    network = pgmpy.models.DiscreteBayesianNetwork([("x", "y")])
    first, second = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(2), size).T
    network.add_cpds(
        table("x", size, first[:, None], state_names={"x": states}),
        table("y", 2, second, ["x"], [size], state_names={"y": [1, 0], "x": states}),
    )
    model = bucketflow.from_pgmpy(network)
    for state in states:
        compare_with_pgmpy(pgmpy, network, model, {"x": state})
    for state in (0, 1):
        compare_with_pgmpy(pgmpy, network, model, {"y": state})
    again = bucketflow.to_pgmpy(model)
    assert again.states["x"] == states
    assert [*map(type, again.states["x"])] == [*map(type, states)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_of_pgmpy(pgmpy: Any, seed: int) -> None:
    network = pgmpy.models.DiscreteBayesianNetwork.get_random(n_nodes=6, edge_prob=0.4, n_states=3, seed=seed)
    model = bucketflow.from_pgmpy(network)
    compare_with_pgmpy(pgmpy, network, model, {})
    node = next(iter(network.nodes()))
    compare_with_pgmpy(pgmpy, network, model, {node: network.states[node][1]})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["bayes", "markov"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_models_in_pgmpy(pgmpy: Any, seed: int, kind: str) -> None:
    model = random_network(seed, kind)
    network = bucketflow.to_pgmpy(model)
    if kind == "markov":
        again = bucketflow.from_pgmpy(network)
        for evidence in ({}, {"v1": "v1a"}):
            one, other = bucketflow.marginals(model, evidence=evidence), bucketflow.marginals(again, evidence=evidence)
            assert all(one[name] == pytest.approx(other[name], abs=1e-12) for name in model.names)
        for f, factor in zip(model.functions, network.get_factors(), strict=True):
            np.testing.assert_array_equal(factor.values, f.dense(model.dims))
        return
    for own in ({}, {"v1": "v1a"}):
        compare_with_pgmpy(pgmpy, network, model, own)
        compare_with_pgmpy(pgmpy, network, bucketflow.from_pgmpy(network), own)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_of_pytoulbar2(seed: int) -> None:
    library = pytest.importorskip("pytoulbar2", reason="pytoulbar2 is not installed")
    rng = np.random.default_rng(seed)
    network = library.CFN(1000)
    sizes = rng.integers(2, 4, 5).tolist()
    for v, size in enumerate(sizes):
        network.AddVariable(f"v{v}", [3 - k for k in range(size)])
    for a, b in itertools.combinations(range(5), 2):
        network.AddFunction([a, b], rng.integers(0, 20, sizes[a] * sizes[b]).tolist())
    model = bucketflow.from_pytoulbar2(network)
    chosen = bucketflow.solve(model, evidence={"v0": 3})
    found = network.Solve()
    assert found is not None
    best = bucketflow.solve(model)
    assert float(best.value or 0) == pytest.approx(found[1])
    assert chosen.assignment is not None
    assert chosen.assignment["v0"] == "3"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs_of_networkx(seed: int) -> None:
    """networkx has no inference: the sum is compared with the one over all joint states of its tables."""
    library = pytest.importorskip("networkx", reason="networkx is not installed")
    rng = np.random.default_rng(seed)
    graph = library.gnp_random_graph(5, 0.6, seed=seed, directed=True)
    states = {node: [2, 1, 0][: rng.integers(1, 4)] for node in graph}
    library.set_node_attributes(graph, states, "states")
    tables = {(a, b): rng.random((len(states[a]), len(states[b]))) for a, b in graph.edges}
    library.set_edge_attributes(graph, tables, "table")
    model = bucketflow.from_networkx(graph)
    sums = dict.fromkeys(states[0], 0.0)
    for joint in itertools.product(*(range(len(states[node])) for node in graph)):
        product = np.prod([table[joint[a], joint[b]] for (a, b), table in tables.items()])
        sums[states[0][joint[0]]] += float(product)
    for state, expected in sums.items():
        found = bucketflow.solve(model, "partition", evidence={"0": state})
        assert 10 ** (found.log10 or 0.0) == pytest.approx(expected)


def test_integers_of_cpmpy_are_observed_by_value() -> None:
    cpmpy = pytest.importorskip("cpmpy", reason="CPMpy is not installed")
    x, y = cpmpy.intvar(1, 3, name="x"), cpmpy.intvar(-1, 1, name="y")
    model = bucketflow.from_cpmpy(cpmpy.Model(x + y == 2))
    for value in (1, 2, 3):
        assert bucketflow.solve(model, evidence={"x": value}).assignment == {"x": str(value), "y": str(2 - value)}
    with pytest.raises(ModelError, match="has no state 0"):
        bucketflow.solve(model, evidence={"x": 0})


def test_columns_of_pandas_keep_the_types_of_states() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"x": [3.0, 1.0, 2.0], "value": [0.5, 0.2, 0.3]})
    model = bucketflow.from_pandas([frame])
    for state, weight in ((1, 0.2), (2.0, 0.3), ("3.0", 0.5)):
        found = bucketflow.solve(model, "partition", evidence={"x": state})
        assert 10 ** (found.log10 or 0.0) == pytest.approx(weight)


@pytest.mark.parametrize("name", ["asia", "child", "alarm"])
def test_pyagrum_learns_the_same_tables(gum: Any, name: str, data: Path, tmp_path: Path) -> None:
    """Three iterations of EM from the same start, a fifth of the cells missing, 1 pseudo-count for each entry."""
    model, rng = bucketflow.load(data / "bn" / f"{name}.bif.gz"), np.random.default_rng(0)
    states = bucketflow.sample(model, 100, seed=1).states
    states = np.where(rng.random(states.shape) < 0.2, -1, states)
    cells = {each: column.astype(np.int64) for each, column in zip(model.names, states.T, strict=True)}
    start = bucketflow.fit(model, cells, start="random", iterations=0).model
    rows = [[str(model.label(v, s)) if s >= 0 else "?" for v, s in enumerate(row)] for row in states.tolist()]
    table = tmp_path / "rows.csv"
    table.write_text("\n".join(",".join(row) for row in [[*model.names], *rows]))
    network = bucketflow.to_pyagrum(start)
    learner = gum.BNLearner(str(table), network, ["?"])
    learner.useSmoothingPrior(1)
    learner.useEM(1e-12, 0.0)
    learner.EMsetMaxIter(3)
    theirs = bucketflow.from_pyagrum(learner.learnParameters(network))
    ours = bucketflow.fit(start, cells, prior=1, iterations=learner.EMnbrIterations(), tolerance=0)
    labelled = {
        each: [None if cell == "?" else cell for cell in column]
        for each, column in zip(model.names, zip(*rows, strict=True), strict=True)
    }
    expected = bucketflow.fit(theirs, labelled, iterations=0).log_likelihood
    assert ours.log_likelihood == pytest.approx(expected, rel=1e-6)
    assert ours.log_likelihood > ours.log_likelihoods[0]
