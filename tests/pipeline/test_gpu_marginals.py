"""Marginals from a GPU: everything around the kernels, which an interpreter of their records stands in for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline import gpu_marginals
from bucketflow.pipeline.cli import main
from bucketflow.pipeline.model import Function
from bucketflow.pipeline.options import Options, parse_size
from bucketflow.tasks.gpu_messages import MessageProgram
from tests.models import bayes_models, markov_models
from tests.pipeline.test_batches import batch, check
from tests.tasks.message_interpreter import interpret

FREE_BYTES = 1 << 30


class OutOfMemoryError(MemoryError):
    """What CuPy raises."""

    __module__ = "cupy.cuda.memory"


class InterpretedMessages:
    """`DeviceMessages` without a device."""

    def __init__(self, program: MessageProgram, constants: np.ndarray) -> None:
        self.program, self.constants = program, constants

    def replace_constants(self, constants: np.ndarray) -> None:
        self.constants = constants

    def run(self, findings: np.ndarray) -> np.ndarray:
        assert self.program.records.group == 1
        return np.asarray(self.group([findings])[0])

    def group(self, findings: Sequence[np.ndarray]) -> np.ndarray:
        program = self.program
        slabs = np.full((len(findings), program.records.slab_cells), np.nan)
        slabs[:, : findings[0].size] = findings
        answers = np.zeros((len(findings), program.answer_cells))
        with np.errstate(all="ignore"):
            tops, failed = interpret(program.records, self.constants, slabs.reshape(-1))
            for at, cells, place, _ in program.targets.tolist():
                values = slabs[:, at : at + cells]
                values = values / np.where(values.any(axis=1), values.max(axis=1), 1.0)[:, None]
                totals = values.sum(axis=1)
                answers[:, place : place + cells] = values / np.where(totals > 0.0, totals, 1.0)[:, None]
            answers[:, -2] = np.log(tops[:, program.scaled]).sum(axis=1) + np.log(slabs[:, program.roots]).sum(axis=1)
        answers[:, -1] = failed
        return answers

    def run_cases(
        self, cases: int, common: np.ndarray, states: Sequence[tuple[int, Any]], weights: Mapping[int, Any]
    ) -> np.ndarray:
        group = self.program.records.group
        findings = np.repeat(common[None], -(-cases // group) * group, axis=0)
        for case in range(cases):
            for variable, found in states:
                first, size = self.program.findings[variable]
                if found[case] != -1:
                    findings[case, first : first + size] = np.arange(size) == found[case]
            for variable, found in weights.items():
                first, size = self.program.findings[variable]
                findings[case, first : first + size] = found[case]
        blocks = [self.group(list(findings[k : k + group])) for k in range(0, len(findings), group)]
        return np.concatenate(blocks)[:cases]


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, FREE_BYTES)
    monkeypatch.setattr(gpu_marginals, "DeviceMessages", InterpretedMessages)


def with_memory(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    """Let a machine seem to have GPUs with some free memory each."""

    def memory_bytes(chosen: Options) -> int:
        return free_bytes if chosen.memory is None else min(parse_size(chosen.memory), free_bytes)

    monkeypatch.setattr(Options, "gpu_count", property(lambda chosen: int(chosen.gpus or 0)))
    monkeypatch.setattr(Options, "memory_bytes", property(memory_bytes))


def equal(found: bucketflow.Marginals, expected: bucketflow.Marginals) -> None:
    assert found.status == expected.status
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-9, abs=1e-9)
    for name, table in expected.items():
        assert found[name] == pytest.approx(table, rel=1e-9, abs=1e-13)
    for group, table in expected.joint.items():
        assert found.joint[group] == pytest.approx(table, rel=1e-9, abs=1e-13)


@given(model=st.one_of(markov_models(), bayes_models()), data=st.data())
def test_compiled_models_answer_as_on_a_cpu(model: Model, data: st.DataObject) -> None:
    """Also under findings that come and go, likelihoods, and values that no double can multiply."""
    cpu, gpu = bucketflow.compile(model), bucketflow.compile(model, gpus=1)
    variable = st.integers(0, len(model.dims) - 1)
    for _ in range(3):
        v = data.draw(variable)
        likelihood = st.lists(st.sampled_from([0.0, 1e-200, 0.3, 7.0]), min_size=model.dims[v], max_size=model.dims[v])
        finding = data.draw(st.one_of(st.integers(0, model.dims[v] - 1), likelihood))
        for compiled in (cpu, gpu):
            compiled.add(model.names[v], finding)
        equal(gpu.marginals(), cpu.marginals())
    for compiled in (cpu, gpu):
        compiled.clear()
    equal(gpu.marginals(), cpu.marginals())
    assert gpu.partition() == pytest.approx(cpu.partition(), rel=1e-9, abs=1e-9)


@given(model=st.one_of(markov_models(), bayes_models()))
def test_single_questions_answer_as_on_a_cpu(model: Model) -> None:
    names = model.names[:2]
    equal(bucketflow.marginals(model, joint=names, gpus=1), bucketflow.marginals(model, joint=names))


@given(case=batch(), data=st.data())
def test_batches(case: tuple[Model, list[dict[str, Any]]], data: st.DataObject) -> None:
    model, cases = case
    compiled = bucketflow.compile(model, gpus=1)
    check(model, compiled.marginals_batch(cases), cases)
    some = data.draw(st.lists(st.sampled_from(model.names), unique=True))
    check(model, compiled.marginals_batch(cases, some), cases)


def ring(variables: int = 8, seed: int = 0, domain: int = 3) -> Model:
    rng = np.random.default_rng(seed)
    functions = tuple(Function((v, (v + 1) % variables), rng.random((domain, domain)) + 0.01) for v in range(variables))
    names = tuple(f"x{v}" for v in range(variables))
    return Model("markov", names, (domain,) * variables, (None,) * variables, functions)


def test_likelihoods_of_cases() -> None:
    """Likelihoods, findings that hold in all cases, a case that is impossible, and one for the CPU."""
    model, rng = ring(), np.random.default_rng(1)
    weights = rng.random((5, 3))
    weights[1], weights[2, 0] = 0.0, 1e-250
    cases = {"x2": weights, "x5": np.array([0, 1, 2, -1, 0])}
    cpu, gpu = bucketflow.compile(model), bucketflow.compile(model, gpus=1)
    for compiled in (cpu, gpu):
        compiled.add("x0", [5.0, 0.0, 2.0])
    expected, found = cpu.marginals_batch(cases), gpu.marginals_batch(cases)
    assert found.possible.tolist() == [True, False, True, True, True]
    assert gpu.computed > 0, "one case was left to the CPU"
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-9)
    for name in model.names:
        assert found[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-13)


def test_a_common_finding_that_spans_too_much_leaves_all_cases_to_the_cpu() -> None:
    model, cases = ring(), {"x5": np.array([0, 1, 2])}
    cpu, gpu = bucketflow.compile(model), bucketflow.compile(model, gpus=1)
    for compiled in (cpu, gpu):
        compiled.add("x0", [1.0, 1e-250, 0.0])
    expected, found = cpu.marginals_batch(cases), gpu.marginals_batch(cases)
    assert gpu.computed > 0
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-9)
    for name in model.names:
        assert found[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-13)


def test_blocks_of_cases_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ring()
    needed = bucketflow.compile(model, gpus=1).device._program  # type: ignore[union-attr]
    budget = 2 * needed.records.fixed_bytes + 6 * needed.case_bytes
    with_memory(monkeypatch, budget)
    compiled = bucketflow.compile(model, gpus=1)
    blocks = list(compiled.batches({"x1": np.arange(7) % 3}))
    assert [len(block.log10_evidence) for block in blocks] == [4, 3]
    device = compiled.device._other[1]  # type: ignore[union-attr,index]
    used = device.program.records.fixed_bytes + 4 * device.program.case_bytes
    assert used <= budget - needed.records.fixed_bytes - needed.case_bytes


def test_a_device_that_runs_out_of_memory_gets_smaller_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(InterpretedMessages):
        def run_cases(self, cases: int, *arguments: Any) -> np.ndarray:
            if cases > 20:
                raise OutOfMemoryError
            return super().run_cases(cases, *arguments)

    model, cases = ring(), {"x1": np.arange(70) % 3}
    expected = bucketflow.compile(model).marginals_batch(cases)
    monkeypatch.setattr(gpu_marginals, "DeviceMessages", Small)
    compiled = bucketflow.compile(model, gpus=1)
    blocks = list(compiled.batches(cases))
    assert [len(block.log10_evidence) for block in blocks] == [16, 16, 16, 16, 6]
    assert np.concatenate([block["x5"] for block in blocks]) == pytest.approx(expected["x5"], rel=1e-12)


def test_too_little_memory_is_refused_with_both_numbers() -> None:
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* allowed 60 kB"):
        bucketflow.compile(ring(12, domain=20), gpus=1, memory="60kB")


def test_slices_of_a_single_question() -> None:
    model = ring(10, domain=9)
    whole = bucketflow.marginals(model)
    assert whole.plan is not None
    found = bucketflow.marginals(model, gpus=1, memory=whole.plan.peak_bytes - 1000)
    assert found.plan is not None
    equal(found, whole)


def test_what_is_not_done_is_refused() -> None:
    with pytest.raises(bucketflow.ModelError, match="one GPU"):
        bucketflow.compile(ring(), gpus=2)
    with pytest.raises(bucketflow.ModelError, match="CPUs"):
        bucketflow.marginals(ring(), maximum=True, gpus=1)


def test_the_command_line(tmp_path: Path) -> None:
    """One question and a file of cases."""
    one = [CliRunner().invoke(main, ["marginals", "diagnosis", "--json", *gpus]) for gpus in ((), ("--gpus", "1"))]
    assert one[0].exit_code == one[1].exit_code == 0, one[1].output
    found, expected = (json.loads(result.output) for result in reversed(one))
    for name, table in expected["marginals"].items():
        assert found["marginals"][name] == pytest.approx(table, rel=1e-9)
    names = list(expected["marginals"])[:2]
    cases, out = tmp_path / "cases.csv", tmp_path / "out.csv"
    cases.write_text(f"{','.join(names)}\n0,1\n,0\n")
    command = ["marginals", "diagnosis", "--cases", str(cases), "--out", str(out), "--json", "--gpus", "1"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["cases"] == 2


def test_a_compiled_model_is_saved_from_a_gpu(tmp_path: Any) -> None:
    model = ring()
    compiled = bucketflow.compile(model, gpus=1)
    compiled.add("x3", 1)
    compiled.save(tmp_path / "model.npz")
    equal(bucketflow.Compiled.load(tmp_path / "model.npz").marginals(), compiled.marginals())
