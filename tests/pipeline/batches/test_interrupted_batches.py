"""Batches that were interrupted at any line answer the rest when they are run again; threads share their models."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.batches import answering
from bucketflow.pipeline.batches.manifest import Row
from bucketflow.pipeline.batches.models import RecentValues
from bucketflow.pipeline.batches.pricing import Price, PricedRow
from bucketflow.pipeline.options import Options
from tests.interrupting import at_every_line
from tests.models import grid

#: Enough sums of one model to compile it.
QUESTIONS = [
    *({"model": "a.uai", "query": "partition", "evidence": {"x0": state}} for state in range(3)),
    *({"model": "a.uai", "query": "marginals", "evidence": {"x1": state, "x4": 0}} for state in range(2)),
    {"model": "b.wcsp", "query": "optimum"},
    {"model": "b.wcsp", "query": "count"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bucketflow.save(grid(3, 3, 3, "markov"), tmp_path / "a.uai")
    bucketflow.save(grid(2, 3, 3), tmp_path / "b.wcsp")
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    return tmp_path


@pytest.fixture
def often() -> Iterator[None]:
    """Let threads interrupt each other in the middle of everything."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def answers(out: Path) -> list[Any]:
    """What was found, without what it took: values, logarithms, and all probabilities."""
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    found = [row["answer"] for row in rows]
    tables = [p for each in found for table in each.get("marginals", {}).values() for p in table]
    logs = [each.get("log10", each.get("log10_evidence")) for each in found]
    return [float(each.get("value") or 0) for each in found] + [number or 0.0 for number in [*logs, *tables]]


def test_a_batch_that_was_interrupted_answers_the_rest(folder: Path) -> None:
    def run(out: Path) -> bucketflow.BatchSummary:
        return bucketflow.batch(folder / "list.jsonl", out)

    assert run(folder / "whole").answered == len(QUESTIONS)
    expected = answers(folder / "whole")
    numbers = count()
    for out, how in at_every_line(run, lambda: folder / f"out{next(numbers)}", 40):
        again = run(out)
        assert (again.answered, again.exit_code) == (len(QUESTIONS), 0), how
        assert answers(out) == pytest.approx(expected, rel=1e-9), how
        assert run(out).reused == len(QUESTIONS), how
        assert not [*out.rglob("*.partial")], how


def test_a_row_for_which_memory_ran_out_is_asked_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much it was allowed: another time there may be more."""

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(answering, "answer_row", no_memory)
        assert bucketflow.batch(folder / "list.jsonl", folder / "out", memory="1GB").refused == len(QUESTIONS)
    again = bucketflow.batch(folder / "list.jsonl", folder / "out", memory="1GB")
    assert (again.answered, again.reused) == (len(QUESTIONS), 0)


def test_threads_of_a_worker_ask_one_compiled_model_in_turn(folder: Path, often: None) -> None:
    path, model = str(folder / "a.uai"), bucketflow.load(folder / "a.uai")
    right = [bucketflow.marginals(model, evidence={"x0": state}) for state in range(3)]

    def pack(state: int) -> list[PricedRow]:
        row = Row(1, "", path, "marginals", {"x0": state})
        return [PricedRow(row, str(k), Price("small")) for k in range(4)]

    wrong: list[int] = []

    def ask(state: int) -> None:
        for _ in range(10):
            for found in answering.answered(pack(state), Options(memory="1GB")):
                tables = found["answer"]["marginals"]
                if any(tables[name] != pytest.approx(right[state][name].tolist()) for name in model.names):
                    wrong.append(state)

    threads = [threading.Thread(target=ask, args=(state,)) for state in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_keep_values_together(often: None) -> None:
    kept: RecentValues[int] = RecentValues(lambda: 2)
    failed: list[BaseException] = []

    def take(first: int) -> None:
        try:
            for k in range(first, 3000 + first):
                assert kept.get(k % 5, lambda k=k: k % 5, lambda _: 1) == k % 5
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=take, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
