"""Evidence is never more than certain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InternalError
from .bayesian_networks import network_fault, row_sums
from .model import Model

# So much may rounding add to a logarithm.
_ROUNDED_LOG10 = 1e-9


def check_log10(model: Model, log10: float | None, likelihoods: Iterable[NDArray[Any]] = ()) -> None:
    """Refuse to answer that evidence of a Bayesian network is more than certain.

    Networks that were taken as they are, though they are none, may have any number.

    Parameters
    ----------
    log10 : float or None
        Of the probability of the evidence.
    likelihoods : iterable of ndarray
        Soft evidence, which may be more than 1.

    Raises
    ------
    InternalError
        If the logarithm is above 0 by more than rows sum to more than 1, and rounding.
    """
    if model.kind != "bayes" or log10 is None or log10 <= _ROUNDED_LOG10:
        return
    functions, names, dims = model.functions, model.names, model.dims
    if network_fault(functions, names, dims, model.states) is not None:
        return
    most = sum(math.log10(row_sums(function, dims).max()) for function in functions)
    most += sum(math.log10(largest) for weights in likelihoods if (largest := float(np.max(weights))) > 0)
    if log10 > max(most, 0.0) + _ROUNDED_LOG10:
        raise InternalError(f"evidence has the probability 10^{log10:.9g}, which is more than 1")
