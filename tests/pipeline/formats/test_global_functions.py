"""Global cost functions of every kind, compared with their definitions for all questions, and with toulbar2."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.global_functions.global_kinds import KINDS, NESTED
from bucketflow.pipeline.formats.read import load

from .global_definitions import MAKERS, TOP, Global
from .test_formats_data import toulbar2

Costs = dict[tuple[int, ...], int]
# Everything as tables, as chains with values counted together, and as chains of each value.
POLICIES: tuple[dict[str, int], ...] = (
    {},
    {"global_table_cells": 0},
    {"global_table_cells": 0, "joint_machine_states": 1},
)
Tables = list[tuple[tuple[int, ...], dict[tuple[int, ...], int]]]


def dims_of(kind: str) -> list[int]:
    """Return domain sizes that a kind takes."""
    if kind in ("knapsack", "knapsackc"):
        return [2] * 5
    return [4] * 5 if kind in ("MST", "smstdp") else [3, 3, 2, 3, 3]


def random_tables(rng: Random, dims: Sequence[int]) -> Tables:
    """Return costs of some variables and pairs, a few of them forbidden."""
    scopes = [(v,) for v in range(len(dims))] + [tuple(rng.sample(range(len(dims)), 2)) for _ in range(2)]
    return [
        (scope, {s: rng.choice([0, 1, 2, 5, TOP]) for s in itertools.product(*(range(dims[v]) for v in scope))})
        for scope in scopes
    ]


def wcsp_text(dims: Sequence[int], functions: Sequence[Global], tables: Tables) -> str:
    lines = [f"p {len(dims)} {max(dims)} {len(functions) + len(tables)} {TOP}", " ".join(map(str, dims))]
    for f in functions:
        lines.append(f"{len(f.scope)} {' '.join(map(str, f.scope))} -1 {f.kind} {f.words}")
    for scope, costs in tables:
        lines.append(f"{len(scope)} {' '.join(map(str, scope))} 0 {len(costs)}")
        lines += [f"{' '.join(map(str, states))} {cost}" for states, cost in costs.items()]
    return "\n".join(lines) + "\n"


def cfn_text(dims: Sequence[int], functions: Sequence[Global], tables: Tables) -> str:
    """The same with names of variables, and functions by name."""
    names = [f"v{v}" for v in range(len(dims))]
    lines = [f'{{problem: {{name: p, mustbe: "<{TOP}"}}', "variables: {"]
    lines += [f"{name}: {d}" for name, d in zip(names, dims, strict=True)] + ["} functions: {"]
    for k, f in enumerate(functions):
        kind = "cfnconstraint" if f.kind in NESTED else f.kind
        scope = " ".join(names[v] for v in f.scope)
        lines.append(f'g{k}: {{scope: [{scope}] type: "{kind}" params: {f.params}}}')
    for k, (scope_, costs) in enumerate(tables):
        listed = " ".join(map(str, costs.values()))
        lines.append(f"f{k}: {{scope: [{' '.join(names[v] for v in scope_)}] costs: [{listed}]}}")
    return "\n".join([*lines, "}}"]) + "\n"


def every_cost(dims: Sequence[int], functions: Sequence[Global], tables: Tables) -> Costs:
    """Return what each allowed assignment costs, by the definitions."""
    found = {}
    for states in itertools.product(*map(range, dims)):
        total: float = sum(costs[tuple(states[v] for v in scope)] for scope, costs in tables)
        total += sum(f.charge([states[v] for v in f.scope]) for f in functions)
        if total < TOP:
            found[states] = round(total)
    return found


def check_every_answer(model: Model, wanted: Costs, dims: Sequence[int]) -> None:
    names = model.own_names
    assert len(names) == len(dims)
    for states in itertools.product(*map(range, dims)):
        assert model.cost(states) == wanted.get(states)
    result = bucketflow.solve(model)
    assert result.status == ("optimal" if wanted else "infeasible")
    assert bucketflow.solve(model, "count").value == len(wanted)
    if not wanted:
        return
    assert result.value == min(wanted.values())
    assert [*(result.assignment or {})] == [*names]
    assert wanted[tuple(map(int, (result.assignment or {}).values()))] == result.value
    found = bucketflow.marginals(model, max_marginals=True)
    assert [*found] == [*names]
    for v, name in enumerate(names):
        for state in range(dims[v]):
            best = min((c for states, c in wanted.items() if states[v] == state), default=math.inf)
            assert found[name][state] == best


Read = Callable[[str, str], Model]


def test_every_kind_is_compared() -> None:
    compared = {kind for kind, _ in MAKERS} | {"walldifferent", "MAX", "cfnconstraint", "weightedcspconstraint"}
    assert compared == {*KINDS, *NESTED}
    for kind, described in KINDS.items():
        if described.metrics and kind != "walldifferent":
            synonyms = {"var": "lin", "dec": "lin"} if kind[0] == "w" else {}
            assert {synonyms.get(m, m) for m in described.metrics.split()} == {m for k, m in MAKERS if k == kind}


@pytest.mark.parametrize(("kind", "metric"), MAKERS, ids=" ".join)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_all_answers_are_those_of_the_definition(
    read: Read, kind: str, metric: str, seed: int, policy: dict[str, int]
) -> None:
    rng, dims = Random(seed), dims_of(kind)
    functions = [MAKERS[kind, metric](rng, dims, kind, metric)]
    tables = random_tables(rng, dims)
    wanted = every_cost(dims, functions, tables)
    with FormatPolicy.using(**policy):
        models = [read(wcsp_text(dims, functions, tables), "a.wcsp")]
        models.append(read(cfn_text(dims, functions, tables), "a.cfn"))
    check_every_answer(models[0], wanted, dims)
    for states in itertools.product(*map(range, dims)):
        assert models[1].cost(states) == wanted.get(states)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_several_of_them_in_one_network(read: Read, seed: int, policy: dict[str, int]) -> None:
    rng, dims = Random(seed), [3, 3, 2, 3, 3]
    kinds = [key for key in MAKERS if dims_of(key[0]) == dims]
    functions = [MAKERS[key](rng, dims, *key) for key in rng.sample(kinds, 3)]
    tables = random_tables(rng, dims)
    wanted = every_cost(dims, functions, tables)
    name, text = rng.choice([("a.wcsp", wcsp_text), ("a.cfn", cfn_text)])
    with FormatPolicy.using(**policy):
        model = read(text(dims, functions, tables), name)
    check_every_answer(model, wanted, dims)


# In a .cfn toulbar2 1.4 does not read some kinds, compares for < and <= the other way round than its documentation and
# than in a .wcsp, and charges for sregulardp otherwise than in a .wcsp.
NOT_IN_CFN = ("knapsackc", "knapsackp", "salldiffkp", "wcsp", "<", "<=", "sregulardp")


@pytest.mark.parametrize("suffix", ["wcsp", "cfn"])
def test_optima_are_those_of_toulbar2(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("pytoulbar2")
    rng, paths = Random(7), []
    for k, key in enumerate(MAKERS):
        if suffix == "cfn" and key[0] in NOT_IN_CFN:
            continue
        dims = dims_of(key[0])
        functions, tables = [MAKERS[key](rng, dims, *key)], random_tables(rng, dims)
        paths.append(tmp_path / f"{k}.{suffix}")
        paths[-1].write_text({"wcsp": wcsp_text, "cfn": cfn_text}[suffix](dims, functions, tables))
    with FormatPolicy.using(global_table_cells=0):
        ours = [bucketflow.solve(load(path)).value for path in paths]
    theirs = [None if found is None else round(found[1]) for found in toulbar2(paths)]
    assert dict(zip(map(str, paths), ours, strict=True)) == dict(zip(map(str, paths), theirs, strict=True))


# A network of five variables of three states, and one global cost function over four of them.
HEAD = "p 5 3 1 50\n3 3 3 3 3\n4 0 1 2 3 -1 "
REFUSED = {
    "metric": ("salldiff lin 3", "3: expected a metric var, dec, decbi, found 'lin'"),
    "no metric": ("salldiff", "3: expected a word, found the end of the file"),
    "clique": ("clique 2 1 1 1 1 1 1 1 1", "3: expected a clique of right-hand side 1, found 2"),
    "negative cost": ("salldiff var -3", "3: expected a cost of at least 0, found '-3'"),
    "bounds": ("sgcc dec 3 1 0 2 1", "3: expected a lower bound up to the upper one, found 2 to 1 of value 0"),
    "bounds twice": ("sgcc dec 3 2 0 0 1 0 0 2", "3: expected bounds of each value once, found value 0 twice"),
    "lists": ("ssame 3 1 3 0 1 2 3", "3: expected two lists of as many variables, found 1 and 3"),
    "other lists": (
        "ssame 3 2 2 0 1 2 4",
        "3: expected two lists of the variables of the scope, found lists of other variables",
    ),
    "states": ("sregular var 3 2 1 0 1 2 1 0 0 1", "3: expected a state of the automaton from 0 to 1, found 2"),
    "symbols": ("sgrammar var 3 2 2 0 1 0 2 0", "3: expected a symbol of the grammar from 0 to 1, found 2"),
    "rules": ("sgrammar var 3 2 2 0 1 2 0 0 4", "3: expected rules with weights in a grammar of metric 'weight'"),
    "comparator": ("wsum lin 3 <> 4", "3: expected a comparator ==, !=, <, <=, >, >=, found '<>'"),
    "knapsack": ("knapsack 3 1 1 1 1", "3: expected a knapsack over variables of two states, found one of 3"),
    "at most one": ("knapsackc 3 0 0 0 0 0", "3: expected at-most-one constraints of variables of two states"),
    "value twice": ("knapsackp 3 2 1 1 1 2 0 0 0", "3: expected each value of a variable once, found a value twice"),
    "variable": ("smaxdp 3 1 4 0 1", "3: expected variables of the scope, found variable 4"),
    "tree": ("MST", None),
    "nested domains": ("wcsp 0 3 0 0 q 1 2 0 9 2", "3: expected a nested network over domains (3, 3, 3, 3), found"),
    "strong duality": (
        "wcsp 0 3 0 1 q 4 3 0 9 3 3 3 3",
        "3: expected a nested network without strong duality, found strongduality 1, which is not read",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_refused(name: str, read: Read) -> None:
    words, wanted = REFUSED[name]
    if wanted is None:
        assert read(f"{HEAD}{words}\n", "a.wcsp").own_names == ("x0", "x1", "x2", "x3", "x4")
        return
    with pytest.raises(FormatError) as caught:
        read(f"{HEAD}{words}\n", "a.wcsp")
    assert f"a.wcsp:{wanted}" in str(caught.value)


CFN_HEAD = "{problem: {name: p mustbe: <50} variables: {a: 3 b: 3 c: 3 d: 3} functions: {\nf: {scope: [a b c d] type: "
REFUSED_PARAMS = {
    "no params": ("salldiff", "2: expected 'params' of the global cost function 'salldiff', found none"),
    "no parameter": ("salldiff params: {cost: 3}", "2: expected the parameter 'metric', found '}'"),
    "another": ("salldiff params: {metric: var cost: 3 to: 1}", "2: expected the parameters metric, cost, once each"),
    "twice": ("salldiff params: {cost: 3 cost: 3}", "2: expected the parameters metric, cost, once each"),
    "negative": (
        "salldiff params: {metric: var cost: -3}",
        "2: expected costs of at least 0, or utilities of at most 0",
    ),
    "no list": ("wdiverse params: {distance: 1 values: 3}", "2: expected a list, found '3'"),
    "short list": (
        "wdiverse params: {distance: 1 values: [1 2]}",
        "2: expected a list of 4 entries, one for each variable, found 2",
    ),
    "items": ("sgcc params: {metric: dec cost: 1 bounds: [[1 2]]}", "2: expected a list of 3 items, found 2"),
    "costs": ("salldiff costs: [1 2]", "2: expected scope, type and params of the global cost function 'salldiff'"),
    "pairs": (">= params: [1 2]", "2: expected a function of two variables, found the global cost function '>=' of 4"),
    # as in toulbar2
    "label": (
        "wdiverse params: {distance: 1 values: [a b c d]}",
        "2: expected the index of a value of at least 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED_PARAMS)
def test_parameters_that_are_none_are_refused(name: str, read: Read) -> None:
    params, wanted = REFUSED_PARAMS[name]
    with pytest.raises(FormatError) as caught:
        read(f"{CFN_HEAD}{params}}}\n}}}}", "a.cfn")
    assert f"a.cfn:{wanted}" in str(caught.value)


def test_distances_have_no_decimals(read: Read) -> None:
    head = "{problem: {name: p mustbe: <50.0} variables: {a: 3 b: 3} functions: {u: {scope: [a] costs: [0.5 1 1]}\n"
    assert read(head + "f: {scope: [a b] type: >= params: [1 0]}}}", "a.cfn").cost([1, 0]) == 10
    with pytest.raises(FormatError, match="2: expected whole costs that are minimised, because the missed distance"):
        read(head + "f: {scope: [a b] type: >= params: [1 1]}}}", "b.cfn")


def test_costs_of_parameters_have_decimals(read: Read) -> None:
    text = '{problem: {name: p mustbe: "<5.00"} variables: {a: 2 b: 2 c: 2} functions: {f: {scope: [a b c] type: '
    model = read(text + "walldiff params: {metric: lin cost: 1.25}}}}", "a.cfn")
    assert model.decimals == 2
    assert model.cost([0, 0, 0]) == 250
    assert model.cost([0, 1, 0]) == 125


def test_utilities_are_maximised(read: Read) -> None:
    text = '{problem: {name: p mustbe: ">-9"} variables: {a: 2 b: 2} functions: {u: {scope: [a] costs: [0 3]}\n'
    model = read(text + "f: {scope: [a b] type: wregular params: {nb_states: 1 starts: [[0 1]] ends: [[0 0]] "
                 "transitions: [[0 0 0 2] [0 1 0 -1]]}}}}", "a.cfn")  # fmt: skip
    assert bucketflow.solve(model).value == 5  # 3 - 1 of a = 1, 2 of b = 0 and 1 at the start
    with pytest.raises(FormatError, match="2: expected costs of at least 0, or utilities of at most 0, found 3"):
        read(text + "f: {scope: [a b] type: salldiff params: {metric: var cost: 3}}}}", "b.cfn")


def test_what_explodes_is_refused_with_its_number(read: Read) -> None:
    weights = " ".join(str(3**k) for k in range(24))
    text = f"p 24 2 1 9\n{' '.join(['2'] * 24)}\n24 {' '.join(map(str, range(24)))} -1 knapsack {3**23} {weights}\n"
    with pytest.raises(BudgetError) as caught:
        read(text, "a.wcsp")
    assert "the global cost function 'knapsack' over 24 variables needs more than 16384 states between" in str(
        caught.value
    )
    assert caught.value.exit_code == 3


def test_networks_are_nested_in_few_others(read: Read) -> None:
    inner = "q 1 2 1 9 2 1 0 0 1 1 3"
    for _ in range(4):
        inner = f"q 1 2 1 9 2 1 0 -1 wcsp 0 3 0 0 {inner}"
    assert read(inner, "a.wcsp").cost([0]) == 0
    with pytest.raises(FormatError, match="expected networks nested in 4 others at most"):
        read(f"q 1 2 1 9 2 1 0 -1 wcsp 0 3 0 0 {inner}", "b.wcsp")
