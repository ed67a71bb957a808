"""Small marginals of one model: when a circuit is tried, when a model is compiled, and when loops are loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY
from bucketflow.pipeline.batches import answering, models, pricing, summary
from bucketflow.pipeline.batches.answering import answered, compiled_for
from bucketflow.pipeline.batches.batch import packs
from bucketflow.pipeline.batches.manifest import read_manifest
from bucketflow.pipeline.batches.models import BatchPolicy, circuit_of_row, circuit_seconds
from bucketflow.pipeline.batches.pricing import Price, PricedRow
from bucketflow.pipeline.circuits.circuit_model import one_case
from bucketflow.pipeline.compiled import better_plans
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.models.cases import joined_cases
from bucketflow.pipeline.options import Options
from tests.device_stand_in import device
from tests.models import grid

FIRST = POLICY.lengths["circuit"].first_seconds


@pytest.mark.parametrize(
    ("count", "each", "compiling", "seconds"),
    [
        (3, 100.0, 0.0, 0.0),  # few rows
        (3, None, 0.0, 0.0),
        (20, 0.01, 0.0, 0.0),  # over before the search is loaded
        (25, 0.4, 0.0, 1.0),
        (25, 0.4, 20.0, 0.0),  # loops would have to be compiled first
        (2500, 0.4, 0.0, 10.0),
        (10**6, 0.4, 0.0, POLICY.patience_seconds),
        (8, None, 0.0, 8 * FIRST),  # only a search may answer
        (10**6, None, 0.0, POLICY.patience_seconds),
    ],
)
def test_the_time_slice_of_a_circuit(count: int, each: float | None, compiling: float, seconds: float) -> None:
    assert circuit_seconds(count, each, compiling) == pytest.approx(seconds)


@pytest.mark.parametrize("count", [9, 20, 100, 2000])
@pytest.mark.parametrize("each", [1e-3, 0.05, 1.0])
def test_a_circuit_in_vain_takes_a_small_part_of_the_rows_time(count: int, each: float) -> None:
    assert circuit_seconds(count, each, 0.0) <= count * each / (2 * count**0.5) + 1e-12


def rows_of(folder: Path, model: Any, cases: list[Any]) -> list[PricedRow]:
    listed = [{"model": model, "query": "marginals", "evidence": case} for case in cases]
    return [PricedRow(row, row.key()) for row in read_manifest(listed, "marginals", folder, print)]


def test_a_model_is_compiled_for_rows_of_several_packs(tmp_path: Path) -> None:
    bucketflow.save(grid(3, 3, 2, "markov"), tmp_path / "grid.uai")
    asked = rows_of(tmp_path, bucketflow.load(tmp_path / "grid.uai"), [{"x0": k % 2} for k in range(20)])
    made = packs([replace(one, price=Price("small", 1.5)) for one in asked], 1)
    assert max(map(len, made)) < 4
    assert all(one.alike == 20 for pack in made for one in pack)
    assert all(compiled_for(pack, Options()) is not None for pack in made)
    assert compiled_for([replace(one, alike=1) for one in made[0]], Options()) is None
    assert {one.alike for pack in packs(asked, 4) for one in pack} == {5}


GATES = "p cnf 6 5\n1 2 -3 0\n-1 3 0\n-2 3 0\n3 4 -5 0\n-4 5 6 0\n"


def test_a_circuit_in_its_time_slice_spares_the_plan_of_a_sweep(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gates.cnf").write_text(GATES)
    model = bucketflow.load(tmp_path / "gates.cnf")
    first, third = model.names[0], model.names[2]
    cases: list[Any] = [None, {first: 1}, {third: 0}, {first: 1, third: 0}, {first: [0.25, 0.5], third: 1}]
    monkeypatch.setattr(pricing, "unplanned_seconds", lambda *_: 10.0)
    monkeypatch.setattr(pricing, "compiled_of_row", lambda *_: pytest.fail("a model was compiled"))
    monkeypatch.setattr(pricing, "prepare", lambda *_: pytest.fail("a sweep was planned"))
    rows = [{"model": model, "query": "marginals", "evidence": case} for case in cases]
    assert bucketflow.batch(rows, tmp_path / "out").answered == 5
    lines = map(json.loads, (tmp_path / "out" / "results.jsonl").read_text().splitlines())
    found = {int(line["row"]): line["answer"] for line in lines}
    for case, (_, answer) in zip(cases, sorted(found.items()), strict=True):
        alone = bucketflow.marginals(model, evidence=case)
        assert answer["status"] == alone.status
        if alone.status == "ok":
            assert answer["log10_evidence"] == pytest.approx(alone.log10_evidence)
            assert all(answer["marginals"][name] == pytest.approx(list(alone[name])) for name in model.names)


def test_rows_that_are_hopeless_under_any_evidence_share_one_refusal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pairs = list(combinations(range(60), 2))
    tables = "\n".join(["9 1 2 3 4 5 6 7 8 9"] * len(pairs))
    scopes = "\n".join([f"2 {a} {b}" for a, b in pairs])
    (tmp_path / "clique.uai").write_text(f"MARKOV\n60\n{'3 ' * 60}\n{len(pairs)}\n{scopes}\n{tables}\n")
    priced = list[Any]()

    def price(row: Any, *given: Any, **options: Any) -> Price:
        priced.append(row.evidence)
        return pricing_alone(row, *given, **options)

    pricing_alone = pricing.own_price
    monkeypatch.setattr(pricing, "own_price", price)
    cases = [{"x1": 0}, {"x2": 1, "x3": 0}, {"x4": 1}, None, {"x5": 0}]
    rows = [{"model": str(tmp_path / "clique.uai"), "query": "marginals", "evidence": case} for case in cases]
    assert bucketflow.batch(rows, tmp_path / "out").refused == 5
    assert priced == [cases[1]]
    priced.clear()
    # an assignment of almost all variables leaves little to sweep
    rows[1]["evidence"] = {f"x{v}": 0 for v in range(55)}
    found = bucketflow.batch(rows, tmp_path / "mixed")
    assert (found.refused, found.answered, len(priced)) == (4, 1, 5)


def test_nothing_is_planned_for_rows_that_their_evidence_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gates.cnf").write_text("p cnf 6 6\n1 2 -3 0\n-1 3 0\n-2 3 0\n3 4 -5 0\n-4 5 6 0\n3 0\n")
    model = bucketflow.load(tmp_path / "gates.cnf")
    for module in (pricing, answering):
        monkeypatch.setattr(module, "compiled_of_row", lambda *_: pytest.fail("a model was compiled"))
    cases: list[Any] = [{model.names[2]: 0, model.names[k]: 0} for k in (0, 1, 3, 4, 5)]
    rows = [{"model": model, "query": "marginals", "evidence": case} for case in cases]
    assert bucketflow.batch(rows, tmp_path / "out").answered == 5


def test_a_circuit_is_tried_again_only_with_more_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "gates.cnf").write_text(GATES)
    (row,) = [one.row for one in rows_of(tmp_path, bucketflow.load(tmp_path / "gates.cnf"), [None])]
    tried = list[float]()
    monkeypatch.setattr(models, "TracedCircuit", lambda *_: SimpleNamespace(suits=True, run=tried.append))
    monkeypatch.setattr(models, "circuit_seconds", lambda count, *_: float(count))
    for count in (0, 4, 4, 3, 9):
        assert circuit_of_row(row, Options(), count, 1.0) is None
    assert tried == [4.0, 9.0]


def test_loops_are_loaded_for_the_questions_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    for expected in (0, 10**15):
        with monkeypatch.context() as patch, CompiledPolicy.using(loading_seconds=1e4):
            patch.setattr("bucketflow.pipeline.compiled.state.loops_are_loaded", lambda: False)
            loaded = list[bool]()
            compiled = bucketflow.compile(grid(3, 3, 2, "markov"), background=False)
            patch.setattr(
                "bucketflow.pipeline.compiled.state.kept_tables",
                lambda _plan, _leaves, compiled, loaded=loaded: loaded.append(compiled) or KeptNothing(),
            )
            compiled.expected = expected
            for k in range(3):
                assert not loaded  # the first question computes all tables, and two more are compared
                compiled.set_evidence({"x0": k % 2})
                compiled.marginals()
            assert loaded == [True] * (expected > 0)


class KeptNothing:
    """Tables that take over anything."""

    def restore(self, tables: Any) -> None:
        """Take over nothing."""


def test_cases_are_joined() -> None:
    model = grid(2, 2, 2, "markov")
    evidence = [None, {"x0": 1}, {"x1": 0, "x2": [0.5, 0.25]}, {"x2": 1}]
    found = joined_cases([one_case(model, each) for each in evidence])
    assert found.count == 4
    assert found.columns[0].tolist() == [-1, 1, -1, -1]
    assert found.columns[1].tolist() == [-1, -1, 0, -1]
    assert found.columns[2].tolist() == [[1.0, 1.0], [1.0, 1.0], [0.5, 0.25], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (str, ["", None, "ä b", "c" * 70]),
        (int, [None, 2**62, -1]),
        (float, [0.1, None, float("inf")]),
        (bool, [True, None, False, True] * 5),
        (str, []),
    ],
)
def test_columns_of_parquet_files(kind: type, cells: list[Any], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed", exc_type=ImportError)
    (tmp_path / "t.parquet").write_bytes(summary._parquet(iter([(cell,) for cell in cells]), {"x": kind}))
    assert parquet.read_table(tmp_path / "t.parquet").to_pydict() == {"x": cells}


@pytest.mark.parametrize(("seconds", "searches"), [(0.0, True), (1e9, False)])
def test_a_better_tree_is_searched_for_only_if_the_rows_take_longer(
    seconds: float, searches: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = list[Any]()

    def begin(search: Any) -> Any:
        begun.append(search)
        return SimpleNamespace(ended=Event(), close=lambda: None)

    monkeypatch.setattr(better_plans, "Racer", begin)
    bucketflow.save(grid(3, 3, 2, "markov"), tmp_path / "grid.uai")
    asked = rows_of(tmp_path, bucketflow.load(tmp_path / "grid.uai"), [{"x0": k % 2} for k in range(4)])
    with CompiledPolicy.using(searching_seconds=0.0, longest_search_seconds=seconds):
        answered(asked, Options(threads=1))
    assert bool(begun) == searches


def test_gpus_do_not_keep_a_batch_from_a_circuit_or_a_compiled_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gates.cnf").write_text(GATES)
    model = bucketflow.load(tmp_path / "gates.cnf")
    bucketflow.save(grid(3, 3, 2, "markov"), tmp_path / "grid.uai")
    monkeypatch.setattr(pricing, "prepare", lambda *_: pytest.fail("a sweep was planned"))
    monkeypatch.setattr(pricing, "unplanned_seconds", lambda *_: 10.0)
    with device(monkeypatch):
        cases = [{model.names[k]: 0} for k in range(5)]
        rows = [one.row for one in rows_of(tmp_path, model, cases)]
        assert pricing.shared_price(rows, Options(gpus=1)) == Price("searched")
        asked = rows_of(tmp_path, bucketflow.load(tmp_path / "grid.uai"), [{f"x{k}": 0} for k in range(5)])
        price = pricing.shared_price([one.row for one in asked], Options(gpus=1))
        assert price is not None
        assert price.kind == "compiled"
        compiled = [replace(one, price=price) for one in asked]
        small = [replace(one, price=replace(price, kind="small")) for one in asked]
        assert compiled_for(small, Options(gpus=1)) is not None
        with models.BatchPolicy.using(large_seconds=0.0):
            assert compiled_for(small, Options(gpus=1)) is None  # a price that is for a device
            assert compiled_for(compiled, Options(gpus=1)) is not None


def test_long_rows_share_a_compiled_model_where_that_takes_less_than_a_sweep_for_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bucketflow.save(grid(6, 6, 3, "markov"), tmp_path / "grid.uai")
    model = bucketflow.load(tmp_path / "grid.uai")
    few = [one.row for one in rows_of(tmp_path, model, [{"x0": k % 3, "x35": k % 2} for k in range(12)])]
    most = [{f"x{v}": (v + k) % 3 for v in range(35)} for k in range(12)]
    decided = [one.row for one in rows_of(tmp_path, model, most)]
    with BatchPolicy.using(large_seconds=0.0):
        price = pricing.shared_price(few, Options())
        assert price is not None
        assert price.kind == "compiled"
        with device(monkeypatch):  # a sweep would be planned for each row
            assert pricing.shared_price(few, Options(gpus=1)) == price
        # a stopped row loses at most its own time
        assert pricing.shared_price(few, Options(), price.seconds) is None
        assert pricing.shared_price(few[:4], Options(), 4 * price.seconds) is not None
        assert pricing.shared_price(decided, Options()) is None
        cases = [{"model": model, "query": "marginals", "evidence": dict(row.evidence or {})} for row in few]
        assert bucketflow.batch(cases, tmp_path / "out").answered == 12
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    found = {int(line["row"]): line["answer"]["log10_evidence"] for line in lines}
    expected = [bucketflow.marginals(model, evidence=row.evidence).log10_evidence for row in few]
    assert [found[k] for k in sorted(found)] == pytest.approx(expected)
