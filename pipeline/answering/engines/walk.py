"""Walking a strategy: engines take turns until one answers.

The seconds of each engine and the reason why it ended are recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from functools import partial

from ....cluster.driver import leave_slot
from ....tasks.compiler.compile_limits import NotCompiledError
from ....tasks.compiler.working_time import thread_seconds, working_seconds
from ....tasks.steps.light_dataclass import dataclass
from ...errors import BudgetError
from ...results.proof import Tried
from ..question import spare_bytes
from ..running import Answer
from .engine import ClosingEngine, Engine, Racer, Stop, TurnEnded
from .engine_options import SWEEP, EnginePrice, Strategy
from .request import QueryRequest, method_of
from .turn_account import Move, TurnAccount

_LOG = logging.getLogger(__name__)
#: Part of this machine's memory for a sweep on a device while the host's engines run beside it.
_SHARED_PART = 0.5


def walk(strategy: Strategy, engines: Mapping[str, Engine], request: QueryRequest) -> Answer:
    """Give engines their turns until one answers.

    Raises
    ------
    BudgetError
        If no engine answers: the refusal of the sweep, or of the last engine.
    """
    with ExitStack() as stack:
        stack.callback(_close, engines)
        return _Walk(strategy, engines, request, stack).run()


def _close(engines: Mapping[str, Engine]) -> None:
    """End the processes of engines that another engine beat to the answer."""
    for engine in engines.values():
        if isinstance(engine, ClosingEngine):
            engine.close()


@dataclass
class _Walk:
    """A strategy, how far it got, and what runs beside this thread."""

    strategy: Strategy
    engines: Mapping[str, Engine]
    request: QueryRequest
    stack: ExitStack
    tried: list[Tried] = field(default_factory=list)
    refusals: dict[str, BudgetError] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    racer: Racer[Answer | TurnEnded] | None = None
    raced: Move | None = None
    alone: set[str] = field(default_factory=set)

    def run(self) -> Answer:
        account = TurnAccount.of(self.strategy)
        while True:
            move = account.next()
            if move is None:
                if self.racer is None:
                    raise self._refusal()
                found = self._ended_race(account)
            elif move.kind == "price":
                self._price(account, move)
                continue
            elif move.kind == "race":
                self._race(account, move)
                continue
            elif (other := self._beside(account, move)) is not None:
                found = self._turns(account, move, other)
            else:
                found = self._turn(account, move)
            if not isinstance(found, TurnEnded):
                return replace(found, tried=tuple(self.tried), notes=tuple(dict.fromkeys((*self.notes, *found.notes))))

    @property
    def notes(self) -> list[str]:
        """Notes for the caller about the attempts."""
        return self.request.notes

    def _turn(self, account: TurnAccount, move: Move) -> Answer | TurnEnded:
        """Run an engine. If the other side of a race ends meanwhile, take its answer."""
        stop: Stop = bool if self.racer is None else self.racer.ended.is_set
        start = working_seconds()
        found = self._outcome(move, stop)
        seconds = working_seconds() - start
        self._enter(account, move, seconds, found)
        if isinstance(found, TurnEnded) and self.racer is not None and self.racer.ended.is_set():
            return self._ended_race(account)
        return found

    def _beside(self, account: TurnAccount, move: Move) -> Move | None:
        """Return the turn that another core of this machine takes meanwhile."""
        if self.racer is not None or move.kind != "turn" or self.request.resources.threads == 1:
            return None
        other = account.beside(move)
        return None if other is None or {move.engine, other.engine} & self.alone else other

    def _turns(self, account: TurnAccount, here: Move, there: Move) -> Answer | TurnEnded:
        """Run two engines at once, each within half of the memory; an answer of one ends the other."""
        request = self.request
        engine, _ = self.engines[there.engine], self.engines[here.engine]  # made in this thread
        request.reserved_bytes = spare_bytes(request.question, request.options) // 2
        leave_slot()
        racer = Racer(lambda stop: self._refused_or(there, partial(engine.run, there.seconds, stop)))
        try:
            start = thread_seconds()
            first = self._outcome(here, lambda: racer.has_answer)
            seconds = thread_seconds() - start
            second = racer.outcome() if isinstance(first, TurnEnded) else None
        finally:
            racer.close()
            request.reserved_bytes = 0
        self._enter(account, here, seconds, self._within_half(here, first))
        beaten = TurnEnded("another engine answered first", hopeless=True)
        self._enter(account, there, racer.seconds, beaten if second is None else self._within_half(there, second))
        return first if second is None else second

    def _within_half(self, move: Move, found: Answer | TurnEnded) -> Answer | TurnEnded:
        """Give an engine that failed within half of the memory a turn alone."""
        if not isinstance(found, TurnEnded) or not found.hopeless:
            return found
        self.alone.add(move.engine)
        return replace(found, hopeless=False)

    def _outcome(self, move: Move, stop: Stop) -> Answer | TurnEnded:
        return self._refused_or(move, partial(self.engines[move.engine].run, move.seconds, stop))

    def _refused_or(self, move: Move, run: Callable[[], Answer | TurnEnded]) -> Answer | TurnEnded:
        """Run an engine, and keep why it refused."""
        try:
            return run()
        except BudgetError as error:
            self.refusals[move.engine] = error
            return TurnEnded(f"refused: {error}", hopeless=True)
        except NotCompiledError as error:
            self.refusals[move.engine] = BudgetError(str(error))
            return TurnEnded(f"refused: {error}", hopeless=True)

    def _enter(self, account: TurnAccount, move: Move, seconds: float, found: Answer | TurnEnded) -> None:
        ended = found.why if isinstance(found, TurnEnded) else "answered"
        if isinstance(found, TurnEnded):
            self.request.notes += filter(None, [found.note])
            self.advice += filter(None, [found.advice])
        account.enter(move, seconds, ended if isinstance(found, TurnEnded) and found.hopeless else "")
        if isinstance(found, TurnEnded):
            (self.open.discard if found.hopeless else self.open.add)(move.engine)
        if isinstance(found, TurnEnded) and found.price is not None:
            account.reprice(move.engine, found.price)
        self.tried.append(Tried(move.engine, round(seconds, 6), ended))
        _LOG.info("turn %d: %s; ended after %.3g s: %s", len(self.tried), move, seconds, ended)

    def _price(self, account: TurnAccount, move: Move) -> None:
        start = working_seconds()
        estimate = self.engines[move.engine].better_price(move.aim)
        seconds = working_seconds() - start
        if isinstance(estimate, EnginePrice):
            account.reprice(move.engine, estimate)
            _LOG.info(
                "%s: %.3g s predicted (%s), found in %.3g s", move.engine, estimate.seconds, estimate.certainty, seconds
            )
            return
        self.refusals[move.engine] = BudgetError(estimate)
        self._enter(account, move, seconds, TurnEnded(f"refused: {estimate}", hopeless=True))

    def _race(self, account: TurnAccount, move: Move) -> None:
        """Let the sweep run in a thread, beside the engines of this one, where that leaves them half of the memory."""
        price = account.standings[move.engine].price
        if price.nbytes > _SHARED_PART * self.request.resources.host_bytes:
            account.reprice(move.engine, replace(price, device="host"))
            return
        self.request.reserved_bytes = price.nbytes
        account.racing = True
        leave_slot()
        engine = self.engines[move.engine]
        _LOG.info("%s", move)
        self.racer = Racer(lambda stop: engine.run(move.seconds, stop))
        self.raced = move
        self.stack.callback(self.racer.close)

    def _ended_race(self, account: TurnAccount) -> Answer | TurnEnded:
        """Take over the result of the thread."""
        assert self.racer is not None
        assert self.raced is not None
        racer, move = self.racer, self.raced
        self.racer, account.racing, self.request.reserved_bytes = None, False, 0
        try:
            found = racer.outcome()
        except BudgetError as error:
            self.refusals[move.engine] = error
            found = TurnEnded(f"refused: {error}", hopeless=True)
        self._enter(account, move, racer.seconds, found)
        return found

    def _refusal(self) -> BudgetError:
        """Return the error if no engine answered: the refusal of the sweep, and the advice of other engines."""
        refused = {**{name: BudgetError(why) for name, why in self.strategy.refused.items()}, **self.refusals}
        error = refused.get(SWEEP) or next(iter(reversed(refused.values())), BudgetError("no engine answers this"))
        told = [*self.advice, *self._unended()]
        return BudgetError("; ".join((str(error), *told))) if told else error

    def _unended(self) -> Iterator[str]:
        """Say which engines were not through when their turns were over, and how they go on."""
        for engine in sorted(self.open):
            method = method_of(self.request.question.query, engine)
            if method is not None and engine not in self.refusals:
                seconds = sum(each.seconds for each in self.tried if each.engine == engine)
                yield f"{engine} did not end within {seconds:.2g} CPU seconds: --method {method} runs until it ends"
