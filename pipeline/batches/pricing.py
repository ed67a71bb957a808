"""What questions cost: each is priced once, kept with the batch, and large ones leave the plan they will run by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from itertools import groupby
from typing import Any, Final, Literal

from ...cluster.pool import Pool
from ...storage.files import Place
from ...storage.run_folder import FORMAT, BatchDir
from ..answering.answer_question import is_bounded, is_searched, strategy_before, unplanned_seconds
from ..answering.engines.engine_options import Strategy
from ..answering.engines.request import QueryRequest
from ..answering.prepared import Prepared, prepare
from ..answering.question import Question, question_of
from ..answering.run_folder import run_folder
from ..answering.running import keep_plan
from ..circuits.circuit_model import one_case
from ..compiled.case_program import alone_seconds
from ..compiled.compiled import Compiled
from ..errors import BucketflowError, BudgetError
from ..formats.read import split_evidence
from ..local_paths import folder_path
from ..machine.resources import Resources
from ..models.cases import joined_cases
from ..models.model import Model
from ..options import Options
from ..orders.tree_search import HOPELESS_SECONDS, MOST_SAVED
from ..plans.plan import Plan
from ..plans.planner import HopelessError
from ..trees.costs import tree_cost
from ..trees.tree import elimination_order
from .manifest import Row, hash_of
from .models import (
    BatchPolicy,
    circuit_of_row,
    compiled_of_row,
    effort_of,
    evidence_of_row,
    model_of_row,
    options_of,
    question_key,
    question_of_row,
)

# A sweep that may not end in time is cut into pieces that are stored, each of one part in this many of the time.
_TIME_PIECES: Final = 8
# Pieces may take this many times as long as the whole.
_PIECE_OVERHEAD_RATIO: Final = 2.0
# Pieces may take at least this many seconds more than the whole, whatever the ratio.
_PIECE_FREE_SECONDS: Final = 1.0
# Each further cut has one part in this many of the memory.
_PIECE_MEMORY_PART: Final = 4

Kind = Literal["small", "compiled", "decided", "searched", "large", "alone", "wrong"]


#: Queries that a search of clauses answers.
_SEARCHED = ("partition", "count", "marginals")


@dataclass(frozen=True)
class Price:
    """The cost of a row.

    Parameters
    ----------
    kind : {"small", "compiled", "decided", "searched", "large", "alone", "wrong"}
        How the row is answered. ``small``: together with other rows. ``compiled``: together with other rows, by a
        compiled model on the CPU. ``decided`` and ``searched``: together with other rows and without a plan, because
        the evidence leaves nothing to plan, or because only a search may answer. ``large``: by all workers. ``alone``:
        an optimum between bounds, in one process. ``wrong``: not at all.
    seconds : float
        CPU seconds on one core. For an optimum between bounds its time limit, or infinity.
    peak_bytes, disk_bytes : int
        Bytes of the row; the maximum of all rows if many rows share a tree.
    order : tuple of str
        Variables in the order in which the shared tree eliminates them; empty for an order of its own.
    pieces : int
        Number of parts of a large row that are stored as they are finished.
    status, message, exit_code
        Facts of a row that is wrong or refused.
    """

    kind: Kind
    seconds: float = 0.0
    peak_bytes: int = 0
    disk_bytes: int = 0
    order: tuple[str, ...] = ()
    pieces: int = 1
    status: str = ""
    message: str = ""
    exit_code: int = 0

    @property
    def is_swept(self) -> bool:
        """Whether the plan of one sweep, or of a compiled model, is the price."""
        return self.kind in ("small", "compiled")

    @property
    def is_packed(self) -> bool:
        """Whether one worker answers the row together with others."""
        return self.is_swept or self.kind in ("decided", "searched")

    def refusal(self) -> dict[str, Any]:
        """Return the stored facts of a faulty or refused row."""
        return {"status": self.status, "message": self.message, "exit_code": self.exit_code}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, in plain types."""
        whole = asdict(self)
        seconds = None if math.isinf(self.seconds) else self.seconds
        return {f.name: whole[f.name] for f in fields(self) if whole[f.name] != f.default} | {"seconds": seconds}

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> Price:
        """Return the price from the result of :meth:`to_dict`."""
        own = {f.name: kept[f.name] for f in fields(cls) if f.name in kept}
        seconds = math.inf if own["seconds"] is None else own["seconds"]
        return cls(**own | {"seconds": seconds, "order": tuple(own.get("order", ()))})


@dataclass(frozen=True)
class PricedRow:
    """A row that is to be answered, and how.

    Parameters
    ----------
    row : Row
    key : str
    price : Price
    folder : str or None
        Its run directory.
    stops : int
        How often it was stopped before.
    slot : float or None
        Seconds after which it was, or is likely to be.
    question : str
        Hash of the parsed question; empty if it is not parsed yet.
    alike : int
        Number of small rows about the same model and query that one worker answers, about; they are several packs.
    """

    row: Row
    key: str
    price: Price = field(default_factory=lambda: Price("small"))
    folder: str | None = None
    stops: int = 0
    slot: float | None = None
    question: str = ""
    alike: int = 1


def wrong(error: BucketflowError) -> Price:
    """Return the price of a row that is wrong or refused."""
    status = "refused" if error.exit_code == 3 else "failed"
    return Price("wrong", status=status, message=str(error), exit_code=error.exit_code)


def parsed_rows(rows: Sequence[Row], options: Options) -> list[str | Price]:
    """Task: return the hash of the parsed question of each row, or the price of a row that is wrong."""
    found = list[str | Price]()
    for row in rows:
        try:
            found.append(question_key(row, options))
        except BucketflowError as error:
            found.append(wrong(error))
    return found


def shared_price(rows: Sequence[Row], options: Options, slot: float | None = None) -> Price | None:
    """Task: price a question without its evidence, because evidence only makes it smaller; None if each row needs a
    price.

    Marginals of several rows are answered by a compiled model if it fits in memory. Its plan is their price, so that
    no second plan is made. If evidence decides every row, planning the question without evidence takes longer than all
    answers, and the rows share no price. If the plan is hopeless under any evidence, all rows share one refusal.

    Parameters
    ----------
    rows : sequence of Row
        The rows that share the price; they differ in evidence only.
    options : Options
    slot : float or None
        Seconds that a row may have before it is stopped.
    """
    row = rows[0]
    try:
        model = model_of_row(row, options)
    except BucketflowError as error:
        return wrong(error)
    query = "optimum" if row.query == "partition" and model.kind != "cost" else row.query  # nothing is barren
    try:
        if len(rows) > 1 and all(_is_decided(each, model, options) for each in rows):
            return None
        free = replace(model, evidence={})
        question = question_of(free, query, project=row.project, maximize=row.maximize)
        if is_bounded(question, options_of(row, options), effort_of(row)):
            return None
        asked = question_of(free, row.query, project=row.project, maximize=row.maximize)
        if row.query in _SEARCHED:
            strategy = strategy_before(asked, options_of(row, options), effort_of(row))
            if is_searched(strategy) or _has_circuit(strategy, asked, row, options, len(rows)):
                return Price("searched")
        if (plan := _compiled_plan(rows, options, slot)) is not None:
            return _plan_price(plan, "compiled")
        prepared = prepare(question, Resources(options_of(row, options)))
    except HopelessError as error:
        return _shared_refusal(rows, model, options, tree_cost(error.tree).seconds)
    except BucketflowError:
        return None
    return None if _is_large(prepared) else _price(prepared, "small")


def _is_decided(row: Row, model: Model, options: Options) -> bool:
    """Whether nothing is left to plan once the row's evidence is observed, such as impossible evidence."""
    return QueryRequest(question_of_row(model, row), options).is_trivial


def _shared_refusal(rows: Sequence[Row], model: Model, options: Options, seconds: float) -> Price | None:
    """Return one refusal for all rows, found for the row whose evidence is the largest; None if evidence may help.

    Parameters
    ----------
    rows : sequence of Row
    model : Model
    options : Options
    seconds : float
        Predicted seconds of the best known tree without evidence.
    """

    def states(row: Row) -> int:
        hard, _ = split_evidence(model, evidence_of_row(model, row))
        return math.prod([model.dims[v] for v in hard])

    # evidence divides the cells of a tree by at most its number of joint states, and another tree by less than
    # MOST_SAVED
    largest = max(rows, key=states)
    if len(rows) == 1 or seconds / states(largest) <= MOST_SAVED * HOPELESS_SECONDS:
        return None
    price = own_price(largest, options, None, None, large=False)
    return price if price.status == "refused" else None


def _compiled_plan(rows: Sequence[Row], options: Options, slot: float | None) -> Plan | None:
    """Return the plan of the compiled model that answers rows; None if each row is answered separately.

    A row that is answered separately can use all workers, and can resume in the middle of its sweep. Long rows
    therefore use a compiled model only if this takes less time in total. If the time may end during a long row, no long
    row uses a compiled model.
    """
    policy, row = BatchPolicy.current(), rows[0]
    if row.query != "marginals" or row.named or len(rows) < policy.compiled_rows:
        return None
    try:
        compiled = compiled_of_row(row, options)
    except BudgetError:  # all messages together do not fit
        return None
    plan = compiled.plan
    if plan is None or plan.seconds <= policy.large_seconds:
        return plan
    if slot is not None and plan.seconds > slot / 2:
        return None
    return plan if _is_quicker_compiled(compiled, plan, rows, options) else None


def _is_quicker_compiled(compiled: Compiled, plan: Plan, rows: Sequence[Row], options: Options) -> bool:
    """Whether a compiled model is predicted to take less time than a sweep for each row.

    A compiled model computes all messages once, and for each row the messages that differ from the messages of the row
    before it. The sweep of each row takes as long as planned for the first row. With GPUs, each row is also planned.
    """
    model, skeleton = compiled.model, compiled.skeleton
    cases = joined_cases([one_case(model, evidence_of_row(model, row)) for row in rows])
    leaves = {skeleton.network.variables[v]: leaf for v, leaf in skeleton.hosts.items()}
    asked = plan.seconds + alone_seconds(plan.steps, cases, leaves, 0, True, plan.kept_threads)
    own = prepare(question_of_row(model, rows[0]), Resources(options_of(rows[0], options)))
    planning = own.seconds if options.gpus is not None else 0.0
    return own.plan is not None and asked < len(rows) * (own.plan.seconds + planning)


def _is_searched(question: Question, row: Row, options: Options) -> bool:
    return row.query in _SEARCHED and is_searched(strategy_before(question, options_of(row, options), effort_of(row)))


def _has_circuit(strategy: Strategy, question: Question, row: Row, options: Options, rows: int) -> bool:
    """Whether a circuit for marginals is complete in a time slice before a sweep is planned.

    GPUs only make the sweep shorter: the circuit is built on the cores all the same.
    """
    if row.query != "marginals":
        return False
    host = options_of(row, options).without_gpus()
    cores = strategy if options.gpus is None else strategy_before(question, host, effort_of(row))
    if "circuit" not in cores.engines:
        return False
    return circuit_of_row(row, options, rows, unplanned_seconds(strategy)) is not None


def _is_large(prepared: Prepared) -> bool:
    plan = prepared.plan
    return plan is not None and (
        plan.seconds > BatchPolicy.current().large_seconds or plan.spill is not None or plan.slices > 1
    )


def _price(prepared: Prepared, kind: Kind) -> Price:
    plan = prepared.plan
    if plan is None:
        return Price("decided")
    order = _order(prepared) if kind == "small" else ()
    return _plan_price(plan, kind, order)


def _plan_price(plan: Plan, kind: Kind, order: tuple[str, ...] = ()) -> Price:
    return Price(kind, plan.seconds, plan.peak_bytes, plan.disk_bytes, order, _pieces(plan))


def _order(prepared: Prepared) -> tuple[str, ...]:
    """Return the order in which a tree eliminates all variables of the model; empty where both ways are swept."""
    if prepared.plan is None or prepared.problem.targets is not None:
        return ()
    network = prepared.network
    names = network.model.names
    if network.model.hidden:  # variables of chains that stand for wide functions, which orders cannot name
        return ()
    first = [network.variables[v] for v in elimination_order(prepared.plan.tree)]
    rest = sorted(set(range(len(names))) - set(first))
    return tuple(names[v] for v in (*rest, *first))


def _pieces(plan: Plan | None) -> int:
    """Return how many parts of a plan leave receipts in a run directory."""
    if plan is None:
        return 1
    return plan.tasks if plan.spill else plan.groups


def own_price(row: Row, options: Options, folder: str | None, slot: float | None, large: bool) -> Price:
    """Task: price one row, and leave the plan of a large one in its run directory.

    Parameters
    ----------
    folder : str or None
    slot : float or None
        Seconds that it may have before it is stopped.
    large : bool
        Whether it gets a run directory even if it is predicted to be small.
    """
    policy = BatchPolicy.current()
    try:
        question = question_of_row(model_of_row(row, options), row)
        if is_bounded(question, options_of(row, options), effort_of(row)):
            return Price("alone", math.inf if row.time is None else row.time)
        if _is_searched(question, row, options):
            return Price("searched")
        stored = folder and _stored_plan(question, folder_path(folder))
        prepared = prepare(question, Resources(options_of(row, options)), stored or None)
        plan = prepared.plan
        if plan is None or not (large or plan.seconds > policy.large_seconds or plan.spill is not None):
            return _price(prepared, "small")
        if folder is None or stored:
            return _price(prepared, "large")
        if slot is not None and _pieces(plan) == 1 and (large or plan.seconds > slot / 2) and not plan.device:
            prepared = _in_pieces(prepared, question, options_of(row, options), slot / _TIME_PIECES)
        with run_folder(question, folder_path(folder)) as opened:
            assert opened is not None
            keep_plan(opened, prepared)
    except BucketflowError as error:
        return wrong(error)
    return _price(prepared, "large")


def _stored_plan(question: Question, folder: Place) -> Mapping[str, Any] | None:
    """Return the plan that the run directory of a question holds, if it is there."""
    with run_folder(question, folder if folder.exists() else None) as opened:
        return None if opened is None else opened.stored_plan


def _in_pieces(whole: Prepared, question: Question, options: Options, seconds: float) -> Prepared:
    """Plan with less memory until slices or boxes take at most ``seconds`` each, because their results are stored one
    by one.
    """
    assert whole.plan is not None
    order, found = _order(whole), whole
    if order:
        options = replace(options, order=order, order_time=None)
    memory = whole.plan.peak_bytes
    while memory := memory // _PIECE_MEMORY_PART:
        try:
            cut = prepare(question, Resources(replace(options, memory=memory)))
        except BudgetError:
            break
        if cut.plan is None or cut.plan.seconds > max(_PIECE_OVERHEAD_RATIO * whole.plan.seconds, _PIECE_FREE_SECONDS):
            break
        found = cut
        if cut.plan.seconds <= seconds * _pieces(cut.plan):
            break
    return found


@dataclass
class Pricing:
    """Prices of a batch: stored prices and new ones.

    Parameters
    ----------
    folder : BatchDir
    options : Options
        Of a question that one worker answers.
    plans : bool
        Whether large questions run by the plans that are made for their prices, as this process is to answer them.
    tell : callable
        Called with ``pricing`` and the row of each price that is found.
    """

    folder: BatchDir
    options: Options
    plans: bool
    tell: Callable[..., None]

    def __post_init__(self) -> None:
        self._known = self.folder.prices()
        self._within = [FORMAT, str(self.options.memory), str(self.options.gpus)]

    def some(self, pool: Pool, waiting: Sequence[PricedRow], seconds: float) -> tuple[list[PricedRow], list[PricedRow]]:
        """Price rows for ``seconds`` seconds, at least one row; return the rows with prices, and the other rows."""
        until = time.perf_counter() + seconds
        groups = {key: list(rows) for key, rows in groupby(sorted(waiting, key=_alike), key=self._group_key)}
        unknown = [key for key, rows in groups.items() if len(rows) > 1 and key not in self._known]
        calls = (([a.row for a in groups[key]], self.options, groups[key][0].slot) for key in unknown)
        for key, price in _until(until, unknown, pool.stream(shared_price, calls)):
            self._keep(key, price)
            self.tell("pricing", row=groups[key][0].row)
        found = {a.key: price for key, rows in groups.items() for a in rows if (price := self._price(a, key))}
        ready = [rows for key, rows in groups.items() if key in self._known or len(rows) == 1]
        own = [a for rows in ready for a in rows if a.key not in found]
        for a, price in _until(until, own, pool.stream(own_price, map(self._call, own))):
            found[a.key] = price
            self._keep(self._row_key(a), replace(price, order=()))
            self.tell("pricing", row=a.row)
        priced = [self._with_price(a, found[a.key]) for a in waiting if a.key in found]
        return priced, [a for a in waiting if a.key not in found]

    def _group_key(self, asked: PricedRow) -> str:
        try:
            model = hash_of(asked.row.model)
        except BucketflowError:
            model = asked.row.model
        return self._hashed("shared", model, asked.row.settings)

    def _row_key(self, asked: PricedRow) -> str:
        return self._hashed("own", asked.key, None)

    def _hashed(self, kind: str, what: str, settings: Any) -> str:
        return sha256(repr((kind, self._within, what, settings)).encode(errors="backslashreplace")).hexdigest()

    def _price(self, asked: PricedRow, group: str) -> Price | None:
        """Return the known price of a row. The price of a stopped row is known only if it leaves pieces."""
        kept = self._known.get(self._row_key(asked)) or self._known.get(group)
        if kept is None or kept.get("kind") is None:
            return None
        price = Price.from_dict(kept)
        whole = price.is_swept or (price.kind == "large" and price.pieces == 1)
        again = asked.stops > 0 and whole
        return None if again else price

    def _call(self, asked: PricedRow) -> tuple[Any, ...]:
        before = self._known.get(self._row_key(asked))
        if before is not None and before["kind"] == "large":  # the stored plan was made for more time
            self.folder.drop_run(asked.key)
        return asked.row, self.options, self._run_folder(asked) if self.plans else None, asked.slot, asked.stops > 0

    def _run_folder(self, asked: PricedRow) -> str:
        return str(self.folder.run_folder(asked.key).absolute())

    def _with_price(self, asked: PricedRow, price: Price) -> PricedRow:
        return replace(asked, price=price, folder=self._run_folder(asked) if price.kind in ("large", "alone") else None)

    def _keep(self, key: str, price: Price | None) -> None:
        """Remember a price, and keep it for later starts unless the model may be another then."""
        told = {"key": key, "kind": None} if price is None else {"key": key, **price.to_dict()}
        self._known[key] = told
        if price is None or price.kind != "wrong":
            self.folder.append_price(told)


def _alike(asked: PricedRow) -> tuple[Any, ...]:
    return asked.row.model, str(asked.row.settings), asked.row.number


def _until(until: float, what: Sequence[Any], found: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each item with its result, until the time is over."""
    for each, result in zip(what, found, strict=False):
        yield each, result
        if time.perf_counter() >= until:
            return
