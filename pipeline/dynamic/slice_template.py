"""A slice and its past, from models whose variables are paired by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..models.function import Function
from ..models.model import Model, checked_model

Array = NDArray[Any]
Factor = tuple[tuple[int, ...], Array]
"""Variables, and a table with an axis for each."""

Suffixes = tuple[str, str]
"""Suffixes of variable names, for the previous step and the current one."""

#: Tried in this order where nothing is said.
KNOWN_SUFFIXES: Final[tuple[Suffixes, ...]] = (("_0", "_1"), ("_prev", ""), ("[0]", "[1]"), ("0", "t"))


@dataclass(frozen=True, eq=False)
class SliceTemplate:
    """A network of any number of steps.

    Variables ``0`` to ``n - 1`` are the variables of a slice, in the order of ``slice.names``. Variable ``n + k`` is
    the state of variable ``interface[k]`` at the previous step.

    Parameters
    ----------
    slice : Model
        Names, sizes and states of the variables of a slice; without functions.
    interface : tuple of int
        Variables of a slice that the next one has factors with.
    initial, transition : tuple of (tuple of int, ndarray)
        Factors of the first slice, and of every later one; float64.
    notes : tuple of str
    """

    slice: Model
    interface: tuple[int, ...]
    initial: tuple[Factor, ...]
    transition: tuple[Factor, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Domain sizes of a slice, and of the interface before it."""
        dims = self.slice.dims
        return (*dims, *(dims[v] for v in self.interface))

    @property
    def past(self) -> tuple[int, ...]:
        """The interface of the step before, as variables."""
        n = len(self.slice.dims)
        return tuple(range(n, n + len(self.interface)))

    @property
    def message_cells(self) -> int:
        """Joint states of the interface."""
        return prod(self.slice.dims[v] for v in self.interface)


@dataclass(frozen=True)
class _Names:
    """For each variable of a model which variable of a slice it is, now or one step before."""

    slice: tuple[str, ...]
    now: dict[int, int]
    before: dict[int, int]


def template_of(initial: Model, transition: Model | None, suffixes: Suffixes | None = None) -> SliceTemplate:
    """Pair the variables of a first slice and of a transition, or of one model of two slices.

    Parameters
    ----------
    initial : Model
        The first slice; or, without a transition, two slices.
    transition : Model, optional
        A slice with its past. Functions of a Bayesian network over the past alone are ignored, with a note.
    suffixes : (str, str), optional
        Suffixes of variable names for the previous step and the current one. By default the first pair that matches all
        variables: ``_0`` and ``_1``, ``_prev`` and none, ``[0]`` and ``[1]``, or ``0`` and ``t``.

    Raises
    ------
    ModelError
        If the models do not make a dynamic network.
    """
    both = initial if transition is None else transition
    for model in (initial, both):
        _verify(checked_model(model))
    names = _paired(initial if transition is not None else None, both, suffixes)
    first = _first_slice(initial, names)
    _verify_states(initial, both, first, names)
    own, later = _split(both, names)
    passed: list[Function] = []
    if transition is None:
        own_factors = [_factor(f, both, names.before) for f in own]
    else:
        own_factors = [_factor(f, initial, first) for f in initial.functions]
        # a conditional distribution of the past was counted in the step before
        passed, later = (own, later) if both.kind == "bayes" else ([], [*both.functions])
    interface = _interface(both, names, later)
    n = len(names.slice)
    shifted = {v: n + interface.index(k) for v, k in names.before.items() if k in interface}
    told = [f"functions of {_listed(both, names, passed)} alone in the transition are not used"] if passed else []
    model = Model(
        "markov",
        names.slice,
        tuple([initial.dims[v] for v in first]),
        tuple([initial.states[v] for v in first]),
        (),
        name=initial.name,
    )
    return SliceTemplate(
        model,
        interface,
        tuple(own_factors),
        tuple([_factor(f, both, {**names.now, **shifted}) for f in later]),
        tuple(dict.fromkeys((*initial.notes, *both.notes, *told))),
    )


def _verify(model: Model) -> None:
    """Refuse models whose slices would mean something else."""
    if model.kind == "cost":
        raise ModelError("a dynamic network needs probabilities or potentials, and a cost network has none")
    if model.hidden:
        raise ModelError(
            "a noisy node or a constraint has hidden variables, and slices of a dynamic network must not have any"
        )
    if model.evidence:
        raise ModelError("the file of a slice holds evidence; give the evidence by step instead")


def _paired(initial: Model | None, both: Model, suffixes: Suffixes | None) -> _Names:
    """Find the suffixes that pair all variables of a model, and pair them."""
    faults = []
    for before, now in [suffixes] if suffixes is not None else KNOWN_SUFFIXES:
        known = set(initial.names) if initial is not None else _bases(both.names, before, now)
        found = _pairing(initial.names if initial is not None else None, known, both.names, before, now)
        if isinstance(found, _Names):
            return found
        faults.append(found)
    if suffixes is not None:
        raise ModelError(f"the suffixes {suffixes[0]!r} and {suffixes[1]!r} do not pair the variables: {faults[0]}")
    tried = ", ".join(f"{before!r} and {now!r}" for before, now in KNOWN_SUFFIXES)
    raise ModelError(f"no suffixes of names pair the variables of two slices (tried {tried}); give suffixes")


def _bases(names: Iterable[str], before: str, now: str) -> set[str]:
    """Names without suffix of variables that are there before and now."""
    there = set(names)
    bases = (name.removesuffix(before) for name in there if name.endswith(before))
    return {base for base in bases if base + now in there}


def _pairing(
    listed: Sequence[str] | None, known: set[str], names: Sequence[str], before: str, now: str
) -> _Names | str:
    """Pair names, or return the reason why they do not pair.

    Parameters
    ----------
    listed : sequence of str or None
        Names of the first slice, if it is a model of its own.
    known : set of str
        Names without suffixes.
    names : sequence of str
        Names in the transition.
    before, now : str
        Suffixes of the previous and the current step.
    """
    if before == now:
        return "they are the same"
    places: dict[int, tuple[str, bool]] = {}
    for v, name in enumerate(names):
        found = [
            (base, past)
            for suffix, past in ((before, True), (now, False))
            if name.endswith(suffix) and (base := name[: len(name) - len(suffix)]) in known
        ]
        # an empty suffix matches every name, so a name may match both
        if len(found) != 1:
            return f"{name!r} is {'both before and now' if found else 'not a variable of a slice, before or now'}"
        places[v] = found[0]
    present = [base for base, past in places.values() if not past]
    order = list(listed) if listed is not None else present
    if missing := [name for name in order if name not in present]:
        return f"{missing[0]!r} does not exist in the current slice"
    index = {name: k for k, name in enumerate(order)}
    return _Names(
        tuple(order),
        {v: index[base] for v, (base, past) in places.items() if not past},
        {v: index[base] for v, (base, past) in places.items() if past},
    )


def _first_slice(initial: Model, names: _Names) -> dict[int, int]:
    """For each variable of the first slice, of its model, the variable of a slice, in order."""
    if len(initial.names) == len(names.slice):
        return {initial.names.index(name): k for k, name in enumerate(names.slice)}
    return dict(sorted(names.before.items(), key=lambda item: item[1]))


def _verify_states(initial: Model, both: Model, first: dict[int, int], names: _Names) -> None:
    """Refuse variables whose states differ from slice to slice."""
    own = {k: (initial.dims[v], initial.states[v]) for v, k in first.items()}
    for v, k in (*names.now.items(), *names.before.items()):
        if (both.dims[v], both.states[v]) != own[k]:
            raise ModelError(f"{both.names[v]!r} has other states than {names.slice[k]!r} in the first slice")


def _split(both: Model, names: _Names) -> tuple[list[Function], list[Function]]:
    """Split functions into functions of the past alone and other functions.

    Raises
    ------
    ModelError
        If a variable of the past depends on one of the present.
    """
    own: list[Function] = []
    later: list[Function] = []
    for function in both.functions:
        alone = all(v in names.before for v in function.scope)
        if function.child in names.before and not alone:
            raise ModelError(f"{both.names[function.child]!r} has a parent of a later step")
        (own if alone else later).append(function)
    return own, later


def _interface(both: Model, names: _Names, later: Sequence[Function]) -> tuple[int, ...]:
    """Return the variables of a slice that the next one reads."""
    read = sorted({names.before[v] for function in later for v in function.scope if v in names.before})
    if not read:
        raise ModelError("no variable depends on the step before: query each step separately")
    return tuple(read)


def _factor(function: Function, model: Model, places: dict[int, int]) -> Factor:
    return tuple([places[v] for v in function.scope]), np.asarray(function.dense(model.dims), np.float64)


def _listed(both: Model, names: _Names, passed: Sequence[Function]) -> str:
    named = list(dict.fromkeys(both.names[v] for function in passed for v in function.scope))
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
