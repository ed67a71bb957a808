"""`DeviceMessages` without a device: an interpreter of the records of a propagation stands in for the kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bucketflow.tasks.gpu.messages.propagation import MessageProgram
from tests.tasks.message_interpreter import interpret


class InterpretedMessages:
    """A program with its constants, in the memory of the host."""

    def __init__(self, program: MessageProgram, constants: np.ndarray) -> None:
        self.program, self.constants = program, constants

    def replace_constants(self, constants: np.ndarray) -> None:
        """Take other constant tables."""
        self.constants = constants

    def run(self, findings: np.ndarray) -> np.ndarray:
        """Answer one case."""
        assert self.program.records.group == 1
        return np.asarray(self._group([findings])[0])

    def run_cases(
        self, cases: int, common: np.ndarray, states: tuple[Sequence[int], Any], weights: Mapping[int, Any]
    ) -> np.ndarray:
        """Answer many cases."""
        group = self.program.records.group
        findings = np.repeat(common[None], -(-cases // group) * group, axis=0)
        for case in range(cases):
            for variable, found in zip(*states, strict=True):
                first, size = self.program.findings[variable]
                if found[case] != -1:
                    findings[case, first : first + size] = np.arange(size) == found[case]
            for variable, found in weights.items():
                first, size = self.program.findings[variable]
                findings[case, first : first + size] = found[case]
        blocks = [self._group(list(findings[k : k + group])) for k in range(0, len(findings), group)]
        return np.concatenate(blocks)[:cases]

    def _group(self, findings: Sequence[np.ndarray]) -> np.ndarray:
        program = self.program
        slabs = np.full((len(findings), program.records.slab_cells), np.nan)
        slabs[:, : findings[0].size] = findings
        answers = np.zeros((len(findings), program.answer_cells))
        sums = program.law == "sum_product"
        with np.errstate(all="ignore"):
            tops, failed = interpret(program.records, self.constants, slabs.reshape(-1), program.law)
            for at, cells, place, _ in program.targets.tolist():
                values = slabs[:, at : at + cells]
                answers[:, place : place + cells] = _normalised(values) if sums else values
            roots = slabs[:, program.roots]
            answers[:, -2] = (np.log(roots) if sums else roots).sum(axis=1)
            answers[:, -2] += np.log(tops[:, program.scaled]).sum(axis=1)
        answers[:, -1] = failed
        return answers


def _normalised(values: np.ndarray) -> np.ndarray:
    values = values / np.where(values.any(axis=1), values.max(axis=1), 1.0)[:, None]
    totals = values.sum(axis=1)
    return np.asarray(values / np.where(totals > 0.0, totals, 1.0)[:, None])
