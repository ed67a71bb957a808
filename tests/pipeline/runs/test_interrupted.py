"""Compiled models that were interrupted, and those that threads share, answer as fresh ones do."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Compiled, Marginals, Model
from tests.interrupting import at_every_line

Change = Callable[[Compiled], Any]

CASES = {"a": [0, 1, None], "c": [None, 1, 0]}


def model() -> Model:
    rng = np.random.default_rng(0)
    sizes = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 2}
    scopes = [("a", "b"), ("b", "c"), ("c", "d"), ("b", "e")]
    return Model.build("markov", sizes, [(s, rng.random([sizes[v] for v in s])) for s in scopes])


MODEL = model()
FRESH = bucketflow.compile(MODEL)


def compiled(loops: bool) -> Compiled:
    """A model with the messages that an observed variable leaves."""
    found = Compiled(FRESH.skeleton, FRESH.options)
    found._keep_tables(loops)
    found.add("b", 2)
    found.marginals()
    return found


def named(found: Compiled) -> dict[str, Any]:
    """Return findings by name."""
    return {MODEL.names[v]: vector.tolist() for v, vector in found.findings.items()}


@cache
def expected(evidence: str) -> Marginals:
    return bucketflow.marginals(MODEL, evidence=json.loads(evidence))


def alike(found: Marginals, evidence: dict[str, Any]) -> bool:
    """Whether an answer is that of a fresh run, up to rounding."""
    right = expected(json.dumps(evidence))
    return found.status == right.status and all(
        np.allclose(found[name], right[name], rtol=1e-12, atol=0) for name in right
    )


def is_as_new(found: Compiled) -> bool:
    """Whether a model answers as a fresh one does: as it is, with other findings, and without any."""
    other: list[Callable[[], None]] = [lambda: found.add("d", 1), lambda: found.clear("b"), found.clear]
    right = [alike(found.marginals(), named(found))]
    for change in other:
        change()
        right.append(alike(found.marginals(), named(found)))
    return all(right)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize(
    ("change", "most"),
    [
        pytest.param(lambda c: (c.clear(), c.marginals()), 100, id="clear and ask"),
        pytest.param(lambda c: (c.add("a", 1), c.marginals(["d"])), 60, id="add and ask"),
        pytest.param(lambda c: (c.set_evidence({"e": 1, "c": 0}), c.partition()), 60, id="set and ask"),
        pytest.param(lambda c: c.marginals_batch(CASES), 50, id="batch"),
        pytest.param(lambda c: c.reset(), 20, id="reset"),
        pytest.param(lambda c: c.current_tables(), 20, id="tables"),
    ],
)
def test_a_model_that_was_interrupted_answers_as_a_fresh_one(change: Change, most: int, loops: bool) -> None:
    for found, how in at_every_line(change, lambda: compiled(loops), most):
        assert how.came is how.error, how
        assert {*named(found)} <= {"a", "b", "c", "e"}, how
        assert is_as_new(found), how


def test_a_file_is_whole_when_saving_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    before = compiled(False)
    before.clear()
    for found, how in at_every_line(lambda c: c.save(path), lambda: compiled(False), 30):
        assert named(Compiled.load(path)) in ({}, {"b": [0, 0, 1]}), how
        assert [*tmp_path.iterdir()] == [path], how
        assert is_as_new(found), how
        before.save(path)


def test_a_file_is_loaded_after_loading_was_interrupted(tmp_path: Path) -> None:
    compiled(False).save(tmp_path / "model.npz")
    for _, how in at_every_line(lambda _: Compiled.load(tmp_path / "model.npz"), lambda: None, 30):
        assert is_as_new(Compiled.load(tmp_path / "model.npz")), how


@pytest.mark.parametrize("loops", [False, True])
def test_threads_share_a_model(loops: bool) -> None:
    """One is asked under its finding, while in others the cases of batches replace it."""
    found, now = compiled(loops), {"b": [0, 0, 1]}
    wrong, failed = list[str](), list[BaseException]()

    def alone() -> None:
        if not alike(found.marginals(), now) or found.partition() != log10:
            wrong.append("marginals")

    def batch() -> None:
        answers = found.marginals_batch({"a": [0, 1, None], "b": [0, 1, None]})
        for k, case in enumerate([{"a": 0, "b": 0}, {"a": 1, "b": 1}, {}]):
            right = expected(json.dumps(case))
            if not all(np.allclose(answers[name][k], right[name], rtol=1e-12, atol=0) for name in right):
                wrong.append("batch")

    def ask(action: Callable[[], None]) -> None:
        try:
            for _ in range(25):
                action()
        except Exception as error:
            failed.append(error)

    log10 = found.partition()
    threads = [threading.Thread(target=ask, args=(action,)) for action in (alone, batch, alone, batch)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    assert not wrong, len(wrong)
    assert is_as_new(found)


def test_threads_change_findings_each_on_its_own_variable() -> None:
    found = compiled(False)
    found.clear()

    def change(name: str) -> None:
        for state in (0, 1) * 200:
            found.add(name, state)
            found.clear(name)
        found.add(name, 1)

    threads = [threading.Thread(target=change, args=(name,)) for name in "acde"]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert named(found) == {name: [0.0, 1.0] for name in "acde"}
    assert is_as_new(found)


@pytest.mark.parametrize("loops", [False, True])
def test_a_model_can_be_copied_and_sent(loops: bool) -> None:
    found = compiled(loops)
    for other in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert named(other) == {"b": [0, 0, 1]}
        other.add("a", 1)
        assert is_as_new(other)
    assert named(found) == {"b": [0, 0, 1]}


def test_a_batch_keeps_the_findings_that_it_began_with() -> None:
    found = compiled(False)
    blocks = found.batches(CASES, memory=1)
    found.add("e", 1)
    answers = next(blocks)
    right = expected(json.dumps({"a": 0, "b": 2}))
    assert all(np.allclose(answers[name][0], right[name], rtol=1e-12, atol=0) for name in right)
    assert alike(found.marginals(), {"b": [0, 0, 1], "e": [0, 1]})


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads interrupt each other in the middle of everything."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
