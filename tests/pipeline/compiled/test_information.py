"""Entropies, conditionals, conflict and value of information of compiled models: brute force, and pyAgrum."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bucketflow
from bucketflow import BudgetError, Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.compiled import case_run, state
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.compiled.case_run import _PosteriorRunner
from bucketflow.pipeline.errors import InternalError
from bucketflow.pipeline.models.cases import cases_of
from bucketflow.pipeline.queries.beliefs import Beliefs
from tests.exact import Weights
from tests.models import bayes_models, markov_models

Array = NDArray[Any]
SLOW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def exact_joint(model: Model, findings: dict[str, Any], names: Sequence[str]) -> Array:
    """The joint of some variables, by enumeration."""
    dims = [model.dims[model.index[name]] for name in names]
    return np.array(Weights(model, findings).table(names, sum)).reshape(dims)


def bits(table: Array) -> float:
    """Entropy, by its definition."""
    return -sum(p * math.log2(p) for p in table.reshape(-1).tolist() if p > 0)


def findings_for(model: Model, hard: bool, soft: bool) -> dict[str, Any]:
    """A state of the first variable and likelihoods of the second."""
    findings: dict[str, Any] = {"x0": 0} if hard else {}
    if soft and len(model.names) > 1:
        findings["x1"] = [0.25 * (k + 1) for k in range(model.dims[1])]
    return findings


@given(st.one_of(bayes_models(), markov_models()), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
@SLOW
def test_information_is_that_of_the_joint(model: Model, hard: bool, soft: bool, random: Any) -> None:
    findings = findings_for(model, hard, soft)
    compiled = bucketflow.compile(model)
    compiled.set_evidence(findings)
    names = random.sample(model.names, len(model.names))
    if not Weights(model, findings).weights:
        with pytest.raises(ModelError, match="impossible"):
            compiled.joint(names)
        return
    joint = exact_joint(model, findings, names)
    assert compiled.joint(names) == pytest.approx(joint, abs=1e-9)
    assert compiled.entropy(names) == pytest.approx(bits(joint), abs=1e-7)
    given_names, rest = names[: len(names) // 3], names[len(names) // 3 :]
    first, second = rest[::2], rest[1::2]
    wide = exact_joint(model, findings, [*given_names, *first, *second])
    g, f = len(given_names), len(first)
    axes = tuple(range(wide.ndim))

    def summed(kept: Sequence[int]) -> float:
        return bits(wide.sum(axis=tuple(a for a in axes if a not in kept)))

    apart = summed([*axes[:g], *axes[g : g + f]]) + summed([*axes[:g], *axes[g + f :]])
    expected = apart - bits(wide) - summed(axes[:g])
    assert compiled.mutual_information(first, second, given_names) == pytest.approx(expected, abs=1e-7)
    table = compiled.conditional(rest, given_names)
    flat = wide.reshape(-1, max(1, wide[(0,) * g].size))
    sums = flat.sum(axis=1)
    plain = exact_joint(model, findings, [*given_names, *rest]).reshape(flat.shape)
    for row, total, found in zip(plain, sums, table.reshape(flat.shape), strict=True):
        if total > 1e-9:
            assert found == pytest.approx(row / total, abs=1e-6)
        elif total == 0:
            assert np.isnan(found).all()


@given(st.one_of(bayes_models(), markov_models()), st.booleans(), st.booleans())
@settings(SLOW, max_examples=12)
def test_value_of_information_and_conflict(model: Model, hard: bool, soft: bool) -> None:
    findings = findings_for(model, hard, soft)
    compiled = bucketflow.compile(model)
    compiled.set_evidence(findings)
    together = Weights(model, findings).log10_sum
    free = Weights(model, {}).log10_sum
    if free == -math.inf:
        return
    conflict = compiled.conflict()
    own = [Weights(model, {name: finding}).log10_sum - free for name, finding in findings.items()]
    assert [*conflict.findings.values()] == pytest.approx(own, abs=1e-7)
    expected = math.inf if together == -math.inf else sum(own) - (together - free)
    assert conflict.log10 == pytest.approx(expected, abs=1e-6)
    target = model.names[-1]
    if together == -math.inf or (target in findings and isinstance(findings[target], int)):
        with pytest.raises(ModelError, match=r"impossible|is observed"):
            compiled.value_of_information(target)
        return
    found = compiled.value_of_information(target)
    observed = {"x0"} if hard else set()
    assert {*found} == {*model.names} - {target} - observed - {
        name for name, f in findings.items() if not isinstance(f, int) and len(f) == 1
    }
    for name, value in found.items():
        joint = exact_joint(model, findings, [target, name])
        exact = bits(joint.sum(axis=0)) + bits(joint.sum(axis=1)) - bits(joint)
        assert value == pytest.approx(exact, abs=1e-7)
    assert [*found.values()] == sorted(found.values(), reverse=True)


def test_pyagrum_agrees() -> None:
    gum = pytest.importorskip("pyagrum")
    model = bucketflow.load("diagnosis")
    compiled = bucketflow.compile(model)
    compiled.set_evidence({"Flow": "none"})
    peer = gum.LazyPropagation(bucketflow.to_pyagrum(model))
    peer.setEvidence({"Flow": "none"})
    for name in ("PanelPower", "Vibration"):
        assert compiled.entropy([name]) == pytest.approx(peer.H(name), abs=1e-6)
    pair = gum.InformationTheory(peer, ["PanelPower"], ["MotorState"])
    value = pair.mutualInformationXY()
    assert compiled.entropy(["PanelPower", "MotorState"]) == pytest.approx(pair.entropyXY(), abs=1e-6)
    assert compiled.mutual_information(["PanelPower"], ["MotorState"]) == pytest.approx(value, abs=1e-6)
    assert compiled.value_of_information("PanelPower")["MotorState"] == pytest.approx(value, abs=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    compiled = bucketflow.compile(bucketflow.load("diagnosis"))
    with pytest.raises(ModelError, match="'storm' is not a variable"):
        compiled.entropy(["storm"])
    with pytest.raises(ModelError, match="'Storm' is named twice"):
        compiled.mutual_information(["Storm"], ["Storm"])
    with CompiledPolicy.using(joint_states=5), pytest.raises(BudgetError, match="has 8 states, allowed 5"):
        compiled.joint(["Storm", "Season"])


@pytest.mark.parametrize("names", [["Storm", "Season"], ["Vibration", "Season"], ["Flow", "Season", "Storm"]])
def test_joints_that_were_compiled_in_may_have_any_number_of_states(names: list[str]) -> None:
    model = bucketflow.load("diagnosis")
    compiled = bucketflow.compile(model, joint=[names])
    expected = compiled.joint(names)
    with CompiledPolicy.using(joint_states=5):
        assert (compiled.joint(names) == expected).all()
        assert compiled.joint(names[::-1]).shape == expected.shape[::-1]
        with pytest.raises(BudgetError, match="states, allowed 5"):
            compiled.joint(["Storm", "Flow"])


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(main, ["marginals", *arguments])
    return found.exit_code, found.stdout, found.stderr


def test_the_command_answers_them() -> None:
    asked = ("--entropy", "Season,Storm", "--mutual", "Season:Storm|Flow", "--conditional", "Storm|Season")
    asked = (*asked, "--voi", "PanelPower", "--conflict")
    code, out, _ = run("diagnosis", "--evidence", "Flow=none,PanelLamp=lit", *asked, "--json")
    told = json.loads(out)
    compiled = bucketflow.compile(bucketflow.load("diagnosis"))
    compiled.set_evidence({"Flow": "none", "PanelLamp": "lit"})
    assert code == 0
    assert told["entropy"] == [{"variables": ["Season", "Storm"], "bits": compiled.entropy(["Season", "Storm"])}]
    assert told["mutual_information"][0]["given"] == ["Flow"]
    assert told["conditional"][0]["table"] == compiled.conditional(["Storm"], ["Season"]).tolist()
    assert told["value_of_information"]["bits"] == compiled.value_of_information("PanelPower")
    assert told["conflict"]["log10"] == pytest.approx(compiled.conflict().log10)
    code, out, _ = run("diagnosis", "--evidence", "Flow=none", *asked)
    words = ("entropy  Season, Storm", "mutual information", "conditional", "value of information", "conflict")
    assert code == 0
    assert all(word in out for word in words)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--mutual", "Season"], "--mutual takes two sets"),
        (["--entropy", "Nothing"], "not a variable"),
        (["--voi", "Flow", "--evidence", "Flow=none"], "'Flow' is observed"),
        (["--conflict", "--joint", "Season,Storm"], "cannot be combined with"),
        (["--conflict", "--workdir", "x"], "'workdir' does not apply"),
    ],
)
def test_the_command_refuses(arguments: list[str], why: str) -> None:
    code, _, said = run("diagnosis", *arguments)
    assert code == 2
    assert why in said


def test_a_condition_less_probable_than_the_least_number_has_its_distribution() -> None:
    seen = (["c", "a"], [[1.0, 3.0], [1e-300, 3e-300], [0.0, 0.0]])
    functions = [seen, (["c", "b"], [[1.0, 1.0], [1e-300, 1e-300], [1.0, 1.0]])]
    compiled = bucketflow.compile(Model.build("markov", {"a": 2, "b": 2, "c": 3}, functions))
    row, nothing = np.array([[0.25, 0.75]] * 2), np.full((2, 2), np.nan)
    np.testing.assert_allclose(compiled.conditional(["a"], ["c", "b"]), [row, row, nothing])
    np.testing.assert_allclose(compiled.conditional(["b", "a"], ["c"]), [row / 2, row / 2, nothing])
    with pytest.raises(ModelError, match="at least one variable"):
        compiled.conditional([], ["c"])


@given(st.one_of(bayes_models(), markov_models()), st.integers(0, 3), st.booleans())
@SLOW
def test_findings_are_ranked_by_what_leaving_them_out_costs(model: Model, hard: int, soft: bool) -> None:
    findings: dict[str, Any] = dict.fromkeys(model.names[1 : 1 + hard], 0)
    if soft and len(model.names) > 1:
        findings[model.names[-1]] = [0.5 + 0.25 * k for k in range(model.dims[-1])]
    target = model.names[0]
    compiled = bucketflow.compile(model)
    compiled.set_evidence(findings)
    if target in findings and not isinstance(findings[target], list):
        return
    if not Weights(model, findings).weights:
        with pytest.raises(ModelError, match="impossible"):
            compiled.relevant_findings(target)
        return

    def posterior(given: dict[str, Any]) -> Array:
        return exact_joint(model, given, [target])

    def divergence(first: Array, second: Array) -> float:
        return sum(p * math.log2(p / q) for p, q in zip(first.tolist(), second.tolist(), strict=True) if p > 0)

    own = {target: findings[target]} if target in findings else {}
    others = [name for name in findings if name != target]
    found = compiled.relevant_findings(target)
    assert sorted(each.finding for each in found) == sorted(others)
    for each in found:
        rest = {name: finding for name, finding in findings.items() if name != each.finding}
        alone = {**own, each.finding: findings[each.finding]}
        assert each.omitted_bits == pytest.approx(divergence(posterior(findings), posterior(rest)), abs=1e-9)
        assert each.alone_bits == pytest.approx(divergence(posterior(alone), posterior(own)), abs=1e-9)
    costs = [each.omitted_bits for each in found]
    assert costs == sorted(costs, reverse=True)


def test_joints_that_were_compiled_in_are_read_from_one_propagation() -> None:
    model = bucketflow.load("diagnosis")
    names = list(model.variables)
    pairs = [*pairwise(names[:8])]
    plain, compiled = bucketflow.compile(model), bucketflow.compile(model, joint=pairs, background=False)
    for evidence in ({}, {names[-1]: 0}, {names[0]: [0.5] * model.dims[0]}):
        plain.set_evidence(evidence)
        compiled.set_evidence(evidence)
        compiled.marginals()
        steps = compiled.computed
        for a, b in pairs:
            expected = plain.mutual_information([a], [b])
            assert compiled.mutual_information([b], [a]) == pytest.approx(expected, abs=1e-12)
            np.testing.assert_allclose(compiled.joint([b, a]), plain.joint([b, a]), rtol=1e-12, atol=1e-15)
        assert compiled.computed == steps
    impossible = bucketflow.Model.build("bayes", {"a": 2, "b": 2}, [(["a"], [1, 0]), (["a", "b"], [[1, 0], [0, 1]])])
    refused = bucketflow.compile(impossible, joint=["a", "b"])
    refused.set_evidence({"b": 1})
    with pytest.raises(bucketflow.ModelError, match="the findings are impossible"):
        refused.mutual_information(["a"], ["b"])


def test_pairs_that_no_function_contains_are_computed_along_paths(tmp_path: Path) -> None:
    model = bucketflow.load("diagnosis")
    names = list(model.variables)
    pairs = [*combinations(names, 2)][::29]
    plain, compiled = bucketflow.compile(model), bucketflow.compile(model, joint=pairs, background=False)
    assert plain.plan is not None
    assert compiled.plan is not None
    assert compiled.plan.tree.scopes == plain.plan.tree.scopes  # no pair enlarges a table
    assert compiled._plan_paths().paths is bucketflow.compile(model, joint=pairs)._plan_paths().paths
    for evidence in ({}, {names[3]: 0, names[0]: [0.5] * (model.dims[0] - 1) + [0.25]}):
        expected = {pair: bucketflow.marginals(model, evidence=evidence, joint=pair).joint[pair] for pair in pairs}
        compiled.set_evidence(evidence)
        compiled.save(tmp_path / "compiled")
        for each in (compiled, bucketflow.Compiled.load(tmp_path / "compiled")):
            found = each.marginals().joint
            assert [*found] == [*map(frozenset, pairs)]
            for a, b in pairs:
                np.testing.assert_allclose(found[a, b], expected[a, b], rtol=1e-12, atol=1e-15)
                np.testing.assert_allclose(each.joint([b, a]), expected[a, b].T, rtol=1e-12, atol=1e-15)
        compiled.expect(10**9)  # loads compiled loops


def test_independent_variables_have_the_product_as_their_joint() -> None:
    tables = [(["a"], [0.25, 0.75]), (["b", "c"], [[0.1, 0.2, 0.3], [0.2, 0.1, 0.1]])]
    model = Model.build("markov", {"a": 2, "b": 2, "c": 3, "d": 2}, tables)
    compiled = bucketflow.compile(model, joint=["a", "c"], background=False)
    of_c = np.array([0.3, 0.3, 0.4])
    np.testing.assert_allclose(compiled.joint(["c", "a"]), np.multiply.outer(of_c, [0.25, 0.75]), rtol=1e-14)
    np.testing.assert_allclose(compiled.marginals().joint["a", "c"], np.multiply.outer([0.25, 0.75], of_c), rtol=1e-14)
    whole = np.multiply.outer(np.full(2, 0.5), np.multiply.outer(np.array([0.25, 0.75]), np.array(tables[1][1])))
    np.testing.assert_allclose(compiled.joint(["d", "a", "b", "c"]), whole, rtol=1e-14)


def test_a_joint_without_room_beside_the_messages_needs_cases_instead() -> None:
    rng, size = np.random.default_rng(3), 24
    names = [f"x{k}" for k in range(8)]
    model = Model.build(
        "markov", dict.fromkeys(names, size), [(list(p), rng.random((size, size))) for p in pairwise(names)]
    )
    free, ends = bucketflow.compile(model, background=False), ["x0", "x7"]
    assert free.plan is not None
    memory = free.plan.kept_bytes + 1000
    tight = bucketflow.compile(model, background=False, memory=memory)
    assert not tight._joint_fits((0, 7))
    assert free._joint_fits((0, 7))
    np.testing.assert_allclose(tight.joint(ends), free.joint(ends), rtol=1e-12)
    with pytest.raises(BudgetError, match="keeping all messages needs"):
        bucketflow.compile(model, joint=ends, memory=memory)


def test_a_block_has_no_more_cases_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_run, "alone_seconds", lambda *_: math.inf)
    compiled = bucketflow.compile("diagnosis", background=False)
    cases = cases_of(compiled.model, {"Storm": [0, 1, 0]})
    runner = _PosteriorRunner(compiled, {}, cases, [0], whole=True)
    runner.plan_blocks(compiled.resources)
    assert runner.program is not None
    assert runner.size == 3


def test_a_joint_is_refused_if_the_evidence_is_more_than_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = bucketflow.compile("diagnosis", background=False)
    monkeypatch.setattr(state, "Beliefs", lambda total, tables: Beliefs(total + 1.0, tables))
    with pytest.raises(InternalError, match="more than 1"):
        compiled.joint(["Storm", "Flow"])
