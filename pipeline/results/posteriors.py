"""The answer of a propagation: a mapping from names to distributions, which prints as tables.

The posteriors of several cases are arrays with an axis of cases.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..drawings.shown import MOST_LINES, first_lines, wrapped
from ..errors import MissingNameError, ModelError, counted, finite, logarithm, meant, power_of_ten, printable, public
from ..local_paths import whole_text
from ..models.frames import Tabled, imported_pandas
from ..models.model import Model
from ..plans.plan import Plan
from .labeled_array import LABEL_WIDTH, JointTables, LabeledArray, bar_lengths, bar_lines, without_noise
from .labeled_array import labelled as labelled_table
from .proof import AskedOf, DaskWork, RowsWork, Tried, plain_number, plan_figures, tried_before, work_before

if TYPE_CHECKING:
    from ..drawings.html import Html
    from ..drawings.svg import Svg

Array = NDArray[Any]


@public
@dataclass(frozen=True, repr=False, eq=False)
class Marginals(Mapping[str, LabeledArray], Tabled):
    """Marginals by variable name.

    Parameters
    ----------
    model : Model
    status : {"ok", "infeasible"}
        ``infeasible`` if the evidence is impossible: then there are no marginals.
    max_marginals : bool
        Whether these are max-marginals: for each state the best that any assignment with it reaches. For
        probabilities relative to the best of all, which is 1; for a cost network the least cost, infinite
        where every assignment is forbidden. Costs that float64 does not hold are exact in arrays of objects.
    tables : dict of str to ndarray
        For each variable that was asked for, one number a state.
    joints : mapping of tuple of str to ndarray
        For each requested set of variables a table with an axis for each; :attr:`joint` labels them.
    families : dict of int to ndarray
        The joint of each function's scope, by the index of the function.
    log10_evidence : float
        log10 of the probability of the evidence or of the partition function; -inf if it is impossible. With
        ``max_marginals``, log10 of the best probability.
    value : int, Decimal or None
        The least cost, for max-marginals of a cost network.
    notes : tuple of str
        Notes for the caller, one sentence each.
    rows_work : RowsWork or None
        Work of a propagation with sparse tables; None if all tables were dense, or if workers joined the sparse tables.
    tried : tuple of Tried
        The engines that took turns, with their seconds and the reason why each ended; the last engine answered.
    dask : DaskWork or None
        The tasks sent to the cluster, or the reason why none were sent; None if no cluster was requested.
    derivatives : dict of int to ndarray
        Those of the natural logarithm of the partition function, or of the probability of the evidence, by each entry
        of each function, by the index of the function; only if they were asked for.
    asked : AskedOf or None
        The model and the evidence that were asked.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.marginals("diagnosis", evidence={"Storm": "yes"})
    >>> sorted(found)[:3]
    ['BackupBattery', 'BearingWear', 'CheckValve']
    >>> round(float(found["Flow"]["none"]), 4)
    0.0915
    """

    model: Model
    status: Literal["ok", "infeasible"]
    max_marginals: bool = False
    tables: dict[str, Array] = field(default_factory=dict)
    joints: Mapping[tuple[str, ...], Array] = field(default_factory=dict)
    families: dict[int, Array] = field(default_factory=dict)
    log10_evidence: float | None = None
    value: int | Decimal | None = None
    plan: Plan | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    notes: tuple[str, ...] = ()
    rows_work: RowsWork | None = None
    tried: tuple[Tried, ...] = ()
    dask: DaskWork | None = None
    derivatives: dict[int, Array] = field(default_factory=dict)
    asked: AskedOf | None = None

    @cached_property
    def joint(self) -> JointTables:
        """The requested joint distributions, by their sets of variables: ``joint["Storm", "Flow"]``."""
        return JointTables(self.model, self.joints)

    def __getitem__(self, name: str) -> LabeledArray:
        if name not in self.tables:
            raise MissingNameError(f"no marginal of {name!r}{meant(name, self.tables)}")
        return labelled_table(self.model, (name,), self.tables[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def labels(self, name: str) -> list[str]:
        """Return the labels of a variable's states, or their indices."""
        return list(map(str, self.model.state_labels(name)))

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain types, as ``--json`` prints it, with None for infinite values.

        ``states`` has the labels of every variable's states in the order of its numbers, or their indices.
        """
        found: dict[str, Any] = {
            "query": "max-marginals" if self.max_marginals else "marginals",
            "status": self.status,
            "log10_evidence": finite(self.log10_evidence),
            "marginals": {name: plain_table(table) for name, table in self.tables.items()},
        }
        # labels are listed once, for all tables together
        shown = dict.fromkeys([*self.tables, *(name for names, _ in self.joints.items() for name in names)])
        if shown:
            found["states"] = {name: list(self.model.state_labels(name)) for name in shown}
        if self.value is not None:
            found["value"] = plain_number(self.value)
        if self.joints:
            found["joint"] = [{"variables": list(names), "table": plain_table(t)} for names, t in self.joints.items()]
        if self.families:
            found["families"] = {str(f): plain_table(table) for f, table in self.families.items()}
        if self.derivatives:
            found["derivatives"] = {str(f): plain_table(table) for f, table in self.derivatives.items()}
        found["tried"] = [vars(turn) for turn in self.tried]
        if self.notes:
            found["notes"] = list(self.notes)
        if self.rows_work:
            found["rows"] = self.rows_work.to_dict()
        if self.dask:
            found["dask"] = self.dask.to_dict()
        if self.asked:
            found |= self.asked.to_dict()
        found["plan"] = plan_figures(self.plan)
        found["seconds"] = {k: round(v, 6) for k, v in self.seconds.items()}
        found["peak_rss_bytes"] = self.peak_rss_bytes
        return found

    def plot(self) -> Html:
        """Draw the distributions of the first variables as bars; a notebook shows them."""
        return posterior_bars(
            f"{len(self)} variables",
            [(name, self.labels(name), self.tables[name]) for name in self._first_names()],
            "best that is possible" if self.max_marginals else "probability",
            self.asked.evidence if self.asked else (),
        )

    def draw(self) -> Svg:
        """Draw the model with these distributions in the boxes of their variables; see :meth:`.Model.draw`.

        Raises
        ------
        ModelError
            If these are max-marginals, which are no distributions.
        """
        if self.max_marginals:
            raise ModelError("max-marginals are not distributions; plot the marginals instead")
        seen = self.asked.evidence if self.asked else {}
        hard = {name: state for name, state in seen.items() if not isinstance(state, list)}
        return self.model.draw(posteriors=self.tables, evidence=hard)

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield headings, then a row for each state of each variable."""
        yield "variable", "state", "value" if self.max_marginals else "probability"
        for name, table in self.tables.items():
            yield from ((name, label, p) for label, p in zip(self.labels(name), table.tolist(), strict=True))

    def __repr__(self) -> str:
        return first_lines(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield all lines of the answer as text."""
        if self.status == "infeasible":
            yield "impossible evidence: there are no marginals"
            yield from self._note_lines()
            return
        yield "  ".join(self._total())
        yield from self._note_lines()
        if self.rows_work:
            yield from wrapped("by rows: ", self.rows_work.text)
        if self.dask:
            yield from wrapped("dask: ", self.dask.text)
        for name, table in self.tables.items():
            yield printable(name)
            yield from bar_lines([self._printable_labels(name)], table)
        for names, table in self.joints.items():
            yield ", ".join(map(printable, names))
            yield from bar_lines(list(map(self._printable_labels, names)), table)

    def _total(self) -> tuple[str, str]:
        """The least cost, the probability of the evidence or of the best assignment, or the partition function."""
        if self.log10_evidence is None:
            return "cost", str(self.value)
        if self.model.kind != "bayes":
            return (
                "best product" if self.max_marginals else "partition function",
                f"log10 {logarithm(self.log10_evidence)}",
            )
        return "best probability" if self.max_marginals else "probability of the evidence", power_of_ten(
            self.log10_evidence
        )

    def _note_lines(self) -> Iterator[str]:
        for text in self.notes:
            yield from wrapped("note: ", text)

    def _printable_labels(self, name: str) -> list[str]:
        return [printable(label, LABEL_WIDTH) for label in self.labels(name)]

    def _repr_html_(self) -> str:
        from ..drawings.html import Html, labelled, shown_rows

        if self.status == "infeasible":
            return shown_rows([("status", "impossible evidence: there are no marginals")])
        rows = [self._total(), *(("note", text) for text in self.notes)]
        shown = [(name, self._numbers(name)) for name in self._first_names()]
        left = len(self) - len(shown)
        told = f"<p>… and {counted(left, 'more variable')}; to_frame() gives all</p>" if left > 0 else ""
        return Html(labelled(rows) + labelled(shown) + told)._repr_html_()

    def _numbers(self, name: str) -> str:
        """The states of a variable and their numbers, on one line."""
        from ..drawings.html import number_text

        pairs = zip(self._printable_labels(name), without_noise(self.tables[name]), strict=True)
        return ", ".join(f"{label} {number_text(p)}" for label, p in pairs)

    def _first_names(self) -> list[str]:
        """The first variables, of at most as many states together as an answer shows lines."""
        totals = accumulate(len(table) for table in self.tables.values())
        return [name for name, total in zip(self.tables, totals, strict=True) if total <= MOST_LINES]


def posterior_bars(
    title: str, tables: Iterable[tuple[str, Sequence[str], Any]], unit: str, observed: Container[str] = ()
) -> Html:
    """Return a table with one bar for each state of some variables, with observed variables marked.

    Parameters
    ----------
    title : str
    tables : iterable of (str, sequence of str, array)
        Names of variables, labels of their states, and a number for each.
    unit : str
    observed : container of str
    """
    from html import escape

    from ..drawings.html import Html, bar, number_text

    lines = []
    for name, labels, table in tables:
        seen = " class='seen'" if name in observed else ""
        for k, (label, p, share) in enumerate(zip(labels, without_noise(table), bar_lengths(table), strict=True)):
            head = f"<th scope='rowgroup' rowspan='{len(table)}'>{escape(printable(name))}</th>" if k == 0 else ""
            number = f"<td class='n'>{number_text(p)}</td><td>{bar(share)}</td>"
            lines.append(f"<tr{seen}>{head}<td>{escape(printable(label, LABEL_WIDTH))}</td>{number}</tr>")
    caption = f"<caption>{escape(title)} ({escape(unit)})</caption>"
    return Html(f"<table>{caption}{''.join(lines)}</table>", title)


def marginals_before(stored: Mapping[str, Any], model: Model, *, max_marginals: bool) -> Marginals:
    """Rebuild an answer from the dictionary that :meth:`Marginals.to_dict` returned."""
    log10, value = stored["log10_evidence"], stored.get("value")
    if log10 is None and (model.kind != "cost" or not max_marginals):
        log10 = -np.inf
    return Marginals(
        model,
        stored["status"],
        max_marginals,
        {name: _table(found) for name, found in stored["marginals"].items()},
        {tuple(found["variables"]): _table(found["table"]) for found in stored.get("joint", [])},
        {int(f): _table(found) for f, found in stored.get("families", {}).items()},
        log10,
        Decimal(str(value)) if model.decimals and value is not None else value,
        seconds=stored["seconds"],
        peak_rss_bytes=stored["peak_rss_bytes"],
        notes=tuple(stored.get("notes", ())),
        tried=tried_before(stored.get("tried", ())),
        dask=work_before(DaskWork, stored.get("dask")),
        asked=AskedOf.before(stored),
    )


def _table(plain: Any) -> Array:
    """Turn nested lists back: None is an infinite cost, a text a number that no float holds."""
    table = np.array(plain, dtype=object)
    exact = [Decimal(x) if isinstance(x, str) else np.inf if x is None else x for x in table.ravel().tolist()]
    kept = any(isinstance(x, Decimal) or (isinstance(x, int) and abs(x) > 1 << 53) for x in exact)
    return np.array(exact, dtype=object if kept else np.float64).reshape(table.shape)


def plain_table(table: Array) -> Any:
    """Nested lists, with None for infinite costs."""
    plain = table.astype(object)
    if table.dtype == object:
        plain[...] = np.frompyfunc(plain_number, 1, 1)(table)
    plain[~np.isfinite(table.astype(np.float64))] = None
    return plain.tolist()


# Answers in the formats of the UAI competitions: ``.PR``, ``.MAR`` and ``.MPE``.


def write_uai(prefix: str, found: Marginals, assignment: Mapping[str, str | int] | None) -> list[Path]:
    """Write what was found to ``prefix.PR``, ``prefix.MAR`` and ``prefix.MPE``; return the files.

    Impossible evidence has the logarithm ``-inf``; it has neither marginals nor an assignment.

    Raises
    ------
    ModelError
        If a file cannot be written.
    """
    written = []
    for kind, text in (
        ("PR", "-inf" if found.status == "infeasible" else repr(found.log10_evidence)),
        ("MAR", marginals_text(found) if found.status == "ok" else None),
        ("MPE", None if assignment is None else assignment_text(found.model, assignment)),
    ):
        if text is not None:
            path = Path(f"{prefix}.{kind}")
            with whole_text(path) as file:
                file.write(f"{kind}\n{text}\n")
            written.append(path)
    return written


def marginals_text(found: Marginals) -> str:
    """Write the number of variables, then for each its number of states and their probabilities."""
    tables = [found[name] for name in found.model.own_names]
    return " ".join([str(len(tables)), *(f"{len(t)} {' '.join(map(repr, t.tolist()))}" for t in tables)])


def assignment_text(model: Model, assignment: Mapping[str, str | int]) -> str:
    """Write the number of variables, then the index of each one's state."""
    states = [model.state_index(v, assignment[name]) for v, name in enumerate(model.own_names)]
    return " ".join(map(str, [len(states), *states]))


@public
@dataclass(frozen=True, eq=False)
class CaseMarginals(Mapping[str, Array]):
    """Posteriors of several cases.

    The posteriors of a variable are a :class:`.LabeledArray` with an axis ``case`` and an axis of its states:
    ``found["Storm"][3]`` is the distribution in case 3, and ``found["Storm"][:, "yes"]`` one probability for each case.

    Parameters
    ----------
    model : Model
    tables : dict of str to ndarray, shape (cases, states)
        All zeros for a case whose evidence is impossible.
    log10_evidence : ndarray, shape (cases,)
        -inf where the evidence is impossible.

    Examples
    --------
    >>> import bucketflow
    >>> compiled = bucketflow.compile("diagnosis")
    >>> found = compiled.marginals_batch({"Storm": ["yes", "no"]})
    >>> found["Flow"].shape
    (2, 3)
    """

    model: Model
    tables: dict[str, Array]
    log10_evidence: Array
    _ROW: ClassVar[str] = "case"

    @property
    def possible(self) -> Array:
        """Which cases have evidence that is possible, shape (cases,)."""
        return np.asarray(np.isfinite(self.log10_evidence))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the caller, one sentence each: the notes of the model."""
        return self.model.notes

    def __getitem__(self, name: str) -> Array:
        if name not in self.tables:
            raise MissingNameError(f"no posteriors of {name!r}{meant(name, self.tables)}")
        table = self.tables[name]
        return LabeledArray(table, (self._ROW, name), (range(len(table)), self.model.state_labels(name)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def to_frame(self) -> Any:
        """Return a pandas data frame: a row for each case, a column for each state of each variable.

        Raises
        ------
        ImportError
            If pandas is not installed; the extra ``frames`` brings it.
        """
        pandas = imported_pandas()
        sizes = [(name, table.shape[1]) for name, table in self.tables.items()]
        labels = [(name, self.model.label(self.model.index[name], k)) for name, size in sizes for k in range(size)]
        columns = pandas.MultiIndex.from_tuples(labels, names=["variable", "state"])
        whole = np.hstack([*self.tables.values(), np.empty((len(self.log10_evidence), 0))])
        return pandas.DataFrame(whole, columns=columns, index=pandas.RangeIndex(len(whole), name="case"))

    def _repr_html_(self) -> str:
        from ..drawings.html import shown_rows

        told, *notes = repr(self).splitlines()
        return shown_rows([("cases", told), *(("note", note.removeprefix("note: ")) for note in notes)])

    def __repr__(self) -> str:
        impossible = len(self.log10_evidence) - int(self.possible.sum())
        found = (
            f"posteriors of {len(self.tables)} variables in {len(self.log10_evidence)} cases, {impossible} impossible"
        )
        return "\n".join([found, *(f"note: {text}" for text in self.notes)])


def adjacent(model: Model, variables: Sequence[int], cases: int) -> dict[tuple[int, ...], Array]:
    """Return empty arrays for the posteriors of some variables, adjacent in memory; the caller fills them.

    Returns
    -------
    dict of tuple of int to ndarray
        For variables with equally many states, in the given order, one array of shape (variables, cases, states).
    """
    ordered = sorted(variables, key=lambda v: model.dims[v])
    groups = [tuple(group) for _, group in groupby(ordered, key=lambda v: model.dims[v])]
    shapes = [(len(group), cases, model.dims[group[0]]) for group in groups]
    ends = [*accumulate((prod(shape) for shape in shapes), initial=0)]
    cells = np.empty(ends[-1])
    parts = [cells[start:end].reshape(shape) for shape, (start, end) in zip(shapes, pairwise(ends), strict=True)]
    return dict(zip(groups, parts, strict=True))


def unanswered(
    model: Model, variables: Sequence[int], cases: int, arrays: Mapping[tuple[int, ...], Array]
) -> CaseMarginals:
    """Return the posteriors that lie in the arrays of :func:`adjacent`."""
    tables = {v: table for group, array in arrays.items() for v, table in zip(group, array, strict=True)}
    return CaseMarginals(model, {model.names[v]: tables[v] for v in variables}, np.empty(cases))
