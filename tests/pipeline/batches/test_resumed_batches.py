"""Batches that are stopped: prices are found once, long rows go on where they were, others get a turn."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.api.progress import rows_bar
from bucketflow.pipeline.batches import answering, pricing
from bucketflow.pipeline.batches.batch import large_ones, packs
from bucketflow.pipeline.batches.manifest import Row
from bucketflow.pipeline.batches.models import BatchPolicy
from bucketflow.pipeline.batches.pricing import Price, PricedRow, Pricing
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.drawings.shown import DisplayPolicy
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.results.proof import Proof
from bucketflow.pipeline.results.result import Result
from bucketflow.storage import ledger
from bucketflow.storage.run_folder import BatchDir
from tests.models import grid
from tests.policies import InForce


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three models, and a list that asks for their partition functions."""
    for k in range(3):
        bucketflow.save(grid(8, 8, 3, "markov", seed=k), tmp_path / f"m{k}.uai")
    (tmp_path / "list.csv").write_text("model,query\n" + "".join(f"m{k}.uai,partition\n" for k in range(3)))
    return tmp_path


def answers(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def values(out: Path) -> list[float | None]:
    return [row["answer"]["log10"] if row["status"] == "answered" else None for row in answers(out)]


def expected(folder: Path) -> list[Any]:
    return [pytest.approx(bucketflow.solve(bucketflow.load(folder / f"m{k}.uai"), "partition").log10) for k in range(3)]


class Spy:
    """Counts calls of functions, and interrupts one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.calls: list[str] = []
        self.interrupted = 0

    def on(self, module: Any, name: str, at: int = 0) -> None:
        """Count calls of a function from now on, and raise KeyboardInterrupt in the ``at``-th, if that is not 0."""
        function, before = getattr(module, name), len(self.calls)

        def called(*args: Any, **more: Any) -> Any:
            self.calls.append(name)
            if at and len([call for call in self.calls[before:] if call == name]) == at:
                self.interrupted += 1
                raise KeyboardInterrupt
            return function(*args, **more)

        self.monkeypatch.setattr(module, name, called)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def run(folder: Path, tell: Callable[..., None] = lambda event, **facts: None) -> bucketflow.BatchSummary:
    return bucketflow.batch(folder / "list.csv", folder / "out", tell=tell)


@pytest.fixture(params=[0.0, BatchPolicy().large_seconds])
def longest(request: Any) -> Iterator[float]:
    """Seconds from which a question is large."""
    with BatchPolicy.using(large_seconds=request.param) as policy:
        yield policy.large_seconds


def test_prices_are_found_once(folder: Path, longest: float, spy: Spy) -> None:

    def stop(event: str, **_: Any) -> None:
        if event == "asking":
            raise KeyboardInterrupt

    assert run(folder, stop).exit_code == 4
    assert values(folder / "out") == [None] * 3
    spy.on(pricing, "own_price")
    spy.on(pricing, "shared_price")
    assert run(folder).exit_code == 0
    assert spy.calls == []
    assert values(folder / "out") == expected(folder)


def test_pricing_that_is_stopped_goes_on(folder: Path, spy: Spy) -> None:
    with pytest.MonkeyPatch.context() as once:
        Spy(once).on(pricing, "own_price", at=2)
        assert run(folder).exit_code == 4
    spy.on(pricing, "own_price")
    assert run(folder).exit_code == 0
    assert spy.calls == ["own_price"] * 2


def test_prices_of_another_budget_are_others(folder: Path, spy: Spy) -> None:
    spy.on(pricing, "own_price")
    for memory in ("1GB", "1GB", "2GB"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(answering, "answer_row", lambda *_: (_ for _ in ()).throw(bucketflow.StoppedError("stopped")))
            bucketflow.batch(folder / "list.csv", folder / "out", memory=memory)
    assert len(spy.calls) == 3 + 1 + 3  # the row that was stopped has another price


@BatchPolicy.using(large_seconds=0.0)
def test_a_long_row_goes_on_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch, spy: Spy) -> None:
    """Stopped once as a whole, then in pieces, of which those that are done are kept."""
    monkeypatch.setattr(placement, "TASK_SECONDS", 1e-4)
    with pytest.MonkeyPatch.context() as once:
        Spy(once).on(answering, "answer_row", at=1)
        assert run(folder).exit_code == 4
    first = answers(folder / "out")[0]
    assert (first["status"], first["stops"]) == ("stopped", 1)
    with pytest.MonkeyPatch.context() as once:
        early = Spy(once)
        early.on(ledger, "append", at=4)
        assert run(folder).exit_code == 4
    assert early.interrupted == 1
    prices = BatchDir(folder / "out")
    pieces = max(price.get("pieces", 1) for price in prices.prices().values())
    prices.close()
    assert pieces > 4
    spy.on(ledger, "append")
    assert run(folder).exit_code == 0
    assert values(folder / "out") == expected(folder)
    assert spy.calls.count("append") == pieces - 3


def test_what_a_pack_has_answered_is_kept(folder: Path, spy: Spy) -> None:
    """The row under way is stopped, and has a run directory of its own the next time."""
    (folder / "list.csv").write_text("model,query,evidence\n" + "".join(f"m0.uai,partition,x0={k}\n" for k in range(3)))
    with pytest.MonkeyPatch.context() as once:
        Spy(once).on(answering, "answer_row", at=2)
        assert run(folder).exit_code == 4
    assert [row["status"] for row in answers(folder / "out")] == ["answered", "stopped", "stopped"]
    kinds: list[str] = []

    def tell(event: str, **facts: Any) -> None:
        if event == "prices":
            kinds.extend(price.kind for _, price in facts["prices"])

    assert run(folder, tell).reused == 1
    assert kinds == ["large", "small"]


def test_bounds_so_far_are_in_the_results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimum that was interrupted between its bounds shows them, and is asked again."""
    proof = Proof("search", 3, 7, 4 / 7, {}, {}, 3, 1)
    monkeypatch.setattr(answering, "solved", lambda *_: Result("optimum", "bounded", 7, proof=proof))
    (folder / "list.csv").write_text("model\nm0.uai\n")
    assert run(folder).stopped == 1
    (row,) = answers(folder / "out")
    assert (row["status"], row["stops"], row["answer"]["proof"]["lower"]) == ("stopped", 1, 3)
    assert ",stopped,bounded,7,,3,7," in (folder / "out" / "summary.csv").read_text()
    assert run(folder).stopped == 1
    assert answers(folder / "out")[0]["stops"] == 2


def alone(number: int, stops: int, seconds: float = math.inf, kind: Any = "alone", pieces: int = 1) -> PricedRow:
    return PricedRow(Row(number, "", "m"), str(number), Price(kind, seconds, pieces=pieces), stops=stops)


def test_rows_that_were_stopped_let_others_go_first() -> None:
    made = packs([alone(1, 2), alone(2, 0), alone(3, 1), alone(4, 0)], 1)
    assert [pack[0].row.number for pack in made] == [2, 4, 3, 1]
    large = [alone(1, 0, 9.0, "large"), alone(2, 0, 3.0, "large"), alone(3, 1, 99.0, "large", 16)]
    assert [a.row.number for a in large_ones([*large, alone(4, 1, 5.0, "large")])] == [3, 2, 4, 1]


def test_rows_are_priced_for_some_time_and_at_least_one(folder: Path) -> None:
    out = BatchDir(folder / "out")
    rows = [Row(k, str(k), str(folder / f"m{k}.uai"), "partition") for k in range(3)]
    rows += [Row(3 + k, str(3 + k), str(folder / "m0.uai"), "marginals", {"x0": k}) for k in range(3)]
    waiting = [PricedRow(row, row.key()) for row in rows]
    told: list[str] = []
    some = Pricing(out, Options(), True, lambda event, **facts: told.append(event))
    found: list[PricedRow] = []
    while waiting:
        asked, waiting = some.some(SerialPool(), waiting, 0.0)
        assert asked
        found += asked
    assert sorted(a.row.number for a in found) == list(range(6))
    assert {a.price.kind for a in found} == {"small"}
    assert told.count("pricing") == 3 + 1  # three alone, three marginals together
    out.close()


@given(
    kind=st.sampled_from(("small", "compiled", "large", "alone", "wrong")),
    seconds=st.one_of(st.just(math.inf), st.floats(0, 1e9)),
    order=st.lists(st.text(max_size=3), max_size=3),
    pieces=st.integers(1, 9),
)
def test_prices_are_kept_as_they_are(kind: Any, seconds: float, order: Sequence[str], pieces: int) -> None:
    price = Price(kind, seconds, 3, 4, tuple(order), pieces)
    assert Price.from_dict(json.loads(json.dumps(price.to_dict()))) == price


def test_rows_without_an_answer_are_named(folder: Path) -> None:
    lines = ["model,query,name", "m0.uai,foo,first", "m1.uai,count,", "gone.uai,,third", "m2.uai,partition,good"]
    (folder / "list.csv").write_text("\n".join(lines))
    done = CliRunner().invoke(main, ["batch", str(folder / "list.csv"), "--out", str(folder / "out")])
    assert done.exit_code == 5
    said = [line for line in done.stderr.splitlines() if line.startswith("bucketflow: row")]
    assert said[0].startswith("bucketflow: row 1 (first) failed: column 'query': unknown query 'foo'; one of optimum")
    assert said[1].startswith("bucketflow: row 3 (third) failed: ")
    assert len(said) == 2
    again = CliRunner().invoke(main, ["batch", str(folder / "list.csv"), "--out", str(folder / "out"), "--json"])
    assert [line.removeprefix("bucketflow: ") for line in said] == json.loads(again.stdout)["unanswered"]


def test_many_rows_without_an_answer_are_counted(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("model\n" + "gone.uai\n" * 25)
    unanswered = bucketflow.batch(tmp_path / "list.csv", tmp_path / "out").unanswered
    assert len(unanswered) == 21
    assert unanswered[-1] == "5 more rows failed or were refused"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_by_row(folder: Path, monkeypatch: pytest.MonkeyPatch, in_force: InForce) -> None:
    in_force(DisplayPolicy, bar_seconds=0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with rows_bar(hidden=False) as draw:
        run(folder, lambda event, **facts: draw(event, facts))
    drawn = terminal.getvalue()
    assert "pricing row 1" in drawn
    assert "asking row 3" in drawn
    assert "100%" in drawn


def test_nothing_is_drawn_elsewhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rows_bar(hidden=False) as draw:
        run(folder, lambda event, **facts: draw(event, facts))
    assert capsys.readouterr().err == ""
