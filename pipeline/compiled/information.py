"""Joints of any variables of a compiled model, and what they say: entropy, conditionals, value of information.

The joint of a set needs a batch of cases. Every joint state of all its variables except one is a case. The probability
of the case and the posterior of the remaining variable give the joint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..answering.question import Names, asked_of, named_variables
from ..errors import BudgetError, ModelError
from ..models.cases import Cases
from ..results.labeled_array import LabeledArray, labelled
from ..results.posteriors import CaseMarginals
from .case_program import CompiledPolicy
from .case_run import answered_cases
from .state import CompiledState, one_at_a_time

# Measures of information between distributions, in bits (Shannon 1948; Cover and Thomas 2006, chapter 2).


def entropy_bits(table: Array) -> float:
    """Return the entropy of a distribution of any shape."""
    positive = table[table > 0.0]
    return max(0.0, -float(np.dot(positive, np.log2(positive))))


def summed_to(table: Array, axes: Sequence[int]) -> Array:
    """Sum a distribution over all axes but some, which keep their order."""
    return np.asarray(table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes)))


def mutual_bits(table: Array, first: Sequence[int], second: Sequence[int], given: Sequence[int]) -> float:
    """Return the mutual information of two sets of axes given a third, all distinct: I(A; B | C)."""
    parts = (*first, *given), (*second, *given), (*first, *second, *given), tuple(given)
    own = [entropy_bits(summed_to(table, part)) if part else 0.0 for part in parts]
    return max(0.0, own[0] + own[1] - own[2] - own[3])


def conditional_table(table: Array, given: int) -> Array:
    """Divide a joint by its sums over all but the first axes; NaN where what is given is impossible."""
    sums = table.sum(axis=tuple(range(given, table.ndim)), keepdims=True)
    return np.asarray(np.divide(table, sums, out=np.full(table.shape, np.nan), where=sums > 0.0))


def gained_bits(weights: Array, posteriors: Array) -> float:
    """Return how much a variable says of another one: their mutual information.

    Parameters
    ----------
    weights : ndarray, shape (states,)
        Distribution of the one.
    posteriors : ndarray, shape (states, others)
        That of the other, given each state of the one; any numbers where a state has no weight.
    """
    possible = weights > 0.0
    joint = weights[possible, None] * posteriors[possible]
    return mutual_bits(joint, (0,), (1,), ())


def divergence_bits(first: Array, second: Array) -> float:
    """Return the divergence of a distribution from another one of the same states; infinite where that excludes one."""
    held = first > 0.0
    if (second[held] <= 0.0).any():
        return math.inf
    return max(0.0, float(np.dot(first[held], np.log2(first[held] / second[held]))))


Array = NDArray[Any]


@dataclass(frozen=True)
class Conflict:
    """How much findings contradict each other (Jensen, Chamberlain, Nordahl and Jensen, UAI 1990).

    Parameters
    ----------
    log10 : float
        log10 of the product of the findings' single probabilities over their joint probability. A value above 0 means
        that the findings are less probable together than if they were independent. Infinite if they exclude each other.
    findings : dict of str to float
        log10 of the probability of each by itself.
    log10_evidence : float
        log10 of the probability of all together.
    """

    log10: float
    findings: dict[str, float]
    log10_evidence: float


@dataclass(frozen=True)
class FindingRelevance:
    """The effect of one finding on the posterior of a variable (Suermondt and Cooper, 1993; Jensen 2001, section 6).

    Parameters
    ----------
    finding : str
        Its variable.
    omitted_bits : float
        Divergence caused by removing the finding: of the posterior without it from the posterior with all findings.
    alone_bits : float
        Divergence caused by the finding alone: of the posterior without findings from the posterior with only this
        finding.
    """

    finding: str
    omitted_bits: float
    alone_bits: float


class InformedState(CompiledState):
    """A compiled model that also says what variables tell of each other, under its present findings."""

    def joint(self, variables: Sequence[str]) -> LabeledArray:
        """Return the joint posterior of some variables, with an axis for each in this order.

        A joint is computed from the current messages, along the path between its variables. On a GPU, or if the tables
        of the path do not fit in memory, only joints that were compiled in (see :func:`bucketflow.compile`) are read
        from the messages. Other joints then need a case for each joint state of all but one variable.

        Parameters
        ----------
        variables : sequence of str

        Raises
        ------
        ModelError
            If a name is unknown or comes twice, or the findings are impossible.
        BudgetError
            If it was not compiled in, and has more states than :class:`.CompiledPolicy` allows.
        """
        return labelled(self.model, variables, self._joint(variables))

    @one_at_a_time
    def _joint(self, names: Sequence[str]) -> Array:
        variables = self._variables(names)
        if not variables:
            return np.ones(())
        if sorted(variables) not in map(sorted, self.skeleton.asked.joints):
            self._check_states(variables)
        found = self._joint_here(tuple(variables), self.findings)
        if found is not None:
            return found
        logs, posteriors, last = self._joint_parts(variables, 0)
        table = np.moveaxis(10.0 ** (logs - logs.max())[..., None] * posteriors, -1, last)
        return np.ascontiguousarray(table / table.sum())

    def conditional(self, variables: Sequence[str], given: Sequence[str] = ()) -> LabeledArray:
        """Return the distribution of some variables given others and the findings: P(A | B, C, e).

        Parameters
        ----------
        variables, given : str or sequence of str

        Returns
        -------
        LabeledArray
            An axis for each variable of ``given``, then one for each of ``variables``. Each row is a distribution. It
            is NaN if the states of ``given`` are impossible together.
        """
        wanted, listed = named_variables(given), named_variables(variables)
        return labelled(self.model, [*wanted, *listed], self._conditional(wanted, listed))

    @one_at_a_time
    def _conditional(self, wanted: list[str], listed: list[str]) -> Array:
        if not listed:
            raise ModelError("a conditional table needs at least one variable")
        logs, posteriors, last = self._joint_parts(self._variables([*wanted, *listed]), len(wanted))
        # Each row is scaled by itself, because the condition may be less probable than the least float.
        tops = logs.max(axis=tuple(range(len(wanted), logs.ndim)), keepdims=True)
        weights = 10.0 ** (logs - np.where(tops == -math.inf, 0.0, tops))
        return conditional_table(np.moveaxis(weights[..., None] * posteriors, -1, last), len(wanted))

    @one_at_a_time
    def entropy(self, names: Sequence[str]) -> float:
        """Return the entropy of the joint posterior of some variables, in bits."""
        return entropy_bits(self._joint(named_variables(names)))

    @one_at_a_time
    def mutual_information(self, first: Sequence[str], second: Sequence[str], given: Sequence[str] = ()) -> float:
        """Return the mutual information of two sets of variables given a third set and the findings, in bits:

        I(A; B | C).
        """
        sets = [named_variables(names) for names in (first, second, given)]
        table = self._joint([name for names in sets for name in names])
        ends = np.cumsum([0, *map(len, sets)]).tolist()
        axes = [range(start, end) for start, end in pairwise(ends)]
        return mutual_bits(table, *axes)

    @one_at_a_time
    def value_of_information(self, name: str, variables: Names = "all") -> dict[str, float]:
        """Return for each unobserved variable what observing it says of a variable, in bits, the greatest first.

        That is their mutual information under the present findings: by how much the entropy of ``name`` is expected to
        fall.
        """
        (target,) = self._variables([name])
        asked = asked_of(self.model, variables, (), False).variables
        observed = {v for v, finding in self.findings.items() if np.count_nonzero(finding) <= 1}
        if target in observed:
            raise ModelError(f"{name!r} is observed: no further finding is informative")
        others = [v for v in asked if v != target and v not in observed]
        found = self._cases([target], others)
        logs = found.log10_evidence
        if (top := logs.max()) == -math.inf:
            raise ModelError("the findings are impossible: no distribution exists under them")
        weights = 10.0 ** (logs - top)
        names, weights = [self.model.names[v] for v in others], weights / weights.sum()
        gained = {own: gained_bits(weights, found[own]) for own in names}
        return dict(sorted(gained.items(), key=lambda item: -item[1]))

    @one_at_a_time
    def relevant_findings(self, name: str) -> list[FindingRelevance]:
        """Return the effect of each present finding on the posterior of a variable, the largest effects first.

        All variants are the cases of one batch.

        Parameters
        ----------
        name : str
            A variable.

        Returns
        -------
        list of FindingRelevance
            In bits: the divergence if the finding is omitted, and its divergence from the prior if it is the only
            finding.
        """
        (target,) = self._variables([name])
        given = {v: finding for v, finding in self.findings.items() if v != target}
        own = self.findings.get(target)
        if own is not None and np.count_nonzero(own) <= 1:
            raise ModelError(f"{name!r} is observed: no finding changes it")
        count = len(given)
        # All findings, none, all but each, each alone.
        held = np.ones((2 + 2 * count, count), bool)
        held[1], held[2 : 2 + count] = False, ~np.eye(count, dtype=bool)
        held[2 + count :] = np.eye(count, dtype=bool)
        columns: dict[int, Array] = {
            v: np.where(held[:, k, None], finding, np.ones(len(finding)))
            for k, (v, finding) in enumerate(given.items())
        }
        always = {} if own is None else {target: own}
        found = answered_cases(self, always, Cases(len(held), columns), [target])
        if found.log10_evidence[0] == -math.inf:
            raise ModelError("the findings are impossible: no distribution exists under them")
        table, names = found[name], [self.model.names[v] for v in given]
        rows = [
            FindingRelevance(
                finding,
                divergence_bits(table[0], table[2 + k]),
                divergence_bits(table[2 + count + k], table[1]),
            )
            for k, finding in enumerate(names)
        ]
        return sorted(rows, key=lambda row: (-row.omitted_bits, -row.alone_bits))

    @one_at_a_time
    def conflict(self) -> Conflict:
        """Return how much the present findings contradict each other."""
        model, findings = self.model, self.findings
        free = self._log10({})
        own = {model.names[v]: self._log10({v: finding}) - free for v, finding in findings.items()}
        together = self._log10(findings) - free
        possible = together > -math.inf
        log10 = math.fsum(own.values()) - together if possible else math.inf
        return Conflict(log10, own, together)

    def _joint_parts(self, variables: Sequence[int], first: int) -> tuple[Array, Array, int]:
        """Return a joint as log10 of the states of all of its variables but one, and the distributions of that one.

        Parameters
        ----------
        variables : sequence of int
            At least one, each once.
        first : int
            The one is among those from this place on.

        Returns
        -------
        logs : ndarray, an axis for each variable but the one
            -inf where they are impossible, but not everywhere.
        posteriors : ndarray, the same axes and then one for the one
        last : int
            Its place.
        """
        self._check_states(variables)
        dims = [self.model.dims[v] for v in variables]
        last = max(range(first, len(dims)), key=lambda place: dims[place])
        others = [place for place in range(len(dims)) if place != last]
        found = self._cases([variables[place] for place in others], [variables[last]])
        if found.log10_evidence.max() == -math.inf:
            raise ModelError("the findings are impossible: no distribution exists under them")
        shape = [dims[place] for place in others]
        posteriors = found[self.model.names[variables[last]]]
        return found.log10_evidence.reshape(shape), posteriors.reshape([*shape, dims[last]]), last

    def _check_states(self, variables: Sequence[int]) -> None:
        """Refuse a joint of too many states."""
        states, allowed = math.prod([self.model.dims[v] for v in variables]), CompiledPolicy.current().joint_states
        if states > allowed:
            raise BudgetError(f"the joint of {len(variables)} variables has {states:,} states, allowed {allowed:,}")

    def _log10(self, findings: Any) -> float:
        """Return log10 of the sum under some findings."""
        found = self._marginals((), findings).log10_evidence
        assert found is not None
        return found

    def _variables(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return indices of variables, each named once."""
        listed = named_variables(names)
        variables = asked_of(self.model, listed, (), False).variables
        if len(variables) < len(listed):
            twice = next(name for name in listed if listed.count(name) > 1)
            raise ModelError(f"{twice!r} is named twice")
        return variables

    def _cases(self, chosen: Sequence[int], asked: Sequence[int]) -> CaseMarginals:
        """Answer one case for each joint state of some variables, with the last variable varying fastest.

        Findings on these variables also hold: they are likelihoods in each case.
        """
        dims = [self.model.dims[v] for v in chosen]
        places = np.indices(dims).reshape(len(dims), -1) if dims else np.zeros((0, 1), np.intp)
        columns: dict[int, Array] = {}
        for v, states in zip(chosen, places, strict=True):
            finding = self.findings.get(v)
            columns[v] = states if finding is None else np.eye(self.model.dims[v])[states] * finding
        cases = Cases(places.shape[1], columns)
        return answered_cases(self, self.findings, cases, asked)
