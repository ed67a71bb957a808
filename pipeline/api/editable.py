"""A model that grows and shrinks: functions added, marks set and gone back to, and answers asked in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ModelError, public
from ..formats.decimal_costs import decimal_places, scaled
from ..formats.read import GivenModel, given_model
from ..models.checks import rows_of
from ..models.function import Function
from ..models.model import Model
from ..options import Keywords
from ..results.result import Result
from .solve import solve


@public
class EditableModel:
    """A model to which functions are added, and which goes back to marks.

    Costs only grow where functions are added whose values are at least 0, so that the optimum of fewer functions is a
    lower bound: where its assignment costs no more with the new ones, it is the new optimum at once, and else a bound
    on it that the search begins with. What was answered before is kept for as long as its functions stay, and going
    back to a mark brings the answers of that time back (``Store`` and ``Restore`` of toulbar2).

    Parameters
    ----------
    model : Model
        What it begins with; it is not changed.

    Examples
    --------
    >>> from bucketflow import EditableModel, Model
    >>> model = Model.build("cost", {"x": 2, "y": 2}, [(("x", "y"), [[3, 1], [2, 4]])])
    >>> editable = EditableModel(model)
    >>> editable.solve().value
    1
    >>> editable.push()
    >>> editable.add(("y",), [0, 5])
    >>> editable.solve().assignment
    {'x': 1, 'y': 0}
    >>> editable.pop()
    >>> editable.solve().value
    1
    """

    def __init__(self, model: GivenModel) -> None:
        self._levels = [_Level(given_model(model), {})]
        self._marks: list[int] = []

    def __repr__(self) -> str:
        return f"EditableModel({self.model!r}, marks={len(self._marks)})"

    @property
    def model(self) -> Model:
        """The model as it is now."""
        return self._levels[-1].model

    def add(
        self,
        scope: str | Sequence[str],
        values: ArrayLike,
        *,
        rows: ArrayLike | None = None,
        default: float = 0,
    ) -> None:
        """Add a function: costs in the units of answers, infinite ones forbidden, or potentials.

        Parameters
        ----------
        scope : str or sequence of str
            Names of variables of the model.
        values : array_like
            One for each joint state, an axis a variable in the order of the scope; or one for each row.
        rows : array_like of int, shape (rows, variables), optional
            Joint states, by index.
        default : number, optional
            The value of states that no row lists.

        Raises
        ------
        ModelError
            If a name, shape or value is not the model's, or the model is a Bayesian network.
        """
        model = self.model
        if model.kind == "bayes":
            raise ModelError("a Bayesian network takes no further functions; observe states, or build a Markov network")
        places = dict(zip(model.own_names, range(len(model.names)), strict=False))
        names = (scope,) if isinstance(scope, str) else tuple(scope)
        if unknown := [name for name in names if name not in places]:
            raise ModelError(f"the function is over {unknown[0]!r}, but this is not a variable of the model")
        stored, usual = self._stored(values), self._stored(default).item()
        listed = None if rows is None else rows_of(rows, len(names), "the function")
        function = Function(tuple(places[name] for name in names), stored, listed, usual)
        grown = replace(model, functions=(*model.functions, function))
        self._levels.append(_Level(grown, {}))

    def push(self) -> None:
        """Mark the model as it is now, to go back to."""
        self._marks.append(len(self._levels))

    def pop(self) -> None:
        """Go back to the last mark, and forget it.

        Raises
        ------
        ModelError
            If there is none.
        """
        if not self._marks:
            raise ModelError("there is no mark to go back to; push() sets one")
        del self._levels[self._marks.pop() :]

    def solve(self, query: str = "optimum", **options: Unpack[Keywords]) -> Result:
        """Answer a query about the model as it is now; with other options than before, again.

        Parameters
        ----------
        query : {"optimum", "partition", "count"}
        **options
            As :func:`bucketflow.solve` has them.
        """
        level, key = self._levels[-1], repr((query, sorted(options.items())))
        if key not in level.answers:
            level.answers[key] = self._known(query, key) or self._asked(query, key, options)
        return level.answers[key]

    def _known(self, query: str, key: str) -> Result | None:
        """Return an optimum of fewer functions whose assignment costs no more with all of them."""
        found = self._before(query, key)
        if found is None or found[0].status != "optimal":
            return None
        answer, cost = found
        if cost is None or self.model.objective(cost) != answer.value:
            return None
        note = "the optimum of fewer functions costs no more with those added since"
        return replace(answer, notes=tuple(dict.fromkeys((*answer.notes, note))))

    def _asked(self, query: str, key: str, options: Any) -> Result:
        """Query with the present cost of the last optimum as an upper bound."""
        found = self._before(query, key)
        if found is None or found[1] is None:
            return solve(self.model, query, **options)
        return solve(self.model, query, upper_bound=str(self.model.objective(found[1])), **options)

    def _before(self, query: str, key: str) -> tuple[Result, int | None] | None:
        """Return the optimum of the most functions that was asked for, and what its assignment costs now.

        None where nothing was, or some function since then has negative costs.
        """
        if query != "optimum" or self.model.kind != "cost":
            return None
        for level in reversed(self._levels):
            answer = level.answers.get(key)
            if answer is not None and answer.assignment is not None:
                if any(low < 0 for low in self.model.lowest[len(level.model.functions) :]):
                    return None
                states = self.model.observe(answer.assignment)
                return answer, self.model.cost([states[v] for v in range(len(self.model.own_names))])
        return None

    def _stored(self, values: ArrayLike) -> NDArray[Any]:
        """Return values as the model stores them: of costs scaled integers, infinite ones forbidden."""
        model = self.model
        if model.kind != "cost":
            return np.asarray(values, dtype=np.float64)
        given = np.asarray(values)
        if given.dtype.kind in "iub" and not model.decimals and not model.maximize:
            return given.astype(np.int64)
        numbers = [_number(value, model.decimals) for value in given.ravel().tolist()]
        try:
            return scaled(numbers, model.decimals, model.maximize).reshape(given.shape)
        except ValueError as error:
            raise ModelError(f"the function has a cost that is too large or small; expected {error}") from None


def _number(value: Any, decimals: int) -> Decimal:
    """Return a cost as an exact number with at most ``decimals`` decimals."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ModelError(f"a cost of the function is {value!r}, which is not a number") from None
    if number.is_nan() or decimal_places([number]) > decimals:
        places = f"at most {decimals} decimals" if decimals else "a whole number"
        raise ModelError(f"a cost of the function is {value!r}; the model's have {places}")
    return number


class _Level:
    """A model between two edits, and its answers by query."""

    def __init__(self, model: Model, answers: dict[str, Result]) -> None:
        self.model, self.answers = model, answers
