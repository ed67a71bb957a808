"""The order and the length of turns: turns double, and each turn is charged against the cheapest known price. Pure.

Two engines whose prices are not known, and a sweep of four seconds. Half of its price may be spent on the engines:

>>> from .engine_options import EnginePrice, EngineLimits, strategy_of
>>> estimates = {"search": EnginePrice, "diagrams": EnginePrice, "sweep": lambda: EnginePrice(4.0, certainty="planned")}
>>> account = TurnAccount.of(strategy_of("partition", EngineLimits(), estimates))
>>> while (move := account.next()).engine != "sweep":
...     print(move)
...     account.enter(move, move.seconds)
search for 0.25 s, because its time cannot be predicted
diagrams for 0.25 s, because its time cannot be predicted
search for 0.5 s, because its time cannot be predicted
diagrams for 0.5 s, because its time cannot be predicted
search for 0.5 s, because its time cannot be predicted
>>> print(move)
sweep to its end, unless it takes over 8 s, because it has the lowest predicted time
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import Final, Literal

from ....tasks.steps.light_dataclass import dataclass
from .engine_options import EARLY, SWEEP, Certainty, EngineOption, EnginePrice, Strategy
from .strategy_policy import StrategyPolicy

Kind = Literal["turn", "price", "race", "finish"]
#: Turns of each engine of clauses that come before turns by charge. Together they take 0.75 s.
_SHORT_TURNS: Final = 2


@dataclass(frozen=True)
class Move:
    """The next action.

    Parameters
    ----------
    kind : {"turn", "price", "race", "finish"}
        A turn of limited seconds; finding a better price; running beside the others; running to the end.
    engine : str
    seconds : float
        For an engine that runs to its end: the seconds after which it is priced again.
    why : str
    aim : str
        How certain a price is to become.
    """

    kind: Kind
    engine: str
    seconds: float
    why: str
    aim: Certainty = "unknown"

    def __str__(self) -> str:
        if self.kind == "price":
            return f"{self.engine} is priced again, {self.why}"
        if self.kind == "finish" and isfinite(self.seconds):
            return f"{self.engine} to its end, unless it takes over {self.seconds:.3g} s, {self.why}"
        length = f"for {self.seconds:.3g} s" if isfinite(self.seconds) else "to its end"
        return f"{self.engine} {length}, {self.why}"


@dataclass
class _Standing:
    """An offer, the seconds spent so far, whether it still has to bid, and the reason why it was given up."""

    offer: EngineOption
    price: EnginePrice
    spent: float = 0.0
    turns: int = 0
    ended: str = ""
    unasked: bool = False

    @property
    def charged(self) -> float:
        """The seconds by which it is compared with other engines without a price."""
        return self.price.charged * self.spent

    @property
    def is_preferred(self) -> bool:
        """Whether others wait for it, as it is made for models like this one."""
        return self.price.charged < 1.0

    @property
    def can_be_priced(self) -> bool:
        """Whether its price is known or can be predicted."""
        return self.price.known or self.offer.engine == SWEEP


_Turn = tuple[_Standing, float]
"""An engine that may have a turn, and its seconds."""


@dataclass
class TurnAccount:
    """The seconds that the engines of a strategy have used so far.

    The rule: engines without a price take turns, and the engine that is charged the fewest seconds comes first. Each
    turn is twice as long as the last. Together they use at most a share of the cheapest known price, or
    ``patience_seconds`` if no price is known. An engine with uncompiled loops starts once the compilation also fits in
    this budget. A price is improved once the engines have used as many seconds as the improvement takes, or if no other
    engine may continue. Then the cheapest engine runs to its end. If it is refused, the other engines continue.
    """

    standings: dict[str, _Standing]
    policy: StrategyPolicy
    quick_seconds: float
    racing: bool = False

    @classmethod
    def of(cls, strategy: Strategy) -> TurnAccount:
        """Begin."""
        offers = strategy.offers
        standings = {offer.engine: _Standing(offer, offer.price, unasked=offer.estimates_late) for offer in offers}
        return cls(standings, strategy.policy, strategy.policy.quick_seconds[strategy.query])

    @property
    def open(self) -> list[_Standing]:
        """Those that were not given up."""
        return [each for each in self.standings.values() if not each.ended]

    @property
    def cheapest(self) -> _Standing | None:
        """The one with the least known price."""
        known = [each for each in self.open if each.price.known]
        return min(known, key=lambda each: each.price.seconds, default=None)

    @property
    def spent(self) -> float:
        """Seconds of all engines without a price."""
        unknown = [each for each in self.standings.values() if not each.can_be_priced]
        return sum(each.spent for each in unknown if not each.offer.lengths.part)

    def next(self) -> Move | None:
        """Return the next action; None if no engine is left or the patience is exhausted."""
        cheapest, others = self.cheapest, [each for each in self.open if not each.can_be_priced]
        if cheapest is not None and (move := self._race(cheapest, others)) is not None:
            return move
        for each in self.open:
            if each.offer.at_once and not (self.racing and each is cheapest):
                return self._finish(each)
        for each in self.open:
            if each.can_be_priced and not each.price.known:
                return Move("price", each.offer.engine, 0.0, "because it needs a plan anyway", "planned")
        able = self._able(others)
        if cheapest is not None and not self.racing and self._priced_better(cheapest, able):
            aim: Certainty = "searched" if cheapest.price.certainty == "rough" and able else "planned"
            return Move(
                "price", cheapest.offer.engine, 0.0, f"because its predicted time is {cheapest.price.certainty}", aim
            )
        if able:
            each, seconds = min(able, key=_charge_in(able))
            if (late := next((one for one, _ in able if one.unasked), None)) is not None:
                return Move("price", late.offer.engine, 0.0, "because its time is not predicted yet")
            return Move("turn", each.offer.engine, seconds, each.offer.why)
        return None if cheapest is None or self.racing else self._finish(cheapest)

    def beside(self, move: Move) -> Move | None:
        """Return the turn that another core may take meanwhile; None where no other engine may have one."""
        others = [each for each in self.open if not each.can_be_priced and each.offer.engine != move.engine]
        able = self._able(others, move.seconds)
        able = [each for each in able if not each[0].offer.lengths.part and not each[0].offer.at_once]
        if move.kind != "turn" or not able or self.standings[move.engine].offer.lengths.part:
            return None
        here = self.standings[move.engine]
        each, seconds = min(able, key=_charge_in(able))
        if each.charged > here.charged + here.price.charged * move.seconds:
            return None
        return Move("turn", each.offer.engine, seconds, "on another core")

    def _able(self, others: list[_Standing], begun: float = 0.0) -> list[_Turn]:
        """Return the engines that may have a turn, and its seconds, while another engine uses ``begun`` seconds."""
        return [(each, seconds) for each in others if (seconds := self._length(each, begun)) > 0.0]

    def _race(self, cheapest: _Standing, others: list[_Standing]) -> Move | None:
        """Return how a sweep on another device goes on beside the engines of the host, if it may.

        Parameters
        ----------
        cheapest : _Standing
            The sweep, with its price and device.
        others : list of _Standing
            The engines that may still answer.

        Returns
        -------
        Move or None
            A better price first if the sweep may be short; a race once its plan is known; None if nothing runs beside
            it.
        """
        price, policy, name = cheapest.price, self.policy, cheapest.offer.engine
        beside = [each for each in others if each.offer.lengths.part == 0.0 and not each.offer.after]
        if self.racing or price.device == "host":
            return None
        # a short sweep ends before a race has begun
        if price.certainty in ("searched", "planned") and price.seconds < policy.race_from_seconds:
            return self._finish(cheapest)
        if not beside or any(map(self._comes_before, others)):
            return None
        if any(each.offer.at_once for each in beside) and price.seconds > policy.race_most_seconds:
            hoped = price.certainty == "rough" and price.seconds <= policy.most_saved * policy.race_most_seconds
            return (
                Move("price", name, 0.0, "because it may be short enough to run beside the others", "searched")
                if hoped
                else None
            )
        if price.certainty != "planned":
            endless = any(each.offer.at_once for each in beside)
            if (glance := self._glance(price, beside)) is not None:
                return glance
            worth = endless or (price.certainty == "searched" and self._priced_better(cheapest, self._able(others)))
            return (
                Move("price", name, 0.0, f"because its predicted time is {price.certainty}", "planned")
                if worth
                else None
            )
        return Move("race", name, inf, f"on {price.device}, beside this machine's cores")

    def _glance(self, price: EnginePrice, beside: list[_Standing]) -> Move | None:
        """Return a short turn of an engine that would run to its end, before a device is planned for and started."""
        seconds = min(self.policy.shared_seconds(price.seconds), self.policy.device_start_seconds)
        endless = [each for each in beside if each.offer.at_once and each.offer.engine != EARLY and not each.turns]
        if not endless or seconds <= 0.0:
            return None
        return Move(
            "turn", endless[0].offer.engine, seconds, "because it may end before the plan for a device is ready"
        )

    def _comes_before(self, standing: _Standing) -> bool:
        """Whether an engine that uses the device too has its turn first."""
        return standing.offer.lengths.part > 0.0 and self._length(standing) > 0.0

    def enter(self, move: Move, seconds: float, ended: str = "") -> None:
        """Enter a turn that is over; ``ended`` says why the engine is given up, if it is."""
        standing = self.standings[move.engine]
        standing.spent += seconds
        standing.turns += 1
        standing.ended = ended

    def reprice(self, engine: str, price: EnginePrice) -> None:
        """Take a better price, or the first one."""
        self.standings[engine].price, self.standings[engine].unasked = price, False

    def _finish(self, standing: _Standing) -> Move:
        """Let an engine run to its end; where others may have turns, it ends if it learns that it takes much longer."""
        rivals = [each for each in self.open if not each.can_be_priced and not each.offer.lengths.part]
        most = max(self.policy.mispriced * standing.price.seconds, self.policy.mispriced_seconds)
        if standing.offer.at_once or not rivals:
            most = inf
        return Move("finish", standing.offer.engine, most, standing.offer.why)

    def _length(self, standing: _Standing, begun: float = 0.0) -> float:
        """Seconds of the next turn; 0 where none is allowed."""
        lengths, cheapest = standing.offer.lengths, self.cheapest
        if standing.turns >= lengths.most_turns:
            return 0.0
        after = self.standings.get(standing.offer.after)
        if after is not None and not after.ended:
            return 0.0
        first = lengths.first_seconds
        if lengths.part:
            # they take the tree of a sweep that is planned anyway
            swept = cheapest is not None and cheapest.offer.engine == SWEEP
            planned = swept and cheapest is not None and cheapest.price.certainty == "planned"
            if cheapest is None or not planned or cheapest.price.seconds < lengths.from_seconds or self.racing:
                return 0.0
            return lengths.part * cheapest.price.seconds
        wanted, left = first * 2.0**standing.turns, self._left - begun
        if not standing.turns:
            return wanted if wanted + standing.price.compiling_seconds <= left else 0.0
        # the last turn takes what is left
        return min(wanted, left) if left >= self.policy.shortened * wanted else 0.0

    @property
    def _left(self) -> float:
        """Seconds that engines without a price may still take."""
        if self.racing:
            return inf
        cheapest = self.cheapest
        policy = self.policy
        allowed = policy.patience_seconds if cheapest is None else policy.shared_seconds(cheapest.price.seconds)
        return allowed - self.spent

    def _hoped(self, cheapest: _Standing) -> bool:
        """Whether a short search for a tree may make it quick."""
        price = cheapest.price
        return price.certainty == "rough" and price.seconds <= self.policy.most_saved * self.quick_seconds

    def _priced_better(self, cheapest: _Standing, able: Sequence[_Turn]) -> bool:
        """Whether a better price is worth what it takes: as much was spent on the others, or none of them may go on."""
        price, policy = cheapest.price, self.policy
        if price.certainty == "planned":
            return False
        if not able:
            return True
        if price.least_seconds > policy.patience_seconds:
            return False
        clauses = any(each.is_preferred for each, _ in able)
        if self._hoped(cheapest) and (not clauses or self.spent > 0.0):
            return True
        if price.certainty == "rough":
            return self.spent >= (policy.clauses_seconds if clauses else policy.short_search_seconds)
        planning = policy.planning_seconds(price.seconds, price.planning_seconds)
        longer = policy.clauses_planning if clauses else 1.0
        return self.spent >= min(longer * planning, policy.most_planning_seconds)


def _charge_in(able: Sequence[_Turn]) -> Callable[[_Turn], float]:
    """Return the function by which the next turn is chosen: the engine of the least charge comes first.

    That is the charge so far. Beside an engine of clauses it is the charge after the turn, so that an engine with
    another charge waits for its first turn too. Engines of clauses have two short turns each before anything else, as
    either may end soon.
    """
    if not any(each.is_preferred for each, _ in able):
        return lambda turn: turn[0].charged

    def charge(turn: _Turn) -> float:
        standing, seconds = turn
        if standing.is_preferred and standing.turns < _SHORT_TURNS:
            return float(standing.turns - _SHORT_TURNS)
        return standing.price.charged * (standing.spent + seconds)

    return charge
