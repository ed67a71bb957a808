"""Writing Bayesian networks with their names: the interchange format (.bif) and Hugin's (.net)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ModelError, printable
from ...models.bayesian_networks import network_fault
from ...models.model import Model
from ..text.tables import every_entry
from ..text.written_words import LONGEST_NAME, WrittenFile, kept_labels, kept_names

_WORD = re.compile(r"(?!.*/[/*])[^\s(){}\[\];|,\"]+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED = re.compile(r'[^"\\\n]*')
# Keywords of the interchange format, which some programs treat as keywords everywhere.
_BIF_WORDS = ("network", "variable", "probability", "property", "type", "discrete", "table", "default")


@dataclass(frozen=True, eq=False)
class _Distribution:
    """The parents of a variable and itself, and its probabilities, an axis each in this order."""

    scope: tuple[int, ...]
    values: NDArray[np.float64]

    def rows(self) -> Iterator[tuple[tuple[int, ...], str]]:
        """Yield the states of the parents, and the probabilities as a text with spaces."""
        shape = self.values.shape
        for at in np.ndindex(*shape[:-1]):
            yield at, " ".join(map(repr, self.values[at].tolist()))


def _distributions(model: Model, suffix: str) -> Iterator[_Distribution]:
    for function in model.functions:
        own = function.child_last()
        yield _Distribution(own.scope, every_entry(own, model.dims, suffix).astype(np.float64))


def _check(model: Model, suffix: str) -> None:
    """Refuse what is no Bayesian network.

    Raises
    ------
    ModelError
        Naming what it is, or why it is none.
    """
    if model.kind != "bayes":
        what = "costs" if model.kind == "cost" else "potentials"
        raise ModelError(f"the model holds {what}, and {suffix} holds Bayesian networks; write .uai, .wcsp or .cfn")
    if (fault := network_fault(model.functions, model.names, model.dims, model.states)) is not None:
        raise ModelError(f"the model cannot be written as {suffix}, which holds Bayesian networks: {fault.found}")


def bif_file(model: Model) -> WrittenFile:
    """Return the lines of a .bif, and what is not as in the model.

    Raises
    ------
    ModelError
        If the model is no Bayesian network, has no variables, or, where lines are made, a table would be too long.
    """
    _check(model, ".bif")
    if not model.names:
        raise ModelError("the model has no variables; .bif holds networks with some")
    notes: list[str] = []
    names = kept_names(model.names, lambda word: bool(_WORD.fullmatch(word)) and word not in _BIF_WORDS, "x",
                       "variables", notes)  # fmt: skip
    labels = kept_labels(model, lambda word: bool(_WORD.fullmatch(word)), notes)
    return WrittenFile(_bif_lines(model, names, labels), notes, names)


def _bif_lines(model: Model, names: Sequence[str], labels: Sequence[Sequence[str]]) -> Iterator[str]:
    name = "_".join(_WORD.findall(printable(model.name, LONGEST_NAME))) or "model"
    yield f"network {name} {{\n}}"
    for own, states in zip(names, labels, strict=True):
        yield f"variable {own} {{\n  type discrete [ {len(states)} ] {{ {', '.join(states)} }};\n}}"
    for each in _distributions(model, ".bif"):
        *parents, child = (names[v] for v in each.scope)
        yield f"probability ( {child}{' | ' if parents else ''}{', '.join(parents)} ) {{"
        for at, row in each.rows():
            given = ", ".join(labels[v][s] for v, s in zip(each.scope, at, strict=False))
            yield f"  {f'({given})' if parents else 'table'} {row.replace(' ', ', ')};"
        yield "}"


def net_file(model: Model) -> WrittenFile:
    """Return the lines of a Hugin .net, and what is not as in the model.

    Raises
    ------
    ModelError
        If the model is no Bayesian network, or, where lines are made, a table would be too long.
    """
    _check(model, ".net")
    notes: list[str] = []
    names = kept_names(model.names, lambda word: bool(_IDENTIFIER.fullmatch(word)), "x", "variables", notes)
    labels = kept_labels(model, lambda word: bool(_QUOTED.fullmatch(word)), notes)
    return WrittenFile(_net_lines(model, names, labels), notes, names)


def _net_lines(model: Model, names: Sequence[str], labels: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "net\n{\n}"
    for own, states in zip(names, labels, strict=True):
        quoted = " ".join(f'"{state}"' for state in states)
        yield f"node {own}\n{{\n  states = ({quoted});\n}}"
    for each in _distributions(model, ".net"):
        *parents, child = (names[v] for v in each.scope)
        yield f"potential ( {child}{' | ' if parents else ''}{' '.join(parents)} )\n{{\n  data ="
        shape = each.values.shape[:-1]
        for at, row in each.rows():
            # a bracket more for each axis whose range begins or ends here, from the last one on
            opened = next((k for k, s in enumerate(reversed(at)) if s), len(at)) + 1
            ends = [s == size - 1 for s, size in zip(at, shape, strict=True)]
            closed = next((k for k, end in enumerate(reversed(ends)) if not end), len(at)) + 1
            yield f"    {'(' * opened}{row}{')' * closed}"
        yield "    ;\n}"
