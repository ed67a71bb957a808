"""Functions of a model: dense arrays over a scope, or rows with a default.

Costs given as floats are stored as integers with a fixed number of decimals, exact in the digits that Python prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.keys import Keys
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import FAR_INTEGER, LARGEST_DECIMALS
from ..errors import ModelError, public

# Functions are stored as rows if the rows need at most 1 / ``ROWS_PART`` of the dense memory.
ROWS_PART: Final = 4
#: Fewer functions, numbers or assignments are handled one by one, because NumPy takes longer to look through arrays.
FEW: Final = 16
#: Maximum cells of small functions that are handled together in one array. A smaller dense table is never stored as
#: rows.
JOINT_CELLS: Final = 1 << 16
# Maximum cells of a small function.
SMALL_CELLS: Final = JOINT_CELLS // FEW
# At most this many rows are compared one by one, more are sorted.
_COMPARED_ROWS: Final = 4 * FEW

# A stored cost of at least this is forbidden whatever the top.
FORBIDDEN = FAR_INTEGER
_SMALLEST = -2 * FAR_INTEGER


@public
@dataclass(frozen=True, eq=False)
class Function:
    """A function over a scope of distinct variables: dense, or explicit rows plus a default.

    Parameters
    ----------
    scope : tuple of int
        Variable indices; may be empty (a constant).
    values : ndarray
        Dense: one value per assignment, shape = domain sizes in scope order.
        Rows: shape ``(rows,)``. dtype int64 for costs, float64 for probabilities.
    rows : ndarray, shape (rows, arity), integer, optional
        State indices of each listed assignment, without repetition.
    default : int or float
        The value of every assignment that ``rows`` does not list.
    child : int, optional
        The variable whose conditional distribution this is (Bayesian networks).

    Examples
    --------
    >>> import bucketflow
    >>> model = bucketflow.Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), [[3, 1], [2, 5]])], top=10)
    >>> model.functions[0].scope, model.functions[0].values.tolist()
    ((0, 1), [[3, 1], [2, 5]])
    """

    scope: tuple[int, ...]
    values: NDArray[Any]
    rows: NDArray[Any] | None = None
    default: int | float = 0
    child: int | None = None

    def __repr__(self) -> str:
        listed = "" if self.rows is None else f", rows={len(self.rows)}, default={self.default}"
        child = "" if self.child is None else f", child={self.child}"
        return f"Function(scope={self.scope}, shape={np.shape(self.values)}{listed}{child})"

    def equals(self, other: Function) -> bool:
        """Whether the other function has the same scope, child, listed rows and values."""
        same = (self.scope, self.child, self.rows is None) == (other.scope, other.child, other.rows is None)
        if self.rows is None or other.rows is None:
            return same and np.array_equal(self.values, other.values)
        listed = np.array_equal(self.rows, other.rows) and np.array_equal(self.values, other.values)
        return same and self.default == other.default and listed

    @cached_property
    def positive(self) -> tuple[float, float]:
        """Least and greatest of the values above 0, of probabilities; 1 and 1 if all are 0."""
        values = np.append(self.values, self.default) if self.rows is not None else self.values
        values = values[values > 0]
        return (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)

    @cached_property
    def allowed(self) -> NDArray[np.bool_] | None:
        """Which values are not 0, of probabilities; None if all are, or if the function lists what it excludes."""
        if self.rows is not None and self.default != 0:
            return None
        nonzero = np.asarray(self.values != 0)
        return None if self.rows is None and nonzero.all() else nonzero

    @cached_property
    def supported(self) -> bool:
        """Whether every state of every variable of a dense scope has a value other than 0, of probabilities."""
        if self.rows is not None or self.allowed is None or not self.scope:
            return self.allowed is None
        return all(states.all() for states in occurring_states(self.allowed))

    @cached_property
    def most_of_rows(self) -> float:
        """The largest sum over the child's states of a dense distribution."""
        axis = self.scope.index(self.child or 0)
        return float(self.values.sum(axis=axis).max())

    @cached_property
    def distinct(self) -> bool:
        """Whether no row is listed twice."""
        return self.rows is None or _are_distinct(self.rows)

    def over(self, scope: tuple[int, ...]) -> Function:
        """Return the same values over other distinct variables of the same sizes; all of them share the arrays."""
        function = object.__new__(Function)  # fields one by one take four times as long, of a million clauses
        vars(function).update(vars(self), scope=scope)
        return function

    def changed(self, **changes: Any) -> Function:
        """Return a copy over another scope or in another order of it, or with other values at the same rows."""
        function = replace(self, **changes)
        if self.rows is not None and "distinct" in vars(self):
            vars(function)["distinct"] = self.distinct
        return function

    def child_last(self) -> Function:
        """Return the function with its child, if it has one, as the last variable of its scope."""
        if self.child is None or self.scope[-1] == self.child:
            return self
        axes = [*(k for k, v in enumerate(self.scope) if v != self.child), self.scope.index(self.child)]
        scope = tuple(self.scope[k] for k in axes)
        if self.rows is not None:
            return self.changed(scope=scope, rows=self.rows[:, axes])
        return Function(scope, self.values.transpose(axes), child=self.child)

    def dense(self, dims: Sequence[int]) -> NDArray[Any]:
        """Return all values, an axis for each variable of the scope; ``dims`` are the model's domain sizes."""
        if self.rows is None:
            return self.values
        table = np.full([dims[v] for v in self.scope], self.default, self.values.dtype)
        if self.scope:
            table[tuple(self.rows.T)] = self.values
        elif len(self.values):
            table[()] = self.values[0]
        return table

    def at(self, states: Sequence[int]) -> int | float:
        """Return the value at one assignment of the scope (state indices in scope order)."""
        if self.rows is None:
            value: int | float = self.values[tuple(states)].item()
            return value
        if len(self.rows) <= _COMPARED_ROWS:
            rows, wanted = self.rows.tolist(), [*states]
            return self.values.item(rows.index(wanted)) if wanted in rows else self.default
        hits = np.flatnonzero((self.rows == np.asarray(states, dtype=self.rows.dtype)).all(axis=1))
        return self.values[hits[0]].item() if hits.size else self.default


class DeferredFunction(Function):
    """A dense function of distinct variables whose table is built when its values are first read.

    Readers make such functions of short formulas over large domains. A pickle holds the formula and not the table.
    """

    @classmethod
    def of(cls, scope: tuple[int, ...], table: Callable[[], NDArray[Any]]) -> DeferredFunction:
        """Return a function over a scope; ``table`` returns its dense values and can be pickled."""
        function = object.__new__(cls)
        vars(function).update(scope=scope, rows=None, default=0, child=None, _table=table)
        return function

    def __getattr__(self, name: str) -> Any:
        if name != "values":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        values = self._table()
        values.flags.writeable = False
        return vars(self).setdefault("values", values)

    def __getstate__(self) -> dict[str, Any]:
        return {"scope": self.scope, "rows": None, "default": 0, "child": None, "_table": self._table}

    def over(self, scope: tuple[int, ...]) -> Function:
        """Return the same values over other variables, in a table that both share."""
        return Function(scope, self.values)


def least_costs(functions: Sequence[Function]) -> list[int]:
    """Return the least allowed cost of each function, or 0 for a function without an allowed entry."""
    found = _reduced(np.minimum, functions, FORBIDDEN, lambda values, *_: np.minimum(values, FORBIDDEN))
    for k, function in enumerate(functions):
        if function.rows is not None:
            found[k] = min(found[k], int(function.default))
    return [0 if low >= FORBIDDEN else low for low in found]


def greatest_costs(functions: Sequence[Function], limits: Sequence[int], least: Sequence[int] = ()) -> list[int]:
    """Return the greatest cost of each function below its limit; its ``least``, or 0, if none is greater."""
    least = least or [0] * len(functions)
    ends = np.array([[max(low, _SMALLEST) for low in limits], least], np.int64)

    def below(values: NDArray[Any], some: NDArray[np.intp], sizes: NDArray[np.intp]) -> NDArray[Any]:
        limit, low = (np.repeat(numbers, sizes) for numbers in ends[:, some])
        return np.where(values < limit, values, low)

    found = list(map(max, _reduced(np.maximum, functions, _SMALLEST, below), least))
    for k, (function, limit) in enumerate(zip(functions, limits, strict=True)):
        if function.rows is not None and function.default < limit:
            found[k] = max(found[k], int(function.default))
    return found


def highest_costs(functions: Sequence[Function]) -> list[int]:
    """Return the highest cost of each function, which may be a forbidden one."""
    found = _reduced(np.maximum, functions, _SMALLEST, lambda values, *_: values)
    for k, function in enumerate(functions):
        if function.rows is not None:
            found[k] = max(found[k], int(function.default))
    return found


def know_positive(functions: Iterable[Function]) -> None:
    """Compute :attr:`Function.positive` of the functions that do not have it yet, if there are several."""
    unknown = [function for function in functions if "positive" not in vars(function)]
    if len(unknown) < FEW:
        return
    least = _reduced(np.minimum, unknown, math.inf, lambda values, *_: np.where(values > 0, values, math.inf))
    most = _reduced(np.maximum, unknown, 0.0, lambda values, *_: values)
    for function, low, high in zip(unknown, least, most, strict=True):
        if function.rows is not None and function.default > 0:
            low, high = min(low, float(function.default)), max(high, float(function.default))
        vars(function)["positive"] = (low, high) if high > 0 else (1.0, 1.0)


def _reduced(
    reduce: np.ufunc, functions: Sequence[Function], nothing: float, seen: Callable[..., NDArray[Any]]
) -> list[Any]:
    """Reduce the transformed values of each function. Many small functions are reduced in one call.

    Parameters
    ----------
    reduce : ufunc
    functions : sequence of Function
    nothing : number
        For a function that lists no value.
    seen : callable
        Called with values of some functions, one function after another, which these are, and how many values each has.
    """
    if not functions:
        return []
    sizes = np.array([function.values.size for function in functions])
    found = np.full(len(functions), nothing)
    small = np.flatnonzero((sizes > 0) & (sizes <= SMALL_CELLS))
    large = np.flatnonzero(sizes > SMALL_CELLS)
    for some in (*large[:, np.newaxis], *runs(small, sizes, JOINT_CELLS)):
        parts, counts = [functions[f].values for f in some.tolist()], sizes[some]
        values = joined(parts) if len(parts) > 1 else parts[0].reshape(-1)
        found[some] = reduce.reduceat(seen(values, some, counts), counts.cumsum() - counts)
    numbers: list[Any] = found.tolist()
    return numbers


def joined(arrays: Sequence[Any]) -> NDArray[Any]:
    """Return the contents of arrays of one dtype, concatenated."""
    try:  # a fifth of the time
        return np.frombuffer(bytearray().join(arrays), arrays[0].dtype)
    except TypeError:  # some are not contiguous
        return np.concatenate([array.reshape(-1) for array in arrays])


def runs(those: NDArray[np.intp], sizes: NDArray[Any], most: int) -> list[NDArray[np.intp]]:
    """Split some numbers into consecutive parts whose sizes add up to about ``most``."""
    if not len(those):
        return []
    return np.split(those, np.flatnonzero(np.diff(sizes[those].cumsum() // most)) + 1)


def dense_function(scope: Sequence[int], values: NDArray[Any], child: int | None = None) -> Function:
    """Build a dense function; a variable named twice in the scope keeps only its diagonal."""
    distinct = tuple(dict.fromkeys(scope))
    if len(distinct) < len(scope):
        # The diagonal of equal axes is a view whose stride is the sum of theirs.
        size = dict(zip(scope, values.shape, strict=True))
        stride = dict.fromkeys(distinct, 0)
        for v, step in zip(scope, values.strides, strict=True):
            stride[v] += step
        shape, strides = [size[v] for v in distinct], [stride[v] for v in distinct]
        values = np.ascontiguousarray(np.lib.stride_tricks.as_strided(values, shape, strides))
    return Function(distinct, values, child=child)


def many_functions(
    scopes: Iterable[tuple[int, ...]],
    values: Iterable[NDArray[Any]],
    rows: Iterable[NDArray[Any] | None] = repeat(None),
    defaults: Iterable[int | float] = repeat(0),
    children: Iterable[int | None] = repeat(None),
) -> list[Function]:
    """Return functions of distinct variables and distinct rows, in a quarter of the time of :class:`Function`.

    Parameters
    ----------
    scopes, values, rows, defaults, children : iterable
        The fields of each function. The shortest iterable says how many functions there are.
    """
    found = []
    for scope, own, listed, default, child in zip(scopes, values, rows, defaults, children, strict=False):
        function = object.__new__(Function)
        # entries that are set one by one take three quarters of the time of an update with keywords
        fields = function.__dict__
        fields["scope"], fields["values"], fields["rows"] = scope, own, listed
        fields["default"], fields["child"], fields["distinct"] = default, child, True
        found.append(function)
    return found


def compact(function: Function) -> Function:
    """Return a large dense function of probabilities by its entries above 0, if these take far less memory."""
    values = function.values
    if values.size < JOINT_CELLS:
        return function
    dtype = state_dtype(values.shape)
    row_bytes = values.ndim * dtype.itemsize + 8
    if ROWS_PART * row_bytes * np.count_nonzero(values) > values.nbytes:
        return function
    flat = np.flatnonzero(values)
    rows = np.empty((len(flat), values.ndim), dtype)
    rest = flat
    for axis in reversed(range(values.ndim)):
        rest, rows[:, axis] = np.divmod(rest, values.shape[axis])
    return Function(function.scope, values.reshape(-1)[flat], rows, child=function.child)


def state_dtype(sizes: Sequence[int]) -> np.dtype[Any]:
    """Return the narrowest integer dtype that can number the states of these domains."""
    largest = max(sizes, default=1)
    return np.dtype(np.uint8 if largest <= 1 << 8 else np.uint16 if largest <= 1 << 16 else np.int32)


def row_function(scope: Sequence[int], rows: NDArray[Any], values: NDArray[Any], default: int | float) -> Function:
    """Build a function from listed rows; later duplicates win, a repeated variable keeps consistent rows."""
    distinct = tuple(dict.fromkeys(scope))
    if len(distinct) < len(scope):
        first = [list(scope).index(v) for v in scope]
        keep = (rows == rows[:, first]).all(axis=1)
        columns = [list(scope).index(v) for v in distinct]
        rows, values = rows[keep][:, columns], values[keep]
    last = _last_places(rows)
    if len(last) < len(rows):
        rows, values = rows[last], values[last]
    function = Function(distinct, values, rows=rows, default=default)
    vars(function)["distinct"] = True
    return function


def occurring_states(mask: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Return which states of each axis occur in a true cell.

    Parameters
    ----------
    mask : numpy.ndarray of bool
        At least one axis.

    Returns
    -------
    list of numpy.ndarray of bool
        One of each axis, as long as the axis.
    """
    if mask.ndim == 1:
        return [mask]
    half = mask.ndim // 2  # halves of the axes read the cells about twice, and not once for each axis
    first = np.asarray(mask.reshape(*mask.shape[:half], -1).any(axis=-1))
    last = np.asarray(mask.reshape(-1, *mask.shape[half:]).any(axis=0))
    return occurring_states(first) + occurring_states(last)


def _are_distinct(rows: NDArray[Any]) -> bool:
    if len(rows) <= _COMPARED_ROWS:
        return len(set(map(tuple, rows.tolist()))) == len(rows)
    keys = _packed(rows)
    if keys.shape[1] == 1:
        ordered = np.sort(keys, axis=0)
    else:
        ordered = keys[np.lexsort(keys.T[::-1])]
    return bool((ordered[1:] != ordered[:-1]).any(axis=1).all())


def _last_places(rows: NDArray[Any]) -> NDArray[np.intp]:
    """Return where each different row occurs last, ascending."""
    if _are_distinct(rows):
        return np.arange(len(rows))
    keys = _packed(rows)
    order = np.lexsort(keys.T[::-1])  # stable: the last of equal rows stays last
    ordered = keys[order]
    return np.sort(order[np.append((ordered[1:] != ordered[:-1]).any(axis=1), True)])


def _packed(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a key for each row, equal where rows are; states are not negative."""
    dims = tuple([int(state) + 1 for state in rows.max(axis=0)])
    return Keys(tuple(range(len(dims))), dims).pack(rows.T)


# The scopes of all functions of a model as arrays: where each function has the value of an assignment, found at once.
#
# Most functions are small, and what takes time is each operation.

Numbers = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Scopes:
    """The scopes of some functions, one after another, in the narrowest integers: a model keeps them.

    Parameters
    ----------
    starts : ndarray, shape (functions + 1,)
        Where each scope starts.
    variables : ndarray
    steps : ndarray
        How far neighbouring states of each are apart among all values of a function that is dense, or would be;
        ``FAR_INTEGER`` where a function that is stored by rows has more assignments than that.
    dims : ndarray
        The domain sizes of all variables of the model.
    by_rows : ndarray of bool
        Which functions are stored by rows.
    """

    starts: Numbers
    variables: Numbers
    steps: Numbers
    dims: Numbers
    by_rows: NDArray[np.bool_]

    @classmethod
    def of(cls, functions: Sequence[Function], dims: Sequence[int]) -> Scopes:
        """Return the scopes of some functions; ``dims`` are the model's domain sizes."""
        scopes = [function.scope for function in functions]
        arities = np.fromiter(map(len, scopes), np.intp, len(scopes))
        starts = np.concatenate([[0], arities.cumsum()])
        variables = np.fromiter(chain.from_iterable(scopes), np.intp, int(starts[-1]))
        domains = np.array(dims, np.intp)
        sizes = domains[variables]
        steps = np.ones_like(variables)
        widest = math.log2(FAR_INTEGER) / math.log2(max(2, max(dims, default=2)))
        for arity in {len(scope) for scope in scopes if len(scope) > 1}:
            places = starts[:-1][arities == arity, np.newaxis] + np.arange(arity)
            own = sizes[places]
            steps[places[:, :-1]] = own[:, :0:-1].cumprod(axis=1)[:, ::-1]
            if arity >= widest:
                steps[places[own.prod(axis=1, dtype=np.float64) > FAR_INTEGER]] = FAR_INTEGER
        by_rows = np.array([function.rows is not None for function in functions], bool)
        return cls(_narrow(starts), _narrow(variables), _narrow(steps), _narrow(domains), by_rows)

    def cells(self, functions: Numbers) -> NDArray[np.float64]:
        """Return the number of assignments of each of some scopes. No scope may be empty."""
        first = self.starts[functions]
        return self.steps[first] * self.dims[self.variables[first]].astype(np.float64)

    def entries(self, functions: Numbers) -> tuple[Numbers, Numbers]:
        """Return the positions of the variables of some functions, and for each position the index of its function."""
        first = self.starts[functions]
        counts = self.starts[functions + 1] - first
        ends = counts.cumsum()
        owners = np.repeat(np.arange(len(functions)), counts)
        return np.arange(len(owners)) + (first - ends + counts)[owners], owners

    def values_at(self, functions: Sequence[Function], assignment: Sequence[int]) -> list[Any]:
        """Return the value of each of all functions at an assignment of the model.

        Raises
        ------
        IndexError
            If a variable has no such state.
        """
        given = np.asarray(assignment) if len(assignment) else np.zeros(0, np.intp)
        states = given.astype(np.intp, casting="same_kind")[self.variables]
        if (states < 0).any() or (states >= self.dims[self.variables]).any():
            raise IndexError("an assignment has a state that is not in its variable's domain")
        before = np.concatenate([[0], (states * self.steps).cumsum()])[self.starts]
        places = (before[1:] - before[:-1]).tolist()
        return [
            f.values.item(place) if f.rows is None else f.at([assignment[v] for v in f.scope])
            for f, place in zip(functions, places, strict=True)
        ]


def _narrow(numbers: Numbers) -> Numbers:
    """Return integers of 0 and more in the narrowest signed dtype, which does not turn others into floats."""
    return numbers.astype(np.min_scalar_type(~numbers.max(initial=0)))


def stored_costs(kind: str, functions: Sequence[Function], top: Any) -> tuple[Sequence[Function], Any, int]:
    """Return functions and ``top`` as a model stores them, and the number of decimals, which is 0 for integers and for
    values that are not costs.

    Raises
    ------
    ModelError
        As :func:`decimal_functions`.
    """
    if kind != "cost":
        return functions, top, 0
    top = _bound(top) if isinstance(top, float | np.floating | Decimal) else top
    if _need_decimals(functions) or (isinstance(top, Decimal) and top != int(top)):
        return decimal_functions(functions, top)
    functions = [f.changed(default=int(f.default)) if isinstance(f.default, float) else f for f in functions]
    return functions, int(top) if isinstance(top, Decimal) else top, 0


def _bound(top: Any) -> Decimal:
    """Return a top as it is printed.

    Raises
    ------
    ModelError
        If it is no finite number.
    """
    try:
        bound = Decimal(top if isinstance(top, int) else str(top))
    except ArithmeticError:
        raise ModelError(f"top is {top!r}, which is not a number") from None
    if not bound.is_finite():
        raise ModelError(f"top is {top}; leave it out if there is no top")
    return bound


def _need_decimals(functions: Iterable[Function]) -> bool:
    return any(_is_fractional(values) for f in functions for values in (f.values, np.asarray(f.default)))


def _is_fractional(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and not (np.isfinite(values) & (values == np.floor(values))).all()


def decimal_functions(functions: Sequence[Function], top: Any) -> tuple[list[Function], int | None, int]:
    """Return functions of integers in place of floats, and ``top`` likewise, with the number of decimals.

    Parameters
    ----------
    functions : sequence of Function
        Of floats or integers; positive infinity is forbidden.
    top : number or None

    Raises
    ------
    ModelError
        If a cost is no number or infinitely good, or they do not fit 64 bits with the decimals that they need.
    """
    given = [[_listed(k, part) for part in (f.values, np.asarray(f.default or 0))] for k, f in enumerate(functions)]
    bound = None if top is None else _bound(top)
    distinct = {x for parts in given for numbers, _ in parts for x in numbers if x is not None}
    decimals = max([max(0, -int(x.normalize().as_tuple().exponent)) for x in (*distinct, bound or Decimal())])
    if decimals > LARGEST_DECIMALS or any(abs(int(x.scaleb(decimals))) >= FORBIDDEN for x in distinct):
        raise ModelError(
            f"costs with {decimals} decimals do not fit integers of 64 bits; round them, as numpy.round(costs, 6) does"
        )
    whole = [[_whole(numbers, decimals)[places] for numbers, places in parts] for parts in given]
    made = [f.changed(values=v, default=int(default)) for f, (v, default) in zip(functions, whole, strict=True)]
    return made, None if bound is None else int(bound.scaleb(decimals)), decimals


def _listed(k: int, values: NDArray[Any]) -> tuple[list[Decimal | None], NDArray[np.int64]]:
    """Return the different costs of an array, None where they forbid, and which of them each of its cells has."""
    if values.dtype.kind not in "biuf":
        raise ModelError(f"function {k} has values of type {values.dtype}; expected numbers")
    if np.isnan(values).any() or np.isneginf(values).any():
        raise ModelError(f"function {k} has a cost that is not a number, or is minus infinity")
    given, places = np.unique(values, return_inverse=True)
    return [_exact(x) for x in given], places.reshape(values.shape)


def _exact(number: Any) -> Decimal | None:
    """Return a cost as it is meant, None if it forbids: whole numbers as they are, others in their printed digits."""
    if np.isinf(number) or (not isinstance(number, np.floating) and number >= FORBIDDEN):
        return None
    return Decimal(int(number)) if number == np.floor(number) else Decimal(str(number))


def _whole(numbers: Sequence[Decimal | None], decimals: int) -> NDArray[np.int64]:
    return np.array([FORBIDDEN if x is None else int(x.scaleb(decimals)) for x in numbers], np.int64)
