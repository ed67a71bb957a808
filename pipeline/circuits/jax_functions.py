"""ln Z and posteriors as functions that JAX differentiates, compiles and keeps on its device: ``bucketflow.jax``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Unpack

from ...cluster.version import install_hint
from ..answering.question import Findings
from ..errors import BucketflowError, checks_keywords
from ..formats.read import GivenModel
from ..options import Keywords
from ..trees.costs import Rates
from .differentiable import LogPartition, partition_in

# Seconds of XLA on a CPU for ln Z and its derivatives: per cell, from the slope over plans of 2,000 to 330,000
# cells, and per step. Too high seconds per step would join clusters unnecessarily.
_XLA_CELLS_PER_SECOND: Final = 1.7e8
_XLA_STEP_SECONDS: Final = 1e-6
# Seconds of XLA on a data-centre GPU: per step with its way back, without its cells, and per cell of large steps.
_DEVICE_LAUNCH_SECONDS: Final = 2e-5
_DEVICE_CELLS_PER_SECOND: Final = 4e10


@checks_keywords
def log_partition(model: GivenModel, *, evidence: Findings = None, **options: Unpack[Keywords]) -> LogPartition:
    """Return ln Z of a model, or ln P(evidence), as a function of the logarithms of its tables, for JAX.

    ``jax.grad``, ``jax.jit``, ``jax.vmap`` and similar functions accept it. Numbers have JAX's precision, float32 by
    default; call ``jax.config.update("jax_enable_x64", True)`` before for float64.

    Parameters
    ----------
    model : Model, path or name of an example
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
        self._log_sum = _log_sum_of(jax)

    @property
    def rates(self) -> Rates:
        """Those of XLA on a CPU, where a step costs next to nothing beside its cells; nominal ones on a device."""
        if self.jax.default_backend() != "cpu":
            return Rates()
        cells = _XLA_CELLS_PER_SECOND
        return Rates(cells, cells, step_seconds=_XLA_STEP_SECONDS)

    @property
    def together_rates(self) -> Rates | None:
        """Those of a device, for steps with their way back; a CPU would only copy tables together."""
        if self.jax.default_backend() == "cpu":
            return None
        cells = _DEVICE_CELLS_PER_SECOND
        return Rates(cells, cells, step_seconds=_DEVICE_LAUNCH_SECONDS)

    def together(self, function: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the results of a function for each row, computed as one operation."""
        if len(columns[0]) == 1:
            return [function(*[column[0] for column in columns])]
        return list(self.jax.vmap(function)(*map(self.np.stack, columns)))

    def array(self, values: Any) -> Any:
        """Return values as an array."""
        return self.np.asarray(values)

    def arranged(self, values: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
        """Return an array with its axes in another order, and then of another shape."""
        return self.np.transpose(values, axes).reshape(shape)

    def log_sum(self, logs: Any, axes: Sequence[int]) -> Any:
        """Return logarithms of sums over some axes."""
        return self._log_sum(logs, tuple(axes))

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as XLA compiles it."""
        made: Callable[..., Any] = self.jax.jit(function)
        return made

    def gradient(self, function: Callable[[Any], Any], at: list[Any]) -> list[Any]:
        """Return the derivatives of a number by arrays."""
        found: list[Any] = self.jax.grad(function)(at)
        return found


def _log_sum_of(jax: Any) -> Callable[[Any, tuple[int, ...]], Any]:
    """Return logarithms of sums over some axes, with derivatives that take one exponential of the join."""
    xp = jax.numpy

    def log_sum(logs: Any, gone: tuple[int, ...]) -> Any:
        top = logs.max(axis=gone, keepdims=True)
        shift = xp.where(top == -xp.inf, 0.0, top)
        return xp.log(xp.exp(logs - shift).sum(axis=gone)) + xp.squeeze(shift, gone)

    def moved(gone: tuple[int, ...], logs: tuple[Any], changes: tuple[Any]) -> tuple[Any, Any]:
        found = made(logs[0], gone)
        shift = xp.expand_dims(xp.where(found == -xp.inf, 0.0, found), gone)
        return found, (xp.exp(logs[0] - shift) * changes[0]).sum(axis=gone)

    made: Any = jax.custom_jvp(log_sum, nondiff_argnums=(1,))
    made.defjvp(moved)
    derived: Callable[[Any, tuple[int, ...]], Any] = made
    return derived
