"""Tensor networks: contraction orders for other libraries, and sums of products in several semirings."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...cluster.memory import default_memory_bytes
from ..errors import BudgetError, ModelError, checks_keywords, format_bytes, public
from ..options import parse_size
from ..orders.tree_search import TreeSearch
from ..trees.tree import Tree

Array = NDArray[Any]
Path = list[tuple[int, ...]]
SemiringName = Literal["real", "log", "min-plus", "max-plus"]
"""Sums of products; the same of logarithms; least and greatest sums."""


if TYPE_CHECKING or find_spec("opt_einsum") is None:
    PathOptimizer = object
else:  # which opt_einsum asks its own by
    from opt_einsum.paths import PathOptimizer


@public
@dataclass(frozen=True)
class ContractionOptimizer(PathOptimizer):
    """Our contraction trees as an ``optimize`` of opt_einsum and cotengra: called with inputs, output and sizes.

    Parameters
    ----------
    seconds : float, optional
        CPU seconds of the search. By default a fraction of the predicted time of the contraction.
    seed : int
        The same seed gives the same path, where ``seconds`` is given too.

    Examples
    --------
    >>> from bucketflow import ContractionOptimizer
    >>> ContractionOptimizer()([{"a", "b"}, {"b", "c"}, {"c", "d"}], {"a", "d"}, {"a": 2, "b": 9, "c": 2, "d": 9})
    [(0, 1), (0, 1)]
    """

    seconds: float | None = None
    seed: int = 0

    def __call__(
        self,
        inputs: Sequence[Collection[Hashable]],
        output: Collection[Hashable],
        size_dict: Mapping[Any, int],
        memory_limit: object = None,
    ) -> Path:
        """Return the pairs of operands to contract in order, as positions among the operands that remain.

        The result of a contraction is appended last, as in ``opt_einsum.contract_path``. ``memory_limit`` has no
        effect: the search minimises the work, and the largest table follows from the tree.
        """
        number = {name: k for k, name in enumerate(dict.fromkeys(name for each in inputs for name in each))}
        dims = [int(size_dict[name]) for name in number]
        scopes = [tuple(number[name] for name in dict.fromkeys(each)) for each in inputs]
        kept = tuple(number[name] for name in dict.fromkeys(output))
        if len(scopes) < 3:
            return [tuple(range(len(scopes)))]
        tree = TreeSearch(dims, [*scopes, kept], "refined", "auto", self.seconds, self.seed).cheapest()
        return _linear_path(_pairs(tree, len(scopes)), len(scopes))


def _pairs(tree: Tree, count: int) -> list[tuple[int, int]]:
    """Return the pairs that a tree contracts, seen from the leaf of the output; the result of pair k is ``count + k``.

    Parameters
    ----------
    tree : Tree
        Over the operands, and one leaf more: the output.
    count : int
        Of operands.
    """
    beside: dict[int, list[int]] = {node: [] for node in range(tree.n_leaves + len(tree.children))}
    for j, kids in enumerate(tree.children):
        for kid in kids:
            beside[kid].append(tree.n_leaves + j)
            beside[tree.n_leaves + j].append(kid)
    pairs: list[tuple[int, int]] = []

    def joined(parts: list[int]) -> list[int]:
        while len(parts) > 1:
            pairs.append((parts[0], parts[1]))
            parts = [*parts[2:], count + len(pairs) - 1]
        return parts

    found: dict[int, list[int]] = {}
    seen: set[int] = set()
    tops: list[int] = []
    for start in (count, *(root for root in tree.roots)):
        stack: list[tuple[int, int, bool]] = [(start, -1, False)] if start not in seen else []
        tops += [start] if stack else []
        while stack:
            node, before, done = stack.pop()
            after = [other for other in beside[node] if other != before]
            if not done:
                seen.add(node)
                stack.append((node, before, True))
                stack += [(other, node, False) for other in after]
                continue
            # every edge of the tree is crossed once, away from the output; a node contracts what its other sides
            # returned
            own = [node] if node < count else []
            found[node] = joined([*own, *(part for other in after for part in found.pop(other))])
    joined([part for top in tops for part in found[top]])
    return pairs


def _linear_path(pairs: Sequence[tuple[int, int]], count: int) -> Path:
    """Turn pairs of fixed operand numbers into positions among the operands that remain."""
    left, path = list(range(count)), list[tuple[int, ...]]()
    for k, (a, b) in enumerate(pairs):
        places = sorted((left.index(a), left.index(b)))
        for place in reversed(places):
            left.pop(place)
        left.append(count + k)
        path.append((places[0], places[1]))
    return path


@dataclass(frozen=True)
class _Operand:
    """An array with a name for each of its axes, all different."""

    names: str
    values: Array


@dataclass(frozen=True)
class _Contraction:
    """A semiring, and what a joined table may take."""

    add: Callable[[Array, tuple[int, ...]], Array]
    multiply: Callable[[Array, Array], Array]
    real: bool
    memory: int

    def reduced(self, operand: _Operand, kept: Collection[str]) -> _Operand:
        """Sum over the axes that are not kept."""
        gone = tuple(k for k, name in enumerate(operand.names) if name not in kept)
        if not gone:
            return operand
        names = "".join(name for name in operand.names if name in kept)
        found = self.add(operand.values, gone)
        return _Operand(names, np.asarray(found, object if operand.values.dtype == object else None))

    def joined(self, a: _Operand, b: _Operand, kept: Collection[str]) -> _Operand:
        """Multiply two operands, and sum over the axes that are not kept."""
        every = "".join(dict.fromkeys(a.names + b.names))
        names = "".join(name for name in every if name in kept)
        if self.real:
            axes = [[every.index(name) for name in part] for part in (a.names, b.names, names)]
            self._check(names, a, b)
            return _Operand(names, np.asarray(np.einsum(a.values, axes[0], b.values, axes[1], axes[2])))
        self._check(every, a, b)
        product = self.multiply(_spread(a, every), _spread(b, every))
        return self.reduced(_Operand(every, product), kept)

    def _check(self, names: str, *operands: _Operand) -> None:
        sizes = {name: size for op in operands for name, size in zip(op.names, op.values.shape, strict=True)}
        needed = 8 * math.prod(sizes[name] for name in names)
        if needed > self.memory:
            raise BudgetError(
                f"a table of {format_bytes(needed)} does not fit in {format_bytes(self.memory)} of memory"
            )


def _spread(operand: _Operand, names: str) -> Array:
    """Return the values with an axis for each of some names, of one cell where the operand has none."""
    order = sorted(range(len(operand.names)), key=lambda k: names.index(operand.names[k]))
    shape = [operand.values.shape[operand.names.index(name)] if name in operand.names else 1 for name in names]
    return operand.values.transpose(order).reshape(shape)


def _log_sum(values: Array, axes: tuple[int, ...]) -> Array:
    """Return the logarithm of a sum of exponentials, which cannot overflow; of nothing possible minus infinity."""
    top = values.max(axis=axes, keepdims=True)
    finite = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(values - finite).sum(axis=axes)) + finite.squeeze(axes))


_SEMIRINGS: dict[str, tuple[Callable[[Array, tuple[int, ...]], Array], Callable[[Array, Array], Array]]] = {
    "real": (lambda values, axes: values.sum(axis=axes), np.multiply),
    "log": (_log_sum, np.add),
    "min-plus": (lambda values, axes: values.min(axis=axes), np.add),
    "max-plus": (lambda values, axes: values.max(axis=axes), np.add),
}


@public
@checks_keywords
def einsum(
    subscripts: str,
    *operands: ArrayLike,
    semiring: SemiringName = "real",
    memory: int | str | None = None,
    optimizer: Callable[..., Sequence[Sequence[int]]] | None = None,
) -> Array:
    """Contract a network of arrays, as ``numpy.einsum`` writes it, in the order of our trees.

    Parameters
    ----------
    subscripts : str
        As in ``numpy.einsum``: ``"ij,jk,kl->il"``, or ``"...ij,...jk->...ik"``. Every character but ``,``, ``-``,
        ``>``, ``.`` and blanks is an index.
    *operands : array-like
        Of numbers; an axis of length 1 is broadcast. Logarithms for ``"log"``, costs for ``"min-plus"``.
    semiring : {"real", "log", "min-plus", "max-plus"}
        Sums of products, where integers are exact, or refused if they do not fit 64 bits; log of a sum of products of
        logarithms; the least or greatest sums. Infinite where nothing is possible.
    memory : int or str, optional
        Maximum bytes of a table; most of the free memory by default. In the real semiring a pair of tables is
        contracted directly. In the other semirings the pair is joined into one table before it is summed.
    optimizer : callable, optional
        A path finder; :class:`ContractionOptimizer` by default, or a path finder of opt_einsum or cotengra.

    Returns
    -------
    ndarray
        An axis for each index of the output.

    Raises
    ------
    ModelError
        If the subscripts do not fit the operands, or sums of integers do not fit 64 bits.
    BudgetError
        If a table does not fit ``memory``.

    Examples
    --------
    >>> from bucketflow import einsum
    >>> int(einsum("ij,jk->", [[1, 2], [3, 4]], [[1, 0], [0, 1]]))
    10
    >>> einsum("ij,jk->ik", [[0, 5], [3, 0]], [[0, 5], [3, 0]], semiring="min-plus").tolist()
    [[0, 5], [3, 0]]
    """
    if semiring not in _SEMIRINGS:
        raise ModelError(f"unknown semiring {semiring!r}; one of {', '.join(get_args(SemiringName))}")
    given = [np.asarray(values) for values in operands]
    inputs, output = _parsed(subscripts, [values.ndim for values in given])
    arrays = [_operand(names, values, k) for k, (names, values) in enumerate(zip(inputs, given, strict=True))]
    sizes: dict[str, int] = {}
    for each in arrays:
        for name, size in zip(each.names, each.values.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise ModelError(f"index {name!r} has {sizes[name]} and {size} values")
    rules = _Contraction(
        *_SEMIRINGS[semiring], semiring == "real", default_memory_bytes() if memory is None else parse_size(memory)
    )
    find = ContractionOptimizer() if optimizer is None else optimizer
    path = find([set(each.names) for each in arrays], {name for name in output if name in sizes}, sizes)
    left = [_Operand(each.names, values) for each, values in zip(arrays, _exact(arrays, sizes, semiring), strict=True)]
    for places in [tuple(pair) for pair in path] if len(left) > 1 else []:
        taken = [left.pop(place) for place in sorted(places, reverse=True)]
        # an index is summed as soon as neither the output nor another operand has it
        kept = set(output).union(*(each.names for each in left))
        left.append(reduce(lambda a, b: rules.joined(a, b, {*kept, *(n for o in taken for n in o.names)}), taken))
        left[-1] = rules.reduced(left[-1], kept)
    found = reduce(lambda a, b: rules.joined(a, b, {*output, *a.names, *b.names}), left)
    table = _spread(rules.reduced(found, output), output)
    try:
        return table.astype(np.int64) if table.dtype == object else table
    except OverflowError:
        raise ModelError("sums do not fit integers of 64 bits; give floats") from None


def _exact(operands: Sequence[_Operand], sizes: Mapping[str, int], semiring: SemiringName) -> list[Array]:
    """Return values in a type that holds all their sums: integers of 64 bits, or of Python where those may not do."""
    arrays = [each.values for each in operands]
    kinds = {values.dtype.kind for values in arrays}
    if not kinds <= {*"biu"} or kinds == {"b"}:
        return arrays
    if semiring == "log":
        return [values.astype(np.float64) for values in arrays]
    most = [max((abs(int(end)) for end in (values.min(), values.max())), default=0) for values in arrays if values.size]
    bound = math.prod(sizes.values()) * math.prod([max(1, m) for m in most]) if semiring == "real" else sum(most)
    return [values.astype(np.int64 if bound < 1 << 63 else object) for values in arrays]


_BLANKS = str.maketrans("", "", " \t\n\r\v\f")
_ELLIPSIS = "..."


def _parsed(subscripts: str, axes: Sequence[int]) -> tuple[list[str], str]:
    """Return the indices of all operands and of the output, with an index of its own for each axis of an ellipsis.

    Parameters
    ----------
    subscripts : str
    axes : sequence of int
        How many axes each operand has.
    """
    if not isinstance(subscripts, str):
        raise ModelError(f"subscripts are a text like 'ij,jk->ik', not {subscripts!r}")
    left, arrow, output = subscripts.translate(_BLANKS).partition("->")
    inputs = left.split(",")
    if len(inputs) != len(axes):
        raise ModelError(f"the subscripts {subscripts!r} are of {len(inputs)} operands, and {len(axes)} are given")
    for part in (*inputs, output):
        if part.count(_ELLIPSIS) > 1 or any(sign in part.replace(_ELLIPSIS, "", 1) for sign in ",->."):
            wrong = next(sign for sign in (*",->.",) if sign in part.replace(_ELLIPSIS, "", 1))
            raise ModelError(f"the subscripts {subscripts!r} have {wrong!r}, which is not an index")
    counts = [
        count - len(part.replace(_ELLIPSIS, "", 1)) if _ELLIPSIS in part else 0
        for part, count in zip(inputs, axes, strict=True)
    ]
    most = max((0, *counts))
    if most and arrow and _ELLIPSIS not in output:
        raise ModelError(f"the output of the subscripts {subscripts!r}  has no ellipsis, but the operands have one")
    # axes of an ellipsis get characters that the subscripts do not use
    unused = (chr(code) for code in range(0x10FFFF, 0, -1) if chr(code) not in subscripts)
    broadcast = "".join(islice(unused, most))
    named = [
        part.replace(_ELLIPSIS, broadcast[most - count :] if count > 0 else "")
        for part, count in zip(inputs, counts, strict=True)
    ]
    if not arrow:
        output = _ELLIPSIS + "".join(sorted(name for name in {*left} - {*",."} if left.count(name) == 1))
    output = output.replace(_ELLIPSIS, broadcast)
    if len({*output}) < len(output) or (missing := {*output} - set().union(*named)):
        why = "twice" if len({*output}) < len(output) else f"{min(missing)!r}, which no operand has"
        raise ModelError(f"the output of the subscripts {subscripts!r} has an index {why}")
    return named, output


def _operand(names: str, values: Array, k: int) -> _Operand:
    """Name the axes of an array; of an index that comes twice the diagonal is taken.

    An axis of length 1 is dropped: the array is the same for all values of its index.
    """
    if values.ndim != len(names):
        raise ModelError(f"operand {k} has {values.ndim} axes and the indices {names!r}")
    sizes = dict(zip(names, values.shape, strict=True))
    if any(sizes[name] != size for name, size in zip(names, values.shape, strict=True)):
        raise ModelError(f"operand {k} has different sizes for one of the indices {names!r}")
    names = "".join(name for name in names if sizes[name] != 1)
    values = values.reshape([size for size in values.shape if size != 1])
    distinct = "".join(dict.fromkeys(names))
    if len(distinct) < len(names):
        axes = [distinct.index(name) for name in names]
        values = np.einsum(values, axes, list(range(len(distinct))))
    return _Operand(distinct, values)
