"""ln Z and posteriors as functions that JAX differentiates, compiles and keeps on its device: ``bucketflow.jax``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ...cluster.version import install_hint
from ..answering.question import Findings
from ..errors import BucketflowError, checks_keywords
from ..models.model import Model
from ..options import Keywords
from .differentiable import LogPartition, partition_in


@checks_keywords
def log_partition(model: Model, *, evidence: Findings = None, **options: Unpack[Keywords]) -> LogPartition:
    """Return ln Z of a model, or ln P(evidence), as a function of the logarithms of its tables, for JAX.

    ``jax.grad``, ``jax.jit``, ``jax.vmap`` and their like take it. Numbers have JAX's precision, of which the default
    is float32: ``jax.config.update("jax_enable_x64", True)`` before gives float64.

    Parameters
    ----------
    model : Model
        Of probabilities, potentials or clauses.
    evidence : mapping, path or None
        Hard or soft; a call may have other.
    **options
        ``memory``, ``order``, ``order_time``, ``tree`` and ``seed``, as in :func:`bucketflow.solve`.

    Raises
    ------
    BucketflowError
        If JAX is missing.
    BudgetError
        If tables and joins do not fit ``memory``.
    """
    return partition_in(_Jax(), model, evidence, options)


class _Jax:
    """JAX as a framework."""

    def __init__(self) -> None:
        try:
            import jax
        except ImportError:
            raise BucketflowError(f"bucketflow.jax needs JAX: {install_hint('jax')}") from None
        self.jax, self.np = jax, jax.numpy

    def array(self, values: Any) -> Any:
        """Return values as an array."""
        return self.np.asarray(values)

    def arranged(self, values: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
        """Return an array with its axes in another order, and then of another shape."""
        return self.np.transpose(values, axes).reshape(shape)

    def log_sum(self, logs: Any, axes: Sequence[int]) -> Any:
        """Return logarithms of sums over some axes."""
        xp, gone = self.np, tuple(axes)
        top = self.jax.lax.stop_gradient(logs.max(axis=gone, keepdims=True))
        shift = xp.where(top == -xp.inf, 0.0, top)
        total = xp.exp(logs - shift).sum(axis=gone)
        return xp.where(total > 0, xp.log(xp.where(total > 0, total, 1.0)) + shift.reshape(total.shape), -xp.inf)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as XLA compiles it."""
        made: Callable[..., Any] = self.jax.jit(function)
        return made

    def gradient(self, function: Callable[[Any], Any], at: list[Any]) -> list[Any]:
        """Return the derivatives of a number by arrays."""
        found: list[Any] = self.jax.grad(function)(at)
        return found
