"""Models of a batch that a process caches between questions: read, compiled or as circuits; and questions of rows."""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from os.path import isfile
from threading import Lock
from time import thread_time
from typing import Any, Generic, TypeVar

from ...tasks.steps.policy import Policy
from ..answering.engines.strategy_policy import POLICY
from ..answering.engines.sum_engines import searching_price
from ..answering.question import Question, question_of
from ..api.solve import load
from ..circuits.circuit_model import Circuit
from ..compiled.compiled import Compiled, compile_model
from ..errors import BudgetError
from ..examples import file_or_example
from ..formats.read import evidence_of, split_evidence, variables_of
from ..gates.traced_circuit import TracedCircuit
from ..models.model import Model
from ..models.query import COLUMN_ROWS, PROOF
from ..options import Options, ProofOptions, parse_size
from ..preprocessing.preprocess import reduce_model
from .manifest import Row, hash_of


@dataclass(frozen=True)
class BatchPolicy(Policy):
    """Numbers by which a batch hands out its questions; measured with ``tests/bench/batches.py``.

    Parameters
    ----------
    compiled_rows : int
        A model is compiled for at least this many questions.
    kept_model_bytes : int
        Bytes of models that are kept for further questions.
    large_seconds : float
        A question that is predicted to take longer gets all workers, or a worker of its own.
    """

    compiled_rows: int = 4
    kept_model_bytes: int = 1 << 28
    large_seconds: float = 2.0


T = TypeVar("T")


class RecentValues(Generic[T]):
    """Values by key, shared by threads; the least recently used values are dropped first.

    Parameters
    ----------
    limit_bytes : callable
        Returns the maximum bytes of all values together. The newest value stays even if it exceeds the limit.
    """

    def __init__(self, limit_bytes: Callable[[], int]):
        self._limit_bytes = limit_bytes
        self._values: OrderedDict[Hashable, tuple[T, Callable[[T], int]]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the cached value of a key, or make it; ``size`` is called again later, because a value may grow."""
        with self._lock:
            found = self._values.get(key)
        if found is None:
            made = make()
            found = made, size
        with self._lock:
            found = self._values.setdefault(key, found)  # another thread may have made it meanwhile
            self._values.move_to_end(key)
            while len(self._values) > 1 and self._nbytes() > self._limit_bytes():
                self._values.popitem(last=False)
        return found[0]

    def _nbytes(self) -> int:
        return sum(size(value) for value, size in self._values.values())


def _limit_bytes() -> int:
    return BatchPolicy.current().kept_model_bytes


_models: RecentValues[Model] = RecentValues(_limit_bytes)
_compiled: RecentValues[Compiled] = RecentValues(_limit_bytes)
_circuits: RecentValues[_CircuitAttempt] = RecentValues(_limit_bytes)


def model_of_row(row: Row, options: Options) -> Model:
    """Return the model of a row; it is read again if its file has changed."""
    return _models.get(_key(row), lambda: load(row.model, memory=options.memory, check=row.check), _size)


def kept_model(path: str, *, memory: int | str | None, check: bool) -> Model:
    """Return the model of a file as :func:`.solve.load` does; an unchanged file is read once."""
    file = os.fspath(file_or_example(path))
    if not isfile(file):  # ``load`` explains this in its error message
        return load(path, memory=memory, check=check)
    key = os.getcwd(), path, hash_of(file), str(memory), check
    return _models.get(key, lambda: load(path, memory=memory, check=check), _size)


def _size(model: Model) -> int:
    return int(model.nbytes)


def _key(row: Row) -> tuple[str, str, bool]:
    return row.model, hash_of(row.model), row.check


def compiled_of_row(row: Row, options: Options) -> Compiled:
    """Return the model of a row, compiled for many questions, without evidence of its own."""

    def compiled() -> Compiled:
        chosen, model = options_of(row, options), replace(model_of_row(row, options), evidence={})
        return compile_model(model, memory=chosen.memory, threads=chosen.threads)

    def size(found: Compiled) -> int:
        return int(found.model.nbytes) + (found.plan.peak_bytes if found.plan else 0)

    return _compiled.get((*_key(row), row.memory), compiled, size)


@dataclass
class _CircuitAttempt:
    """The circuit of a model, or the nominal seconds after which it was not complete."""

    circuit: Circuit | None = None
    seconds: float = 0.0
    lock: Any = field(default_factory=Lock)

    @property
    def nbytes(self) -> int:
        """Bytes of the circuit."""
        return 0 if self.circuit is None else int(self.circuit.graph.nbytes)


def circuit_seconds(count: int, each: float | None, compiling: float) -> float:
    """Return the nominal seconds in which a circuit for some rows has to be complete; 0 if none is tried.

    The time of a circuit is unknown before the circuit is complete. If the time slice ends first, its time is lost.
    Therefore the time slice grows with the square root of the number of rows. For 25 rows it is a tenth of the time of
    all rows by the other method, and for 2,500 rows a hundredth.

    Parameters
    ----------
    count : int
        Rows about the model.
    each : float or None
        Predicted seconds of a row by another method; None if only a search may answer.
    compiling : float
        Seconds in which the loops of the search are compiled first.

    Examples
    --------
    >>> circuit_seconds(25, 0.4, 0.0), circuit_seconds(25, 0.01, 0.0), circuit_seconds(8, None, 0.0)
    (1.0, 0.0, 2.0)
    """
    first = POLICY.lengths["circuit"].first_seconds
    if count < BatchPolicy.current().compiled_rows:
        return 0.0
    if each is None:  # each row would have the first time slice by itself
        return min(count * first, POLICY.patience_seconds)
    seconds = min(POLICY.share * each * math.sqrt(count) - compiling, POLICY.patience_seconds)
    return seconds if seconds >= POLICY.short_search_seconds else 0.0


def circuit_of_row(row: Row, options: Options, count: int, each: float | None) -> Circuit | None:
    """Return a circuit of the model of a row without evidence; None if it is not complete within its time slice.

    Parameters
    ----------
    row : Row
    options : Options
    count : int
        Rows about the model.
    each : float or None
        Predicted seconds of a row by another method. The evaluation of a case must not take longer. None if only a
        search may answer.
    """
    seconds = circuit_seconds(count, each, 0.0 if each is None else searching_price().compiling_seconds)
    attempt = _circuits.get((*_key(row), row.memory), _CircuitAttempt, lambda found: found.nbytes)
    with attempt.lock:
        if attempt.circuit is None and seconds > attempt.seconds:
            attempt.circuit = _built_circuit(row, options, seconds, math.inf if each is None else each)
            attempt.seconds = seconds
        return attempt.circuit


def _built_circuit(row: Row, options: Options, seconds: float, each: float) -> Circuit | None:
    """Build a circuit within nominal seconds, and evaluate one case; None if either takes too long."""
    model = replace(model_of_row(row, options), evidence={})
    network = reduce_model(model, "partition", {}, range(len(model.dims)))
    making = TracedCircuit(network, options_of(row, options))
    try:
        graph = making.run(seconds) if making.suits else None
    except BudgetError:
        return None
    if graph is None:
        return None
    circuit, start = Circuit(graph), thread_time()
    circuit.marginals()
    return circuit if thread_time() - start <= each else None


def question_of_row(model: Model, row: Row) -> Question:
    """Return the question that a row asks of its model."""
    return question_of(model, row.query, evidence_of_row(model, row), project=row.project, maximize=row.maximize)


def evidence_of_row(model: Model, row: Row) -> Mapping[str, Any] | None:
    """Return evidence by name."""
    if row.evidence is None or not isinstance(row.evidence, str):
        return row.evidence
    return evidence_of(model, [row.evidence])


def question_key(row: Row, options: Options) -> str:
    """Return a hash of the parsed question of a row: the same however a list writes it.

    Raises
    ------
    BucketflowError
        If the model cannot be read, or has no variable or state of a name in the row.
    """
    model = model_of_row(row, options)
    hard, soft = split_evidence(model, evidence_of_row(model, row))
    likelihoods = sorted((variable, values.tolist()) for variable, values in soft.items())
    named = [None if given is None else sorted(variables_of(model, given)) for given in (row.project, row.maximize)]
    memory = None if row.memory is None else parse_size(row.memory)
    asked: list[Any] = [hash_of(row.model), row.query, sorted(hard.items()), likelihoods, named, memory]
    asked += [row.order_time, row.time, row.check]
    return sha256(json.dumps(asked, default=int).encode()).hexdigest()


def options_of(row: Row, options: Options, **more: Any) -> Options:
    """Return the options of a batch, overridden by the options of a row."""
    names = [each.name for each in COLUMN_ROWS if each.group != PROOF]
    own = {name: value for name in names if (value := getattr(row, name)) is not None}
    return replace(options, **own, **more)


def effort_of(row: Row) -> ProofOptions:
    """Return the time limit of an optimum, after which its answer is the bounds; other queries have none."""
    return ProofOptions(time=row.time if row.query == "optimum" else None)
