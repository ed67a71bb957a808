"""Arrays whose axes are variables and whose places are states: how distributions are returned and printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..drawings.shown import LISTED_MEMBERS, MOST_LINES, first_lines
from ..errors import NOISE_DIGITS, MissingNameError, ModelError, counted, meant, printable, public, short_number
from ..models.frames import imported_pandas
from ..models.model import Model

Array = NDArray[Any]
States = Sequence[str | int]

_BETWEEN = ", "
LABEL_WIDTH = 24


@public
class LabeledArray(np.ndarray[Any, Any]):
    """An array with an axis for each variable and a place for each state; NumPy takes it as any other array.

    Index it by a state's label (``p["yes"]``), by labels of several axes (``p["yes", "high"]``), by a mapping of
    variables to states (``p[{"Storm": "yes"}]``), or by positions, as in NumPy. A slice beside a label keeps its axis
    (``p["yes", 1:]``). Arithmetic returns plain arrays.

    Attributes
    ----------
    variables : tuple of str
        The variable of each axis.
    states : tuple of sequence of str or int
        For each axis the labels of the states, or their indices if the variable has no labels.

    Examples
    --------
    >>> import bucketflow
    >>> storm = bucketflow.marginals("diagnosis", ["Storm"])["Storm"]
    >>> storm.variables, list(storm.states[0])
    (('Storm',), ['no', 'yes'])
    >>> float(storm["yes"]) == float(storm[1])
    True
    """

    variables: tuple[str, ...]
    states: tuple[States, ...]

    def __new__(cls, cells: Any, variables: Iterable[str], states: Iterable[States]) -> LabeledArray:
        made = np.asarray(cells).view(cls)
        made.variables, made.states = tuple(variables), tuple(states)
        if made.shape != tuple(map(len, made.states)) or len(made.variables) != made.ndim:
            raise ModelError(f"an array of shape {made.shape} does not have the axes {made.variables}")
        return made

    def __array_finalize__(self, parent: Any) -> None:
        # Views and copies do not say which axes they kept: they have no labels.
        self.variables, self.states = (), ()

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __reduce__(self) -> Any:
        return (
            (LabeledArray, (np.asarray(self), self.variables, self.states)) if self.variables else super().__reduce__()
        )

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str | Mapping) and not (isinstance(key, tuple) and any(isinstance(k, str) for k in key)):
            return np.asarray(self)[key]
        if isinstance(key, Mapping):
            chosen = {self._axis(name): state for name, state in key.items()}
        else:
            chosen = dict(enumerate(self._by_axis(key if isinstance(key, tuple) else (key,))))
        index = [self._place(axis, chosen.get(axis, slice(None))) for axis in range(self.ndim)]
        found = np.asarray(self)[tuple(index)]
        if not all(isinstance(place, slice | Integral) for place in index):
            return found
        left = [axis for axis, place in enumerate(index) if isinstance(place, slice)]
        variables, states = self._labels_of(left)
        kept = [own[index[axis]] for axis, own in zip(left, states, strict=True)]
        return LabeledArray(found, variables, kept) if left else found

    def _by_axis(self, key: tuple[Any, ...]) -> list[Any]:
        """Return the entry for each of the first axes; an ellipsis stands for all states of the axes that it skips."""
        given = [entry for entry in key if entry is not Ellipsis]
        if any(entry is None for entry in given) or len(key) - len(given) > 1:
            raise ModelError("labels go with states, slices and one ellipsis; index np.asarray(...) with other keys")
        if len(given) > self.ndim:
            raise ModelError(
                f"{counted(len(given), 'state')} are given for {counted(self.ndim, 'variable')}: "
                f"{', '.join(self.variables)}"
            )
        if len(given) == len(key):
            return given
        at = next(place for place, entry in enumerate(key) if entry is Ellipsis)
        return [*given[:at], *[slice(None)] * (self.ndim - len(given)), *given[at:]]

    def reordered(self, variables: Sequence[str]) -> LabeledArray:
        """Return the same distribution with its axes in another order."""
        axes = [self._axis(name) for name in variables]
        if sorted(axes) != list(range(self.ndim)):
            raise ModelError(f"{', '.join(map(repr, variables))} are not the variables {', '.join(self.variables)}")
        return LabeledArray(np.asarray(self).transpose(axes), *self._labels_of(axes))

    def to_series(self) -> Any:
        """Return a pandas Series, indexed by states.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        pandas = imported_pandas()
        if self.ndim == 1:
            index = pandas.Index(list(self.states[0]), name=self.variables[0])
        else:
            index = pandas.MultiIndex.from_product([list(states) for states in self.states], names=list(self.variables))
        return pandas.Series(np.asarray(self).ravel(), index=index)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: the last variable's states are its columns, one row for each state of the others.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        series = self.to_series()
        return series.unstack(sort=False) if self.ndim > 1 else series.to_frame("probability")

    def to_xarray(self) -> Any:
        """Return an ``xarray.DataArray`` with a coordinate for each variable.

        Raises
        ------
        ImportError
            If xarray is not installed.
        """
        try:
            import xarray
        except ImportError:
            raise ImportError("to_xarray needs xarray: pip install xarray") from None
        return xarray.DataArray(np.asarray(self), dims=self.variables, coords=[list(states) for states in self.states])

    def __repr__(self) -> str:
        return (
            first_lines(self.lines(MOST_LINES), "index it to see other rows")
            if self.variables
            else repr(np.asarray(self))
        )

    __str__ = __repr__

    def __format__(self, text: str) -> str:
        return format(np.asarray(self)[()] if self.ndim == 0 else repr(self), text)

    def _repr_html_(self) -> str | None:
        if not self.variables:
            return None
        from ..drawings.html import Html, grid

        return Html(grid(*self._table(MOST_LINES)))._repr_html_()

    def lines(self, most: int | None = None) -> Iterator[str]:
        """Yield the array as text: a bar for each state of one variable, or a table with a column for each last state.

        Parameters
        ----------
        most : int, optional
            Rows of the table.  [default: all]
        """
        if self.ndim == 1:
            yield printable(self.variables[0])
            yield from bar_lines([[printable(str(label), LABEL_WIDTH) for label in self.states[0]]], np.asarray(self))
            return
        headings, rows = self._table(most)
        lead = self.ndim - 1
        cells = [headings, *([*row[:lead], *map(short_number, row[lead:])] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        yield " " * sum(width + 2 for width in widths[:lead]) + printable(self.variables[-1])
        for row in cells:
            yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()

    def _table(self, most: int | None) -> tuple[list[str], list[list[Any]]]:
        """Headings and the first rows: a row for each state of the leading variables, a number for each last state."""
        numbers = without_noise(np.asarray(self))
        if self.ndim == 1:
            cells = zip(self.states[0], numbers.tolist(), strict=True)
            return [self.variables[0], ""], [[str(label), number] for label, number in islice(cells, most)]
        rows = islice(
            zip(product(*self.states[:-1]), numbers.reshape(-1, self.shape[-1]).tolist(), strict=True),
            most,
        )
        headings = [*self.variables[:-1], *(str(label) for label in self.states[-1])]
        return headings, [[*map(str, labels), *numbers] for labels, numbers in rows]

    def _axis(self, name: Any) -> int:
        if name not in self.variables:
            raise ModelError(
                f"there is no axis {name!r}; the variables are {', '.join(self.variables)}{meant(name, self.variables)}"
            )
        return self.variables.index(name)

    def _place(self, axis: int, state: Any) -> Any:
        """The position of a state that is given by its label; positions and slices are kept."""
        if not isinstance(state, str):
            return state
        labels = list(map(str, self.states[axis]))
        if state not in labels:
            known = ", ".join(labels[:LISTED_MEMBERS])
            raise ModelError(
                f"variable {self.variables[axis]!r} has no state {state!r}; its states are {known}"
                + meant(state, labels)
            )
        return labels.index(state)

    def _labels_of(self, axes: Sequence[int]) -> tuple[list[str], list[States]]:
        return [self.variables[axis] for axis in axes], [self.states[axis] for axis in axes]


def labelled(model: Model, names: Sequence[str], cells: Array) -> LabeledArray:
    """Return an array whose axes are some of a model's variables, with the labels of their states."""
    return LabeledArray(cells, names, map(model.state_labels, names))


class JointTables(Mapping[frozenset[str], LabeledArray]):
    """Joint distributions by their sets of variables.

    ``tables["A", "B"]`` has an axis for A, then one for B, and ``tables["B", "A"]`` the same numbers the other way
    round; ``tables[{"A", "B"}]`` has the axes in the order of the request.

    Parameters
    ----------
    model : Model
    tables : mapping of tuple of str to ndarray
        An axis for each variable.
    """

    def __init__(self, model: Model, tables: Mapping[tuple[str, ...], Array]):
        self._model = model
        self._tables = {frozenset(names): (names, table) for names, table in tables.items()}

    def __getitem__(self, names: Iterable[str]) -> LabeledArray:
        listed = (names,) if isinstance(names, str) else tuple(names)
        if frozenset(listed) not in self._tables:
            known = "; ".join(", ".join(own) for own, _ in self._tables.values()) or "none was requested"
            raise MissingNameError(f"there is no joint of {', '.join(map(repr, listed))}; joints: {known}")
        own, table = self._tables[frozenset(listed)]
        found = labelled(self._model, own, table)
        return found if isinstance(names, frozenset | set) or listed == own else found.reordered(listed)

    def __iter__(self) -> Iterator[frozenset[str]]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values())) or "no joints"


def bar_lines(names: Sequence[Sequence[str]], numbers: Array) -> Iterator[str]:
    """Yield a line for each joint state of some variables: its labels, its number and a bar.

    Parameters
    ----------
    names : sequence of sequence of str
        The labels of each variable's states, as they are shown.
    numbers : ndarray
        An axis for each variable.
    """
    width = sum(max(map(len, labels)) for labels in names) + len(_BETWEEN) * (len(names) - 1)
    numbers = without_noise(numbers)
    for labels, number, share in zip(product(*names), numbers.ravel(), bar_lengths(numbers).ravel(), strict=True):
        bar = "█" * round(LABEL_WIDTH * share)
        yield f"  {_BETWEEN.join(labels):<{width}}  {short_number(number):<10} {bar}".rstrip()


def without_noise(numbers: Array) -> Array:
    """Return numbers to be shown: of logarithms and other sums of numbers about 1, rounding noise is 0."""
    if numbers.dtype.kind != "f" or _are_probabilities(numbers):
        return numbers
    return np.round(numbers, NOISE_DIGITS) + 0.0


def _are_probabilities(numbers: Array) -> bool:
    return bool(np.all((numbers >= 0) & (numbers <= 1)))


def bar_lengths(numbers: Array) -> Array:
    """Return the lengths of bars, between 0 and 1.

    A probability is its own length; the lowest of several costs gets the longest bar.
    """
    values = numbers.astype(np.float64)
    if _are_probabilities(values):
        return values
    finite = np.isfinite(values)
    low, high = values[finite].min(), values[finite].max()
    return np.where(finite, 1.0 - (values - low) / max(high - low, 1e-300), 0.0)
