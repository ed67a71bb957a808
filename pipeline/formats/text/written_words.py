"""Common parts of writers of distributed problems: costs as text, assignments by cost, and valid names and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.light_dataclass import dataclass
from ....tasks.steps.number_limits import LARGEST_DECIMAL
from ...errors import ModelError
from ...models.dcop import Dcop
from ...models.function import greatest_costs
from ...models.model import FORBIDDEN, Function, Model
from ..format_policy import WRITTEN_ENTRIES

# Characters of a model's name in a file.
LONGEST_NAME = 1000

Plain = Callable[[str], bool]
"""Whether a format can hold a word."""


@dataclass(frozen=True)
class WrittenFile:
    """A problem as a format writes it.

    Parameters
    ----------
    lines : iterable of str
    notes : sequence of str
        Differences from the problem, one sentence each.
    names : tuple of str
        How variables are called in the file, where agents go into another one.
    """

    lines: Iterable[str]
    notes: Sequence[str] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class WrittenWords:
    """Names of variables, functions and agents, and values, as written in a file, and the losses, one sentence each."""

    names: tuple[str, ...]
    functions: tuple[str, ...]
    agents: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def words_of(dcop: Dcop, plain: Plain, key: Plain | None = None) -> WrittenWords:
    """Return names and values, or numbers in their place where a format cannot hold them; ``key`` is for names."""
    model, key = dcop.model, key or plain
    notes: list[str] = []
    names = kept_names(model.names, key, "x", "variables", notes)
    functions = kept_names(dcop.functions, key, "c", "functions", notes)
    agents = kept_names(tuple(agent.name for agent in dcop.agents), key, "a", "agents", notes)
    labels = kept_labels(model, plain, notes)
    return WrittenWords(names, functions, agents, labels, tuple(notes))


def kept_labels(model: Model, plain: Plain, notes: list[str]) -> tuple[tuple[str, ...], ...]:
    """Return the labels of all states, or numbers where a format cannot hold a variable's; ``notes`` says so."""
    counted = [tuple(map(str, range(d))) for d in model.dims]
    labels = [own if states is None else states for states, own in zip(model.states, counted, strict=True)]
    if unfit := {v for v, values in enumerate(labels) if not all(map(plain, values))}:
        notes.append(
            f"values of {len(unfit)} variables are not kept, because some are not plain words: they are numbered from 0"
        )
        labels = [counted[v] if v in unfit else values for v, values in enumerate(labels)]
    return tuple(labels)


def kept_names(words: tuple[str, ...], plain: Plain, letter: str, what: str, notes: list[str]) -> tuple[str, ...]:
    """Return names, or a letter with numbers where a format cannot hold all of them; ``notes`` says so then."""
    if all(map(plain, words)) and len(set(words)) == len(words):
        return words
    notes.append(f"names of {what} are not kept, because some are not plain words or not distinct: they are numbered")
    return tuple(f"{letter}{k}" for k in range(len(words)))


def counted(states: tuple[str, ...] | None) -> bool:
    """Whether states have no labels but their numbers."""
    return states is None or states == tuple(map(str, range(len(states))))


def lost_of_agents(dcop: Dcop) -> Iterator[str]:
    """Yield notes about parts of a distributed problem, other than owners, that a format does not hold."""
    if any(agent.capacity is not None or agent.hosting or agent.routes for agent in dcop.agents):
        yield "capacities, routes and hosting costs of agents are not kept"
    if dcop.noise or dcop.externals:
        yield "noise and external variables are not kept"


def cost_text(model: Model, cost: int, infinite: str) -> str:
    """Write a stored cost as the file's author means it; ``infinite`` is what is forbidden."""
    if cost >= FORBIDDEN:
        return f"-{infinite}" if model.maximize else infinite
    value = model.objective(cost)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


@dataclass(frozen=True)
class ListedFunction:
    """A function as lists of assignments by cost, without the assignments of the default cost."""

    default: int
    by_cost: dict[int, list[tuple[int, ...]]]


def listed(model: Model, index: int) -> tuple[tuple[int, ...], ListedFunction]:
    """Return a function's scope, and its assignments by their cost; the cost of most is the default.

    A function of no variables stands with the first variable, all of whose states it costs.
    """
    scope, table = model.functions[index].scope, _listed(model, index)
    return scope or (0,), table if scope else ListedFunction(table.default, {})


def _listed(model: Model, index: int) -> ListedFunction:
    function = model.functions[index]
    values = _with_forbidden(function.values, model.limits[index])
    if function.rows is not None:
        default = FORBIDDEN if function.default >= model.limits[index] else int(function.default)
        return ListedFunction(default, _grouped(map(tuple, function.rows.tolist()), values, default))
    costs, counts = np.unique(values, return_counts=True)
    default = int(costs[counts.argmax()])
    return ListedFunction(default, _grouped(_cells(function), values.ravel(), default))


def _with_forbidden(values: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    return np.where(values >= limit, FORBIDDEN, values)


def _cells(function: Function) -> Iterator[tuple[int, ...]]:
    return product(*map(range, function.values.shape))


def _grouped(
    cells: Iterator[tuple[int, ...]], values: NDArray[np.int64], default: int
) -> dict[int, list[tuple[int, ...]]]:
    found: dict[int, list[tuple[int, ...]]] = {}
    for cell, cost in zip(cells, values.tolist(), strict=True):
        if cost != default:
            found.setdefault(cost, []).append(cell)
    return found


def infinite_cost(model: Model) -> int:
    """Return the stored cost from which readers take costs for infinite."""
    return int(LARGEST_DECIMAL * 10**model.decimals)


def highest_costs(model: Model, suffix: str) -> list[int]:
    """Return the greatest allowed cost of each function.

    Raises
    ------
    ModelError
        If the costs of some assignments are infinite to a format.
    """
    infinite = infinite_cost(model)
    highest = greatest_costs(model.functions, model.limits)
    if max(highest, default=0) >= infinite or min(model.lowest, default=0) <= -min(infinite, FORBIDDEN):
        raise ModelError(
            f"the model cannot be written as {suffix}, where costs of {LARGEST_DECIMAL} and more are infinite"
        )
    return highest


def written_top(model: Model, suffix: str) -> int | None:
    """Return the total from which a file forbids assignments.

    A top below all totals has the same effect as the least total.

    Returns None where the model's top is infinite to a format, or there is none.

    Raises
    ------
    ModelError
        If the top is too low to be written.
    """
    infinite = min(infinite_cost(model), FORBIDDEN)
    if model.top is None or model.top >= infinite:
        return None
    top = max(model.top, min(sum(model.lowest), 0))
    if top <= -infinite:
        raise ModelError(
            f"the model cannot be written as {suffix}, where a bound of -{LARGEST_DECIMAL} is infinitely low"
        )
    return top


def lost_top(model: Model) -> Iterator[str]:
    """Say that a format forbids no totals, where allowed costs may add up to the top."""
    if model.top is not None and sum(greatest_costs(model.functions, model.limits)) >= model.top:
        beyond = "less" if model.maximize else "more"
        yield f"totals of {model.objective(model.top)} and {beyond} are allowed in the file"


def blocks(*arrays: NDArray[Any]) -> Iterator[Iterator[tuple[Any, ...]]]:
    """Yield entries of equally long arrays as Python numbers, in blocks of limited size."""
    for start in range(0, len(arrays[0]), WRITTEN_ENTRIES):
        yield zip(*(array[start : start + WRITTEN_ENTRIES].tolist() for array in arrays), strict=True)
