"""Assignments that differ: the best one, then always the best that differs in many variables from all before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BudgetError, InternalError, format_bytes
from ..formats.global_functions.decomposition import Decomposition
from ..formats.global_functions.global_kinds import add_diverse
from ..formats.text.source import Allowance
from ..models.model import FORBIDDEN, Function, Model
from ..results.best_assignments import RankedAssignment
from .searched_ranking import RankingPolicy

Assignment = Mapping[str, Any]


@dataclass(frozen=True)
class DiverseAssignments:
    """Assignments of a model, each the best of all that differ enough from every one before it.

    Assignments in order are passed over as long as few of them are too near; then the network is given a constraint
    for each that was listed, a chain of hidden variables that count, and its optimum is found as any other. Either way
    the next one is the same, but for ties.

    Parameters
    ----------
    model : Model
    least : int
        In how many of the model's own variables any two differ at least.
    order : sequence of int
        Own variables in the order in which constraints count: one in which they are eliminated keeps widths small.
    memory_bytes : int
        For the functions of constraints.
    solve : callable
        Returns the best assignment of a network with constraints; None if none is possible, or time is over.
    """

    model: Model
    least: int
    order: Sequence[int]
    memory_bytes: int
    solve: Callable[[Model], RankedAssignment | None]

    def listed(self, ranked: Iterable[RankedAssignment] | None) -> Iterator[RankedAssignment]:
        """Yield diverse assignments, chosen from the full ranking if it is available.

        Raises
        ------
        BudgetError
            If a network with constraints fits no way.
        """
        chosen: list[RankedAssignment] = []
        for found in self._found(ranked, chosen):
            chosen.append(replace(found, rank=len(chosen) + 1))
            yield chosen[-1]

    def _found(
        self, ranked: Iterable[RankedAssignment] | None, chosen: Sequence[RankedAssignment]
    ) -> Iterator[RankedAssignment]:
        """Yield what is to be chosen next."""
        if ranked is not None:
            passed = 0
            for each in ranked:
                if not self._is_distant(each.assignment, chosen):
                    passed += 1
                    if passed > RankingPolicy.current().passed_most:
                        break
                    continue
                yield each
            else:
                return
        model, constraints = self.model, 0
        allowance = Allowance(model.name or "the model", self.memory_bytes)
        while True:
            try:
                model = self._constrained(model, [each.assignment for each in chosen[constraints:]], allowance)
            except BudgetError:
                needed, allowed = format_bytes(allowance.taken), format_bytes(allowance.memory)
                raise BudgetError(
                    f"the distance constraints to {len(chosen):,} assignments need at least {needed} of "
                    f"memory, allowed {allowed}; give a larger --memory"
                ) from None
            constraints = len(chosen)
            found = self.solve(model)
            if found is None:
                return
            if not self._is_distant(found.assignment, chosen):
                raise InternalError("an assignment differs in too few variables from an earlier assignment")
            yield found

    def _is_distant(self, assignment: Assignment, chosen: Sequence[RankedAssignment]) -> bool:
        """Whether it differs enough from all that were chosen."""
        return all(
            sum(one != other for one, other in zip(assignment.values(), each.assignment.values(), strict=True))
            >= self.least
            for each in reversed(chosen)
        )

    def _constrained(self, model: Model, assignments: Sequence[Assignment], allowance: Allowance) -> Model:
        """Return a network in which all that is too near to some assignments is forbidden, too."""
        parts = Decomposition([*model.dims], FORBIDDEN, allowance)
        for assignment in assignments:
            values = [model.state_index(v, assignment[model.names[v]]) for v in self.order]
            add_diverse(parts, tuple(self.order), {"values": values, "distance": self.least})
        functions = parts.functions if model.kind == "cost" else [_zeros(each) for each in parts.functions]
        return replace(
            model,
            kind="cost" if model.kind == "cost" else "markov",
            names=parts.names(model.names),
            dims=tuple(parts.dims),
            states=(*model.states, *[None] * parts.hidden),
            functions=(*model.functions, *functions),
            hidden=model.hidden + parts.hidden,
            projection=None,
        )


def _zeros(costs: Function) -> Function:
    """Return the potentials that are 0 where costs are forbidden, and 1 elsewhere."""
    values = (costs.values < FORBIDDEN).astype(np.float64)
    default = float(costs.default < FORBIDDEN) if costs.rows is not None else 0.0
    return replace(costs, values=values, default=default)
