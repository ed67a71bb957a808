"""Answers to rows that clients send: records as a batch keeps them, by models that stay parsed and compiled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..batches.answering import answered_one, compiled_for
from ..batches.manifest import Row, hash_of
from ..batches.models import RecentValues
from ..batches.pricing import Price, PricedRow, shared_price
from ..batches.summary import RowOutcome
from ..errors import BucketflowError, enough_bytes
from ..formats.format_policy import OBJECT_BYTES, STATE_BYTES
from ..options import Options, parse_size
from .service_queue import ServedRequest, ServerPolicy, Step

# Questions of one client and one model that are answered before it is another client's turn.
_PACK_ROWS: Final = 64


class RowAnswers:
    """Answers rows, one at a time, in the thread that asks its steps.

    Parameters
    ----------
    options : Options
        Of questions.
    seconds : float, optional
        That a question may take.
    is_stopping : callable
        Whether nothing further is to be answered.
    count : callable
        Called with the query and the record of each row.
    """

    def __init__(
        self,
        options: Options,
        seconds: float | None,
        is_stopping: Callable[[], bool],
        count: Callable[[str, Mapping[str, Any]], object],
    ):
        self._options, self._seconds, self._is_stopping, self._count_record = options, seconds, is_stopping, count
        self._asked: dict[str, int] = {}
        self._prices: RecentValues[Price] = RecentValues(lambda: ServerPolicy.current().inline_bytes)

    def steps(self, rows: Sequence[Row]) -> list[Step]:
        """Return the steps that answer rows: rows of one model and query together, in limited packs."""
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            groups.setdefault((row.model, str(row.settings)), []).append(row)
        most = _PACK_ROWS
        packs = (group[k : k + most] for group in groups.values() for k in range(0, len(group), most))
        return [self._step(pack) for pack in packs]

    def _step(self, pack: list[Row]) -> Step:
        def step(request: ServedRequest) -> None:
            for outcome in self._outcomes(pack, request):
                if request.cancelled:
                    return
                self._count_record(outcome.row.query, outcome.record)
                request.send(json.dumps(outcome.to_dict()).encode() + b"\n")

        return step

    def _outcomes(self, pack: Sequence[Row], request: ServedRequest) -> Iterator[RowOutcome]:
        """Answer rows of one model separately; an error of one row affects only this row."""
        asked = list[PricedRow]()
        for row in pack:
            try:
                key, problem = row.key() if not row.problem else "", row.problem
            except BucketflowError as error:
                key, problem = "", str(error)
            if problem:
                yield RowOutcome(row, key, {"status": "failed", "message": problem, "exit_code": 2}, False)
            else:
                asked.append(PricedRow(row, key))
        if asked:
            yield from self._answered(asked, request)

    def _answered(self, asked: Sequence[PricedRow], request: ServedRequest) -> Iterator[RowOutcome]:
        first = asked[0].row
        model = f"{hash_of(first.model)} {first.settings}"
        before = self._count(model, len(asked))
        compiled = None
        if self._is_stopping():
            price = Price("small")
        else:
            price = self._price(model, first) if before + len(asked) > 1 else Price("small")
            priced = [replace(one, price=price) for one in asked]
            with request.running(None):
                compiled = compiled_for(priced, self._options, before)
        for one in asked:
            row = one.row
            record = self._record(replace(one, price=price), request, compiled)
            yield RowOutcome(row, one.key, record, False)

    def _count(self, model: str, asked: int) -> int:
        """Count questions about a model; return how many were asked before, of the models asked last."""
        before = self._asked.pop(model, 0)
        self._asked[model] = before + asked
        if len(self._asked) > ServerPolicy.current().counted_models:
            del self._asked[next(iter(self._asked))]
        return before

    def _price(self, model: str, row: Row) -> Price:
        """Return the price that all rows of a model share, with the order of their tree; large ones share none."""

        def price() -> Price:
            return shared_price([row], self._options) or Price("large")

        return self._prices.get(model, price, lambda one: OBJECT_BYTES + STATE_BYTES * len(one.order))

    def _record(self, asked: PricedRow, request: ServedRequest, compiled: Any) -> dict[str, Any]:
        if self._is_stopping() or request.cancelled:
            return _stopped("the server stopped before")
        if refusal := self._refusal(asked.row):
            return refusal
        start = time.perf_counter()
        chosen, seconds = self._limited(asked)
        try:
            with request.running(seconds):
                record = answered_one(chosen, self._options, compiled)
        except KeyboardInterrupt:
            record = _stopped("interrupted")
        if record["status"] == "stopped":
            late = seconds is not None and not (self._is_stopping() or request.interrupted)
            record |= {"message": f"stopped after {seconds:g} seconds" if late else "the server stopped"}
            record |= {"wall_seconds": round(time.perf_counter() - start, 6)}
        return record

    def _limited(self, asked: PricedRow) -> tuple[PricedRow, float | None]:
        """Give an optimum its time, after which it has bounds, or return the seconds after which another stops."""
        row = asked.row
        if self._seconds is None or row.query != "optimum":
            return asked, self._seconds
        given = self._seconds if row.time is None else min(row.time, self._seconds)
        return replace(asked, row=replace(row, time=given)), None

    def _refusal(self, row: Row) -> dict[str, Any] | None:
        """Refuse a row that asks for more memory than the server gives to a question."""
        most = self._options.memory
        if most is None or row.memory is None or parse_size(row.memory) <= parse_size(most):
            return None
        given = enough_bytes(parse_size(most))
        sentence = f"memory is {row.memory}, but this server allows {given} per question; start it with more --memory"
        return {"status": "refused", "message": sentence, "exit_code": 3}


def _stopped(why: str) -> dict[str, Any]:
    return {"status": "stopped", "message": why, "exit_code": 4}
