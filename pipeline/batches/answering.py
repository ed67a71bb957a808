"""Asking the questions of one model: it is read once, small questions share a tree or a compiled model."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from ...cluster.memory import default_memory_bytes
from ..answering.door import is_bounded, solved
from ..answering.prepared import Prepared, prepare
from ..answering.question import Question, question_of
from ..api.solve import load
from ..compiled.compiled import Compiled, compile_model
from ..errors import BucketflowError, BudgetError, StoppedError
from ..formats.read import evidence_of
from ..machine.resources import Resources
from ..models.model import Model
from ..options import Effort, Options
from ..results.posteriors import Marginals
from ..results.result import Result
from ..trees.tree import elimination_order
from .manifest import Row, hash_of

# What a process keeps between packs of questions, up to some bytes.

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key; those that were not used for longest go first.

    Parameters
    ----------
    limit_bytes : int
        Of all values but the last.
    """

    def __init__(self, limit_bytes: int):
        self._limit_bytes = limit_bytes
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the value of a key, made now if it is not there."""
        if key not in self._values:
            made = make()
            self._values[key] = made, size(made)
        self._values.move_to_end(key)
        while len(self._values) > 1 and sum(nbytes for _, nbytes in self._values.values()) > self._limit_bytes:
            self._values.popitem(last=False)
        return self._values[key][0]


Kind = Literal["small", "large", "alone", "wrong"]

#: A question that is predicted to take longer is worth all workers, or one of its own.
LARGE_SECONDS = 2.0
# Reading and planning a small question, and putting its answer together.
OVERHEAD_SECONDS = 0.01
_COMPILED = ("marginals", "partition")
# A model is compiled for so many questions at least.
_COMPILED_ROWS = 4
# Models that a process keeps between packs.
_KEPT_BYTES = 1 << 28


@dataclass(frozen=True)
class Price:
    """What a row costs.

    Parameters
    ----------
    kind : {"small", "large", "alone", "wrong"}
        Packed with others; worth all workers; an optimum between bounds, in one process; not asked.
    seconds : float
        On one core; of an optimum between bounds what it is given, or infinite.
    peak_bytes, disk_bytes : int
        At most, where many rows share a tree.
    order : tuple of str
        Variables in the order in which the shared tree eliminates them; empty for an order of its own.
    status, message, exit_code
        Of a row that is wrong or refused.
    """

    kind: Kind
    seconds: float = 0.0
    peak_bytes: int = 0
    disk_bytes: int = 0
    order: tuple[str, ...] = ()
    status: str = ""
    message: str = ""
    exit_code: int = 0

    def refusal(self) -> dict[str, Any]:
        """Return what is kept of a row that is wrong or refused."""
        return {"status": self.status, "message": self.message, "exit_code": self.exit_code}


@dataclass(frozen=True)
class Asked:
    """A row that is to be answered, and how.

    Parameters
    ----------
    row : Row
    key : str
    price : Price
    folder : str or None
        Its run directory.
    """

    row: Row
    key: str
    price: Price = field(default_factory=lambda: Price("small"))
    folder: str | None = None


def priced(rows: Sequence[Row], options: Options) -> list[Price]:
    """Return what rows about one model cost, one price a row."""
    try:
        model = _model(rows[0].model, options)
    except BucketflowError as error:
        return [_wrong(error)] * len(rows)
    found: dict[tuple[Any, ...], Price | None] = {}
    prices = []
    for row in rows:
        if row.settings not in found:
            found[row.settings] = _shared_price(model, row, options)
        prices.append(found[row.settings] or _own_price(model, row, options))
    return prices


def _wrong(error: BucketflowError) -> Price:
    status = "refused" if error.exit_code == 3 else "failed"
    return Price("wrong", status=status, message=str(error), exit_code=error.exit_code)


def _shared_price(model: Model, row: Row, options: Options) -> Price | None:
    """Price a question without evidence, which only makes it smaller; None where each needs a price of its own."""
    query = "optimum" if row.query == "partition" and model.kind != "cost" else row.query  # nothing is barren
    try:
        question = question_of(replace(model, evidence={}), query)
        if is_bounded(question, _options(row, options), _effort(row)):
            return None
        prepared = prepare(question, Resources(_options(row, options)))
    except BucketflowError:
        return None
    plan = prepared.plan
    if plan is not None and (plan.seconds > LARGE_SECONDS or plan.spill or plan.slices > 1):
        return None
    return _price(prepared, "small")


def _price(prepared: Prepared, kind: Kind) -> Price:
    plan = prepared.plan
    if plan is None:
        return Price(kind)
    network = prepared.network
    order: tuple[str, ...] = ()
    if kind == "small" and prepared.problem.targets is None:
        names = network.model.names
        first = [network.variables[v] for v in elimination_order(plan.tree)]
        rest = sorted(set(range(len(names))) - set(first))
        order = tuple(names[v] for v in (*rest, *first))
    return Price(kind, plan.seconds, plan.peak_bytes, plan.disk_bytes, order)


def _own_price(model: Model, row: Row, options: Options) -> Price:
    try:
        question = _question(model, row)
        if is_bounded(question, _options(row, options), _effort(row)):
            return Price("alone", float("inf") if row.time is None else row.time)
        prepared = prepare(question, Resources(_options(row, options)))
    except BucketflowError as error:
        return _wrong(error)
    plan = prepared.plan
    large = plan is not None and (plan.seconds > LARGE_SECONDS or plan.spill is not None)
    return replace(_price(prepared, "large" if large else "small"), order=())


_models: Kept[Model] = Kept(_KEPT_BYTES)
_compiled: Kept[Compiled] = Kept(_KEPT_BYTES)


def _model(path: str, options: Options) -> Model:
    """Return a model, read again where its file was touched."""
    return _models.get(
        (path, hash_of(path)), lambda: load(path, memory=options.memory), lambda model: int(model.nbytes)
    )


def _compiled_model(path: str, options: Options) -> Compiled:
    def compiled() -> Compiled:
        return compile_model(replace(_model(path, options), evidence={}), memory=options.memory, threads=1)

    def size(found: Compiled) -> int:
        return int(found.model.nbytes) + (found.plan.peak_bytes if found.plan else 0)

    return _compiled.get((path, hash_of(path)), compiled, size)


def _question(model: Model, row: Row) -> Question:
    return question_of(model, row.query, _evidence(model, row))


def _evidence(model: Model, row: Row) -> Mapping[str, Any] | None:
    if row.evidence is None or not isinstance(row.evidence, str):
        return row.evidence
    return evidence_of(model, [row.evidence])


def _options(row: Row, options: Options, **more: Any) -> Options:
    own = {name: value for name in ("memory", "order_time") if (value := getattr(row, name)) is not None}
    return replace(options, **own, **more)


def _effort(row: Row) -> Effort:
    return Effort(time=row.time if row.query == "optimum" else None)


def answered(pack: Sequence[Asked], options: Options) -> list[dict[str, Any]]:
    """Task: answer rows about one model, one record a row; what goes wrong with a row stays in its record."""
    if options.memory is None and pack[0].price.kind == "small":
        options = replace(options, memory=default_memory_bytes())  # looking takes as long as a small question
    compiled = _compiled_for(pack, options)
    return [_answered_one(asked, options, compiled) for asked in pack]


def _compiled_for(pack: Sequence[Asked], options: Options) -> Compiled | None:
    """Compile the model of a pack that asks for its marginals or its partition function several times."""
    wanted = [asked.row for asked in pack if asked.row.query in _COMPILED and asked.price.kind == "small"]
    try:
        if len(wanted) < _COMPILED_ROWS or _model(wanted[0].model, options).kind == "cost":
            return None
        return _compiled_model(wanted[0].model, options)
    except BucketflowError:  # all messages together do not fit
        return None


def _answered_one(asked: Asked, options: Options, compiled: Compiled | None) -> dict[str, Any]:
    start, row = time.perf_counter(), asked.row
    try:
        found = _found(asked, options, compiled)
        record = _record(found, row, time.perf_counter() - start)
    except StoppedError as error:
        record = {"status": "stopped", "message": str(error), "exit_code": 4}
    except BucketflowError as error:
        record = _wrong(error).refusal()
    except MemoryError:
        record = _wrong(BudgetError("out of memory; give a smaller memory, so that the plan fits")).refusal()
    except Exception as error:
        record = {"status": "failed", "message": f"{type(error).__name__}: {error}", "exit_code": 1}
    return {"key": asked.key, **record, "wall_seconds": round(time.perf_counter() - start, 6), "query": row.query}


def _record(found: Result | Marginals, row: Row, seconds: float) -> dict[str, Any]:
    """Keep an answer; bounds that did not close in less than their time were interrupted."""
    if isinstance(found, Result) and found.status == "bounded":
        if row.time is None or seconds < row.time:
            return {"status": "stopped", "message": "interrupted between its bounds", "exit_code": 4}
        return {"status": "bounded", "answer": found.to_dict()}
    return {"status": "answered", "answer": found.to_dict()}


def _found(asked: Asked, options: Options, compiled: Compiled | None) -> Result | Marginals:
    row, price = asked.row, asked.price
    model = _model(row.model, options)
    evidence = _evidence(model, row)
    if compiled is not None and row.query in _COMPILED and price.kind == "small":
        return _asked_again(compiled, row.query, evidence)
    chosen = _options(row, options, workdir=asked.folder and Path(asked.folder))
    if price.order and asked.folder is None:
        chosen = replace(chosen, order=price.order, order_time=None)
    question = question_of(model, row.query, evidence)
    return solved(question, chosen, _effort(row))


def _asked_again(compiled: Compiled, query: str, evidence: Mapping[str, Any] | None) -> Result | Marginals:
    """Ask a compiled model, under other evidence than before."""
    model, start = compiled.model, time.perf_counter()
    if evidence is None:
        evidence = {model.names[v]: state for v, state in model.evidence.items()}
    compiled.set_evidence(evidence)
    if query == "marginals":
        return compiled.marginals()
    log10 = compiled.partition()
    seconds = {"run": time.perf_counter() - start}
    if log10 == -math.inf:
        return Result("partition", "infeasible", seconds=seconds)
    return Result("partition", "ok", log10=log10, plan=compiled.plan, seconds=seconds)
