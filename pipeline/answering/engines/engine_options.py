"""Strategies as values: the bids of engines, the order of their turns, and their time limits. Pure.

A question whose sweep is predicted to take ten seconds, where decision diagrams may be small:

>>> estimates = {"search": lambda: "the model is not clauses", "diagrams": EnginePrice,
...         "sweep": lambda: EnginePrice(10.0, certainty="rough")}
>>> print(strategy_of("partition", EngineLimits(), estimates))
diagrams: 0.25 s first, 4.25 s at most, because its time cannot be predicted
sweep: 10 s predicted (rough), to its end, because it has the lowest predicted time
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from math import inf, isfinite
from typing import Any, Final, Literal

from ....tasks.steps.light_dataclass import dataclass
from ...options import Options, ProofOptions
from .strategy_policy import POLICY, StrategyPolicy, TurnLengths

#: Options that say how a sweep is planned.
PLANNING: Final = frozenset({"order", "order_time", "tree", "fit", "representation", "seed"})
#: Options that say where it runs.
WORKERS: Final = frozenset({"workers", "scheduler", "client"})
DEVICES: Final = frozenset({"gpus", "gpu_memory"})
#: Options that say how a network of costs is prepared for bounds.
PROOFS: Final = frozenset({"prune"})
_HEEDED_BY_SOME: Final = PLANNING | WORKERS | DEVICES | PROOFS


def given_options(options: Options, effort: ProofOptions) -> tuple[str, ...]:
    """Return the names of the options that a caller gave and that some way of answering does not heed."""
    return tuple(
        field.name
        for source in (options, effort)
        for field in fields(source)
        if field.name in _HEEDED_BY_SOME and getattr(source, field.name) != field.default
    )


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


Estimate = EnginePrice | str
"""The price of an engine, or the reason why it cannot answer."""


@dataclass(frozen=True)
class EngineLimits:
    """The options of the caller that decide which engines may answer.

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
class EngineOption:
    """An engine that may answer.

    Parameters
    ----------
    engine : str
    price : EnginePrice
    lengths : TurnLengths
        Lengths of its time slices, if its price is not known.
    most_seconds : float
        Maximum seconds of all its time slices.
    why : str
        Why it may answer, for a person.
    at_once : bool
        Whether it runs to its end before any other engine gets a time slice.
    after : str
        An engine that must end without an answer before.
    bids_late : bool
        Whether its time is estimated only before its first time slice.
    """

    engine: str
    price: EnginePrice
    lengths: TurnLengths
    most_seconds: float
    why: str
    at_once: bool = False
    after: str = ""
    estimates_late: bool = False

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
    offers : tuple of EngineOption
    refused : mapping of str to str
        Engines that cannot answer, and why.
    policy : StrategyPolicy
    """

    query: str
    offers: tuple[EngineOption, ...]
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

    @property
    def is_bounded(self) -> bool:
        """Whether the bounds of an optimum run until their proof before any sweep."""
        return any(offer.engine == "bounds" and offer.at_once for offer in self.offers)


def strategy_of(
    query: str,
    engine_limits: EngineLimits,
    estimates: Mapping[str, Callable[[], Estimate]],
    policy: StrategyPolicy = POLICY,
) -> Strategy:
    """Choose who may answer, in which order, and for how long each may try.

    Parameters
    ----------
    query : str
    engine_limits : EngineLimits
    estimates : mapping of str to callable
        Estimates of the engines that answer this query, in the order of their time slices, including the sweep. Each
        estimate is computed as late as possible: if the sweep is quick, no other estimate is computed.
    """
    early = estimates[EARLY]() if EARLY in estimates else "it answers other queries only"
    before = (
        () if isinstance(early, str) else (_at_once(EARLY, early, "because building dense functions takes longer"),)
    )
    if engine_limits.engine not in ("", SWEEP):
        estimate = estimates[engine_limits.engine]()
        if isinstance(estimate, str):
            return Strategy(query, before, {engine_limits.engine: estimate}, policy)
        forced = _at_once(engine_limits.engine, estimate, "because this method was requested")
        return Strategy(query, (*before, forced), {}, policy)
    if engine_limits.engine or engine_limits.about_sweeps:
        return _swept(query, engine_limits, before, estimates, policy)
    sweep = estimates[SWEEP]()
    # pricing the other engines would take longer than a quick sweep
    if isinstance(sweep, EnginePrice) and sweep.seconds <= policy.quick_seconds[query]:
        return Strategy(query, (*before, *_quick(sweep, estimates, policy)), {}, policy)
    others = {name: estimate() for name, estimate in estimates.items() if name not in (SWEEP, EARLY)}
    refused = {name: estimate for name, estimate in others.items() if isinstance(estimate, str)}
    trials = [
        _trial(name, estimate, sweep, policy) for name, estimate in others.items() if isinstance(estimate, EnginePrice)
    ]
    if isinstance(sweep, str):
        return Strategy(query, (*before, *trials), {**refused, SWEEP: sweep}, policy)
    swept = EngineOption(SWEEP, sweep, TurnLengths(), inf, "because it has the lowest predicted time")
    return Strategy(query, (*before, *trials, swept), refused, policy)


def _swept(
    query: str,
    engine_limits: EngineLimits,
    before: tuple[EngineOption, ...],
    estimates: Mapping[str, Callable[[], Estimate]],
    policy: StrategyPolicy,
) -> Strategy:
    """Plan a sweep before anything else; where it is only preferred, others bid once it is refused."""
    rows = estimates[ROWS]() if ROWS in estimates else "it answers other queries only"
    refused = {ROWS: rows} if isinstance(rows, str) else {}
    trials = _row_trials(estimates, EnginePrice(), policy)
    why = (
        "because this method was requested"
        if engine_limits.engine
        else "because a requested option applies to sweeps only"
    )
    later = () if engine_limits.engine else _later(estimates, policy)
    swept = EngineOption(SWEEP, EnginePrice(), TurnLengths(), inf, why)
    return Strategy(query, (*before, *trials, swept, *later), refused, policy)


def _quick(
    sweep: EnginePrice, estimates: Mapping[str, Callable[[], Estimate]], policy: StrategyPolicy
) -> tuple[EngineOption, ...]:
    """Offer a sweep that is predicted to be quick, and turns to others in case that its plan takes longer.

    The price by the first order ignores the work of steps and of sums of clauses beside their cells. Plans of public
    counts took up to ten times longer than this price, and the search was sometimes faster.
    """
    later = _later(estimates, policy)
    if sweep.certainty == "rough" and sweep.device == "host" and "bounds" in estimates:
        # bounds get half of the sweep's time; a shorter sweep ends before a cost network is prepared
        lengths = TurnLengths(part=policy.share, from_seconds=policy.short_search_seconds, most_turns=1)
        why = "because preparing its costs may solve it sooner than the sweep's plan"
        later = (EngineOption("bounds", EnginePrice(), lengths, inf, why, estimates_late=True),)
    if not later or sweep.certainty != "rough" or sweep.device != "host":
        return (_at_once(SWEEP, sweep, "because it is quick"), *later)
    planned = EngineOption(SWEEP, sweep, TurnLengths(), inf, "because it is quick")
    if "bounds" in estimates:
        return (planned, *_row_trials(estimates, sweep, policy), *later)
    why = "if the sweep's plan takes longer, or no plan fits"
    return (planned, *_row_trials(estimates, sweep, policy), *(replace(offer, why=why, after="") for offer in later))


def _row_trials(
    estimates: Mapping[str, Callable[[], Estimate]], sweep: Estimate, policy: StrategyPolicy
) -> tuple[EngineOption, ...]:
    """Offer rows over the tree of the sweep, if they may be tried at all."""
    rows = estimates[ROWS]() if ROWS in estimates else "they answer other queries only"
    return () if isinstance(rows, str) else (_trial(ROWS, rows, sweep, policy),)


def _later(estimates: Iterable[str], policy: StrategyPolicy) -> tuple[EngineOption, ...]:
    """Offer turns to engines that are asked to bid only once the sweep was refused."""
    names = [name for name in estimates if name in policy.lengths and isfinite(policy.lengths[name].first_seconds)]
    late = EngineOption("", EnginePrice(), TurnLengths(), inf, "if no sweep fits", after=SWEEP, estimates_late=True)
    most = policy.patience_seconds
    return tuple(replace(late, engine=name, lengths=policy.lengths[name], most_seconds=most) for name in names)


def _at_once(engine: str, price: EnginePrice, why: str) -> EngineOption:
    return EngineOption(engine, price, TurnLengths(), inf, why, at_once=True)


def _trial(engine: str, price: EnginePrice, sweep: Estimate, policy: StrategyPolicy) -> EngineOption:
    lengths = policy.lengths[engine]
    if not (isfinite(lengths.first_seconds) or lengths.part):
        return EngineOption(
            engine, price, lengths, inf, "with a sweep of the remaining problem once this is cheaper", at_once=True
        )
    known = isinstance(sweep, EnginePrice) and sweep.known
    most = policy.shared_seconds(sweep.seconds) if known and isinstance(sweep, EnginePrice) else policy.patience_seconds
    return EngineOption(engine, price, lengths, most, "because its time cannot be predicted")
