"""Every option with every query and every engine: it has an effect, or is named in a note, or is refused by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.answering import answer_question
from bucketflow.pipeline.answering.engines.engine_options import DEVICES, PLANNING, PROOFS, WORKERS, given_options
from bucketflow.pipeline.answering.engines.engine_registry import ENGINES
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.options import Options, ProofOptions
from bucketflow.pipeline.results.result import Result
from tests.models import grid

#: A value of every option that is not its default.
GIVEN: dict[str, Any] = {
    "order": "min-fill",
    "order_time": 0.2,
    "tree": "bucket",
    "seed": 3,
    "representation": "dense",
    "fit": "slice",
    "prune": False,
}
#: Limits, and where things are kept, hold whatever answers; workers, tasks and GPUs have tests of their own.
LIMITS = {"memory", "disk", "threads", "workdir", "priority", "most_workers", "time", "gap", "upper_bound", "method"}
LIMITS |= {"keep_tables", "tasks", "dashboard", "dask_report"}
METHODS = {
    "optimum": ("auto", "dense", "rows", "diagram", "search"),
    "partition": ("auto", "dense", "diagram"),
    "count": ("auto", "dense", "diagram", "search"),
}


def clauses() -> Model:
    """Clauses of three over 20 variables, none of which preprocessing takes out."""
    rng = np.random.default_rng(1)
    functions = []
    for _ in range(50):
        table = np.zeros((2, 2, 2), np.int64)
        table[tuple(rng.integers(0, 2, 3))] = 5
        functions.append(([f"x{v}" for v in rng.choice(20, 3, replace=False)], table))
    return Model.build("cost", {f"x{v}": 2 for v in range(20)}, functions, top=5)


@cache
def models() -> Mapping[str, Model]:
    return {"optimum": grid(5, 5, 3), "partition": grid(5, 5, 3, "markov"), "count": clauses()}


@cache
def plain_answer(query: str, method: Any) -> Result:
    """What is found without options."""
    return bucketflow.solve(models()[query], query, method=method)


def test_every_option_is_tried() -> None:
    named = {field.name for source in (Options, ProofOptions) for field in fields(source)}
    assert named == {*GIVEN, *LIMITS, *WORKERS, *DEVICES}
    assert {*GIVEN} | WORKERS | DEVICES == PLANNING | PROOFS | WORKERS | DEVICES
    assert all(kind.heeds <= PLANNING | PROOFS | WORKERS | DEVICES for kind in ENGINES)


READ: set[str] = set()


class WatchedOptions(Options):
    """Options whose reads are remembered, but for those of checks and copies."""

    def __getattribute__(self, name: str) -> Any:
        reader = Path(sys._getframe(1).f_code.co_filename).name
        if name in GIVEN and reader not in ("options.py", "engine_options.py", "dataclasses.py"):
            READ.add(name)
        return super().__getattribute__(name)


def cases() -> Iterator[tuple[str, str, str]]:
    for query, methods in METHODS.items():
        for method in methods:
            for option in GIVEN:
                yield query, method, option


@pytest.mark.parametrize(("query", "method", "option"), [*cases()])
def test_an_option_has_an_effect_or_is_named(query: str, method: Any, option: str) -> None:
    model = models()[query]
    plain = plain_answer(query, method)
    found, refused = None, ""
    try:
        found = bucketflow.solve(model, query, method=method, **{option: GIVEN[option]})
    except bucketflow.BucketflowError as error:
        refused = str(error)
    if found is None:
        assert option in refused
        return
    assert (found.value, found.log10) == (plain.value, pytest.approx(plain.log10))
    named = [note for note in found.notes if " had no effect: " in note and option in note.partition(" had ")[0]]
    engine = found.tried[-1].engine
    heeds = next(kind.heeds for kind in ENGINES if kind.name == engine)
    if option in heeds or (found.proof is not None and found.proof.method == "dense"):
        assert not named
    else:
        assert named == [f"{option} had no effect: {next(kind.way for kind in ENGINES if kind.name == engine)}"]


@pytest.mark.parametrize("method", ["dense", "diagram", "search"])
def test_what_an_engine_heeds_is_read_by_it(method: Any) -> None:
    """What is said to have an effect is looked at after the options were checked."""
    READ.clear()
    found = answer_question.solved(
        question_of(clauses(), "count"), WatchedOptions(threads=1), ProofOptions(method=method)
    )
    assert isinstance(found, Result)
    kind = next(kind for kind in ENGINES if kind.name == found.tried[-1].engine)
    assert kind.heeds & {*GIVEN} <= READ


def test_options_of_one_query_are_refused_for_others() -> None:
    model = models()["partition"]
    for name, value in (("time", 1.0), ("gap", 0.1), ("upper_bound", 3)):
        with pytest.raises(bucketflow.BucketflowError, match=name):
            bucketflow.solve(model, "partition", **{name: value})
    with pytest.raises(bucketflow.BucketflowError, match="gpu_memory limits GPUs"):
        bucketflow.solve(model, "partition", gpu_memory="1GB")
    with pytest.raises(bucketflow.BucketflowError, match="'fit' does not apply"):
        bucketflow.compile(model, fit="slice")


def test_what_was_given_is_named_in_order() -> None:
    assert given_options(Options(), ProofOptions()) == ()
    assert given_options(Options(tree="bucket", seed=1), ProofOptions(prune=False)) == ("tree", "seed", "prune")
