"""Metrics of the server: requests, questions and what waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..metrics import Metrics


class ServerMetrics(Metrics):
    """Counts requests by path and status, and questions by query and status."""

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that is answered."""
        self.count("bucketflow_requests_total", "Requests.", path=path, status=status)
        self.observe("bucketflow_request_seconds", "Seconds from a head to the last answer.", seconds, path=path)

    def count_question(self, query: str, record: Mapping[str, Any]) -> None:
        """Count a question with its record as the results of a batch have it."""
        status, seconds = record["status"], record.get("wall_seconds", 0.0)
        self.count("bucketflow_questions_total", "Questions with an outcome.", query=query, status=status)
        self.observe("bucketflow_question_seconds", "Seconds of computation.", seconds, query=query)

    def current(self, waiting: int, requests: int) -> str:
        """Return the text of all metrics with the numbers of waiting questions and open requests."""
        self.set("bucketflow_questions_waiting", "Questions without an answer yet.", waiting)
        self.set("bucketflow_requests_open", "Requests without an answer yet.", requests)
        return self.text()
