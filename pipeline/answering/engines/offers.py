"""Strategies as values: the bids of engines, the order of their turns, and their time limits. Pure.

A question whose sweep is predicted to take ten seconds, where decision diagrams may be small:

>>> bids = {"search": lambda: "the model is not clauses", "diagrams": EnginePrice,
...         "sweep": lambda: EnginePrice(10.0, certainty="rough")}
>>> print(strategy_of("partition", Wishes(), bids))
diagrams: 0.25 s first, 4.25 s at most, because its time cannot be predicted
sweep: 10 s predicted (rough), to its end, because it has the lowest predicted time
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf, isfinite
from typing import Any, Final, Literal

from ....records import dataclass
from .strategy_policy import POLICY, StrategyPolicy, TurnLengths

Certainty = Literal["unknown", "rough", "searched", "planned"]
"""How a price was found: not at all; by the first order; by a short search for a tree; by a plan."""

Device = Literal["host", "gpu", "workers"]

SWEEP: Final = "sweep"
"""The engine whose price can be known."""
EARLY: Final = "early rows"
"""The engine that answers before functions are made dense, where that is less work than making them."""
ROWS: Final = "rows"
"""The engine that tries tables of rows over the tree of a planned sweep."""
GANAK: Final = "ganak"
"""The counter of clauses by other authors, which an optional package brings."""


@dataclass(frozen=True)
class EnginePrice:
    """The predicted costs of an engine.

    Parameters
    ----------
    seconds : float
        Seconds on its device; infinite if unknown.
    nbytes : int
        Of the host's memory beside the model, as far as it is known.
    certainty : {"unknown", "rough", "searched", "planned"}
    device : {"host", "gpu", "workers"}
        The device that the engine keeps busy.
    planning_seconds : float
        Predicted seconds of planning, if a short search predicts them; infinite otherwise.
    compiling_seconds : float
        Seconds of compilation before the first turn.
    charged : float
        Each second of a turn counts as this many where engines without a price are compared. Below 1, the engine is
        preferred: planning the sweep and the turns of other engines wait until it had several times as long.
    least_seconds : float
        No tree makes it shorter than this, as the width of the model shows.
    """

    seconds: float = inf
    nbytes: int = 0
    certainty: Certainty = "unknown"
    device: Device = "host"
    planning_seconds: float = inf
    compiling_seconds: float = 0.0
    charged: float = 1.0
    least_seconds: float = 0.0

    @property
    def known(self) -> bool:
        """Whether anything is predicted."""
        return isfinite(self.seconds)


Bid = EnginePrice | str
"""The price of an engine, or the reason why it cannot answer."""


@dataclass(frozen=True)
class Wishes:
    """The caller's requests that decide which engines may answer.

    Parameters
    ----------
    engine : str
        The only engine that may answer; empty for all engines.
    about_sweeps : bool
        Whether an order, a tree, a way to fit memory or a run directory was asked for, which only sweeps have.
    """

    engine: str = ""
    about_sweeps: bool = False


@dataclass(frozen=True)
class Offer:
    """An engine that may answer.

    Parameters
    ----------
    engine : str
    price : EnginePrice
    lengths : TurnLengths
        Of its turns, where its price is not known.
    most_seconds : float
        Maximum seconds of all its turns.
    why : str
        Why it is offered, for a person.
    at_once : bool
        Whether it runs to its end before any other has a turn.
    after : str
        An engine that has to be given up before.
    bids_late : bool
        Whether the engine bids only when its turn comes.
    """

    engine: str
    price: EnginePrice
    lengths: TurnLengths
    most_seconds: float
    why: str
    at_once: bool = False
    after: str = ""
    bids_late: bool = False

    @property
    def length(self) -> str:
        """The engine's time limit, as text."""
        if self.at_once or self.engine == SWEEP:
            return "to its end"
        if self.lengths.part:
            return f"{self.lengths.part:.0%} of the sweep's predicted time"
        return f"{self.lengths.first_seconds:.3g} s first, {self.most_seconds:.3g} s at most"

    def __str__(self) -> str:
        predicted = f"{self.price.seconds:.3g} s predicted ({self.price.certainty}), " if self.price.known else ""
        where = "" if self.price.device == "host" else f" on {self.price.device}"
        return f"{self.engine}{where}: {predicted}{self.length}, {self.why}"

    def to_dict(self) -> dict[str, Any]:
        """Return the offer as plain types, as ``plan --json`` prints it."""
        first, most, price = self.lengths.first_seconds, self.most_seconds, self.price
        return {
            "engine": self.engine,
            "device": price.device,
            "seconds": price.seconds if price.known else None,
            "certainty": price.certainty,
            "bytes": price.nbytes,
            "first_seconds": first if isfinite(first) else None,
            "most_seconds": most if isfinite(most) else None,
            "why": self.why,
        }


@dataclass(frozen=True)
class Strategy:
    """Engines that may answer a question, in the order of their turns.

    Parameters
    ----------
    query : str
    offers : tuple of Offer
    refused : mapping of str to str
        Engines that cannot answer, and why.
    policy : StrategyPolicy
    """

    query: str
    offers: tuple[Offer, ...]
    refused: Mapping[str, str]
    policy: StrategyPolicy = POLICY

    def __str__(self) -> str:
        return "\n".join(map(str, self.offers))

    def without(self, engine: str, why: str) -> Strategy:
        """Return the same without an engine that was refused."""
        offers = tuple(offer for offer in self.offers if offer.engine != engine)
        return replace(self, offers=offers, refused={**self.refused, engine: why})

    def repriced(self, engine: str, price: EnginePrice) -> Strategy:
        """Return the same with a better price of an engine."""
        offers = [replace(offer, price=price) if offer.engine == engine else offer for offer in self.offers]
        return replace(self, offers=tuple(offers))

    def to_dict(self) -> dict[str, Any]:
        """Return the strategy as plain types, as ``plan --json`` prints it."""
        return {"offers": [offer.to_dict() for offer in self.offers], "refused": {**self.refused}}

    @property
    def engines(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(offer.engine for offer in self.offers)


def strategy_of(
    query: str, wishes: Wishes, bids: Mapping[str, Callable[[], Bid]], policy: StrategyPolicy = POLICY
) -> Strategy:
    """Choose who may answer, in which order, and for how long each may try.

    Parameters
    ----------
    query : str
    wishes : Wishes
    bids : mapping of str to callable
        Bids of the engines that answer this query, in the order of their turns, including the sweep. An engine bids as
        late as possible: the sweep bids first, and if it is quick it is the only offer.
    """
    early = bids[EARLY]() if EARLY in bids else "it answers other queries only"
    before = (
        () if isinstance(early, str) else (_at_once(EARLY, early, "because building dense functions takes longer"),)
    )
    if wishes.engine not in ("", SWEEP):
        bid = bids[wishes.engine]()
        if isinstance(bid, str):
            return Strategy(query, before, {wishes.engine: bid}, policy)
        forced = _at_once(wishes.engine, bid, "because this method was requested")
        return Strategy(query, (*before, forced), {}, policy)
    if wishes.engine or wishes.about_sweeps:
        return _swept(query, wishes, before, bids, policy)
    sweep = bids[SWEEP]()
    # pricing the other engines would take longer than a quick sweep
    if isinstance(sweep, EnginePrice) and sweep.seconds <= policy.quick_seconds[query]:
        return Strategy(query, (*before, *_quick(sweep, bids, policy)), {}, policy)
    others = {name: bid() for name, bid in bids.items() if name not in (SWEEP, EARLY)}
    refused = {name: bid for name, bid in others.items() if isinstance(bid, str)}
    trials = [_trial(name, bid, sweep, policy) for name, bid in others.items() if isinstance(bid, EnginePrice)]
    if isinstance(sweep, str):
        return Strategy(query, (*before, *trials), {**refused, SWEEP: sweep}, policy)
    swept = Offer(SWEEP, sweep, TurnLengths(), inf, "because it has the lowest predicted time")
    return Strategy(query, (*before, *trials, swept), refused, policy)


def _swept(
    query: str,
    wishes: Wishes,
    before: tuple[Offer, ...],
    bids: Mapping[str, Callable[[], Bid]],
    policy: StrategyPolicy,
) -> Strategy:
    """Plan a sweep before anything else; where it is only preferred, others bid once it is refused."""
    rows = bids[ROWS]() if ROWS in bids else "it answers other queries only"
    refused = {ROWS: rows} if isinstance(rows, str) else {}
    trials = _row_trials(bids, EnginePrice(), policy)
    why = "because this method was requested" if wishes.engine else "because a requested option applies to sweeps only"
    later = () if wishes.engine else _later(bids, policy)
    swept = Offer(SWEEP, EnginePrice(), TurnLengths(), inf, why)
    return Strategy(query, (*before, *trials, swept, *later), refused, policy)


def _quick(sweep: EnginePrice, bids: Mapping[str, Callable[[], Bid]], policy: StrategyPolicy) -> tuple[Offer, ...]:
    """Offer a sweep that is predicted to be quick, and turns to others in case that its plan takes longer.

    The price by the first order ignores the work of steps and of sums of clauses beside their cells. Plans of public
    counts took up to ten times longer than this price, and the search was sometimes faster.
    """
    later = _later(bids, policy)
    if not later or sweep.certainty != "rough" or sweep.device != "host":
        return (_at_once(SWEEP, sweep, "because it is quick"), *later)
    why = "if the sweep's plan takes longer, or no plan fits"
    planned = Offer(SWEEP, sweep, TurnLengths(), inf, "because it is quick")
    return (planned, *_row_trials(bids, sweep, policy), *(replace(offer, why=why, after="") for offer in later))


def _row_trials(bids: Mapping[str, Callable[[], Bid]], sweep: Bid, policy: StrategyPolicy) -> tuple[Offer, ...]:
    """Offer rows over the tree of the sweep, if they may be tried at all."""
    rows = bids[ROWS]() if ROWS in bids else "they answer other queries only"
    return () if isinstance(rows, str) else (_trial(ROWS, rows, sweep, policy),)


def _later(bids: Iterable[str], policy: StrategyPolicy) -> tuple[Offer, ...]:
    """Offer turns to engines that are asked to bid only once the sweep was refused."""
    names = [name for name in bids if name in policy.lengths and isfinite(policy.lengths[name].first_seconds)]
    late = Offer("", EnginePrice(), TurnLengths(), inf, "if no sweep fits", after=SWEEP, bids_late=True)
    most = policy.patience_seconds
    return tuple(replace(late, engine=name, lengths=policy.lengths[name], most_seconds=most) for name in names)


def _at_once(engine: str, price: EnginePrice, why: str) -> Offer:
    return Offer(engine, price, TurnLengths(), inf, why, at_once=True)


def _trial(engine: str, price: EnginePrice, sweep: Bid, policy: StrategyPolicy) -> Offer:
    lengths = policy.lengths[engine]
    if not (isfinite(lengths.first_seconds) or lengths.part):
        return Offer(
            engine, price, lengths, inf, "with a sweep of the remaining problem once this is cheaper", at_once=True
        )
    known = isinstance(sweep, EnginePrice) and sweep.known
    most = policy.shared_seconds(sweep.seconds) if known and isinstance(sweep, EnginePrice) else policy.patience_seconds
    return Offer(engine, price, lengths, most, "because its time cannot be predicted")
