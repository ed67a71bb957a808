"""Strategies: who may answer and for how long, by numbers alone; and what a walk takes beside the best engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.answering.answer_question import valued
from bucketflow.pipeline.answering.engines.bounds_engine import BoundsEngine
from bucketflow.pipeline.answering.engines.engine import TurnEnded
from bucketflow.pipeline.answering.engines.engine_options import (
    EARLY,
    ROWS,
    SWEEP,
    EngineLimits,
    EnginePrice,
    Estimate,
    Strategy,
    strategy_of,
)
from bucketflow.pipeline.answering.engines.request import QueryRequest
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY, StrategyPolicy
from bucketflow.pipeline.answering.engines.sweep_engine import SweepEngine
from bucketflow.pipeline.answering.engines.turn_account import Move, TurnAccount
from bucketflow.pipeline.answering.question import is_whole, question_of
from bucketflow.pipeline.options import Options, ProofOptions
from bucketflow.pipeline.orders.depth_first import bucket_parents, sweep_cells
from bucketflow.pipeline.orders.min_fill import least_width
from bucketflow.pipeline.queries.counting import most_primes
from tests.models import grid
from tests.strategies import NEVER_QUICK, solve_by

UNKNOWN = EnginePrice()
NO_TURNS = replace(POLICY, share=0.0)


def rough(seconds: float, device: Any = "host") -> EnginePrice:
    return EnginePrice(seconds, certainty="rough", device=device)


def planned(seconds: float, device: Any = "host") -> EnginePrice:
    return EnginePrice(seconds, certainty="planned", device=device)


def strategy(query: str, engine_limits: EngineLimits, **estimates: Estimate) -> Strategy:
    """A strategy of bids by name; blanks in names are underscores."""
    asked: dict[str, Callable[[], Estimate]] = {
        name.replace("_", " "): lambda estimate=estimate: estimate for name, estimate in estimates.items()
    }
    return strategy_of(query, engine_limits, asked)


@pytest.mark.parametrize(
    ("query", "engine_limits", "estimates", "engines", "first"),
    [
        # quick sweeps are offered before all others, of sums once their plan is quick too
        ("partition", EngineLimits(), {"search": UNKNOWN, "sweep": rough(0.2)}, [SWEEP, "search"], "price sweep"),
        ("partition", EngineLimits(), {"search": UNKNOWN, "sweep": planned(0.2)}, [SWEEP, "search"], "finish sweep"),
        ("partition", EngineLimits(), {"rows": UNKNOWN, "sweep": rough(0.2)}, [SWEEP], "finish sweep"),
        ("optimum", EngineLimits(), {"bounds": UNKNOWN, "sweep": rough(0.01)}, [SWEEP, "bounds"], "price sweep"),
        ("optimum", EngineLimits(), {"bounds": UNKNOWN, "sweep": planned(0.01)}, [SWEEP], "finish sweep"),
        # an optimum is left to bounds, which sweep what is left themselves
        ("optimum", EngineLimits(), {"bounds": UNKNOWN, "sweep": rough(0.1)}, ["bounds", SWEEP], "finish bounds"),
        ("optimum", EngineLimits(), {"bounds": "huge costs", "sweep": rough(9.0)}, [SWEEP], "price sweep"),
        ("optimum", EngineLimits("bounds"), {"bounds": UNKNOWN, "sweep": rough(0.0)}, ["bounds"], "finish bounds"),
        # a sweep that a short search may make quick is priced first, a longer one is not
        ("count", EngineLimits(), {"diagrams": UNKNOWN, "sweep": rough(9.0)}, ["diagrams", SWEEP], "price sweep"),
        ("count", EngineLimits(), {"diagrams": UNKNOWN, "sweep": rough(999.0)}, ["diagrams", SWEEP], "turn diagrams"),
        # what is asked for goes
        ("count", EngineLimits("search"), {"search": UNKNOWN, "sweep": rough(0.0)}, ["search"], "finish search"),
        (
            "count",
            EngineLimits(SWEEP),
            {"search": UNKNOWN, "rows": UNKNOWN, "sweep": rough(9)},
            [ROWS, SWEEP],
            "price sweep",
        ),
        (
            "count",
            EngineLimits(about_sweeps=True),
            {"search": UNKNOWN, "rows": "a fit was asked for", "sweep": rough(9)},
            [SWEEP, "search"],
            "price sweep",
        ),
        # functions of which few entries are possible
        (
            "marginals",
            EngineLimits(SWEEP),
            {"early_rows": planned(1.0), "sweep": rough(9)},
            [EARLY, SWEEP],
            f"finish {EARLY}",
        ),
        # a refused sweep leaves the others, and nobody leaves none
        ("count", EngineLimits(), {"search": UNKNOWN, "sweep": "no plan fits"}, ["search"], "turn search"),
        ("count", EngineLimits(), {"search": "no clauses", "sweep": "no plan fits"}, [], "none"),
        # devices: quick, raced by the host, or too long to be raced by bounds that use the device
        (
            "partition",
            EngineLimits(),
            {"diagrams": UNKNOWN, "sweep": rough(0.2, "gpu")},
            [SWEEP, "diagrams"],
            "finish sweep",
        ),
        (
            "partition",
            EngineLimits(),
            {"diagrams": UNKNOWN, "sweep": planned(9, "gpu")},
            ["diagrams", SWEEP],
            "race sweep",
        ),
        ("optimum", EngineLimits(), {"bounds": UNKNOWN, "sweep": planned(9, "gpu")}, ["bounds", SWEEP], "race sweep"),
        ("optimum", EngineLimits(), {"bounds": UNKNOWN, "sweep": rough(900, "gpu")}, ["bounds", SWEEP], "price sweep"),
        (
            "optimum",
            EngineLimits(),
            {"bounds": UNKNOWN, "sweep": planned(900, "gpu")},
            ["bounds", SWEEP],
            "finish bounds",
        ),
    ],
)
def test_who_may_answer(
    query: str, engine_limits: EngineLimits, estimates: dict[str, Estimate], engines: list[str], first: str
) -> None:
    made = strategy(query, engine_limits, **estimates)
    assert list(made.engines) == engines
    move = TurnAccount.of(made).next()
    assert (f"{move.kind} {move.engine}" if move else "none") == first


def test_bids_are_asked_as_late_as_possible() -> None:
    def fail() -> Estimate:
        pytest.fail("nobody is asked")

    estimates = {"search": fail, "diagrams": fail, SWEEP: lambda: rough(0.1)}
    assert strategy_of("partition", EngineLimits(), estimates).engines == (SWEEP, "search", "diagrams")
    estimates = {"search": fail, "rows": lambda: UNKNOWN, SWEEP: fail}
    assert strategy_of("partition", EngineLimits(about_sweeps=True), estimates).engines == (ROWS, SWEEP, "search")


@pytest.mark.parametrize(("seconds", "then"), [(0.4, ["finish sweep"]), (1.0, ["price search", "turn search"])])
def test_others_bid_once_the_plan_of_a_quick_sweep_takes_longer(seconds: float, then: list[str]) -> None:
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, sweep=rough(0.04)))
    assert str(account.next()) == "sweep is priced again, because its predicted time is rough"
    account.reprice(SWEEP, planned(seconds))
    moves = []
    for _ in then:
        move = account.next()
        assert move is not None
        moves.append(f"{move.kind} {move.engine}")
        if move.kind == "price":
            account.reprice(move.engine, UNKNOWN)
    assert moves == then


def test_what_takes_long_to_compile_has_no_turn_before_a_sweep_that_takes_longer_than_it_seemed() -> None:
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, sweep=rough(0.04)))
    account.reprice(SWEEP, planned(1.0))
    account.reprice("search", EnginePrice(compiling_seconds=20.0))
    assert (move := account.next()) is not None
    assert (move.kind, move.engine) == ("finish", SWEEP)


@dataclass
class Simulated:
    """A walk by numbers: what each engine would take, and what the sweep turns out to take once it is planned."""

    account: TurnAccount
    takes: dict[str, float]
    sweep: float
    planning: float = 0.0
    spent: float = 0.0
    done: dict[str, float] = field(default_factory=dict)

    def run(self) -> str:
        """Return which engine answers."""
        while (move := self.account.next()) is not None:
            if self._answers(move):
                return move.engine
        return ""

    def _answers(self, move: Move) -> bool:
        if move.kind == "price" and move.engine != SWEEP:
            self.account.reprice(move.engine, UNKNOWN)
            return False
        if move.kind == "price":
            self.spent += POLICY.short_search_seconds if move.aim == "searched" else self.planning
            price = EnginePrice(self.sweep, certainty=move.aim)
            self.account.reprice(move.engine, price if self.sweep < inf else UNKNOWN)
            if self.sweep == inf:
                self.account.enter(move, 0.0, "refused")
            return False
        if move.engine == SWEEP and self.sweep == inf:
            self.account.enter(move, 0.0, "refused")
            return False
        needed = self.sweep if move.engine == SWEEP else self.takes[move.engine] - self.done.get(move.engine, 0.0)
        seconds = min(needed, move.seconds)
        self.done[move.engine] = self.done.get(move.engine, 0.0) + seconds
        self.spent += seconds
        self.account.enter(move, seconds, "" if needed > seconds else "answered")
        return needed <= move.seconds


@given(st.floats(0.3, 1e4), st.floats(0.1, 1e5), st.floats(0.1, 1e5), st.sampled_from([0.25, 1.0, 8.0]), st.booleans())
def test_the_whole_takes_a_constant_factor_of_the_best(
    sweep: float, search: float, diagrams: float, off: float, refused: bool
) -> None:
    """Engines go on in each turn where they ended the last one."""
    made = strategy("partition", EngineLimits(), search=UNKNOWN, diagrams=UNKNOWN, sweep=rough(off * sweep))
    sweep = inf if refused else sweep
    planning = POLICY.planning_seconds(sweep if sweep < inf else 100.0)
    walk = Simulated(TurnAccount.of(made), {"search": search, "diagrams": diagrams}, sweep, planning)
    engine = walk.run()
    priced = POLICY.short_search_seconds + planning
    if not refused:
        least = max(1.0, off)
        assert walk.spent <= sweep + POLICY.shared_seconds(least * sweep) + priced + 0.5
    if engine in ("search", "diagrams"):
        # the other one had as long before, and began a turn of twice the length
        assert walk.spent <= 4 * walk.takes[engine] + priced + 2.0
    if refused:
        assert walk.spent <= POLICY.patience_seconds + priced
        assert engine or min(search, diagrams) > POLICY.patience_seconds / 8


def test_turns_double_and_alternate() -> None:
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, diagrams=UNKNOWN, sweep=planned(40.0)))
    moves = []
    while (move := account.next()) is not None and move.kind == "turn":
        moves.append((move.engine, move.seconds))
        account.enter(move, move.seconds)
    searches = [seconds for engine, seconds in moves if engine == "search"]
    assert [engine for engine, _ in moves[:4]] == ["search", "diagrams"] * 2
    assert searches[:-1] == [0.25 * 2**k for k in range(len(searches) - 1)]
    assert sum(seconds for _, seconds in moves) <= POLICY.shared_seconds(40.0)
    assert move is not None
    assert (move.kind, move.engine) == ("finish", SWEEP)
    account.enter(move, 1.0, "refused: no memory")  # then the others go on while patience lasts
    more = account.next()
    assert more is not None
    assert more.engine in ("search", "diagrams")


@pytest.mark.parametrize(("sweep", "most"), [(1.0, 1.5), (8.0, 12.0), (59.0, 70.0), (600.0, 680.0)])
def test_a_long_sweep_whose_price_is_known_is_hardly_delayed(sweep: float, most: float) -> None:
    """A sweep of 59 seconds was delayed by 29 while other engines had turns in vain."""
    made = strategy("partition", EngineLimits(), diagrams=UNKNOWN, search=UNKNOWN, sweep=planned(sweep))
    walk = Simulated(TurnAccount.of(made), {"search": inf, "diagrams": inf}, sweep)
    assert walk.run() == SWEEP
    assert sweep < walk.spent <= most


@pytest.mark.parametrize(("sweep", "last"), [(4.6, 0.8), (3.9, 0.5)])
def test_the_last_turn_takes_what_is_left(sweep: float, last: float) -> None:
    """Half of the sweep's price is for others: of a turn of a second 0.8 are left, or less than half of it."""
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, diagrams=UNKNOWN, sweep=planned(sweep)))
    lengths = []
    while (move := account.next()) is not None and move.kind == "turn":
        lengths.append(move.seconds)
        account.enter(move, move.seconds)
    assert lengths[:4] == [0.25, 0.25, 0.5, 0.5]
    assert lengths[-1] == pytest.approx(last)
    assert sum(lengths) <= POLICY.share * sweep + 1e-9


def test_what_runs_on_another_core_is_allowed_beside_the_turn_that_it_runs_with() -> None:
    """Of a sweep of 0.9 s they may have 0.45: both first turns would take 0.5."""
    for sweep, allowed in ((0.9, False), (1.1, True)):
        account = TurnAccount.of(
            strategy("count", EngineLimits(), search=UNKNOWN, diagrams=UNKNOWN, sweep=planned(sweep))
        )
        move = account.next()
        assert move is not None
        assert (account.beside(move) is not None) is allowed


def test_a_sweep_ends_where_it_learns_that_it_was_mispriced_only_if_others_may_go_on() -> None:
    for seconds, most in ((0.4, POLICY.mispriced_seconds), (40.0, POLICY.mispriced * 40.0)):
        made = replace(strategy("count", EngineLimits(), search=UNKNOWN, sweep=planned(seconds)), policy=NO_TURNS)
        move = TurnAccount.of(made).next()
        assert move is not None
        assert (move.kind, move.seconds) == ("finish", most)
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, sweep=planned(0.4)))
    move = account.next()
    assert move is not None
    account.enter(move, 0.1)
    account.reprice(SWEEP, planned(9.0))
    then = account.next()
    assert then is not None
    assert (then.kind, then.engine) == ("turn", "search")
    account.enter(then, 0.1, "it does not fit memory")
    last = account.next()
    assert last is not None
    assert (last.kind, last.engine, last.seconds) == ("finish", SWEEP, inf)


def test_a_count_of_more_primes_than_expected_is_priced_again() -> None:
    """One variable implies 200: as if clauses were independent there are some 2^117 assignments, of 2^200 + 1."""
    names, clause = [f"x{k}" for k in range(200)], np.array([[0, 0], [9, 0]])
    functions = [(["all", name], clause) for name in names]
    model = bucketflow.Model.build("cost", dict.fromkeys(["all", *names], 2), functions, top=9)
    expected = question_of(model, "count").count_plan.expected_primes
    policy = replace(NEVER_QUICK, share=0.0, mispriced=1.0, mispriced_seconds=0.0)
    found = solve_by(policy, model, "count")
    assert found.value == 2**200 + 1
    first, last = [turn for turn in found.tried if turn.engine == SWEEP]
    assert first.ended.endswith(f"{expected} were predicted")
    assert last.ended == "answered"


def test_clauses_of_a_gate_exclude_assignments_together() -> None:
    """Of 60 conjunctions of eight inputs half of the assignments are left each; as if independent, a tenth."""
    names, functions = [], []
    for gate in range(60):
        inputs = [f"x{gate}-{k}" for k in range(8)]
        names += [f"y{gate}", *inputs]
        functions += [([f"y{gate}", name], np.array([[0, 0], [9, 0]])) for name in inputs]
        last = np.zeros((2,) * 9, np.int64)
        last[(0, *(1,) * 8)] = 9
        functions.append(([f"y{gate}", *inputs], last))
    model = bucketflow.Model.build("cost", dict.fromkeys(names, 2), functions, top=9)
    assert question_of(model, "count").count_plan.expected_primes >= most_primes(479 * log(2))


def test_rows_that_samples_expect_to_be_long_have_a_price_by_which_others_have_turns() -> None:
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, rows=UNKNOWN, sweep=planned(40.0)))
    account.enter(Move("turn", "search", 0.25, ""), 0.25)
    move = account.next()
    assert move is not None
    assert move.engine == ROWS
    account.enter(move, 0.1)
    account.reprice(ROWS, planned(4.0))
    move = account.next()
    assert move is not None
    assert (move.kind, move.engine) == ("turn", "search")
    account.enter(move, 2.0)
    move = account.next()
    assert move is not None
    assert (move.kind, move.engine, move.seconds) == ("finish", ROWS, 2 * 4.0)


@pytest.mark.parametrize(("plan", "turn"), [(0.02, 0.0), (0.4, 0.2)])
def test_bounds_have_a_part_of_a_sweep_that_seemed_quick_and_is_not(plan: float, turn: float) -> None:
    """The price by the first order assumes that a tree saves cells; if it does not, costs are prepared first."""
    made = strategy("optimum", EngineLimits(), bounds=UNKNOWN, sweep=rough(0.01))
    assert not made.is_bounded
    account, seen = TurnAccount.of(made), []
    while (move := account.next()) is not None and move.kind != "finish":
        seen.append((move.kind, move.engine))
        if move.kind == "turn":
            assert move.seconds == pytest.approx(turn)
            account.enter(move, move.seconds)
        else:
            account.reprice(move.engine, planned(plan) if move.engine == SWEEP else UNKNOWN)
    assert seen == [("price", SWEEP), *([("price", "bounds"), ("turn", "bounds")] if turn else [])]
    assert move is not None
    assert (move.kind, move.seconds) == ("finish", inf)


def test_a_turn_before_a_planned_sweep_sweeps_nothing() -> None:
    """If preparation does not prove the optimum, the planned sweep answers."""
    request = QueryRequest(question_of(bucketflow.load("satellite"), "optimum"), Options())
    sweep = SweepEngine(request)
    sweep.plan()
    ended = BoundsEngine(request, sweep).run(0.0)
    assert isinstance(ended, TurnEnded)
    assert not ended.hopeless
    assert BoundsEngine(request, sweep).estimate() == BoundsEngine(request, sweep).better_price("planned") == UNKNOWN


def test_an_engine_that_is_charged_more_has_fewer_turns() -> None:
    """Also on another core."""
    diagrams = EnginePrice(charged=4.0)
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, diagrams=diagrams, sweep=planned(99.0)))
    beside, engines = [], []
    for _ in range(3):
        move = account.next()
        assert move is not None
        there = account.beside(move)
        beside.append(there is not None)
        for each in filter(None, (move, there)):
            account.enter(each, each.seconds)
    assert beside == [True, False, True]
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, diagrams=diagrams, sweep=planned(99.0)))
    for _ in range(5):
        move = account.next()
        assert move is not None
        engines.append(move.engine)
        account.enter(move, move.seconds)
    assert engines == ["search", "diagrams", "search", "search", "diagrams"]


def test_a_projected_count_is_refused_by_the_size_of_what_remains_before_a_tree_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable that is not counted touches all others, so that one table over them remains in any order."""
    monkeypatch.setattr("bucketflow.pipeline.orders.tree_search.TreeSearch.trees", lambda *_: pytest.fail("searched"))
    names = [f"x{k}" for k in range(40)]
    functions = [(["hidden", name], np.array([[0.0, 1.0], [1.0, 1.0]])) for name in names]
    model = bucketflow.Model.build("markov", dict.fromkeys(["hidden", *names], 2), functions)
    request = QueryRequest(question_of(model, "count", project=names), Options(memory="1MB"))
    assert str(SweepEngine(request).estimate()).startswith(
        "the problem that remains once 1 variables are eliminated needs"
    )


def test_rows_wait_for_a_sweep_that_is_planned_though_another_engine_is_cheaper() -> None:
    estimates = {"diagrams": UNKNOWN, "rows": UNKNOWN, "sweep": planned(40.0)}
    account = TurnAccount.of(strategy("count", EngineLimits(), **estimates))
    assert account._length(account.standings[ROWS]) > 0.0
    account.reprice("diagrams", planned(20.0))
    assert account._length(account.standings[ROWS]) == 0.0


def test_prices_become_better_once_as_much_was_spent() -> None:
    """A plan of an hour's sweep takes eight seconds, which nobody spends before a quarter of one on the others."""
    account = TurnAccount.of(strategy("count", EngineLimits(), diagrams=UNKNOWN, sweep=rough(5000.0)))
    spent, seen = 0.0, []
    while (move := account.next()) is not None and move.kind != "finish":
        if move.kind == "price":
            seen.append((move.aim, spent))
            account.reprice(SWEEP, EnginePrice(5000.0, certainty=move.aim))
        else:
            spent += move.seconds
            account.enter(move, move.seconds)
    assert [aim for aim, _ in seen] == ["searched", "planned"]
    assert 0 < seen[0][1] < seen[1][1]
    assert seen[1][1] >= POLICY.planning_seconds(5000.0)


def test_a_plan_that_is_soon_made_is_not_waited_for() -> None:
    account = TurnAccount.of(strategy("count", EngineLimits(), diagrams=UNKNOWN, sweep=rough(50.0)))
    account.reprice(SWEEP, EnginePrice(50.0, certainty="searched", planning_seconds=1.0))
    spent = 0.0
    while (move := account.next()) is not None and move.kind == "turn":
        spent += move.seconds
        account.enter(move, move.seconds)
    assert move is not None
    assert (move.kind, move.aim) == ("price", "planned")
    assert 1.0 <= spent < 2.0


def test_what_is_hopeless_has_no_other_turn() -> None:
    account = TurnAccount.of(strategy("count", EngineLimits(), search=UNKNOWN, diagrams=UNKNOWN, sweep=planned(40.0)))
    move = account.next()
    assert move is not None
    account.enter(move, 0.1, "they do not fit memory")
    engines = []
    while (move := account.next()) is not None and move.kind == "turn":
        engines.append(move.engine)
        account.enter(move, move.seconds)
    assert {*engines} == {"diagrams"}


@pytest.mark.parametrize(("seconds", "tried"), [(0.4, False), (2.1, True)])
def test_rows_wait_for_a_plan_and_take_a_part_of_it(seconds: float, tried: bool) -> None:
    account = TurnAccount.of(strategy("marginals", EngineLimits(SWEEP), rows=UNKNOWN, sweep=UNKNOWN))
    move = account.next()
    assert move is not None
    assert (move.kind, move.aim) == ("price", "planned")
    account.reprice(SWEEP, planned(seconds))
    move = account.next()
    assert move is not None
    if tried:
        assert (move.engine, move.seconds) == (ROWS, pytest.approx(0.05 * seconds))
        account.enter(move, move.seconds)
        move = account.next()
        assert move is not None
    assert (move.kind, move.engine) == ("finish", SWEEP)


def test_a_race_lets_the_host_go_on_without_end() -> None:
    account = TurnAccount.of(strategy("partition", EngineLimits(), diagrams=UNKNOWN, sweep=planned(9.0, "gpu")))
    race = account.next()
    assert race is not None
    assert race.kind == "race"
    account.racing = True
    for k in range(20):
        move = account.next()
        assert move is not None
        assert (move.engine, move.seconds) == ("diagrams", 0.25 * 2**k)
        account.enter(move, move.seconds)
    account.enter(move, 0.0, "they do not fit memory")
    assert account.next() is None  # what is left is to wait


def test_strategies_are_shown() -> None:
    made = strategy("partition", EngineLimits(), search="no clauses", diagrams=UNKNOWN, sweep=rough(2.0**12))
    shown = made.to_dict()
    assert [offer["engine"] for offer in shown["offers"]] == ["diagrams", "sweep"]
    assert shown["offers"][1]["seconds"] == 2**12
    assert shown["refused"] == {"search": "no clauses"}
    assert shown["offers"][0]["most_seconds"] == POLICY.shared_seconds(2.0**12)
    assert made.repriced(SWEEP, planned(3.0)).offers[1].price.seconds == 3
    assert made.without(SWEEP, "no memory").engines == ("diagrams",)
    assert replace(made, offers=()).engines == ()


def test_a_device_is_planned_once_as_much_was_spent_on_the_host() -> None:
    """Planning 2^52 cells for a device took 17 s, before diagrams that take two had a turn."""
    price = EnginePrice(500.0, certainty="searched", device="gpu")
    account = TurnAccount.of(strategy("partition", EngineLimits(), diagrams=UNKNOWN, sweep=price))
    kinds = []
    for _ in range(4):
        move = account.next()
        assert move is not None
        kinds.append(move.kind)
        account.enter(move, move.seconds)
    assert kinds == ["turn"] * 4


def test_a_sweep_is_priced_as_sliced_where_its_largest_message_tells_so() -> None:
    """All buckets together have 380 MB, of which 8 MB are enough."""
    model = grid(16, 16, 2)
    question = question_of(model, "optimum")
    cells = sweep_cells(question.reduced[0].dims, question.reduced[0].scopes, 0)
    enough, scarce = model.nbytes + (1 << 23), model.nbytes + (1 << 16)
    part = StrategyPolicy().largest_part
    assert 8 * cells > enough
    assert is_whole(question, Options(memory=enough), cells, part)
    assert bucketflow.plan(model, memory=enough).slices == 1
    assert not is_whole(question, Options(memory=scarce), cells, part)


def test_a_search_whose_turns_are_over_is_told_with_what_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted variables come last, so that there are no slices, and nothing but the search is left."""
    monkeypatch.setattr("bucketflow.pipeline.answering.sums.SearchedSum.run", lambda *_: None)
    rng = np.random.default_rng(0)
    lines = ["p cnf 60 150", f"c ind {' '.join(map(str, range(1, 31)))} 0"]
    for _ in range(150):
        clause = (1 + rng.permutation(60)[:3]) * rng.choice([-1, 1], 3)
        lines.append(f"{' '.join(map(str, clause))} 0")
    (tmp_path / "random.cnf").write_text("\n".join(lines))
    question = question_of(bucketflow.load(tmp_path / "random.cnf"), "count", None)
    impatient = replace(POLICY, patience_seconds=1.0, lengths=NEVER_QUICK.lengths)
    with pytest.raises(bucketflow.BudgetError, match=r"eliminated needs .*; search did not end within .* CPU s"):
        valued(question, Options(memory="2MB"), ProofOptions(), policy=impatient)


def preferred(charged: float) -> EnginePrice:
    return EnginePrice(charged=charged)


def moves_of(limit: float, **estimates: Estimate) -> list[str]:
    """The moves of a count until ``limit`` seconds are spent on turns, none of which answers; prices cost nothing."""
    account, spent, found = TurnAccount.of(strategy("count", EngineLimits(), **estimates)), 0.0, []
    while spent < limit and (move := account.next()) is not None:
        found.append(f"{move.engine} {move.kind}" if move.kind != "turn" else f"{move.engine} {move.seconds:g}")
        if move.kind == "price":
            account.reprice(move.engine, replace(estimates[move.engine], certainty=move.aim))  # type: ignore[type-var]
        elif move.kind == "turn":
            account.enter(move, move.seconds)
            spent += move.seconds
        else:
            break
    return found


def test_engines_of_clauses_come_before_planning_and_before_other_engines() -> None:
    """Planning of 0.5 s waits until the search had 2 s, and the first time slice of diagrams until it had 3.75 s."""
    sweep = EnginePrice(50.0, certainty="rough", planning_seconds=0.5)
    found = moves_of(4.0, search=preferred(0.25), diagrams=EnginePrice(charged=4.0), sweep=sweep)
    turns = ["search 0.5", "search 1", "search 2"]
    assert found == ["search 0.25", "sweep price", *turns, "sweep price", "diagrams 0.25"]


def test_of_two_engines_of_clauses_the_one_charged_less_has_most_of_the_time() -> None:
    found = moves_of(20.0, search=preferred(0.25), ganak=preferred(0.05), sweep="no plan fits")
    spent = {name: sum(float(one.split()[1]) for one in found if one.startswith(name)) for name in ("search", "ganak")}
    assert found[:4] == ["search 0.25", "ganak 0.25", "search 0.5", "ganak 0.5"]
    assert spent["search"] <= 0.3 * spent["ganak"] + 0.5


@pytest.mark.parametrize(("least", "priced"), [(0.0, True), (1e3, False)])
def test_no_tree_is_searched_for_a_sweep_whose_width_is_too_large(least: float, priced: bool) -> None:
    sweep = EnginePrice(1e12, certainty="rough", least_seconds=least)
    for charged in (0.25, 1.0):
        assert ("sweep price" in moves_of(10.0, search=EnginePrice(charged=charged), sweep=sweep)) is priced


@given(st.integers(1, 6), st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), max_size=6))
def test_the_least_width_is_below_that_of_every_order(n: int, scopes: list[list[int]]) -> None:
    inside = [tuple({v % n for v in scope}) for scope in scopes]
    widths = []
    for order in permutations(range(n)):
        _, messages = bucket_parents(n, inside, order)
        widths.append(max(map(len, messages), default=0))
    assert least_width(n, inside) <= min(widths)
