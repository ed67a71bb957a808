"""Running a batch: known answers are kept, other rows are priced, packed and answered, and every answer is stored
immediately.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, Final, Unpack

from ...cluster.address import ClusterLostError
from ...cluster.dask_pool import DaskPool
from ...cluster.memory import default_memory_bytes
from ...cluster.pool import Node, Pool, SerialPool, TaskLabel
from ...storage.faults import OtherFormatError, StorageError
from ...storage.files import Place
from ...storage.run_folder import BatchDir
from ...tasks.steps.number_limits import ordered_sum
from ..api.progress import rows_bar
from ..errors import BucketflowError, IncompatibleRunError, StoppedError, checks_keywords, public
from ..local_paths import folder_path
from ..machine.resources import Resources
from ..options import Options, Where
from ..plans.worker_parts import TASK_SECONDS
from ..runs.pools import DaskPools
from .answering import answered
from .deadline import Deadline, earliest
from .manifest import Manifest, Row, read_manifest
from .pricing import Price, PricedRow, Pricing, parsed_rows
from .summary import BatchSummary, RowOutcome, summary_of, write_results

# Longest pack: all workers should end together.
_PACK_MOST_SECONDS: Final = 4.0
# Packs for each worker, between these lengths.
_WORKER_PACKS: Final = 8
# If the time is limited, pricing may take 1 / this of the remaining time before any answer.
_PRICING_PART: Final = 4

# Packs and order of queries: queries of one model form packs, the longest first.


def large_ones(asked: Iterable[PricedRow]) -> list[PricedRow]:
    """Return the queries that deserve all workers: partly finished queries first, then the shortest."""
    large = (a for a in asked if a.price.kind == "large")
    return sorted(large, key=lambda a: (a.stops == 0 or a.price.pieces == 1, a.price.seconds))


def packs(asked: Iterable[PricedRow], width: int) -> list[list[PricedRow]]:
    """Pack small queries by model, each pack up to its share of the time.

    Queries between bounds are alone. The longest packs come first; among queries of unlimited time, interrupted ones
    come last.
    """
    small = [a for a in asked if a.price.is_packed]
    whole = ordered_sum(map(_seconds, small))
    limit = min(max(whole / (_WORKER_PACKS * width), TASK_SECONDS), _PACK_MOST_SECONDS)
    made = [[a] for a in sorted(asked, key=lambda a: a.stops) if a.price.kind == "alone"]

    def alike(a: PricedRow) -> tuple[Any, ...]:
        return a.row.model, a.row.query, str(a.row.settings)

    for _, group in groupby(sorted(small, key=alike), key=alike):
        rows = list(group)
        made += _filled([replace(a, alike=len(rows) // width) for a in rows], limit)
    return sorted(made, key=lambda pack: -ordered_sum(map(_seconds, pack)))


def _seconds(asked: PricedRow) -> float:
    from ..compiled.case_program import CompiledPolicy

    return asked.price.seconds + CompiledPolicy.current().afresh_seconds


def _filled(group: Sequence[PricedRow], limit: float) -> list[list[PricedRow]]:
    """Cut a row of questions wherever the limit is reached."""
    made: list[list[PricedRow]] = []
    room = 0.0
    for asked in group:
        if room <= 0:
            made.append([])
            room = limit
        made[-1].append(asked)
        room -= _seconds(asked)
    return made


Tell = Callable[..., None]
"""Called with the name of an event and its facts."""


def _ignore(event: str, **facts: Any) -> None:
    """Do not report events."""


@public
@checks_keywords
def batch(
    manifest: Manifest,
    out: str | PathLike[str],
    *,
    query: str = "optimum",
    max_time: float | None = None,
    stop_at: str | None = None,
    check: bool = True,
    progress: bool = False,
    tell: Tell = _ignore,
    **options: Unpack[Where],
) -> BatchSummary:
    """Answer a list of queries, each once, with interruptions at any point.

    A row is identified by its model, its parsed question and its options. A row that was answered in the same folder
    before is not asked again.

    Parameters
    ----------
    manifest : path, data frame, or sequence of mappings
        A list in CSV, JSON lines or YAML with the columns ``model`` (a path or a pattern), ``query``, ``evidence``,
        ``memory``, ``order-time``, ``time``, ``name`` and ``priority``; or a folder of models. A data frame and a list
        of mappings have the same columns, and models that were loaded from a file too.
    out : path
        The folder of the results, or its URL; with a cluster in a file system that its workers share, or in an object
        store.
    query : str
        Of rows that name none.
    max_time : float, optional
        Seconds after which it stops, so that it can be run again.
    stop_at : str, optional
        The time of day, ``HH:MM``, at which it does.
    check : bool, optional
        Whether Bayesian networks have to be some; see :func:`bucketflow.load`.
    progress : bool
        Whether to draw, on a terminal or in a notebook, how many rows are done and what is asked now.
    tell : callable, optional
        Called with the name of an event and facts: ``note``, ``begin``, ``prices``, ``row``, ``stopped``, ``end``.
    **options
        ``memory``, ``threads``, ``workers``, ``scheduler``, ``client``, ``gpus`` and ``gpu_memory``, as in
        :func:`bucketflow.solve`.

    Raises
    ------
    FormatError
        If the list cannot be read.
    IncompatibleRunError
        If the folder is something else or of another format, or the batch is running.

    Examples
    --------
    >>> import bucketflow
    >>> with open("questions.csv", "w") as file:
    ...     _ = file.write("model,query\\nsatellite,optimum\\nfrequency,optimum\\n")
    >>> summary = bucketflow.batch("questions.csv", "results")
    >>> summary.rows, summary.answered
    (2, 2)
    """
    if progress:
        with rows_bar(hidden=False) as draw:

            def drawn(event: str, **facts: Any) -> None:
                draw(event, facts)
                tell(event, **facts)

            return _batch(manifest, out, query, (max_time, stop_at), check, drawn, Options(**options))
    return _batch(manifest, out, query, (max_time, stop_at), check, tell, Options(**options))


def _batch(
    manifest: Manifest,
    out: str | PathLike[str],
    query: str,
    ends: tuple[float | None, str | None],
    check: bool,
    tell: Tell,
    asked: Options,
) -> BatchSummary:
    deadline = Deadline(earliest(*ends))
    notes = list[str]()
    place = folder_path(out)
    rows = read_manifest(manifest, query, place if isinstance(place, Path) else None, notes.append)
    rows = rows if check else [replace(row, check=False) for row in rows]
    for note in notes:
        tell("note", note=note)
    with _opened(place) as folder:
        run = _Batch(rows, asked, folder, tell, deadline)
        run.answer_all()
        summary = summary_of(run.outcomes(), time.perf_counter() - run.started, folder.path, tuple(notes))
        write_results(folder, run.outcomes(), summary)
    tell("end", **summary.to_dict())
    return summary


@contextmanager
def _opened(path: Place) -> Iterator[BatchDir]:
    """Open the folder of a batch; storage failures become errors that end as one sentence."""
    try:
        folder = BatchDir(path)
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    try:
        yield folder
    except OtherFormatError as error:
        raise IncompatibleRunError(str(error)) from None
    except StorageError as error:
        raise StoppedError(f"{error}; answers so far are kept: free some space and run the batch again") from None
    finally:
        folder.close()


@dataclass
class _Batch:
    """A batch under way."""

    rows: Sequence[Row]
    options: Options
    folder: BatchDir
    tell: Tell
    deadline: Deadline
    started: float = field(default_factory=time.perf_counter)
    _keys: list[str] = field(default_factory=list)
    _before: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _found: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _wrong: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _asked: dict[str, Row] = field(default_factory=dict)
    _same: dict[str, list[str]] = field(default_factory=dict)
    """Keys of rows that ask the question of another row in other words, by the key of that row."""

    def answer_all(self) -> None:
        """Answer what is not known yet, until all is or the time is over."""
        try:
            with self.deadline.running():
                todo = self._todo()
                self.tell("begin", rows=len(self.rows), known=len(self._before), asked=len(todo))
                if todo:
                    with self._pool() as pool:
                        self._answer(pool, todo)
        except (KeyboardInterrupt, StoppedError):
            self.tell("stopped", why="the time is over" if self.deadline.passed else "interrupted")

    def outcomes(self) -> list[RowOutcome]:
        """Return the outcome of every row; rows that were not reached are stopped."""
        stopped = {"status": "stopped", "message": "not reached", "exit_code": 4}
        found = []
        for k, row in enumerate(self.rows):
            key = self._keys[k] if k < len(self._keys) else ""
            before = self._before.get(key)
            record = self._wrong.get(row.number) or before or self._found.get(key) or stopped
            found.append(RowOutcome(row, key, record, before is not None))
        return found

    def _todo(self) -> list[PricedRow]:
        """Find the questions that are new, changed, failed or were stopped; equal ones once."""
        known = self.folder.answers()
        before: dict[str, Mapping[str, Any]] = {}
        todo: dict[str, PricedRow] = {}
        for row in self.rows:
            key = self._key(row)
            self._keys.append(key)
            if key and _stands(known.get(key), row, self.options):
                before[key] = known[key]
            elif key and (key not in todo or todo[key].row.priority < row.priority):
                todo[key] = self._asked_again(row, key, known.get(key) or {})
        self._before, self._asked = before, {key: asked.row for key, asked in todo.items()}
        return list(todo.values())

    def _asked_again(self, row: Row, key: str, before: Mapping[str, Any]) -> PricedRow:
        """Return a row to be answered. A row stopped before gets its earlier time again."""
        stops = before.get("stops", 0) if before.get("status") == "stopped" else 0
        left = None if self.deadline.left == math.inf else self.deadline.left
        return PricedRow(row, key, stops=stops, slot=max(before["wall_seconds"], 0.01) if stops else left)

    def _key(self, row: Row) -> str:
        if not row.problem:
            try:
                return row.key()
            except BucketflowError as error:
                row = row.wrong(str(error))
        self._wrong[row.number] = {"status": "failed", "message": row.problem, "exit_code": 2}
        self.tell("row", row=row.number, name=row.name, **self._wrong[row.number])
        return ""

    @contextmanager
    def _pool(self) -> Iterator[Pool]:
        """The workers that were asked for, or this process."""
        options = self.options
        several = options.remote or bool(options.workers)
        opened: AbstractContextManager[Pool] = nullcontext(SerialPool())
        if several:
            opened = DaskPools(Resources(options.without_gpus()))
        with opened as pool:
            try:
                if several:
                    pool.share(self.folder.path.absolute())
                yield pool
            except ClusterLostError as error:
                raise StoppedError(f"{error}; run the batch again") from None

    def _answer(self, pool: Pool, todo: list[PricedRow]) -> None:
        """Answer rows by descending priority; within one, rows that would exceed the remaining time come last."""
        options = self._task_options(pool)
        pricing = Pricing(self.folder, options, not isinstance(pool, DaskPool), self.tell)
        todo = self._parsed(pool, todo, options)
        ordered = sorted(todo, key=lambda a: (-a.row.priority, a.stops, a.row.model, a.row.number))
        for _, level in groupby(ordered, key=lambda a: a.row.priority):
            waiting, long = list(level), list[PricedRow]()
            while waiting:
                asked, waiting = pricing.some(pool, waiting, self.deadline.left / _PRICING_PART)
                self._told(asked, len(waiting))
                left = self.deadline.left
                long += [a for a in asked if a.price.seconds > left]
                self._ask(pool, [a for a in asked if a.price.seconds <= left], options)
            self._ask(pool, long, options)

    def _parsed(self, pool: Pool, todo: Sequence[PricedRow], options: Options) -> list[PricedRow]:
        """Parse all questions; leave out wrong questions, and those that were asked before in other words."""
        known = {record["question"]: record for record in self.folder.answers().values() if "question" in record}

        def model(asked: PricedRow) -> tuple[str, bool]:
            return asked.row.model, asked.row.check

        groups = [list(rows) for _, rows in groupby(sorted(todo, key=lambda a: (model(a), -a.row.priority)), key=model)]
        first, wrong = dict[str, PricedRow](), list[PricedRow]()
        calls = (([asked.row for asked in group], options) for group in groups)
        for group, found in zip(groups, pool.stream(parsed_rows, calls), strict=True):
            for asked, question in zip(group, found, strict=True):
                if isinstance(question, Price):
                    wrong.append(replace(asked, price=question))
                elif question in known and _stands(known[question], asked.row, self.options):
                    self._before[asked.key] = {**known[question], "key": asked.key}
                    self.folder.append(dict(self._before[asked.key]))
                elif question in first:
                    self._same.setdefault(first[question].key, []).append(asked.key)
                else:
                    first[question] = replace(asked, question=question)
        if wrong:
            self._told(wrong, 0)
        return list(first.values())

    def _told(self, asked: list[PricedRow], waiting: int) -> None:
        """Report prices, and store refused and invalid rows."""
        asked = sorted(asked, key=lambda a: a.row.number)
        self.tell("prices", prices=[(a.row, a.price) for a in asked], waiting=waiting)
        wrong = [a for a in asked if a.price.kind == "wrong"]
        self._keep([{"key": a.key, **a.price.refusal(), "query": a.row.query, "wall_seconds": 0.0} for a in wrong])

    def _ask(self, pool: Pool, asked: list[PricedRow], options: Options) -> None:
        """Answer large questions and packs; packs first where the time is limited, which answers more."""
        steps = [self._ask_large, self._ask_packed]
        for step in steps if self.deadline.left == math.inf else reversed(steps):
            step(pool, asked, options)

    def _ask_large(self, pool: Pool, asked: list[PricedRow], _: Options) -> None:
        for one in large_ones(asked):
            self.tell("asking", rows=[one.row])
            self._keep(answered([one], self._wide_options(pool)))

    def _ask_packed(self, pool: Pool, asked: list[PricedRow], options: Options) -> None:
        for found in self._packed(pool, packs(asked, pool.width), options):
            self._keep(found)

    def _task_options(self, pool: Pool) -> Options:
        """Options of a question that one worker answers: local ones share this machine's memory and cores."""
        options = replace(self.options, workers=None, scheduler=None, client=None)
        if not isinstance(pool, DaskPool):
            return options
        memory = options.memory
        if memory is None:
            remote = replace(options.without_gpus(), client=pool.client)
            memory = Resources(remote).task_bytes if self.options.remote else default_memory_bytes() // pool.width
        return replace(options.without_gpus(), memory=memory, threads=1)

    def _wide_options(self, pool: Pool) -> Options:
        """Options of a question that all workers answer."""
        client = pool.client if isinstance(pool, DaskPool) else None
        return replace(self.options, workers=None, scheduler=None, client=client)

    def _packed(self, pool: Pool, made: list[list[PricedRow]], options: Options) -> Iterator[list[dict[str, Any]]]:
        """Answer packs on all workers; a pack whose task failed is a failure of each of its rows."""

        def call(number: int) -> tuple[Any, ...]:
            self.tell("asking", rows=[a.row for a in made[number]])
            return answered, made[number], options

        nodes = {k: Node(set(), call, -k, label=_answer_label(rows)) for k, rows in enumerate(made)}
        for number, found in pool.run_graph(nodes):
            if isinstance(found, BaseException):
                message = {"status": "failed", "message": f"{type(found).__name__}: {found}", "exit_code": 1}
                yield [{"key": a.key, **message, "query": a.row.query} for a in made[number]]
            else:
                yield found

    def _keep(self, records: Iterable[dict[str, Any]]) -> None:
        """Keep answers, and stop where one was stopped."""
        for record in (each for found in records for each in self._with_twins(found)):
            if record["status"] == "refused":
                record.setdefault("within", str(self._asked[record["key"]].memory or self.options.memory))
            self.folder.append(record)
            self._found[record["key"]] = record
            facts: dict[str, Any] = {
                name: record[name] for name in ("message", "exit_code", "wall_seconds") if name in record
            }
            if notes := record.get("answer", {}).get("notes"):
                facts |= {"model": self._asked[record["key"]].model, "notes": notes}
            row = self._asked[record["key"]]
            self.tell("row", key=record["key"], row=row.number, name=row.name, status=record["status"], **facts)
            if record["status"] == "stopped":
                raise StoppedError(record["message"])
            self.folder.drop_run(record["key"])

    def _with_twins(self, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a record for each row that asks the same question, beginning with the row that was asked."""
        yield record
        for key in self._same.get(record["key"], ()):
            yield {**record, "key": key}


def _answer_label(rows: Sequence[PricedRow]) -> TaskLabel:
    """Return the label of the task that answers rows: ``answer-row_7``, or with the number of further rows."""
    more = f"_and_{len(rows) - 1}_more" if len(rows) > 1 else ""
    return TaskLabel(f"answer-row_{rows[0].row.number}{more}", "batch")


def _stands(known: Mapping[str, Any] | None, row: Row, options: Options) -> bool:
    """Whether a row need not be answered again; a row refused for a given budget stays refused."""
    if known is None:
        return False
    within = row.memory or options.memory
    refused = known["status"] == "refused" and within is not None and known.get("within") == str(within)
    return refused or known["status"] in ("answered", "bounded")
