"""ln Z and posteriors as functions that PyTorch differentiates and keeps on its device: ``bucketflow.torch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ...cluster.version import install_hint
from ..answering.question import Findings
from ..errors import BucketflowError, checks_keywords
from ..formats.read import GivenModel
from ..options import Keywords
from ..trees.costs import Rates
from .differentiable import LogPartition, partition_in


@checks_keywords
def log_partition(
    model: GivenModel, *, evidence: Findings = None, device: Any = None, **options: Unpack[Keywords]
) -> LogPartition:
    """Return ln Z of a model, or ln P(evidence), as a function of the logarithms of its tables, for PyTorch.

    The result has ``requires_grad`` for derived inputs, and lives on ``device``. Numbers are float64.

    Parameters
    ----------
    model : Model, path or name of an example
        Of probabilities, potentials or clauses.
    evidence : mapping, path or None
        Hard or soft; a call may have other.
    device : torch.device or str, optional
        Where the model's own tables and evidence are.
    **options
        ``memory``, ``order``, ``order_time``, ``tree`` and ``seed``, as in :func:`bucketflow.solve`.

    Raises
    ------
    BucketflowError
        If PyTorch is missing.
    BudgetError
        If tables and joins do not fit ``memory``.
    """
    return partition_in(_Torch(device), model, evidence, options)


class _Torch:
    """PyTorch as a framework."""

    def __init__(self, device: Any) -> None:
        try:
            import torch
        except ImportError:
            raise BucketflowError(f"bucketflow.torch needs PyTorch: {install_hint('torch')}") from None
        self.torch, self.device = torch, device

    @property
    def rates(self) -> Rates:
        """Nominal ones: a step is some ten calls from Python."""
        return Rates()

    @property
    def together_rates(self) -> None:
        """Steps are done one after the other."""

    def together(self, function: Callable[..., Any], columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the results of a function for each row."""
        return [function(*row) for row in zip(*columns, strict=True)]

    def array(self, values: Any) -> Any:
        """Return values as a tensor."""
        return self.torch.as_tensor(values, device=self.device)

    def arranged(self, values: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
        """Return a tensor with its axes in another order, and then of another shape."""
        return values.permute([*axes]).reshape([*shape])

    def log_sum(self, logs: Any, axes: Sequence[int]) -> Any:
        """Return logarithms of sums over some axes."""
        torch, gone = self.torch, [*axes]
        top = logs.detach().amax(dim=gone, keepdim=True)
        shift = torch.where(torch.isneginf(top), torch.zeros_like(top), top)
        total = torch.exp(logs - shift).sum(dim=gone)
        known = total > 0
        found = torch.log(torch.where(known, total, torch.ones_like(total))) + shift.reshape(total.shape)
        return torch.where(known, found, torch.full_like(found, -torch.inf))

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as it is: its operations run one after the other."""
        return function

    def gradient(self, function: Callable[[Any], Any], at: list[Any]) -> list[Any]:
        """Return the derivatives of a number by tensors."""
        own = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in at]
        return list(self.torch.autograd.grad(function(own), own, create_graph=True))
