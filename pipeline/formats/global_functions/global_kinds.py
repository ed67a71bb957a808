"""All kinds of global cost functions: names, parameters, and translations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .decomposition import Decomposition, GlobalFunctionError
from .languages import add_grammar, add_regular, add_weighted_regular
from .occurrences import (
    add_alldifferent,
    add_among,
    add_cardinality,
    add_clique,
    add_excepted_alldifferent,
    add_limited_cardinality,
    add_same,
    add_soft_same,
    add_variable_among,
)
from .pairs_and_trees import add_comparison, add_disjunction, add_special_disjunction, add_tree
from .weighted_sums import add_diverse, add_knapsack, add_maximum, add_overlap, add_sum, add_variable_sum

Given = dict[str, Any]
Build = Callable[[Decomposition, tuple[int, ...], Given], None]


@dataclass(frozen=True)
class Field:
    """A parameter of a function, by name.

    Parameters
    ----------
    name : str
    items : str
        A letter for each item: a word ``K``, an integer ``N``, a variable ``V``, a value ``v``, a cost ``c``, or a cost
        that may be negative ``C``, or a network ``W``; letters in brackets at the end are all there, or none is.
    lists : str
        Around them, from the outside in: ``+`` a list of any length, ``S`` one of an entry for each variable.
    absent : str
        ``?`` if it may be missing, as files of older versions have it: at the end of a .wcsp, and in a .cfn.
    """

    name: str
    items: str
    lists: str = ""
    absent: str = ""

    @property
    def optional(self) -> str:
        """The letters that may be missing."""
        return self.items.partition("(")[2].rstrip(")")

    @property
    def letters(self) -> str:
        """The letters that are there."""
        return self.items.partition("(")[0]


@dataclass(frozen=True)
class GlobalKind:
    """A kind of global cost function.

    Parameters
    ----------
    fields : tuple of Field
        In the order of a .wcsp; a .cfn names them.
    build : callable
        Adds the functions that it becomes.
    metrics : str
        Possible values of ``metric``.
    """

    fields: tuple[Field, ...]
    build: Build
    metrics: str = ""
    fixed: tuple[tuple[str, Any], ...] = ()

    def add(self, parts: Decomposition, scope: tuple[int, ...], given: Given) -> None:
        """Add what a function of this kind becomes.

        Raises
        ------
        GlobalFunctionError
            If what is given contradicts itself.
        BudgetError
            If that needs too many hidden states.
        """
        if self.metrics and given["metric"] not in self.metrics.split():
            raise GlobalFunctionError(f"a metric {', '.join(self.metrics.split())}", repr(given["metric"]))
        self.build(parts, scope, {**given, **dict(self.fixed)})


def _fields(text: str) -> tuple[Field, ...]:
    return tuple([Field(*word.split(":")) for word in text.split()])


def _kind(fields: str, build: Build, metrics: str = "", **fixed: Any) -> GlobalKind:
    return GlobalKind(_fields(fields), build, metrics, tuple(fixed.items()))


COMPARISONS = (">=", ">", "<=", "<", "=")
_MEASURED = "metric:K cost:c"
_AUTOMATON = "nb_states:N starts:N:+ ends:N:+ transitions:NvN:+"
_DECOMPOSED = "hard lin quad var"
_ALL_DIFFERENT = _kind(_MEASURED, add_alldifferent, "var dec decbi")
_REGULAR = _kind(f"{_MEASURED} {_AUTOMATON}", add_regular, "var edit")
_GRAMMAR = _kind(
    f"{_MEASURED} nb_symbols:N nb_values:N start:N terminals:Nv(c):+ non_terminals:NNN(c):+", add_grammar, "var weight"
)
_AMONG = _kind(f"{_MEASURED} min:N max:N values:v:+", add_among, "var")
_MAXIMUM = _kind("defaultcost:c tuples:Vvc:+", add_maximum)
_DIVERSE = _kind("distance:N values:v:S", add_diverse)
_TREE = _kind("", add_tree)

KINDS = {
    "alldiff": _kind("exceptedvalues:v:+ deltacosts:vC:+:?", add_excepted_alldifferent),
    "salldiff": _ALL_DIFFERENT,
    "salldiffdp": _kind(_MEASURED, add_alldifferent, "var"),
    "salldiffkp": _kind(_MEASURED, add_alldifferent, "hard"),
    "walldiff": _kind(_MEASURED, add_alldifferent, _DECOMPOSED),
    "walldifferent": _kind(_MEASURED, add_alldifferent, _DECOMPOSED),
    "gcc": _kind("bounds:vNN:+ deltacosts:vC:+:?", add_limited_cardinality),
    "sgcc": _kind(f"{_MEASURED} bounds:vNN(cc):+", add_cardinality, "var dec wdec"),
    "sgccdp": _kind(f"{_MEASURED} bounds:vNN:+", add_cardinality, "var", by_value=True),
    "wgcc": _kind(f"{_MEASURED} bounds:vNN:+", add_cardinality, _DECOMPOSED, by_value=True),
    "ssame": _kind("cost:c vars1:V:+ vars2:V:+", add_soft_same),
    "wsame": _kind(_MEASURED, add_same, _DECOMPOSED),
    "wsamegcc": _kind(f"{_MEASURED} bounds:vNN:+", add_same, "hard lin quad dec"),
    "sregular": _REGULAR,
    "sregulardp": _kind(f"{_MEASURED} {_AUTOMATON}", add_regular, "var"),
    "wregular": _kind("nb_states:N starts:NC:+ ends:NC:+ transitions:NvNC:+", add_weighted_regular),
    "sgrammar": _GRAMMAR,
    "sgrammardp": _GRAMMAR,
    "samong": _AMONG,
    "samongdp": _AMONG,
    "wamong": _kind(f"{_MEASURED} values:v:+ min:N max:N", add_among, _DECOMPOSED),
    "wvaramong": _kind(f"{_MEASURED} values:v:+", add_variable_among, "hard"),
    "woverlap": _kind(f"{_MEASURED} comparator:K to:N", add_overlap, _DECOMPOSED),
    "wsum": _kind(f"{_MEASURED} comparator:K to:N", add_sum, _DECOMPOSED),
    "wvarsum": _kind(f"{_MEASURED} comparator:K", add_variable_sum, _DECOMPOSED),
    "wdiverse": _DIVERSE,
    "whdiverse": _DIVERSE,
    "wtdiverse": _DIVERSE,
    "max": _MAXIMUM,
    "MAX": _MAXIMUM,
    "smaxdp": _MAXIMUM,
    "MST": _TREE,
    "smstdp": _TREE,
    "clique": _kind("rhs:N values:v:S+", add_clique),
    "knapsack": _kind("capacity:N weights:N:S", add_knapsack),
    "knapsackc": _kind("capacity:N weights:vN:S+ amo:Vv:++", add_knapsack),
    "knapsackp": _kind("capacity:N weights:vN:S+", add_knapsack),
    "knapsackv": _kind("capacity:N weightedvalues:VvN:+", add_knapsack),
    **{sign: _kind("cst:N delta:N", add_comparison, kind=sign) for sign in COMPARISONS},
    "disj": _kind("cstx:N csty:N penalty:c", add_disjunction),
    "sdisj": _kind("cstx:N csty:N xinfty:N yinfty:N costx:c costy:c", add_special_disjunction),
}
# Functions of two variables, with parameters in an unnamed list.
PAIRS = (*COMPARISONS, "disj", "sdisj")
# Maximum nesting depth of networks.
MOST_NESTED = 4
NESTED_FIELDS = _fields("cfn:W lb:C ub:C duplicatehard:N strongduality:N")
NESTED = ("wcsp", "cfnconstraint", "weightedcspconstraint")
