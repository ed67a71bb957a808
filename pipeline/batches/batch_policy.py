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
    kept_model_bytes : int
        Bytes of models that are kept for further questions.
    large_seconds : float
        A question that is predicted to take longer is worth all workers, or one of its own.
    """

    compiled_rows: int = 4
    kept_model_bytes: int = 1 << 28
    large_seconds: float = 2.0
