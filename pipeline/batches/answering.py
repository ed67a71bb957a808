"""Asking the questions of one model: it is read once, small questions share a tree or a compiled model."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...cluster.memory import default_memory_bytes
from ..answering.answer_question import solved
from ..circuits.circuit_model import Circuit, one_case
from ..compiled.compiled import Compiled
from ..errors import BucketflowError, BudgetError, StoppedError
from ..models.cases import joined_cases
from ..options import Options
from ..results.posteriors import CaseMarginals, Marginals
from ..results.result import Result
from .models import (
    BatchPolicy,
    circuit_of_row,
    compiled_of_row,
    effort_of,
    evidence_of_row,
    model_of_row,
    options_of,
    question_of_row,
)
from .pricing import PricedRow, wrong

_LOG = logging.getLogger(__name__)
_COMPILED = ("marginals", "partition")


def answered(pack: Sequence[PricedRow], options: Options) -> list[dict[str, Any]]:
    """Task: answer rows about one model, one record per row; a row's error is stored in its record.

    A row that is stopped is the last one.
    """
    if options.memory is None and (pack[0].price.is_swept or pack[0].price.kind == "decided"):
        options = replace(options, memory=default_memory_bytes())  # looking takes as long as a small question
    compiled = compiled_for(pack, options) or circuit_for(pack, options)
    if isinstance(compiled, Compiled) and compiled.better is not None and compiled.plan is not None:
        compiled.better.close_unless_worthwhile(compiled.plan.seconds * max(len(pack), pack[0].alike))
    records: list[dict[str, Any]] = []
    for asked in pack:
        records.append(answered_one(asked, options, compiled))
        if records[-1]["status"] == "stopped":
            break
    return records


def compiled_for(pack: Sequence[PricedRow], options: Options, before: int = 0) -> Compiled | None:
    """Compile the model of a pack that asks for its marginals or its partition function several times, counting the
    questions that were asked before and those of other packs.
    """
    wanted = [asked for asked in pack if _is_compiled(asked)]
    rows = max(before + len(wanted), *(asked.alike for asked in wanted)) if wanted else 0
    try:
        if rows < BatchPolicy.current().compiled_rows or model_of_row(wanted[0].row, options).kind == "cost":
            return None
        compiled = compiled_of_row(wanted[0].row, options)
        large = compiled.plan is not None and compiled.plan.seconds > BatchPolicy.current().large_seconds
        if options.gpus is not None and large and wanted[0].price.kind != "compiled":
            return None  # the price of these rows is for a device
        compiled.expect(rows - before)
        return compiled
    except BucketflowError:  # all messages together do not fit
        return None


def circuit_for(pack: Sequence[PricedRow], options: Options) -> PackCircuit | None:
    """Build a circuit for a pack of marginals without a plan, if it is complete within its time slice."""
    rows = [asked for asked in pack if asked.price.kind == "searched" and asked.row.query == "marginals"]
    try:
        circuit = circuit_of_row(rows[0].row, options, max(len(rows), rows[0].alike), None) if rows else None
    except BucketflowError:
        return None
    return None if circuit is None else PackCircuit(circuit, rows, options)


@dataclass
class PackCircuit:
    """A circuit with the rows of a pack, which it answers together.

    Parameters
    ----------
    circuit : Circuit
    rows : sequence of PricedRow
    options : Options
    """

    circuit: Circuit
    rows: Sequence[PricedRow]
    options: Options

    def answer(self, asked: PricedRow) -> Marginals:
        """Return the posteriors of one row."""
        found, seconds = self._found
        k = self.places[asked.key]
        model, log10 = model_of_row(asked.row, self.options), float(found.log10_evidence[k])
        told = {"run": seconds / len(self.rows)}
        if log10 == -math.inf:
            return Marginals(model, "infeasible", log10_evidence=log10, seconds=told)
        tables = {name: np.asarray(table[k]) for name, table in found.tables.items()}
        return Marginals(model, "ok", tables=tables, log10_evidence=log10, seconds=told)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The number of each row, by its key."""
        return {row.key: k for k, row in enumerate(self.rows)}

    @cached_property
    def _found(self) -> tuple[CaseMarginals, float]:
        """The posteriors of all rows, and the seconds that they took."""
        start, rows = time.perf_counter(), [asked.row for asked in self.rows]
        models = [model_of_row(row, self.options) for row in rows]
        cases = [one_case(model, evidence_of_row(model, row)) for model, row in zip(models, rows, strict=True)]
        found = self.circuit.marginals(joined_cases(cases))
        return found, time.perf_counter() - start


def _is_compiled(asked: PricedRow) -> bool:
    """Whether a compiled model answers a row."""
    return asked.row.query in _COMPILED and asked.price.is_swept and not asked.row.named


def answered_one(asked: PricedRow, options: Options, compiled: Compiled | PackCircuit | None) -> dict[str, Any]:
    """Return the record of a row, with its error if it fails."""
    start, row = time.perf_counter(), asked.row
    try:
        found = answer_row(asked, options, compiled)
        record = _record(found, asked, time.perf_counter() - start)
    except StoppedError as error:
        record = _stopped(str(error), asked)
    except KeyboardInterrupt:
        record = _stopped("interrupted", asked)
    except BucketflowError as error:
        record = wrong(error).refusal()
    except MemoryError:
        refusal = wrong(BudgetError("out of memory; give a smaller memory, so that the plan fits")).refusal()
        # a refusal for another reason than its limit: it may be answered another time
        record = {**refusal, "within": None}
    except Exception as error:
        record = {"status": "failed", "message": f"{type(error).__name__}: {error}", "exit_code": 1}
    seconds = round(time.perf_counter() - start, 6)
    facts = {"row": row.number, "status": record["status"], "wall_seconds": seconds}
    _LOG.debug("row %s is %s", row.number, record["status"], extra={"facts": facts})
    asked_as = {"question": asked.question} if asked.question else {}
    return {"key": asked.key, **asked_as, **record, "wall_seconds": seconds, "query": row.query}


def _record(found: Result | Marginals, asked: PricedRow, seconds: float) -> dict[str, Any]:
    """Keep an answer; bounds that did not close in less than their time were interrupted, and are kept too."""
    if isinstance(found, Result) and found.status == "bounded":
        if asked.row.time is None or seconds < asked.row.time:
            return {**_stopped("interrupted between its bounds", asked), "answer": found.to_dict()}
        return {"status": "bounded", "answer": found.to_dict()}
    return {"status": "answered", "answer": found.to_dict()}


def _stopped(why: str, asked: PricedRow) -> dict[str, Any]:
    return {"status": "stopped", "message": why, "exit_code": 4, "stops": asked.stops + 1}


def answer_row(asked: PricedRow, options: Options, compiled: Compiled | PackCircuit | None) -> Result | Marginals:
    """Answer a row's query, with its compiled model or circuit if it has one; errors are those of `solved`."""
    row, price = asked.row, asked.price
    model = model_of_row(row, options)
    if isinstance(compiled, PackCircuit) and asked.key in compiled.places:
        return compiled.answer(asked)
    if isinstance(compiled, Compiled) and _is_compiled(asked):
        return _asked_again(compiled, row.query, evidence_of_row(model, row))
    chosen = options_of(row, options, workdir=asked.folder)
    if price.order and asked.folder is None:
        chosen = replace(chosen, order=price.order, order_time=None)
    return solved(question_of_row(model, row), chosen, effort_of(row))


def _asked_again(compiled: Compiled, query: str, evidence: Mapping[str, Any] | None) -> Result | Marginals:
    """Ask a compiled model, which threads share, under other evidence than before."""
    model, start = compiled.model, time.perf_counter()
    if evidence is None:
        evidence = model.named(model.evidence)
    with compiled.lock:
        compiled.set_evidence(evidence)
        if query == "marginals":
            return compiled.marginals()
        log10 = compiled.partition()
    seconds = {"run": time.perf_counter() - start}
    if log10 == -math.inf:
        return Result("partition", "infeasible", seconds=seconds, notes=model.notes)
    return Result("partition", "ok", log10=log10, plan=compiled.plan, seconds=seconds, notes=model.notes)
