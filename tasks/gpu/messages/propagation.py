"""Propagation on a GPU: all tables of a case in one slab, both sweeps in one launch of ``cuda/messages.cu``.

Tables are doubles: sums of products with scales, or least sums of energies or costs, which are exact below 2^53.
One case is a captured graph of three kernels, which read findings from the host's page-locked memory and write beliefs
there. Many cases have a slab each and run in the same launches, in groups that share items.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...steps.light_dataclass import dataclass
from ...steps.semiring import Law
from ..kernels import Kernel, cupy, kernel, processors
from ..tiling.tiling_policy import NOMINAL
from .records import MessageRecords
from .tiles import THREADS

Array = NDArray[Any]

_LOCKS: Final[defaultdict[int, threading.Lock]] = defaultdict(threading.Lock)


def one_at_a_time(device: int = 0) -> threading.Lock:
    """Return the lock of a program on a device of this process, because the process's threads share the device."""
    return _LOCKS[device]


ANSWER_CELLS: Final = 2
"""Behind the beliefs of a case."""

_STATIC_BYTES: Final = 2048
"""Shared memory that the kernel has besides what a launch asks for, at most."""

_BLOCKS_OF_MULTIPROCESSOR: Final = NOMINAL.resident_threads // THREADS
_MOST_TICKETS: Final = (1 << 32) - (1 << 20)
"""Items of all cases of a launch: blocks that find none left draw a few numbers more, all of 32 bits."""


@dataclass(frozen=True, eq=False)
class MessageProgram:
    """A propagation, and where its leaves, findings and answers are.

    Parameters
    ----------
    records : Records
    constants : mapping of int to int
        For each leaf that is read its first cell among the constants.
    findings : mapping of int to (int, int)
        For each variable the first cell and the number of cells of its likelihoods.
    targets : ndarray, uint32, shape (targets, 4)
        First cell in the slab, number of cells, first cell in the answer, 0.
    scaled : ndarray, uint32
        Numbers of the tables that others were divided by, each once, on the way to the total.
    roots : ndarray, uint32
        Where the single cells are whose product is the rest of the total.
    log_scale : float
        ln of the divisor of the constants.
    law : {"sum_product", "min_plus"}
    """

    records: MessageRecords
    constants: Mapping[int, int]
    findings: Mapping[int, tuple[int, int]]
    targets: Array
    scaled: Array
    roots: Array
    log_scale: float
    law: Law = "sum_product"

    @cached_property
    def answer_cells(self) -> int:
        """Cells of one case's answer: beliefs, the total or its ln, and whether it failed."""
        return int(self.targets[:, 1].sum(dtype=np.int64)) + ANSWER_CELLS

    @property
    def case_bytes(self) -> int:
        """Bytes on the device for each case."""
        return self.records.case_bytes(self.answer_cells)

    def cases_within(self, nbytes: int) -> int:
        """Return how many cases, in whole groups, fit some memory of the device; 0 if none does."""
        group = self.records.group
        room = (nbytes - self.records.fixed_bytes) // (self.case_bytes * group)
        return int(max(min(room, _MOST_TICKETS // max(len(self.records.items), 1)), 0)) * group


class DeviceMessages:
    """A program on the current device, with its constant tables where the records expect them."""

    def __init__(self, program: MessageProgram, constants: Array) -> None:
        cp = cupy()
        self.program = program
        self._fixed = {
            "items": cp.asarray(program.records.items),
            "records": cp.asarray(program.records.words),
            "constants": cp.asarray(constants),
            "targets": cp.asarray(program.targets),
            "scaled": cp.asarray(program.scaled),
            "roots": cp.asarray(program.roots),
        }
        self._single: _Single | None = None
        self._many: _Cases | None = None

    def replace_constants(self, constants: Array) -> None:
        """Copy other constant tables over the present ones."""
        self._fixed["constants"].set(constants)
        # a copy from pageable memory may end after the call, and the graph has a stream of its own
        cupy().cuda.Device().synchronize()

    def run(self, findings: Array) -> Array:
        """Answer one case of a program without groups.

        Takes the likelihoods of all variables, at most 1, shape ``(finding cells,)``; returns an array of shape
        ``(answer cells,)``. The second last cell is ln of the total, without `MessageProgram.log_scale`. The last cell
        is nonzero if the case failed because products may have left the range of doubles. Beliefs sum to 1. For least
        sums, beliefs are not scaled, and the least value replaces the logarithm.
        """
        if self._single is None:
            self._single = _Single(_Cases(self.program, self._fixed, 1))
        return self._single.run(findings)

    def run_cases(
        self, cases: int, common: Array, states: tuple[Sequence[int], Array], weights: Mapping[int, Array]
    ) -> Array:
        """Answer many cases; returns ``(cases, answer cells)``, valid until the next call.

        Parameters
        ----------
        cases : int
        common : ndarray, (finding cells,)
            Likelihoods that hold in every case.
        states : (sequence of int, ndarray of int32)
            Some variables, and their states, ``(variables, cases)``: -1 where one is not observed, -2 where the state
            was excluded before.
        weights : mapping of int to ndarray
            For others likelihoods, ``(cases, states)``.
        """
        if self._many is None or self._many.cases < cases:
            self._many = None
            self._many = _Cases(self.program, self._fixed, cases)
        return self._many.run(cases, common, states, weights)


def propagation_kernels(law: str, group: int = 1) -> list[Kernel]:
    """Return the kernels that answer cases over a semiring.

    Parameters
    ----------
    law : str
    group : int
        Number of cases that are computed together.
    """
    grouped = {"GROUPED": 1} if group > 1 else {}
    propagate = kernel("messages", law, "float64", "propagate", **grouped)
    return [propagate, *[kernel("messages", law, "float64", entry) for entry in ("begin", "answer")]]


class _Cases:
    """Slabs, counters and answers for up to some number of cases."""

    def __init__(self, program: MessageProgram, fixed: Mapping[str, Any], cases: int) -> None:
        cp = cupy()
        records = program.records
        self.program, self.cases = program, -(-cases // records.group) * records.group
        self.slabs = cp.empty((self.cases, records.slab_cells))
        self.control = cp.empty(self.cases * records.control_words + 1, np.uint32)
        self.answers = cp.empty((self.cases, program.answer_cells))
        self._fixed = fixed
        self._propagate, self._begin, self._answer = propagation_kernels(program.law, records.group)
        if records.shared_bytes + _STATIC_BYTES > NOMINAL.usual_shared_bytes:
            self._propagate.max_dynamic_shared_size_bytes = records.shared_bytes
        # while a stream is captured, nothing may be loaded
        for each in (self._propagate, self._begin, self._answer):
            each.load()
        self._most_blocks = processors() * _BLOCKS_OF_MULTIPROCESSOR

    def launch(self, cases: int, findings: Array | None = None, answer: Array | None = None) -> None:
        """Clear the counters and run both sweeps on the current stream.

        Parameters
        ----------
        cases : int
        findings : ndarray of float64, optional
            Likelihoods of the first case, in page-locked host memory; likelihoods of other cases are on the device.
        answer : ndarray of float64, optional
            Page-locked memory of the host for beliefs and totals, ``answer_cells`` for each case; else they stay on
            the device.
        """
        records, program = self.program.records, self.program
        tables = len(records.numbers)
        # the counters lie behind each other in one block, which the first kernel clears
        start = self.control.data.ptr
        groups = -(-cases // records.group)
        done = start + 8 * tables * groups * records.group
        arrived = done + 4 * tables * groups
        failed = arrived + 4 * records.split_tiles * groups
        following = failed + 4 * groups * records.group
        words = (following + 4 - start) // 4
        brought = 0 if findings is None else findings.size
        arguments = (
            np.uint64(0 if findings is None else findings.ctypes.data),
            np.uint64(self.slabs.data.ptr),
            np.uint32(brought),
            np.uint64(start),
            np.uint64(words),
        )
        self._begin((min(-(-max(brought, words) // THREADS), self._most_blocks),), (THREADS,), arguments)
        pointers = {name: array.data.ptr for name, array in self._fixed.items()}
        run = np.zeros((), _RUN)
        for name, value in (
            *((name, pointers[name]) for name in ("items", "records", "constants")),
            *(("slabs", self.slabs.data.ptr), ("bounds", start), ("done", done), ("arrived", arrived)),
            *(("failed", failed), ("next", following), ("slab_cells", records.slab_cells)),
            ("counts", (len(records.items), groups, tables, records.split_tiles)),
        ):
            run[name] = value
        blocks = min(len(records.items) * groups, self._most_blocks)
        self._propagate((blocks,), (THREADS,), (run,), shared_mem=records.shared_bytes)
        answers = np.zeros((), _ANSWERS)
        for name, value in (
            *((name, pointers[name]) for name in ("targets", "scaled", "roots")),
            *(("slabs", self.slabs.data.ptr), ("bounds", start), ("failed", failed)),
            ("answers", self.answers.data.ptr if answer is None else answer.ctypes.data),
            ("cells", (records.slab_cells, program.answer_cells)),
            ("counts", (len(program.targets), len(program.scaled), len(program.roots), cases, tables)),
        ):
            answers[name] = value
        warps = (len(program.targets) + 1) * cases
        self._answer((-(-warps * NOMINAL.warp // THREADS),), (THREADS,), (answers,))

    def run(
        self, cases: int, common: Array, states: tuple[Sequence[int], Array], weights: Mapping[int, Array]
    ) -> Array:
        """See `DeviceMessages.run_cases`."""
        cp = cupy()
        whole = -(-cases // self.program.records.group) * self.program.records.group
        self._observe(whole, common, states[0], _padded(states[1], whole))
        for variable, likelihoods in weights.items():
            first, cells = self.program.findings[variable]
            self.slabs[:cases, first : first + cells] = cp.asarray(likelihoods)
        self.launch(cases)
        self.answers[:cases].get(out=self._pinned[:cases])
        return self._pinned[:cases]

    @cached_property
    def _pinned(self) -> Array:
        return _pinned((self.cases, self.program.answer_cells))

    def _observe(self, cases: int, common: Array, variables: Sequence[int], states: Array) -> None:
        """Write the findings of all cases into their slabs."""
        cp = cupy()
        columns = np.zeros((len(common), 2), np.uint32)
        first, sizes = np.array([self.program.findings[v] for v in variables], np.int64).reshape(-1, 2).T
        state = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        columns[np.repeat(first, sizes) + state] = np.stack(
            [np.repeat(np.arange(len(sizes)) + 1, sizes), state], axis=1
        )
        arguments = (
            cp.asarray(columns),
            cp.asarray(common),
            cp.asarray(states),
            self.slabs,
            np.uint64(self.program.records.slab_cells),
            np.uint32(len(common)),
            np.uint32(cases),
        )
        threads = len(common) * cases
        if threads:
            observe = kernel("messages", self.program.law, "float64", "observe")
            observe((-(-threads // THREADS),), (THREADS,), arguments)


class _Single:
    """One case, captured once as a graph."""

    def __init__(self, cases: _Cases) -> None:
        cp = cupy()
        program = cases.program
        self._cases = cases
        self._findings = _pinned((program.records.finding_cells,))
        self._answer = _pinned((program.answer_cells,))
        self.stream = cp.cuda.Stream(non_blocking=True)
        cp.cuda.Device().synchronize()
        with self.stream:
            self.stream.begin_capture()
            cases.launch(1, self._findings, self._answer)
            self.graph = self.stream.end_capture()

    def run(self, findings: Array) -> Array:
        """Return the answer in an array of its own."""
        self._findings[:] = findings
        self.graph.launch(self.stream)
        self.stream.synchronize()
        return self._answer.copy()


def _padded(states: Array, cases: int) -> Array:
    """Append cases that observe nothing; there is at least one row."""
    rows, known = states.shape
    padded = np.full((max(rows, 1), cases), -1, np.int32)
    padded[:rows, :known] = states
    return padded


def _pinned(shape: tuple[int, ...]) -> Array:
    cells = math.prod(shape)
    memory = cupy().cuda.alloc_pinned_memory(max(cells, 1) * 8)
    return np.frombuffer(memory, np.float64, cells).reshape(shape)


_RUN: Final = np.dtype(
    [
        *((name, "u8") for name in ("items", "records", "constants", "slabs", "bounds", "done", "arrived", "failed")),
        ("next", "u8"),
        ("slab_cells", "u8"),
        ("counts", "u4", 4),
    ],
    align=True,
)
"""The layout of ``Run`` in ``cuda/messages.cu``."""

_ANSWERS: Final = np.dtype(
    [
        *((name, "u8") for name in ("targets", "scaled", "roots", "slabs", "bounds", "failed")),
        ("answers", "u8"),
        ("cells", "u8", 2),
        ("counts", "u4", 5),
    ],
    align=True,
)
"""The layout of ``Answers`` in ``cuda/messages.cu``."""
