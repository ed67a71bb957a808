"""Damaged files of agents, of who owns what, and lists of questions: read and written again, or one sentence."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.batches.manifest import read_manifest
from bucketflow.pipeline.errors import BudgetError, FormatError, ModelError
from bucketflow.pipeline.formats.read import load_dcop
from bucketflow.pipeline.formats.write import save
from tests.fuzzing import examples

XCSP = """\
<instance><presentation name="p" maximize="false" type="WCSP" format="XCSP 2.1_FRODO" maxConstraintArity="2"/>
<agents nbAgents="2"><agent name="A"/><agent name="B"/></agents>
<domains nbDomains="1"><domain name="D" nbValues="3">0..1 7</domain></domains>
<variables nbVariables="2"><variable name="x" domain="D" agent="A"/>
<variable name="y" domain="D" agent="B"/></variables>
<relations nbRelations="2">
<relation name="R" arity="2" nbTuples="2" semantics="soft" defaultCost="3">2:0 1|4.5:1 7</relation>
<relation name="S" arity="1" nbTuples="1" semantics="supports">1</relation></relations>
<predicates nbPredicates="1"><predicate name="P"><parameters>int a int b</parameters>
<expression><functional>or(ne(a,b),lt(pow(a,2),if(eq(a,1),mod(b,3),-4)))</functional></expression></predicate></predicates>
<functions nbFunctions="1"><function name="F" return="int"><parameters>int a</parameters>
<expression><functional>abs(sub(mul(3,a),div(a,2)))</functional></expression></function></functions>
<constraints nbConstraints="4" initialCost="1" maximalCost="90">
<constraint name="c" arity="2" scope="x y" reference="R"/>
<constraint name="f" arity="1" scope="x" reference="F"><parameters>x</parameters></constraint>
<constraint name="p" arity="2" scope="x y" reference="P"><parameters>x y</parameters></constraint>
<constraint name="s" arity="1" scope="y" reference="S"/></constraints></instance>
"""
PYDCOP = """\
name: p
objective: min
domains: {d: {values: [0, 1, 7], type: level}, e: {values: ["0 .. 2"]}}
variables: {a: {domain: d, cost_function: 0.5 * a, noise_level: 0.2}, b: {domain: e, initial_value: 1}}
external_variables: {x: {domain: d, initial_value: 7}}
constraints:
  i: {type: intention, function: "max((a, b), (b, x)) > (1,) if a in {1, 2} else (3, 4)[a > 1] + len({a, b})"}
  j:
    type: intention
    partial: {p: 3}
    function: |
      c = (a, b)
      if c == (1, 2):
          return 3
      return {0: 1, 1: 2, 7: 3}[a] + p
  t: {type: extensional, variables: [a, b], default: 1, values: {2: 0 1 | 1 2, .inf: 7 0}}
  m: {type: extensional, variables: b, values: [1, 2.5, -3]}
agents: {one: {capacity: 3}, two: {}}
routes: {default: 2, one: {two: 4}}
hosting_costs: {default: 5, two: {default: 6, computations: {b: 0}}}
distribution_hints: {must_host: {one: [a]}, host_with: {a: [b]}}
"""
OWNERS = "distribution: {one: [a], two: [b]}\n"
ROWS = """\
- &first {model: a.yaml, query: optimum, evidence: {a: 1}, memory: 1GB, order-time: 1, time: 2, name: n, priority: 3}
- {<<: *first, query: count, evidence: "a=1,b=2"}
- {model: "*.xml", evidence: {a: [0.2, 0.8, 0]}, name: ~}
"""
NASTY = (
    *("", " ", "0", "-1", "9" * 25, "9" * 5000, "0x" + "f" * 4000, "1" + ":59" * 2000, "1e999999999", "1.0e-999999999"),
    *("nan", ".nan", "inf", "-infinity", "infinity", "?", "true", "null", "~", "&a x", "*a", "!!python/name:os.system"),
    *("<<: {}", "[" * 40, "{" * 40, "]", "}", "(1,)", "a", "b", "x y", "A", "D", "R", "global:allDifferent", "&lt;"),
    *(
        "0..9999999999",
        "1..1",
        "..",
        "|",
        ":",
        "2:",
        "0 1|",
        "add(a,1)",
        "pow(2,99)",
        "if(",
        "a ** b ** a",
        "a * 10**64",
    ),
    *(
        "(a, a, a)",
        "{a: b}[a]",
        "lambda: 1",
        "import os",
        "'x' * 9",
        "\\\\ud800",
        "\u2028",
        "\x85",
        "é",
        "'",
        '"',
        "\n",
    ),
)


def mutated(text: str, seed: int) -> str:
    """A text with some of its words, numbers and signs replaced, doubled, moved or lost."""
    rng = random.Random(seed)
    pieces = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        match rng.randrange(5):
            case 0:
                pieces[at] = rng.choice(NASTY)
            case 1:
                pieces[at] = pieces[other]
            case 2:
                del pieces[at]
            case 3:
                pieces[at:at] = pieces[other : other + rng.randrange(1, 60)]
            case _:
                pieces[at] += rng.choice(NASTY)
    return "".join(pieces)


def refused(read: Callable[[], Any], *more: type[Exception]) -> bool:
    """Whether something is refused, which is one sentence."""
    try:
        read()
    except (BudgetError, FormatError, *more) as error:
        return "\n" not in str(error) or pytest.fail(f"more than a sentence: {error}")
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fuzz")
    for name, text in (("a.xml", XCSP), ("a.yaml", PYDCOP), ("owners", OWNERS), ("list.yaml", ROWS)):
        (made / name).write_text(text)
    return made


def test_the_texts_that_are_mutated_are_good(folder: Path) -> None:
    for name, owners in (("a.xml", None), ("a.yaml", None), ("a.yaml", folder / "owners")):
        assert len(load_dcop(folder / name, owners).agents) == 2
    assert [row.problem for row in read_manifest(folder / "list.yaml")] == [""] * 3


@pytest.mark.parametrize(("suffix", "text"), [(".xml", XCSP), (".yaml", PYDCOP)])
@settings(max_examples=examples(), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_mutated_problems_of_agents(folder: Path, suffix: str, text: str, seed: int) -> None:
    """They are read, and then written and read again, or refused."""
    path = folder / f"mutated{suffix}"
    path.write_text(mutated(text, seed))
    if refused(lambda: load_dcop(path), ModelError):
        return
    problem = load_dcop(path)
    for f in problem.model.functions:
        dense_shape = tuple(problem.model.dims[v] for v in f.scope)
        assert f.values.shape == (dense_shape if f.rows is None else (len(f.rows),))
    for again in (folder / "again.xml", folder / "again.yaml"):
        with suppress(ModelError):
            save(problem, again)
            assert load_dcop(again).owners == problem.owners


@settings(max_examples=examples(), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_mutated_files_of_agents(folder: Path, seed: int) -> None:
    path = folder / "mutated owners"
    path.write_text(mutated(OWNERS, seed))
    refused(lambda: load_dcop(folder / "a.yaml", path), ModelError)


@settings(max_examples=examples(), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_mutated_lists_of_questions(folder: Path, seed: int) -> None:
    """What is wrong stays in its row, which has a key or a sentence."""
    path = folder / "mutated list.yaml"
    path.write_text(mutated(ROWS, seed))
    if refused(lambda: read_manifest(path)):
        return
    for row in read_manifest(path):
        assert row.problem or refused(row.key) or len(row.key()) == 64
