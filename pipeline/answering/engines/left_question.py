"""A question about some of the variables: the other variables are eliminated first, and all engines may answer the
remaining question.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from ...errors import InternalError
from ...models.query import QUERIES, ValueQuery
from ...options import Options, ProofOptions
from ...results.result import Result
from ..prepared import Prepared
from ..question import Question, question_of
from .model_left import model_left
from .request import QueryRequest

# Tolerated difference between a sum and the maximised value, in log10, relative to their size.
_LOG_TOLERANCE = 1e-8


def answered_left(request: QueryRequest, prepared: Prepared) -> Result:
    """Eliminate the inner variables of a question and answer what is left; an assignment is evaluated independently.

    Raises
    ------
    BudgetError
        If the tables that are left do not fit memory, or no engine answers what is asked of them.
    InternalError
        If the sum with the maximised variables observed differs from the maximised value.
    """
    start = time.perf_counter()
    left, query = model_left(prepared), cast(ValueQuery, request.question.query)
    spent = time.perf_counter() - start
    if left is None:
        nothing = Result(query, "ok", value=0) if query == "count" else Result(query, "infeasible")
        return replace(nothing, plan=prepared.plan, seconds={"plan": prepared.seconds, "run": spent})
    assert request.ask is not None
    found = request.ask(
        question_of(left, QUERIES[query].left or query),
        options_of_left(request.options),
        request.effort,
        request.progress,
    )
    assert isinstance(found, Result)
    seconds = {**found.seconds, "plan": prepared.seconds + found.seconds.get("plan", 0.0)}
    seconds["run"] = spent + found.seconds.get("run", 0.0)
    found = replace(found, query=query, seconds=seconds, plan=found.plan or prepared.plan)
    return evaluated(request, found) if query == "mmap" else found


def options_of_left(options: Options) -> Options:
    """Return how what is left is planned: not in the run directory, nor in an order of all variables."""
    order = options.order if isinstance(options.order, str) else "auto"
    return replace(options.without_folder(), order=order)


def evaluated(request: QueryRequest, found: Result) -> Result:
    """Sum over the others with the maximised variables observed, and say that this is the value.

    Raises
    ------
    InternalError
        If it is another.
    """
    if found.assignment is None or found.log10 is None:
        return found
    again = sum_observed(request, found.assignment)
    value = -math.inf if again.log10 is None else again.log10
    if not abs(value - found.log10) <= _LOG_TOLERANCE * max(1.0, abs(value)):
        raise InternalError(f"the decoded states have log10 {value}, {found.log10} the search reported")
    seconds = {**found.seconds, "check": sum(again.seconds.values())}
    return replace(found, log10=value, seconds=seconds)


def sum_observed(request: QueryRequest, states: Mapping[str, str | int]) -> Result:
    """Return the sum over all other variables, with these states observed.

    Raises
    ------
    BudgetError
        If no engine finds it.
    """
    question = request.question
    observed = replace(question.model, evidence=question.hard).observe(states)
    summed = Question(question.model, "partition", observed, question.soft)
    assert request.ask is not None
    found = request.ask(summed, options_of_left(request.options), ProofOptions(), None)
    assert isinstance(found, Result)
    return found
