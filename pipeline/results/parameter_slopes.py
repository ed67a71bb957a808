"""How a posterior follows each parameter of a network: sensitivity functions of one parameter, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import LEAST_FACTOR, SAME_SHARE
from ..drawings.shown import DisplayPolicy
from ..errors import ModelError, counted, public, rounded_sum
from ..models.frames import Tabled
from ..models.model import Model
from .proof import AskedOf

Array = NDArray[np.float64]
# The parameters with the largest effect are printed.
_MOST_LISTED = DisplayPolicy.table_rows


@dataclass(frozen=True)
class LinearFunction:
    """A probability as a linear function of an entry ``t``: ``fixed + direct * t + other * (1 - t)``.

    None of the three is negative, so that none is lost in a difference. Parts are numbers, or arrays with an axis for
    each variable of a scope, one function for each entry. They are relative to the probability of the evidence.

    Parameters
    ----------
    fixed : float or ndarray
        Of the assignments that have no entry of the distribution.
    direct : float or ndarray
        Sum over assignments with the entry, divided by the entry.
    other : float or ndarray
        Sum over assignments with another entry of the same distribution, divided by the sum of these entries; 0 if
        entries are not probabilities.
    """

    fixed: Any
    direct: Any
    other: Any

    def at(self, value: float) -> Any:
        """Return the probability with a value of the entry."""
        return self.fixed + self.direct * value + self.other * (1.0 - value)

    @property
    def slope(self) -> Any:
        """Its derivative."""
        return self.direct - self.other

    def entry(self, states: tuple[int, ...]) -> LinearFunction:
        """Return the function of one entry."""
        return LinearFunction(float(self.fixed[states]), float(self.direct[states]), float(self.other[states]))


@dataclass(frozen=True)
class Parameter:
    """An entry of a table, and what a posterior would be with another value of it.

    Parameters
    ----------
    function : int
        Index of the function that it is an entry of.
    states : tuple of int
        A state of each variable of the function's scope.
    value : float
        The value of the entry.
    posterior : float
        The posterior at this value.
    joint, evidence : LinearFunction
        The posterior is their quotient.
    shares : bool
        Whether the entry is a probability, so that its distribution must still sum to 1.
    exact : callable or None
        Returns the posterior for a given value by querying the changed network. Used only if the network's values span
        so many orders of magnitude that parts of ``joint`` and ``evidence`` may be below all floats.
    """

    function: int
    states: tuple[int, ...]
    value: float
    posterior: float
    joint: LinearFunction
    evidence: LinearFunction
    shares: bool
    exact: Callable[[float], float] | None = field(default=None, repr=False, compare=False)

    @property
    def slope(self) -> float:
        """Derivative of the posterior by the entry, at its value."""
        return float(self.joint.slope - self.posterior * self.evidence.slope)

    def posterior_at(self, value: float) -> float:
        """Return the posterior with another value of the entry; NaN where the evidence is impossible then."""
        evidence = self.evidence.at(value)
        if self.exact is not None and not LEAST_FACTOR < evidence < float("inf"):
            return self.exact(value)
        return float(min(max(self.joint.at(value) / evidence, 0.0), 1.0)) if evidence > 0.0 else float("nan")

    def value_for(self, posterior: float) -> float | None:
        """Return the value of the entry with which the posterior is another one; None if none does that."""
        slope = self.joint.slope - posterior * self.evidence.slope
        if slope == 0.0:
            return None
        value = -(self.joint.at(0.0) - posterior * self.evidence.at(0.0)) / slope
        most = 1.0 if self.shares else float("inf")
        return min(max(value, 0.0), most) if -SAME_SHARE <= value <= most + SAME_SHARE else None


@public
@dataclass(frozen=True, repr=False)
class Sensitivity(Tabled):
    """The effect of each parameter on the posterior of a variable's state (Laskey 1995; Castillo et al. 1997).

    Parameters
    ----------
    model : Model
    variable : str
    state : str or int
        Its label, or its index where it has none.
    posterior : float
    joints, evidences : mapping of int to LinearFunction
        For the entries of each function: the joint probability of state and evidence, and the probability of the
        evidence.
    shares : bool
        Whether tables are distributions: where an entry changes, the others of its distribution keep their proportions.
    notes : tuple of str
    asked : AskedOf or None
        The model and the evidence that were asked.
    exact : callable or None
        Returns the posterior with another value of an entry, by asking the changed network; see :class:`Parameter`.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.sensitivity("diagnosis", "Flow", "none")
    >>> parameter = next(found.ranked())
    >>> parameter.slope > 0
    True
    >>> round(parameter.posterior_at(parameter.value), 4)
    0.0599
    """

    model: Model
    variable: str
    state: str | int
    posterior: float
    joints: Mapping[int, LinearFunction]
    evidences: Mapping[int, LinearFunction]
    shares: bool
    notes: tuple[str, ...] = ()
    asked: AskedOf | None = None
    exact: Callable[[int, tuple[int, ...], float], float] | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        """How many parameters there are."""
        return sum(each.fixed.size for each in self.evidences.values())

    def __repr__(self) -> str:
        return f"<sensitivity of P({self.variable}={self.state}) to {counted(len(self), 'parameter')}>"

    def slopes(self, function: int) -> Array:
        """Return the derivatives of the posterior by the entries of a function, an axis for each variable of it."""
        return np.asarray(self.joints[function].slope - self.posterior * self.evidences[function].slope)

    def parameter(self, function: int, states: Sequence[int]) -> Parameter:
        """Return one parameter, by the index of a function and a state of each variable of its scope.

        Raises
        ------
        ModelError
            If the function has no parameters here, or no entry at these states.
        """
        if function not in self.evidences:
            raise ModelError(
                f"function {function!r} has no parameters; only functions over the model's own "
                f"variables have some, numbered from 0 to {len(self.model.functions) - 1}"
            )
        at = tuple(int(state) for state in states)
        shape = np.shape(self.evidences[function].fixed)
        if len(at) != len(shape) or not all(0 <= state < size for state, size in zip(at, shape, strict=True)):
            raise ModelError(f"function {function} has no entry for the states {at}; its table has the shape {shape}")
        value = float(self.model.functions[function].at(at))
        joint, evidence = self.joints[function].entry(at), self.evidences[function].entry(at)
        exact = None if self.exact is None else partial(self.exact, function, at)
        return Parameter(function, at, value, self.posterior, joint, evidence, self.shares, exact)

    def ranked(self) -> Iterator[Parameter]:
        """Yield all parameters, those with the steepest slopes first."""
        slopes = {f: np.abs(self.slopes(f)) for f in self.evidences}
        steep = np.concatenate([table.reshape(-1) for table in slopes.values()] or [np.zeros(0)])
        owners = np.repeat(np.array(list(slopes), np.intp), [table.size for table in slopes.values()])
        places = np.concatenate([np.arange(table.size) for table in slopes.values()] or [np.zeros(0, np.intp)])
        for row in np.argsort(-steep, kind="stable").tolist():
            f = int(owners[row])
            yield self.parameter(f, [int(state) for state in np.unravel_index(int(places[row]), slopes[f].shape)])

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield headings, then a row for each parameter, those with the steepest slopes first."""
        yield "parameter", "value", "slope", *(("posterior at 0", "posterior at 1") if self.shares else ())
        for each in self.ranked():
            ends = (each.posterior_at(0.0), each.posterior_at(1.0)) if self.shares else ()
            yield self.described(each), each.value, each.slope, *ends

    def described(self, parameter: Parameter) -> str:
        """Return a parameter as a person writes it: ``P(x=a | y=b)``, or ``x=a, y=b`` of a Markov network."""
        model, function = self.model, self.model.functions[parameter.function]
        named = [f"{model.names[v]}={model.label(v, s)}" for v, s in zip(function.scope, parameter.states, strict=True)]
        if function.child is None:
            return ", ".join(named) or f"the constant of function {parameter.function}"
        child = named.pop(function.scope.index(function.child))
        return f"P({child} | {', '.join(named)})" if named else f"P({child})"

    def to_dict(self) -> dict[str, Any]:
        """Return the slopes as plain types, as ``--json`` prints them: at most 1,000 parameters, and null for undefined
        values.
        """
        headings, *rows = islice(self.cells(), _MOST_LISTED + 1)
        keys = [heading.replace(" ", "_") for heading in headings]
        return {
            "variable": self.variable,
            "state": self.state,
            "posterior": self.posterior,
            "count": len(self),
            "parameters": [dict(zip(keys, map(_plain, row), strict=True)) for row in rows],
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def lines(self) -> Iterator[str]:
        """Yield what a person reads: the posterior, then the parameters that matter most."""
        to = counted(len(self), "parameter")
        yield f"sensitivity of P({self.variable}={self.state}) = {self.posterior:.6g} to {to}"
        shown = 0
        for name, value, slope, *ends in islice(self.cells(), 1, _MOST_LISTED + 1):
            text = rounded_sum(slope, 4)
            if text == "0":
                break
            span = f", posterior {rounded_sum(ends[0], 4)} to {rounded_sum(ends[1], 4)}" if ends else ""
            yield f"  {name} = {value:.6g}: slope {text}{span}"
            shown += 1
        if left := len(self) - shown:
            why = "less steep" if shown == _MOST_LISTED else "without influence: slope 0"
            yield f"  {counted(left, 'parameter')} {'is' if left == 1 else 'are'} {why}"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value
