"""The result of learning parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..drawings.shown import Shown
from ..errors import counted, public
from ..models.frames import Answered
from ..models.model import Model


@public
@dataclass(frozen=True, repr=False)
class FittedModel(Shown, Answered):
    """A Bayesian network with learnt tables.

    Parameters
    ----------
    model : Model
        The network; fixed tables are as they were.
    status : {"counted", "converged", "iterations"}
        ``counted`` if no learnt table needed a missing cell, so that no iteration was needed; ``iterations`` if the
        maximum number of iterations came before the tolerance.
    log_likelihoods : tuple of float
        Natural logarithm of the probability of the data: first under the start, then after each iteration. The last
        one belongs to ``model``.
    log_prior : float
        ``Σ α ln θ`` over all pseudo-counts; the sum with the log-likelihood never falls.
    starts : tuple of float
        The last log-likelihood plus log-prior of each start; the best start is the one returned.
    rows, different : int
        DataRows of the data, and different rows among them.
    parameters : int
        Free parameters of the learnt tables.
    seconds : dict of str to float
        Wall seconds of ``read`` and ``run``.
    peak_rss_bytes : int
    notes : tuple of str

    Examples
    --------
    >>> import bucketflow
    >>> network = bucketflow.Model.build("bayes", {"coin": ["heads", "tails"]}, [(("coin",), [0.5, 0.5])])
    >>> fitted = bucketflow.fit(network, {"coin": ["heads", "heads", "tails", "heads"]})
    >>> fitted.status, fitted.model.functions[0].values.tolist()
    ('counted', [0.75, 0.25])
    """

    model: Model
    status: Literal["counted", "converged", "iterations"]
    log_likelihoods: tuple[float, ...]
    log_prior: float
    starts: tuple[float, ...]
    rows_read: int
    different: int
    parameters: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def log_likelihood(self) -> float:
        """Natural logarithm of the probability of the data under :attr:`model`."""
        return self.log_likelihoods[-1]

    @property
    def iterations(self) -> int:
        """Number of iterations of the best start."""
        return len(self.log_likelihoods) - 1

    def rows(self) -> list[tuple[str, str]]:
        """Return labelled lines for a person."""
        found = [
            ("status", self.status),
            ("log-likelihood", f"{self.log_likelihood:.10g}"),
            ("rows", f"{self.rows_read:,}, {self.different:,} different"),
            ("parameters", f"{self.parameters:,}"),
        ]
        if self.status != "counted":
            found.insert(1, ("iterations", f"{self.iterations:,}"))
        if self.log_prior:
            found.append(("log-prior", f"{self.log_prior:.10g}"))
        if len(self.starts) > 1:
            best = self.starts.index(max(self.starts))
            found.append(("starts", f"{counted(len(self.starts), 'start')}; the best is number {best + 1}"))
        return [*found, *(("note", note) for note in self.notes)]

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain types, as ``--json`` prints them, without the tables."""
        return {
            "query": "fit",
            "status": self.status,
            "log_likelihood": self.log_likelihood,
            "log_likelihoods": list(self.log_likelihoods),
            "log_prior": self.log_prior,
            "starts": list(self.starts),
            "iterations": self.iterations,
            "rows": self.rows_read,
            "different_rows": self.different,
            "parameters": self.parameters,
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "peak_rss_bytes": self.peak_rss_bytes,
            "notes": list(self.notes),
        }
