"""Marginals from a GPU: everything around the kernels, which an interpreter of their records stands in for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Compiled, Model
from bucketflow.cluster.pool import present_device
from bucketflow.pipeline.answering import placement
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.compiled import device_cases
from bucketflow.pipeline.compiled import device_cases as gpu_marginals
from bucketflow.pipeline.compiled.case_program import CompiledPolicy
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.models.model import Function
from bucketflow.pipeline.options import parse_size
from bucketflow.pipeline.plans import message_program as message_programs
from bucketflow.pipeline.plans.message_program import message_program, probability_leaves
from bucketflow.pipeline.runs import device_slices
from bucketflow.pipeline.runs import slices as marginal_slices
from bucketflow.tasks.gpu.messages import propagation
from bucketflow.tasks.gpu.messages.propagation import MessageProgram
from bucketflow.tasks.sweeps.program import Program
from bucketflow.tasks.sweeps.scaled import measured
from tests.device_stand_in import imagine_devices
from tests.interpreted_device import InterpretedMessages
from tests.interrupting import at_every_line
from tests.models import bayes_models, cost_models, grid, markov_models
from tests.pipeline.batches.test_batches import batch, check

FREE_BYTES = 1 << 30


class OutOfMemoryError(MemoryError):
    """What CuPy raises."""

    __module__ = "cupy.cuda.memory"


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, FREE_BYTES)
    for module in (gpu_marginals, device_cases, device_slices):
        monkeypatch.setattr(module, "DeviceMessages", InterpretedMessages)
    monkeypatch.setattr(propagation, "propagation_kernels", lambda *_: [])


def with_memory(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    """Let a machine seem to have GPUs with some free memory each."""

    def memory_bytes(found: Resources) -> int:
        if found.asked.gpus is None:
            return found.host_bytes
        asked = found.asked.gpu_memory or found.asked.memory
        return free_bytes if asked is None else min(parse_size(asked), free_bytes)

    monkeypatch.setattr(Resources, "gpu_count", property(lambda found: int(found.asked.gpus or 0)))
    monkeypatch.setattr(Resources, "memory_bytes", property(memory_bytes))


def equal(found: bucketflow.Marginals, expected: bucketflow.Marginals) -> None:
    assert found.status == expected.status
    assert found.value == expected.value
    if expected.log10_evidence is not None:
        assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-9, abs=1e-9)
    for name, table in expected.items():
        assert found[name] == pytest.approx(table, rel=1e-9, abs=1e-13)
    for group, table in expected.joint.items():
        assert found.joint[group] == pytest.approx(table, rel=1e-9, abs=1e-13)


@contextmanager
def only_devices() -> Iterator[None]:
    """Nothing may be swept by the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "run_slices", lambda *_, **__: pytest.fail("the CPU was asked"))
        yield


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


@given(model=st.one_of(markov_models(), bayes_models(), cost_models()))
def test_max_marginals_answer_as_on_a_cpu(model: Model) -> None:
    names = model.names[:2]
    expected = bucketflow.marginals(model, joint=names, max_marginals=True)
    with only_devices():
        equal(bucketflow.marginals(model, joint=names, max_marginals=True, gpus=1), expected)


@given(model=cost_models(), data=st.data())
def test_max_marginals_of_costs_are_bit_equal_in_slices(model: Model, data: st.DataObject) -> None:
    expected = bucketflow.marginals(model, max_marginals=True)
    if expected.plan is None:
        return
    whole = bucketflow.marginals(model, max_marginals=True, gpus=1).plan
    assert whole is not None
    memory = data.draw(st.integers(whole.peak_bytes // 2, whole.peak_bytes))
    try:
        found = bucketflow.marginals(model, max_marginals=True, gpus=1, fit="slice", gpu_memory=memory)
    except bucketflow.BudgetError:
        return
    assert found.value == expected.value
    for name, table in expected.items():
        assert np.array_equal(found[name], table)


def test_costs_that_doubles_do_not_hold_are_left_to_the_cpu() -> None:
    rng = np.random.default_rng(0)
    functions = tuple(Function((v, (v + 1) % 6), rng.integers(0, 1 << 55, (3, 3))) for v in range(6))
    names = tuple(f"x{v}" for v in range(6))
    model = Model("cost", names, (3,) * 6, (None,) * 6, functions)
    expected = bucketflow.marginals(model, max_marginals=True)
    found = bucketflow.marginals(model, max_marginals=True, gpus=1)
    assert found.value == expected.value
    assert all(np.array_equal(found[name], expected[name]) for name in names)


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


def test_tables_are_learnt_as_on_a_cpu() -> None:
    rng = np.random.default_rng(3)
    rows = 0.1 + rng.random((3, 2, 3))
    rows /= rows.sum(axis=-1, keepdims=True)
    pair = np.full((3, 2), 0.5)
    tables = [(("a",), np.full(3, 1 / 3)), (("a", "b"), pair), (("a", "b", "c"), rows)]
    model = Model.build("bayes", {"a": 3, "b": 2, "c": 3}, tables)
    cells = {"a": np.array([0, -1, 2, 1]), "c": np.array([-1, 2, 0, 1])}
    with only_devices():
        found = bucketflow.fit(model, cells, gpus=1, iterations=1, tolerance=0)
    expected = bucketflow.fit(model, cells, iterations=1, tolerance=0)
    assert found.log_likelihoods == pytest.approx(expected.log_likelihoods, rel=1e-12)
    for ours, theirs in zip(found.model.functions, expected.model.functions, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-9)


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
    assert device.most_cases == 4
    used = device.program.records.fixed_bytes + 4 * device.program.case_bytes
    assert used <= budget - needed.records.fixed_bytes - needed.case_bytes


def test_a_device_that_runs_out_of_memory_gets_smaller_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Small(InterpretedMessages):
        def run_cases(self, cases: int, *arguments: Any) -> np.ndarray:
            if cases > 20:
                raise OutOfMemoryError
            sizes.append(cases)
            return super().run_cases(cases, *arguments)

    model, cases = ring(), {"x1": np.arange(70) % 3}
    expected = bucketflow.compile(model).marginals_batch(cases)
    monkeypatch.setattr(device_cases, "DeviceMessages", Small)
    compiled = bucketflow.compile(model, gpus=1)
    blocks = list(compiled.batches(cases))
    assert sorted(sizes) == [6, 16, 16, 16, 16]
    assert np.concatenate([block["x5"] for block in blocks]) == pytest.approx(expected["x5"], rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "reading", "begun", "expected"),
    [
        (8.0, 0.0, 1, 4),
        (0.5, 0.0, 1, 1),  # further devices take longer to start than they save
        (0.5, 0.0, 2, 2),
        (0.5, 0.0, 4, 4),
        (0.5, 10.0, 4, 1),  # all that more blocks add is done by one thread at a time
    ],
)
def test_as_many_devices_are_used_as_pay(seconds: float, reading: float, begun: int, expected: int) -> None:
    compiled, cases = bucketflow.compile(ring(), gpus=1), 4096
    assert compiled.device is not None
    program = compiled.device._program_for(tuple(compiled.plan.results), cases)
    rate = cases * program.program.records.factors / seconds
    with CompiledPolicy.using(
        device_factors_per_second=rate,
        device_start_seconds=0.5,
        device_reading_seconds=reading,
        device_block_seconds=0.0,
    ):
        assert program.devices(cases, 4, begun) == expected


@CompiledPolicy.using(device_block_seconds=0.0, device_start_seconds=0.0, device_reading_seconds=0.0)
def test_devices_of_this_process_share_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    together, lock = threading.Barrier(3), threading.Lock()
    used: list[int] = []
    busy: set[int] = set()

    class Shared(InterpretedMessages):
        def run_cases(self, *arguments: Any) -> np.ndarray:
            device = present_device()
            with lock:
                assert device not in busy, "a device computes one block at a time"
                busy.add(device)
                first = device not in used
                used.append(device)
            if first:
                together.wait(20.0)
            found = super().run_cases(*arguments)
            with lock:
                busy.remove(device)
            return found

    model, rng = ring(), np.random.default_rng(5)
    cases = {"x1": rng.integers(-1, 3, 500), "x4": rng.random((500, 3))}
    alone = bucketflow.compile(model, gpus=1).marginals_batch(cases)
    monkeypatch.setattr(device_cases, "DeviceMessages", Shared)
    imagine_devices(monkeypatch)
    compiled = bucketflow.compile(model, gpus=3)
    found = compiled.marginals_batch(cases)
    assert set(used) == {0, 1, 2}
    blocks = list(compiled.batches(cases))
    assert len(blocks) > 3
    assert np.array_equal(found.log10_evidence, alone.log10_evidence)
    for name in model.names:
        assert np.array_equal(found[name], alone[name]), "the same bits"
        assert np.array_equal(np.concatenate([block[name] for block in blocks]), alone[name])
    used[:] = [0, 1, 2]
    some = compiled.batches(cases)
    next(some)
    some.close()  # type: ignore[attr-defined]
    assert not busy, "who leaves early waits for the blocks that were begun"


def test_batches_of_eight_cases_and_more_share_a_program() -> None:
    device = bucketflow.compile("diagnosis", gpus=1).device
    assert device is not None
    targets = device._targets
    few, program = device._program_for(targets, 3), device._program_for(targets, 8)
    assert few.program.records.group == 2
    assert program.program.records.group == 16
    assert device._program_for(targets, 5000) is program


def test_too_little_memory_is_refused_with_both_numbers() -> None:
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* allowed 60 kB"):
        bucketflow.compile(ring(12, domain=20), gpus=1, memory="60kB")


@pytest.mark.parametrize("kind", ["markov", "max", "cost"])
@pytest.mark.parametrize("parts", [2, 4])
def test_tables_larger_than_the_device_are_cut_into_slices(kind: str, parts: int) -> None:
    model = grid(4, 5, 6, "cost" if kind == "cost" else "markov")
    asked: dict[str, Any] = {"max_marginals": kind != "markov", "joint": ("x0", "x4"), "evidence": {"x7": 1}}
    whole = bucketflow.marginals(model, **asked, gpus=1).plan
    assert whole is not None
    with only_devices():
        found = bucketflow.marginals(model, **asked, gpus=1, gpu_memory=whole.peak_bytes // parts)
    assert found.plan is not None
    assert found.plan.slices > 1
    assert found.plan.peak_bytes <= whole.peak_bytes // parts
    equal(found, bucketflow.marginals(model, **asked))


def test_what_a_plan_needs_is_what_its_program_takes() -> None:
    plan = bucketflow.marginals(grid(5, 5, 3, "markov"), gpus=1).plan
    assert plan is not None
    leaves = {node: measured(np.ones(plan.tree.cells[node])) for node in range(plan.tree.n_leaves)}
    program = message_program(plan, probability_leaves(leaves), {}, list(plan.results))
    assert plan.peak_bytes == program.records.fixed_bytes + program.case_bytes


def test_what_was_asked_before_is_not_described_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description takes many times as long as the device."""
    model, laid_out = grid(5, 6, 3, "markov"), 0
    own = message_programs.layout_of

    def counted(*given: Any, **more: Any) -> Any:
        nonlocal laid_out
        laid_out += 1
        return own(*given, **more)

    monkeypatch.setattr(message_programs, "layout_of", counted)
    first = bucketflow.marginals(model, gpus=1)
    assert laid_out == 1, "a plan is priced by the layout that its run has"
    monkeypatch.setattr(message_programs, "described", lambda *_, **__: pytest.fail("described again"))
    equal(bucketflow.marginals(model, gpus=1), first)


def test_no_slices_are_refused_with_both_numbers() -> None:
    model = grid(5, 5, 4, "markov")
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* on a GPU, allowed 2 kB.* slices .*leave --gpus out"):
        bucketflow.marginals(model, gpus=1, gpu_memory="2kB")
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* on a GPU, allowed 20 kB; --fit slice"):
        bucketflow.marginals(model, gpus=1, gpu_memory="20kB", fit="refuse")


def test_a_device_that_runs_out_of_memory_gets_smaller_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(5, 5, 4, "markov")
    whole = bucketflow.marginals(model, gpus=1).plan
    assert whole is not None

    class Small(InterpretedMessages):
        def __init__(self, program: MessageProgram, constants: np.ndarray) -> None:
            super().__init__(program, constants)
            if program.case_bytes > 2 * whole.peak_bytes // 3:
                raise OutOfMemoryError("so many bytes")

    monkeypatch.setattr(device_slices, "DeviceMessages", Small)
    found = bucketflow.marginals(model, gpus=1)
    assert found.plan is not None
    assert found.plan.slices > 1
    assert "planned again within" in found.notes[0]
    assert "planned again within" in found.to_dict()["notes"][0]
    assert "note: the device ran out of memory" in repr(found)
    equal(found, bucketflow.marginals(model))


def test_slices_that_no_double_holds_are_left_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(5, 5, 4, "steep")
    swept = []
    original = Program.run_slices
    monkeypatch.setattr(Program, "run_slices", lambda *a, **k: (swept.append(1), original(*a, **k))[1])
    whole = bucketflow.marginals(model, gpus=1)
    assert whole.plan is not None
    assert swept
    found = bucketflow.marginals(model, gpus=1, gpu_memory=whole.plan.peak_bytes // 2)
    equal(found, bucketflow.marginals(model))
    monkeypatch.setattr(device_slices, "default_memory_bytes", lambda: 1000)
    with pytest.raises(bucketflow.BudgetError, match=r"needs .*, but 1 kB are free"):
        bucketflow.marginals(model, gpus=1)


def test_a_run_directory_keeps_what_devices_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU began, a CPU goes on with; and a finished run is only read."""
    monkeypatch.setattr(placement, "TASK_SECONDS", 0.0)
    model = grid(5, 5, 4, "markov")
    whole = bucketflow.marginals(model, gpus=1)
    assert whole.plan is not None
    run = tmp_path / "run"

    class Dying(InterpretedMessages):
        left = 3

        def run(self, findings: np.ndarray) -> np.ndarray:
            Dying.left -= 1
            if Dying.left < 0:
                raise KeyboardInterrupt
            return super().run(findings)

    monkeypatch.setattr(device_slices, "DeviceMessages", Dying)
    with pytest.raises(bucketflow.StoppedError):
        bucketflow.marginals(model, gpus=1, gpu_memory=whole.plan.peak_bytes // 3, workdir=run)
    swept = []
    original = marginal_slices.run_group
    monkeypatch.setattr(marginal_slices, "run_group", lambda *a: (swept.append(a[1]), original(*a))[1])
    found = bucketflow.marginals(model, workdir=run)
    equal(found, whole)
    assert found.plan is not None
    assert swept == list(range(3, found.plan.slices))
    monkeypatch.setattr(marginal_slices, "run_group", lambda *_: pytest.fail("a slice was swept again"))
    equal(bucketflow.marginals(model, gpus=1, workdir=run), whole)


def test_a_run_with_tables_on_disk_goes_on_on_the_cpu(tmp_path: Path) -> None:
    model = grid(5, 5, 4, "markov")
    expected = bucketflow.marginals(model)
    options: dict[str, Any] = {
        "workdir": tmp_path / "run",
        "memory": BudgetPolicy.margin_bytes + (1 << 20),
        "tree": "bucket",
    }
    spilled = bucketflow.marginals(model, fit="spill", **options)
    assert spilled.plan is not None
    assert spilled.plan.spill is not None
    equal(bucketflow.marginals(model, gpus=1, **options), expected)


def test_what_is_not_done_is_refused() -> None:
    with pytest.raises(bucketflow.ModelError, match="one worker"):
        bucketflow.compile(ring(), gpus=2, workers=2)
    with pytest.raises(bucketflow.ModelError, match="compiled for GPUs"):
        bucketflow.compile(ring()).marginals_batch({"x0": [1]}, gpus=1)


@pytest.mark.parametrize("way", [[], ["--max-marginals"]])
def test_the_command_line(tmp_path: Path, way: list[str]) -> None:
    """One question and a file of cases."""
    asked = ["marginals", "diagnosis", "--json", *way]
    one = [CliRunner().invoke(main, [*asked, *gpus]) for gpus in ((), ("--gpus", "1", "--gpu-memory", "1MB"))]
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


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c: (c.clear("x1"), c.marginals()), id="one"),
        pytest.param(lambda c: c.marginals_batch({"x0": [0, 2, None]}), id="batch"),
    ],
)
def test_a_model_that_was_interrupted_answers_as_a_fresh_one(change: Callable[[Compiled], Any]) -> None:
    model = ring(3)
    fresh = bucketflow.compile(model, gpus=1)
    right = [bucketflow.marginals(model, evidence=seen) for seen in ({"x2": 1}, {"x2": 1, "x0": 0}, {"x2": 1, "x0": 2})]

    def observed() -> Compiled:
        found = Compiled(fresh.skeleton, fresh.options)
        found.set_evidence({"x1": 2, "x2": 1})
        found.marginals()
        return found

    for found, how in at_every_line(change, observed, 25):
        found.clear("x1")
        batch = found.marginals_batch({"x0": [None, 0, 2]})
        for name in model.names:
            assert found.marginals()[name] == pytest.approx(right[0][name], rel=1e-9), how
            assert batch[name] == pytest.approx(np.array([each[name] for each in right]), rel=1e-9, abs=1e-13), how
