"""Noisy and deterministic nodes of Bayesian tools: small ones are tables, those of many parents chains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import FormatError, ModelError
from bucketflow.pipeline.formats.bayesian.network_draft import ParentChain, capped_sum, noisy_extreme
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.model import Model

Read = Callable[[str, str], Model]


def distribution(rng: np.random.Generator, *shape: int) -> np.ndarray:
    found = rng.random(shape) + 0.05
    whole: np.ndarray = found / found.sum(axis=-1, keepdims=True)
    return whole


def extreme_by_hand(causes: Sequence[np.ndarray], leak: np.ndarray, choose: Callable[..., int]) -> np.ndarray:
    """The distribution of the extreme state, by going through what every cause may bring about."""
    shape = (*(len(cause) for cause in causes), len(leak))
    table = np.zeros(shape)
    for at in np.ndindex(*shape[:-1]):
        for states in itertools.product(range(len(leak)), repeat=len(causes) + 1):
            own = [cause[s, z] for cause, s, z in zip(causes, at, states[1:], strict=True)]
            table[(*at, choose(states))] += leak[states[0]] * math.prod(own)
    return table


@pytest.mark.parametrize("greatest", [True, False])
def test_noisy_extremes_are_those_of_independent_causes(greatest: bool) -> None:
    rng = np.random.default_rng(1)
    causes, leak = [distribution(rng, d, 3) for d in (2, 3, 2)], distribution(rng, 3)
    chain = noisy_extreme((0, 1, 2, 3), causes, leak, greatest=greatest)
    expected = extreme_by_hand(causes, leak, max if greatest else min)
    np.testing.assert_allclose(chain.table().values, expected, rtol=1e-13)
    assert chain.is_random
    assert chain.cells == expected.size


def test_a_capped_sum_counts_what_states_of_parents_do() -> None:
    chain = capped_sum((0, 1, 2), [(0, 1, 2), (1, 0)], 3)
    for a, b in np.ndindex(3, 2):
        assert chain.table().values[a, b].tolist() == np.eye(3)[min(2, a + (1, 0)[b])].tolist()
    assert not chain.is_random


def summed_out(chain: ParentChain, first: int) -> np.ndarray:
    """The product of the links of a chain, summed over its hidden variables."""
    links = chain.links(first)
    hidden = range(first, first + len(chain.hidden))
    operands = [part for link in links for part in (link.values, [*link.scope])]
    assert {v for link in links for v in link.scope} == {*chain.scope, *hidden}
    return np.asarray(np.einsum(*operands, [*chain.scope]))


def test_links_of_a_chain_are_its_table() -> None:
    rng = np.random.default_rng(2)
    chain = noisy_extreme((4, 0, 2, 1), [distribution(rng, d, 4) for d in (3, 2, 4)], distribution(rng, 4))
    np.testing.assert_allclose(summed_out(chain, 5), chain.table().values, rtol=1e-13)


NOISY = """<smile version="1.0" id="N"><nodes>
<cpt id="Rain"><state id="no" /><state id="yes" /><probabilities>0.7 0.3</probabilities></cpt>
<cpt id="Hose"><state id="off" /><state id="low" /><state id="high" /><probabilities>0.7 0.2 0.1</probabilities></cpt>
<noisymax id="Wet"><state id="very" /><state id="damp" /><state id="dry" /><parents>Rain Hose</parents>
{}</noisymax></nodes></smile>"""
# columns by strength: rain, none; high, low, off; leak
PARAMETERS = "0.5 0.3 0.2 0 0 1 0.6 0.3 0.1 0.2 0.3 0.5 0 0 1 0.05 0.05 0.9"


def test_a_noisy_maximum_of_genie_follows_its_strengths(read: Read) -> None:
    model = read(NOISY.format(f"<strengths>1 0 2 1 0</strengths><parameters>{PARAMETERS}</parameters>"), "a.xdsl")
    rain = np.array([[0, 0, 1], [0.5, 0.3, 0.2]])
    hose = np.array([[0, 0, 1], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    expected = extreme_by_hand([rain, hose], np.array([0.05, 0.05, 0.9]), min)
    np.testing.assert_allclose(model.functions[2].values, expected, rtol=1e-12)
    assert model.hidden == 0
    assert bucketflow.solve(model, "optimum").status == "optimal"


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        (
            "<parameters>1 0 0</parameters>",
            "expected 18 parameters, of every state of the parents",
        ),
        (f"<strengths>0 1</strengths><parameters>{PARAMETERS}</parameters>", "expected 5 strengths"),
        (f"<strengths>1 1 2 1 0</strengths><parameters>{PARAMETERS}</parameters>", "order 2 states, found '1 1'"),
        ("<parameters>" + "0.2 0.3 0.5 " * 6 + "</parameters>", "no effect of the weakest state of each parent"),
        (
            f"<parameters>{PARAMETERS.replace('0.05', '-0.05')}</parameters>",
            "finite numbers of at least 0, found '-0.05'",
        ),
    ],
)
def test_what_is_wrong_with_a_noisy_maximum_is_said(read: Read, inside: str, told: str) -> None:
    with pytest.raises(FormatError, match=r"a\.xdsl:4: ") as caught:
        read(NOISY.format(inside), "a.xdsl")
    assert told in str(caught.value)


def wide_noisy_or(parents: int) -> str:
    """A symptom of many causes, each of which is there in one case of ten and brings it about in one of two."""
    names = [f"C{k}" for k in range(parents)]
    states = '<state id="yes" /><state id="no" />'
    causes = "".join(f'<cpt id="{name}">{states}<probabilities>0.1 0.9</probabilities></cpt>' for name in names)
    return (
        f'<smile version="1.0" id="W"><nodes>{causes}<noisymax id="Pain">{states}<parents>{" ".join(names)}</parents>'
        f"<parameters>{'0.5 0.5 0 1 ' * parents} 0.02 0.98</parameters></noisymax></nodes></smile>"
    )


def test_sixty_parents_of_a_noisy_or_are_a_chain(read: Read) -> None:
    model = read(wide_noisy_or(60), "a.xdsl")
    assert (model.hidden, len(model.own_names), len(model.names)) == (59, 61, 120)
    found = bucketflow.marginals(model)
    assert [*found] == [*model.own_names]
    np.testing.assert_allclose(found["Pain"], [1 - 0.98 * 0.95**60, 0.98 * 0.95**60], rtol=1e-12)
    given = bucketflow.marginals(model, evidence={"Pain": "no", "C1": "no"})
    np.testing.assert_allclose(given["C0"], [0.05 / 0.95, 0.9 / 0.95], rtol=1e-12)
    sure = bucketflow.solve(model, "partition", evidence={"Pain": "yes"} | {f"C{k}": "no" for k in range(1, 60)})
    assert sure.log10 is not None
    np.testing.assert_allclose(10**sure.log10 / 0.9**59, 0.9 * 0.02 + 0.1 * (1 - 0.98 * 0.5), rtol=1e-12)


def test_a_compiled_noisy_or_of_18_parents_keeps_small_tables(read: Read) -> None:
    model = read(wide_noisy_or(18), "a.xdsl")
    compiled = bucketflow.compile(model, background=False)
    assert compiled.plan is not None
    assert max(compiled.plan.tree.joined_cells) <= 16
    absent = 0.98 * 0.95**18  # the probability of no pain
    for pain, expected in (("no", 0.05 / 0.95), ("yes", 0.1 * (1 - absent * 0.5 / 0.95) / (1 - absent))):
        compiled.set_evidence({"Pain": pain})
        for found in (compiled.marginals(), bucketflow.marginals(model, evidence={"Pain": pain})):
            np.testing.assert_allclose(found["C0"], [expected, 1 - expected], rtol=1e-12)


@pytest.mark.parametrize("query", ["optimum", "count"])
def test_hidden_chance_has_no_best_assignment(read: Read, query: str) -> None:
    with pytest.raises(ModelError, match=rf"a\.xdsl:1: the table of 'Pain' would have {2**61} entries.* no {query}"):
        bucketflow.solve(read(wide_noisy_or(60), "a.xdsl"), query)
    with pytest.raises(ModelError, match="no max-marginals"):
        bucketflow.marginals(read(wide_noisy_or(60), "a.xdsl"), max_marginals=True)


def test_evidence_names_no_hidden_variable(read: Read) -> None:
    model = read(wide_noisy_or(60), "a.xdsl")
    with pytest.raises(ModelError, match="'Pain up to C3', which is not a variable of the model"):
        bucketflow.marginals(model, evidence={model.names[64]: 0})


def test_chains_and_tables_answer_alike(read: Read) -> None:
    text = NOISY.format(f"<strengths>1 0 2 1 0</strengths><parameters>{PARAMETERS}</parameters>")
    whole = bucketflow.marginals(read(text, "a.xdsl"), evidence={"Wet": "damp"})
    with FormatPolicy.using(predicate_cells=4):
        model = read(text, "b.xdsl")
    assert model.hidden == 1
    chained = bucketflow.marginals(model, evidence={"Wet": "damp"})
    assert [*whole] == [*chained]
    for name in whole:
        np.testing.assert_allclose(chained[name], whole[name], rtol=1e-12)
    assert chained.log10_evidence == pytest.approx(whole.log10_evidence, rel=1e-12)


def test_hidden_chance_is_told_where_it_is_written(read: Read, tmp_path: Path) -> None:
    notes = bucketflow.save(read(wide_noisy_or(60), "a.xdsl"), tmp_path / "b.uai")
    assert "59 hidden variables, the last ones, are variables of the file, so that an optimum" in notes[-1]
    log10 = bucketflow.solve(load(tmp_path / "b.uai"), "partition", evidence={"x60": 1}).log10
    assert log10 == pytest.approx(math.log10(0.98 * 0.95**60), abs=1e-9)


def test_hidden_chance_is_summed_where_the_best_of_some_variables_is_sought(read: Read) -> None:
    text = NOISY.format(f"<strengths>1 0 2 1 0</strengths><parameters>{PARAMETERS}</parameters>")
    whole = bucketflow.solve(read(text, "a.xdsl"))
    with FormatPolicy.using(predicate_cells=4):
        model = read(text, "b.xdsl")
    found = bucketflow.solve(model, "mmap", maximize=[*model.own_names])
    assert found.log10 == pytest.approx(whole.log10, abs=1e-12)
    assert found.assignment == whole.assignment
    with pytest.raises(ModelError, match="no optimum; for the best assignment of some variables, ask for mmap"):
        bucketflow.solve(model)
