"""What is written reads back, whatever variables, values, functions and agents are called; notes say what is lost."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Agent, Dcop, Model
from bucketflow.pipeline.models.dcop import External
from bucketflow.pipeline.models.model import FORBIDDEN, Function
from tests.fuzzing import examples
from tests.models import assignments

WORDS = (
    *("", " ", "yes", "No", "null", "~", "1", "007", "-1", "+1", "1e3", "0x1F", "1:30", "1_0", "2024-01-01", "1.0"),
    *("-", "?", ":", "<<", "=", ".inf", ".nan", "1..3", "3..1", "1 .. 3", "0..0", "9..9", "infinity", "-infinity"),
    *("global:x", "default", "a b", "true", "False", "&a", "*a", "!!int", "%YAML", "---", "...", "#", "a#", "a: b"),
    *("R0", "D0", "x0", "c0", "a0", "e0", "initialCost", "PUBLIC", "computations", "must_host", "&amp;", "]]>", "<!--"),
    *("9" * 21, "9" * 5000, "x" * 2000, "é" * 600, "a,b", "{", "}", "[", "]", "'", '"', "\\", "a|b", "a\\b", "@", "`"),
    *("\x00", "\x07", "\t", "\n", "\r", "\x7f", "\x85", "\xa0", "\xad", "\u2028", "\ufeff", "\ufffe", "\ud800"),
    *("\U0001f600", "\U0010ffff", "١", "²", "𝟙", "a\u0301", "\u202e", "中", "a.b", "a..b", ".", "..", "x.", "None"),
)


def words(rng: random.Random, count: int, plain: str) -> list[str]:
    """Different words, more or less nasty."""
    kind = rng.random()
    if kind < 0.3:
        return [f"{plain}{k}" for k in range(count)]
    if kind < 0.5:
        first = rng.choice((0, 7, 10**20, -1))
        return [str(first + k) for k in range(count)]
    found: dict[str, None] = {}
    while len(found) < count:
        made = rng.choice(WORDS) if rng.random() < 0.7 else rng.choice(WORDS)[:3] + rng.choice(WORDS)[:3]
        found[made] = None
    return list(found)


def problem(rng: random.Random) -> Dcop:
    """Costs of up to four variables, some forbidden, decimal or negative; agents with what they cost."""
    count = rng.randint(1, 4)
    dims = [rng.randint(1, 3) for _ in range(count)]
    draw = np.random.default_rng(rng.randrange(1 << 30))
    functions = []
    for _ in range(rng.randint(0, 4)):
        scope = tuple(rng.sample(range(count), rng.randint(0, count)))
        costs = draw.integers(-3, 9, [dims[v] for v in scope])
        functions.append(Function(scope, np.where(draw.random(costs.shape) < 0.2, FORBIDDEN, costs)))
    states = tuple(None if rng.random() < 0.2 else tuple(words(rng, d, "s")) for d in dims)
    model = Model(
        "cost",
        tuple(words(rng, count, "v")),
        tuple(dims),
        states,
        tuple(functions),
        top=rng.choice((None, None, 12)),
        maximize=rng.random() < 0.3,
        decimals=rng.choice((0, 0, 1, 3)),
        name=rng.choice(WORDS),
    )
    names = words(rng, rng.randint(1, 4), "a")
    amount = Decimal(rng.choice(("0", "1", "2.5", "100")))
    agents = tuple(
        Agent(
            name,
            rng.choice((None, Decimal(10))),
            rng.choice((Decimal(0), amount)),
            dict.fromkeys(rng.sample(model.names, rng.randint(0, count)), amount),
            {other: amount for other in names[:k] if rng.random() < 0.3},
        )
        for k, name in enumerate(names)
    )
    owners = tuple(rng.randrange(len(agents)) for _ in range(count))
    externals = [External(name, tuple(words(rng, 2, "s")), 1) for name in words(rng, rng.randint(0, 2), "e")]
    named = tuple(words(rng, len(functions), "c") if functions else ())
    noise = {name: amount for name in model.names if rng.random() < 0.2}
    apart = tuple(each for each in externals if each.name not in model.names)
    return Dcop(model, agents, owners, named, rng.choice((Decimal(1), amount)), noise, apart)


def kept(what: str, notes: Sequence[str]) -> bool:
    return not any(note.startswith(f"{what} ") and "not kept" in note for note in notes)


def values(model: Model) -> list[Decimal | int | None]:
    costs = [model.cost(states) for states in assignments(model, {})]
    return [None if cost is None else model.objective(cost) for cost in costs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trips")


@pytest.mark.parametrize("suffix", [".xml", ".yaml"])
@settings(max_examples=examples(), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_problems_read_back(suffix: str, folder: Path, seed: int) -> None:
    dcop = problem(random.Random(seed))
    path = folder / f"p{suffix}"
    notes = bucketflow.save(dcop, path)
    again = bucketflow.load_dcop(path)
    model, read = dcop.model, again.model
    assert values(read) == values(model) or any("are allowed in the file" in note for note in notes)
    assert again.owners == dcop.owners
    assert (read.maximize, read.dims) == (model.maximize, model.dims)
    if kept("names of variables", notes):
        assert read.names == model.names
    counted = [tuple(map(str, range(d))) for d in model.dims]
    meant = tuple(own if states is None else states for states, own in zip(model.states, counted, strict=True))
    lost = any(re.match(r"values of \d+ variables are not kept", note) for note in notes)
    assert lost == (read.states != meant)
    if kept("names of agents", notes):
        assert [each.name for each in again.agents] == [each.name for each in dcop.agents]
    if kept("names of functions", notes):
        assert again.functions == dcop.functions
    if suffix == ".yaml":
        assert [each.capacity for each in again.agents] == [each.capacity for each in dcop.agents]
        assert again.default_route == dcop.default_route
        routes = [
            [d.route(k, j) for k in range(len(d.agents)) for j in range(len(d.agents)) if j != k] for d in (dcop, again)
        ]
        assert routes[0] == routes[1]
        assert [each.initial for each in again.externals] == [each.initial for each in dcop.externals]
        if kept("values of external variables", notes):
            assert [each.states for each in again.externals] == [each.states for each in dcop.externals]
        assert list(again.noise.values()) == list(dcop.noise.values())


@pytest.mark.parametrize("suffix", [".wcsp", ".cfn", ".xml", ".yaml"])
@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_optima_read_back(suffix: str, folder: Path, seed: int) -> None:
    """Formats without agents have the same optimum, in their own units."""
    model = problem(random.Random(seed)).model
    path = folder / f"q{suffix}"
    notes = bucketflow.save(model, path)
    found, expected = (bucketflow.solve(each) for each in (bucketflow.load(path), model))
    changed = any("are allowed in the file" in note or "the file's total" in note for note in notes)
    assert changed or (found.status, found.value) == (expected.status, expected.value)
