"""Tuned numbers of the question server: its memory, and its waiting times. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...tasks.steps.policy import Policy

# Seconds after which a client that is refused may ask again.
RETRY_SECONDS: Final = 1
# Most bytes of a head.
HEAD_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class ServerPolicy(Policy):
    """Limits of the server; measured with ``tests/bench/batches.py --server``.

    Parameters
    ----------
    queued_questions : int
        Most questions that wait, of all clients together: some 100 MB of rows.
    body_bytes : int
        Most bytes of one request: a model of this size as text is large.
    unsent_bytes : int
        A client that does not read its answers gets no further ones beyond so many bytes.
    connections : int
        Most requests with a valid token at a time: each has a socket and a few kB. As many connections without a valid
        token yet; the oldest one is refused when one more arrives. As many connections wait to be accepted.
    waiting_bytes : int
        Most bytes of the bodies of all requests without an answer.
    inline_bytes : int
        Bytes on disk of models that came as text, which are kept for further questions.
    counted_models : int
        Models whose questions are counted, a hundred bytes each; a model that was asked before these is a new one.
    head_seconds : float
        Time for a whole head of a request: local clients send it in milliseconds.
    read_seconds : float
        Time for a whole body of a request, for reading a part of the answer, and between two requests.
    glance_seconds : float
        How often the answering thread looks whether a client that did not read its answers reads again.
    """

    queued_questions: int = 10_000
    body_bytes: int = 1 << 26
    unsent_bytes: int = 1 << 24
    connections: int = 2048
    waiting_bytes: int = 1 << 28
    inline_bytes: int = 1 << 28
    counted_models: int = 1 << 16
    head_seconds: float = 5.0
    read_seconds: float = 60.0
    glance_seconds: float = 0.25
