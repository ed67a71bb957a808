"""What preprocessing settled of a model: the value of what is fixed, and the states of what is not left."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..models.model import Model
from .preprocess import Network


def fixed_value(network: Network) -> float | int | None:
    """Combine the functions whose variables are all fixed; None if that is impossible already.

    A cost above the sum of the functions' least costs, or a natural logarithm.
    """
    if not network.feasible:
        return None
    model = network.model
    values = [
        model.functions[f].at([int(network.domains[v][0]) for v in model.functions[f].scope]) for f in network.constants
    ]
    if model.kind == "cost":
        above = [int(v) - model.lowest[f] for f, v in zip(network.constants, values, strict=True)]
        forbidden = any(v >= model.limits[f] for f, v in zip(network.constants, values, strict=True))
        return None if forbidden or _reaches_top(model, sum(above)) else sum(above)
    return None if 0.0 in values else math.fsum(math.log(v) for v in values)


def _reaches_top(model: Model, above: int) -> bool:
    """Whether a cost above the least costs of all functions brings the total to ``top``."""
    return model.top is not None and sum(model.lowest) + above >= model.top


def full_states(network: Network, states: Mapping[int, int]) -> list[int]:
    """Turn states of the variables that were left into states of the model's; those without a function take any."""
    left = network.left
    full = left.states[left.starts]
    variables = left.variables[np.fromiter(states, np.intp, len(states))]
    full[variables] = left.states[left.starts[variables] + np.fromiter(states.values(), np.intp, len(states))]
    found: list[int] = full.tolist()
    return found
