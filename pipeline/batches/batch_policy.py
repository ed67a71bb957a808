"""Tuned numbers of batches: packs of queries, prices, and sweeps in pieces. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class BatchPolicy(Policy):
    """Numbers by which a batch hands out its questions; measured with ``tests/bench/batches.py``.

    Parameters
    ----------
    compiled_rows : int
        A model is compiled for at least this many questions.
    question_seconds : float
        Reading and planning a small question, and putting its answer together.
    pack_least_seconds : float
        Shortest pack of questions: handing it over should not count.
    pack_most_seconds : float
        Longest pack: all workers should end together.
    worker_packs : int
        Packs for each worker, between these lengths.
    pricing_part : int
        If the time is limited, pricing may take 1 / this of the remaining time before any answer.
    kept_model_bytes : int
        Bytes of models that are kept for further questions.
    large_seconds : float
        A question that is predicted to take longer is worth all workers, or one of its own.
    time_pieces : int
        A sweep that may not end in time is cut into pieces that are stored, each of one part in this many of
        the time.
    piece_overhead_ratio : float
        Pieces may take this many times as long as the whole.
    piece_free_seconds : float
        Or this many seconds.
    piece_memory_part : int
        Each further cut has one part in this many of the memory.
    piece_cuts : int
        Most cuts.
    """

    compiled_rows: int = 4
    question_seconds: float = 0.01
    pack_least_seconds: float = 0.25
    pack_most_seconds: float = 4.0
    worker_packs: int = 8
    pricing_part: int = 4
    kept_model_bytes: int = 1 << 28
    large_seconds: float = 2.0
    time_pieces: int = 8
    piece_overhead_ratio: float = 2.0
    piece_free_seconds: float = 1.0
    piece_memory_part: int = 4
    piece_cuts: int = 8
