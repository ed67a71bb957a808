"""Cost function networks of pytoulbar2 as models."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ModelError, checks_keywords
from ..formats.read import load
from ..models.model import Model
from ..models.state_names import typed_label
from ..public_names import public


@public
@checks_keywords
def from_pytoulbar2(network: Any) -> Model:
    """Return the model of a CFN of pytoulbar2, as it writes it; states have the labels of its own values.

    Raises
    ------
    ModelError
        If it is no CFN, or it was solved already: ``Solve`` changes its costs, and forbids all that is no better than
        the solution.
    FormatError
        If it has functions that are not read.

    Examples
    --------
    >>> import bucketflow
    >>> import pytoulbar2
    >>> network = pytoulbar2.CFN(ubinit=100)
    >>> index = network.AddVariable("a", range(2))
    >>> network.AddFunction(["a"], [3, 5])
    >>> bucketflow.solve(bucketflow.from_pytoulbar2(network)).value
    3
    """
    if not hasattr(network, "Dump") or not hasattr(network, "Variables"):
        raise ModelError(f"a CFN of pytoulbar2 is expected, found {type(network).__name__}")
    if network.CFN.solutions():
        raise ModelError("this CFN was solved, which changed its costs: convert it before Solve, or build it again")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.cfn"
        network.Dump(str(path))
        model = load(path)
    values = {name: tuple(map(typed_label, own)) for name, own in network.Variables.items()}
    states = [
        values[name] if len(values.get(name, ())) == size and len({*values[name]}) == size else own
        for name, size, own in zip(model.names, model.dims, model.states, strict=True)
    ]
    return replace(model, states=tuple(states), source="")
