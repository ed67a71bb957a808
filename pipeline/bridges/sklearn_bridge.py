"""Bayesian networks as classifiers of scikit-learn: learnt for a given structure, asked by exact inference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...cluster.version import install_hint
from ..errors import ModelError, meant, public
from ..models.cases import Cases
from ..models.findings import is_missing
from ..models.model import Model
from ..models.state_names import typed_label

Array = NDArray[Any]
Edges = Iterable[tuple[str, str]]


def _verify_installed() -> None:
    if find_spec("sklearn") is None:
        raise ImportError(f"classifiers need scikit-learn: {install_hint('sklearn')}")


def _estimator() -> Any:
    """Return the base class of scikit-learn's classifiers, if scikit-learn is installed."""
    if find_spec("sklearn") is None:
        return object
    from sklearn.base import BaseEstimator, ClassifierMixin

    return type("ClassifierBase", (ClassifierMixin, BaseEstimator), {})


@public
class BayesClassifier(_estimator()):  # type: ignore[misc]
    """A Bayesian network that predicts one of its variables from any others, with cells that may be missing.

    Tables are counted, with a Dirichlet prior (Heckerman, Geiger and Chickering 1995). With missing cells, they are
    learnt by expectation-maximization, see :func:`bucketflow.fit`; it starts from the counts of present cells. Numbers
    with many different values are cut at quantiles. Predictions are exact posteriors, computed for all cases together.

    Parameters
    ----------
    edges : iterable of (str, str), optional
        Parents and children, by names of columns (``x0``, ``x1``, … without) and ``target``; by default naive Bayes,
        an edge from the target to every column.
    model : Model, optional
        A Bayesian network whose structure is taken, in place of ``edges``; its tables are not.
    target : str
        The name of the predicted variable, in the structure and in ``model_``.
    prior : float
        Pseudo-counts of each cell, above 0: no case is impossible.
    bins : int
        Numbers with more than twice this many different values are cut into at most this many states.
    iterations : int
        Maximum number of iterations if cells are missing; with 0, a case with missing cells only counts for the tables
        over its present variables.

    Attributes
    ----------
    classes_ : ndarray
    model_ : Model
        The network that was learnt; ``model_.draw()`` shows it.

    Examples
    --------
    >>> from bucketflow import BayesClassifier
    >>> found = BayesClassifier().fit([["a"], ["a"], ["b"]], ["x", "x", "y"])
    >>> found.predict_proba([["a"]]).round(2).tolist()
    [[0.77, 0.23]]
    """

    def __init__(
        self,
        edges: Edges | None = None,
        *,
        model: Model | None = None,
        target: str = "class",
        prior: float = 1.0,
        bins: int = 5,
        iterations: int = 100,
    ) -> None:
        self.edges = edges
        self.model = model
        self.target = target
        self.prior = prior
        self.bins = bins
        self.iterations = iterations

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> BayesClassifier:
        """Learn the tables of the network.

        Parameters
        ----------
        X : array-like or data frame, shape (cases, columns)
            Labels or numbers; NaN and None are missing.
        y : array-like, shape (cases,)

        Raises
        ------
        ModelError
            If the structure has a circle or a name that is no column, or a setting is out of its range.
        ImportError
            If scikit-learn is not installed.
        """
        _verify_installed()
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data

        from ..compiled.compiled import compile_model
        from ..learning.fitting import counted_model, fit

        if not self.prior > 0 or self.bins < 2:
            raise ModelError(f"prior is {self.prior} and bins {self.bins}; above 0, and at least 2, are needed")
        cells, labels = validate_data(self, X, y, dtype=None, ensure_all_finite="allow-nan")
        check_classification_targets(labels)
        self.classes_, target_states = np.unique(labels, return_inverse=True)
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(cells.shape[1])])
        self._columns = [_Column.of(name, cells[:, k], self.bins) for k, name in enumerate(map(str, names))]
        columns = {column.name: column.states(cells[:, k]) for k, column in enumerate(self._columns)}
        if self.target in columns:
            raise ModelError(
                f"a column has the name of the target, {self.target!r}; choose another name for the target"
            )
        columns[self.target] = target_states.astype(np.int64)
        sizes = {column.name: max(len(column.labels), 1) for column in self._columns}
        sizes[self.target] = len(self.classes_)
        structure = self._structure(sizes)
        cases = Cases(len(cells), {structure.index[name]: column for name, column in columns.items()})
        self.model_ = counted_model(structure, cases, self.prior)
        if self.iterations and any((column < 0).any() for column in columns.values()):
            self.model_ = fit(self.model_, cases, prior=self.prior, iterations=self.iterations).model
        self._compiled = compile_model(self.model_, background=False)
        return self

    def _structure(self, sizes: Mapping[str, int]) -> Model:
        """Return the network with uniform tables."""
        parents, tables = self._parents(list(sizes)), []
        for name in sizes:
            scope = (*parents[name], name)
            tables.append((scope, np.full([sizes[each] for each in scope], 1.0 / sizes[name])))
        labels = {column.name: column.shown for column in self._columns}
        labels[self.target] = _distinct_labels(self.classes_.tolist())
        return Model.build("bayes", {name: labels[name] or sizes[name] for name in sizes}, tables)

    def _parents(self, names: list[str]) -> dict[str, list[str]]:
        """Return the parents of every variable."""
        if self.edges is not None and self.model is not None:
            raise ModelError("edges and a model both define the structure; give only one of the two")
        edges = self.edges
        if self.model is not None:
            own = self.model.names
            families = [(f.scope, f.child) for f in self.model.functions if f.child is not None]
            edges = [(own[parent], own[child]) for scope, child in families for parent in scope if parent != child]
        if edges is None:
            edges = [(self.target, name) for name in names if name != self.target]
        parents: dict[str, list[str]] = {name: [] for name in names}
        for pair in dict.fromkeys((str(a), str(b)) for a, b in edges):
            for name in pair:
                if name not in parents:
                    raise ModelError(
                        f"an edge names {name!r}, which is neither a column nor the target{meant(name, names)}"
                    )
            parents[pair[1]].append(pair[0])
        return parents

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the posterior of the target in each case, shape (cases, classes).

        Labels that were not there when the network was learnt are taken as missing.
        """
        _verify_installed()
        from sklearn.utils.validation import check_is_fitted, validate_data

        check_is_fitted(self, "model_")
        cells = validate_data(self, X, reset=False, dtype=None, ensure_all_finite="allow-nan")
        cases = {column.name: column.states(cells[:, k]) for k, column in enumerate(self._columns)}
        states = {self.model_.index[name]: column for name, column in cases.items()}
        found = self._compiled.marginals_batch(Cases(len(cells), states), [self.target])
        return np.asarray(found[self.target])

    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class of each case."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])


class _Column:
    """How the cells of a column are states: by value, or by the bin between quantiles."""

    def __init__(self, name: str, labels: list[Any], cuts: Array | None) -> None:
        self.name, self.labels, self.cuts = name, labels, cuts
        self._index = {value: k for k, value in enumerate(labels)}

    @classmethod
    def of(cls, name: str, cells: Array, bins: int) -> _Column:
        """Find the states of a column."""
        known = [value for value in cells.tolist() if not is_missing(value)]
        distinct = list(dict.fromkeys(known))
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in distinct)
        if numbers:
            distinct.sort()
        if not numbers or len(distinct) <= 2 * bins:
            return cls(name, distinct, None)
        cuts = np.unique(np.quantile(np.array(known, float), np.arange(1, bins) / bins))
        ends = [-np.inf, *cuts.tolist(), np.inf]
        return cls(name, [f"[{a:.4g}, {b:.4g})" for a, b in pairwise(ends)], cuts)

    @property
    def shown(self) -> list[str] | None:
        """Labels of states; None where some would be the same."""
        return _distinct_labels(self.labels)

    def states(self, cells: Array) -> Array:
        """Return the state of each cell, -1 for missing or unknown values."""
        if self.cuts is None:
            found = [-1 if is_missing(v) else self._index.get(v, -1) for v in cells.tolist()]
            return np.array(found, np.int64)
        missing = np.array([is_missing(v) for v in cells.tolist()], bool)
        numbers = np.where(missing, 0.0, cells).astype(float)
        return np.where(missing, -1, np.searchsorted(self.cuts, numbers, side="right"))


def _distinct_labels(values: list[Any]) -> list[str] | None:
    labels = [typed_label(value) for value in values]
    return labels if labels and len(set(labels)) == len(labels) else None
