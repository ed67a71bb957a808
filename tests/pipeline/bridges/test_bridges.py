"""Models from networks of other libraries and as such: their answers, and what is refused."""

from __future__ import annotations

import itertools
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import BudgetError, Model, ModelError


@pytest.fixture
def gum() -> Any:
    """pyAgrum, whose modules in C warn when they are loaded, and crash where that is an error."""
    found = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.MarkovRandomField()
        assert found.InfluenceDiagram()
    return found


def same(one: Model, other: Model) -> None:
    """Two models have the same posteriors, with and without evidence."""
    assert {*one.names} == {*other.names}
    for evidence in ({}, {one.names[0]: one.label(0, 0)}):
        first, second = bucketflow.marginals(one, evidence=evidence), bucketflow.marginals(other, evidence=evidence)
        assert first.log10_evidence == pytest.approx(second.log10_evidence, abs=1e-9)
        for name in first:
            assert [*map(str, first.labels(name))] == [*map(str, second.labels(name))]
            np.testing.assert_allclose(first[name], second[name], atol=1e-12)


def weather() -> Model:
    """A network whose tables list the child in the middle of some scopes, as files may."""
    rain, wet = np.array([0.7, 0.3]), np.array([[[0.9, 0.1], [0.4, 0.6]], [[0.2, 0.8], [0.05, 0.95]], [[0, 1], [1, 0]]])
    return Model.build(
        "bayes",
        {"rain": ["no", "yes"], "hose": 3, "wet": ["dry", "damp"]},
        [(("rain",), rain), (("hose",), [0.5, 0.25, 0.25]), (("hose", "rain", "wet"), wet)],
    )


def triangle() -> Model:
    rng = np.random.default_rng(3)
    pairs = [((a, b), rng.random((2, 2)) + 0.1) for a, b in itertools.combinations("abc", 2)]
    return Model.build("markov", {name: ["off", "on"] for name in "abc"}, [*pairs, (("a",), [0.2, 0.8])])


@pytest.mark.parametrize("model", [weather(), triangle()], ids=["bayes", "markov"])
def test_pyagrum_and_back(gum: Any, model: Model) -> None:
    network = bucketflow.to_pyagrum(model)
    assert isinstance(network, gum.BayesNet if model.kind == "bayes" else gum.MarkovRandomField)
    inference = gum.LazyPropagation(network) if model.kind == "bayes" else gum.ShaferShenoyMRFInference(network)
    inference.makeInference()
    found = bucketflow.marginals(model)
    for name in model.names:
        np.testing.assert_allclose(inference.posterior(name).toarray(), found[name], atol=1e-12)
    del inference  # before its network: it has no reference of its own
    same(model, bucketflow.from_pyagrum(network))


def test_networks_of_pyagrum(gum: Any) -> None:
    gum.initRandom(5)
    network = gum.randomBN(n=9, ratio_arc=1.5, domain_size=4)
    inference = gum.LazyPropagation(network)
    inference.makeInference()
    found = bucketflow.marginals(bucketflow.from_pyagrum(network))
    for name in network.names():
        np.testing.assert_allclose(found[name], inference.posterior(name).toarray(), atol=1e-12)
    with pytest.raises(ModelError, match="a Bayesian network or Markov random field of pyAgrum is expected, found"):
        bucketflow.from_pyagrum(gum.InfluenceDiagram())


@pytest.mark.parametrize("model", [weather(), triangle()], ids=["bayes", "markov"])
def test_pgmpy_and_back(model: Model) -> None:
    pytest.importorskip("pgmpy.models", reason="pgmpy is not installed")
    elimination = pytest.importorskip("pgmpy.inference").VariableElimination
    network = bucketflow.to_pgmpy(model)
    assert network.check_model()
    found, theirs = bucketflow.marginals(model), elimination(network)
    for name in model.names:
        values = theirs.query([name], show_progress=False).values
        np.testing.assert_allclose(values / values.sum(), found[name], atol=1e-12)
    same(model, bucketflow.from_pgmpy(network))


def table(variable: str, variables: list[str], values: Any, states: dict[str, list[Any]]) -> SimpleNamespace:
    """What from_pgmpy reads of a TabularCPD; the variable's own axis is the first."""
    return SimpleNamespace(variable=variable, variables=variables, values=np.array(values), state_names=states)


def test_tables_of_pgmpy_may_order_states_in_other_ways() -> None:
    rain = table("rain", ["rain"], [0.7, 0.3], {"rain": ["no", "yes"]})
    wet = table("wet", ["wet", "rain"], [[0.8, 0.1], [0.2, 0.9]], {"wet": [0, 1], "rain": ["yes", "no"]})
    network = SimpleNamespace(get_cpds=lambda: [rain, wet], nodes=lambda: ["rain", "wet"])
    model = bucketflow.from_pgmpy(network)
    assert model.states == (("no", "yes"), ("0", "1"))
    np.testing.assert_allclose(bucketflow.marginals(model)["wet"], [0.8 * 0.3 + 0.1 * 0.7, 0.2 * 0.3 + 0.9 * 0.7])
    other = table("wet", ["wet", "rain"], [[0.8, 0.1], [0.2, 0.9]], {"wet": [0, 1], "rain": ["yes", "maybe"]})
    with pytest.raises(ModelError, match="tables do not agree on the states of 'rain'"):
        bucketflow.from_pgmpy(SimpleNamespace(get_cpds=lambda: [rain, other], nodes=lambda: ["rain", "wet"]))
    with pytest.raises(ModelError, match="the network has no table of 'fog'"):
        bucketflow.from_pgmpy(SimpleNamespace(get_cpds=lambda: [rain], nodes=lambda: ["rain", "fog"]))
    with pytest.raises(ModelError, match="networks of tables"):
        bucketflow.from_pgmpy(SimpleNamespace(get_cpds=lambda: [object()], nodes=lambda: ["rain"]))
    with pytest.raises(ModelError, match="a Bayesian or Markov network of pgmpy is expected, found dict"):
        bucketflow.from_pgmpy({})


@pytest.mark.parametrize("export", [bucketflow.to_pgmpy, bucketflow.to_pyagrum])
def test_what_other_libraries_cannot_hold_is_refused(export: Any) -> None:
    costs = Model.build("cost", {"a": 2}, [(("a",), [1, 2])])
    with pytest.raises(ModelError, match="has no networks of costs"):
        export(costs)
    observed = Model("markov", ("a",), (2,), (None,), (), evidence={0: 1})
    with pytest.raises(ModelError, match="stores no evidence in a network"):
        export(observed)
    hidden = Model("markov", ("a", "b"), (2, 2), (None, None), (), hidden=1)
    with pytest.raises(ModelError, match="has no hidden variables, but the model has 1"):
        export(hidden)


def graph(edges: list[tuple[Any, Any, dict[str, Any]]], nodes: dict[Any, dict[str, Any]], directed: bool) -> Any:
    nx = pytest.importorskip("networkx", reason="networkx is not installed")
    made = nx.DiGraph() if directed else nx.Graph()
    made.add_nodes_from(nodes.items())
    made.add_edges_from(edges)
    return made


def test_graphs_of_networkx_are_coloured() -> None:
    nx = pytest.importorskip("networkx", reason="networkx is not installed")
    model = bucketflow.from_networkx(nx.petersen_graph(), "cost", states=3, edges=np.eye(3, dtype=int))
    assert bucketflow.solve(model).value == 0
    # the chromatic polynomial of the Petersen graph at 3
    allowed = bucketflow.from_networkx(nx.petersen_graph(), states=3, edges=1 - np.eye(3))
    assert bucketflow.solve(allowed, "count").value == 120


def test_edges_of_networkx_have_an_order() -> None:
    nodes: dict[Any, dict[str, Any]] = {"a": {"states": ["x", "y"], "table": [1.0, 2.0]}, "b": {"states": 3}}
    values = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    expected = np.array(values) * [[1.0], [2.0]]
    told = ("b", "a", {"table": values, "scope": "ab"})
    for edge, directed in ((("a", "b", {"table": values}), True), (told, False)):
        model = bucketflow.from_networkx(graph([edge], nodes, directed))
        found = bucketflow.marginals(model)
        np.testing.assert_allclose(found["b"], expected.sum(axis=0) / expected.sum())
    with pytest.raises(ModelError, match="an undirected edge has no first node: give it the attribute 'scope'"):
        bucketflow.from_networkx(graph([("a", "b", {"table": values})], nodes, directed=False))
    with pytest.raises(ModelError, match="the scope of an edge names its nodes, 'a' and 'b', not"):
        bucketflow.from_networkx(graph([("a", "b", {"table": values, "scope": "ac"})], nodes, directed=False))
    with pytest.raises(ModelError, match="node 'c' has no states"):
        bucketflow.from_networkx(graph([], {"c": {}}, directed=False))


def test_directed_graphs_of_networkx_are_bayesian_networks() -> None:
    wet = [[[0.9, 0.1], [0.4, 0.6]], [[0.2, 0.8], [0.05, 0.95]], [[0, 1], [1, 0]]]
    nodes: dict[Any, dict[str, Any]] = {
        "wet": {"states": ["dry", "damp"], "table": wet, "parents": ["hose", "rain"]},
        "rain": {"states": ["no", "yes"], "table": [0.7, 0.3]},
        "hose": {"states": 3, "table": [0.5, 0.25, 0.25]},
    }
    edges: list[tuple[Any, Any, dict[str, Any]]] = [("rain", "wet", {}), ("hose", "wet", {})]
    same(bucketflow.from_networkx(graph(edges, nodes, directed=True), "bayes"), weather())
    with pytest.raises(ModelError, match="the parents of node 'wet' differ from the parents by its edges"):
        bucketflow.from_networkx(graph(edges[:1], nodes, directed=True), "bayes")
    with pytest.raises(ModelError, match="a Bayesian network is a directed graph"):
        bucketflow.from_networkx(graph(edges, nodes, directed=False), "bayes")
    with pytest.raises(ModelError, match="node 'fog' has no distribution"):
        bucketflow.from_networkx(graph([], {"fog": {"states": 2}}, directed=True), "bayes")


def frames() -> list[Any]:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    model, made = weather(), []
    for f in model.functions:
        rows = []
        for at in itertools.product(*(range(model.dims[v]) for v in f.scope)):
            labels = [str(model.label(v, s)) for v, s in zip(f.scope, at, strict=True)]
            rows.append([*labels, f.at(at)])
        made.append(pd.DataFrame(rows, columns=[*(model.names[v] for v in f.scope), "value"]))
    return made


def test_long_tables_of_pandas() -> None:
    tables = frames()
    shuffled = [frame.sample(frac=1, random_state=2) for frame in tables[::-1]]
    states = {"rain": ["no", "yes"], "hose": ["0", "1", "2"], "wet": ["dry", "damp"]}
    same(bucketflow.from_pandas(tables, "bayes"), weather())
    same(bucketflow.from_pandas(shuffled, "bayes", states=states), weather())
    tables[0]["rain"] = tables[0]["rain"].astype("category").cat.reorder_categories(["yes", "no"])
    assert bucketflow.from_pandas(tables, "bayes").states[0] == ("yes", "no")
    sparse = [*tables[:2], tables[2][tables[2]["value"] > 0]]
    with pytest.raises(ModelError, match="has no row for 2 of its joint states, and no default is given"):
        bucketflow.from_pandas(sparse, "bayes")
    found = bucketflow.marginals(bucketflow.from_pandas(sparse, "bayes", default=0))
    np.testing.assert_allclose(found["wet"], bucketflow.marginals(weather())["wet"])


def test_what_is_wrong_with_a_long_table_is_said() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    one = pd.DataFrame({"a": ["x", "y"], "value": [1, 2]})
    assert bucketflow.solve(bucketflow.from_pandas([one, pd.DataFrame({"value": [3]})], "cost")).value == 4
    for frame, told in (
        (one.rename(columns={"value": "cost"}), "a table has no column 'value'; its columns are a, cost"),
        (pd.concat([one, one]), "the table over a has several rows, or none, for one joint state"),
        (pd.DataFrame({"a": ["x", None], "value": [1, 2]}), "the column 'a' has empty cells"),
        (pd.DataFrame({"value": [1, 2]}), "the table over no variables has several rows, or none"),
    ):
        with pytest.raises(ModelError, match=told):
            bucketflow.from_pandas([frame], "cost")
    with pytest.raises(ModelError, match="the table over a has the state 'y', which its variable does not have"):
        bucketflow.from_pandas([one], "cost", states={"a": ["x", "z"]})


def test_networks_of_pytoulbar2() -> None:
    tb2 = pytest.importorskip("pytoulbar2", reason="pytoulbar2 is not installed")
    network = tb2.CFN(ubinit=50, resolution=1)
    network.AddVariable("x", ["a", "b"])
    network.AddVariable("y", range(5, 8))
    network.AddVariable("z", range(2))
    network.AddFunction(["x"], [1.5, 0])
    network.AddFunction(["x", "y"], [0, 1, 2.5, 3, 4, 5])
    network.AddCompactFunction(["x", "y", "z"], 0.5, [(0, 0, 0), (1, 2, 1)], [50, 0])
    model = bucketflow.from_pytoulbar2(network)
    assert model.states == (("a", "b"), ("5", "6", "7"), ("0", "1"))
    _, cost, _ = network.Solve()
    found = bucketflow.solve(model)
    assert float(str(found.value)) == pytest.approx(cost)
    with pytest.raises(ModelError, match="this CFN was solved, which changed its costs"):
        bucketflow.from_pytoulbar2(network)
    with pytest.raises(ModelError, match="a CFN of pytoulbar2 is expected, found dict"):
        bucketflow.from_pytoulbar2({})


def test_linear_constraints_of_pytoulbar2() -> None:
    tb2 = pytest.importorskip("pytoulbar2", reason="pytoulbar2 is not installed")
    network = tb2.CFN(ubinit=1000)
    names = [f"v{k}" for k in range(8)]
    for k, name in enumerate(names):
        network.AddVariable(name, range(3))
        network.AddFunction([name], [0, (3 * k + 2) % 5, (5 * k + 1) % 7])
    network.AddLinearConstraint([1, 2, 3, 1, 2, 3, 1, 2], names, ">=", 17)
    model = bucketflow.from_pytoulbar2(network)
    totals = [
        sum((0, (3 * k + 2) % 5, (5 * k + 1) % 7)[s] for k, s in enumerate(states))
        for states in itertools.product(range(3), repeat=8)
        if sum(c * s for c, s in zip((1, 2, 3, 1, 2, 3, 1, 2), states, strict=True)) >= 17
    ]
    assert bucketflow.solve(model).value == min(totals)
    assert bucketflow.solve(model, "count").value == len(totals)
    assert model.own_names == tuple(names)


@pytest.mark.parametrize("flat", [False, True])
def test_arrays(flat: bool) -> None:
    rng = np.random.default_rng(5)
    sizes, scopes = np.array([2, 3, 2]), [[0], [0, 1], [2, 1], 1]
    tables = [rng.integers(0, 9, [sizes[v] for v in np.ravel(scope)]) for scope in scopes]
    given = [table.ravel() for table in tables] if flat else tables
    model = bucketflow.from_arrays(sizes, scopes, given, "cost", names="abc")
    totals = {
        (x, y, z): tables[0][x] + tables[1][x, y] + tables[2][z, y] + tables[3][y]
        for x, y, z in itertools.product(*map(range, sizes))
    }
    assert bucketflow.solve(model).value == min(totals.values())
    assert {states: model.cost(states) for states in totals} == totals
    pairs = bucketflow.from_arrays([2] * 3, np.array([[0, 1], [1, 2]]), np.ones((2, 2, 2)))
    assert pairs.names == ("x0", "x1", "x2")
    assert bucketflow.solve(pairs, "partition").log10 == pytest.approx(np.log10(8))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (([2.5], [], []), "numbers of states must be integers, found an array of float64"),
        (([2], [[0]], []), "each factor needs a scope and a table, found 1 scopes and 0 tables"),
        (([2], [[1]], [[1, 2]]), "factor 0 is over variable 1, and variables are from 0 to 0"),
        (([2], [[-1]], [[1, 2]]), "factor 0 is over variable -1"),
        (([2], [["a"]], [[1, 2]]), "the scope of factor 0 must be integers"),
        (([2, 2], [[0, 1]], [[1, 2, 3]]), "shape"),
    ],
)
def test_arrays_that_do_not_fit(given: Any, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        bucketflow.from_arrays(*given)
    with pytest.raises(ModelError, match="1 variables need as many different names, found 2"):
        bucketflow.from_arrays([2], [], [], names="ab")


@pytest.mark.parametrize("given", [None, 5, "abc", [None], {"x": [1]}])
def test_other_things_than_tables_and_graphs_are_named(given: Any) -> None:
    with pytest.raises(ModelError, match=r"tables of pandas are expected, found \w+"):
        bucketflow.from_pandas(given)
    with pytest.raises(ModelError, match=r"a graph of networkx is expected, found \w+"):
        bucketflow.from_networkx(given, states=2)


def test_a_single_table_is_a_list_of_one() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": ["x", "y"], "value": [1.0, 2.0]})
    assert bucketflow.from_pandas(frame).variables == bucketflow.from_pandas([frame]).variables
    twice = pandas.DataFrame([[1, 2, 3]], columns=["a", "a", "value"])
    with pytest.raises(ModelError, match="two columns of one name, among a, a, value"):
        bucketflow.from_pandas(twice)


def test_sizes_are_multiplied_before_tables_are_made() -> None:
    networkx, pandas = pytest.importorskip("networkx"), pytest.importorskip("pandas")
    columns = {f"c{k}": range(1000) for k in range(6)}
    with pytest.raises(BudgetError, match=r"a table over c0, .* takes at least .* PB of memory, allowed"):
        bucketflow.from_pandas([pandas.DataFrame({**columns, "value": 1.0})], default=0)
    with pytest.raises(BudgetError, match=r"a list of all states takes at least 32 TB of memory, allowed"):
        bucketflow.from_networkx(networkx.path_graph(2), states=10**12)
