"""Tuned numbers in tests: other values are in force until a test ends."""

from __future__ import annotations

from typing import Any, Protocol

from bucketflow.tasks.steps.policy import Policy


class InForce(Protocol):
    """What the fixture ``in_force`` gives a test."""

    def __call__(self, policy: type[Policy], **changes: Any) -> None:
        """Put a policy in force with some fields changed; what is in force already stays so."""
