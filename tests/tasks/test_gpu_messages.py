"""Propagation kernels on a GPU against the interpreter of their records and against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.models.model import Function
from bucketflow.tasks.cpu.dense import contract
from bucketflow.tasks.gpu.messages.layout import Operation
from bucketflow.tasks.gpu.messages.propagation import DeviceMessages, MessageProgram
from bucketflow.tasks.gpu.messages.records import Constant, least_exponents, records_of
from bucketflow.tasks.steps.lowering import lower
from bucketflow.tasks.steps.semiring import MIN_PLUS, SUM_PRODUCT
from bucketflow.tasks.sweeps.table_packs import packed
from tests.models import grid as mixed_grid
from tests.tasks.test_message_records import AWKWARD, Scopes, random_costs, random_step, random_tables

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
if not cupy.cuda.is_available():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)

NOTHING: Any = ([], np.zeros((0, 0), np.int32))
"""States of no variable."""


def check(
    scopes: Scopes, output: tuple[int, ...], sizes: dict[int, int], item_seconds: float | None, group: int = 1
) -> None:
    """One step, its result as the only target, in one case and in several."""
    tables = random_tables(scopes, sizes, len(scopes))
    axes = lower(scopes, output, sizes, "float64", SUM_PRODUCT).axes
    constants = {i: Constant(t.size, least_exponents(packed({0: t.reshape(-1)}))[0]) for i, t in tables.items()}
    records = records_of([Operation(99, tuple(range(len(scopes))), axes)], constants, {}, [99], item_seconds, group)
    expected = contract([t.reshape(-1) for t in tables.values()], scopes, output, sizes, SUM_PRODUCT)
    targets = np.array([[records.slab_at[99], expected.size, 0, 0]], dtype=np.uint32)
    program = MessageProgram(
        records, records.constant_at, {}, targets, np.zeros(1, np.uint32), np.zeros(0, np.uint32), 0.0
    )
    values = np.full(records.constant_cells, np.nan)
    for table, at in records.constant_at.items():
        values[at : at + tables[table].size] = tables[table].reshape(-1)
    device = DeviceMessages(program, values)
    answers = device.run_cases(3, np.ones(0), NOTHING, {})
    assert (answers == answers[0]).all(), "the same in every case"
    if group == 1:
        assert (answers == device.run(np.ones(0))).all(), "the same in every run"
    total = expected.sum() or 1.0
    assert answers[0, :-2] == pytest.approx(expected / total, rel=1e-12)
    with np.errstate(divide="ignore"):
        # the scale of a table is its maximum without most of the mantissa
        assert answers[0, -2] == pytest.approx(np.log(expected.max()), abs=1e-5)
    assert answers[0, -1] == 0.0


@pytest.mark.parametrize("item_seconds", [None, 1e-7, 2e-6, 1e-3])
@pytest.mark.parametrize("seed", range(12))
def test_random_steps(seed: int, item_seconds: float | None) -> None:
    check(*random_step(seed), item_seconds)


@pytest.mark.parametrize("item_seconds", [None, 5e-6])
@pytest.mark.parametrize(("scopes", "output", "sizes"), AWKWARD)
def test_shapes_that_need_care(
    scopes: Scopes, output: tuple[int, ...], sizes: dict[int, int], item_seconds: float
) -> None:
    check(scopes, output, sizes, item_seconds)


@pytest.mark.parametrize("group", [2, 16])
@pytest.mark.parametrize(("scopes", "output", "sizes"), AWKWARD)
def test_groups_of_cases(scopes: Scopes, output: tuple[int, ...], sizes: dict[int, int], group: int) -> None:
    check(scopes, output, sizes, 5e-6, group)


@pytest.mark.parametrize("group", [1, 16])
@pytest.mark.parametrize("item_seconds", [None, 1e-7, 5e-6])
@pytest.mark.parametrize("step", [*map(random_step, range(8)), *AWKWARD])
def test_least_sums(step: tuple[Scopes, tuple[int, ...], dict[int, int]], item_seconds: float, group: int) -> None:
    scopes, output, sizes = step
    tables = random_costs(scopes, sizes, len(scopes))
    axes = lower(scopes, output, sizes, "float64", MIN_PLUS).axes
    constants = {i: Constant(t.size, 0) for i, t in tables.items()}
    records = records_of([Operation(99, tuple(range(len(scopes))), axes)], constants, {}, [99], item_seconds, group)
    expected = contract([t.reshape(-1) for t in tables.values()], scopes, output, sizes, MIN_PLUS)
    targets = np.array([[records.slab_at[99], expected.size, 0, 0]], dtype=np.uint32)
    nothing, root = np.zeros(0, np.uint32), np.array([records.slab_at[99]], np.uint32)
    program = MessageProgram(records, records.constant_at, {}, targets, nothing, root, 0.0, "min_plus")
    values = np.full(records.constant_cells, np.nan)
    for table, at in records.constant_at.items():
        values[at : at + tables[table].size] = tables[table].reshape(-1)
    for answer in DeviceMessages(program, values).run_cases(3, np.ones(0), NOTHING, {}):
        assert np.array_equal(answer, [*expected, expected[0], 0.0])


def grid(rows: int, columns: int, domain: int, seed: int, tiny: float = 1.0) -> Model:
    """A grid of random functions; ``tiny`` is the least entry of some of them."""
    rng = np.random.default_rng(seed)
    at = np.arange(rows * columns).reshape(rows, columns)
    pairs = [*zip(at[:, :-1].flat, at[:, 1:].flat, strict=True), *zip(at[:-1].flat, at[1:].flat, strict=True)]
    functions = []
    for u, v in pairs:
        values = rng.random((domain, domain)) + 0.01
        values[rng.random(values.shape) < 0.1] = 0.0
        values[0, 0] = tiny
        functions.append(Function((int(u), int(v)), values))
    names = tuple(f"x{v}" for v in range(at.size))
    return Model("markov", names, (domain,) * at.size, (None,) * at.size, tuple(functions))


def equal(found: bucketflow.Marginals, expected: bucketflow.Marginals) -> None:
    assert found.status == expected.status
    assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-12)
    for name, table in expected.items():
        assert found[name] == pytest.approx(table, rel=1e-10, abs=1e-14)


@pytest.mark.parametrize(("rows", "columns", "domain"), [(2, 60, 3), (6, 6, 4), (4, 20, 5), (3, 3, 40)])
def test_compiled_models(rows: int, columns: int, domain: int) -> None:
    """Under changing findings; a hundred runs of the same question give the same bits."""
    model = grid(rows, columns, domain, seed=rows)
    cpu, gpu = bucketflow.compile(model), bucketflow.compile(model, gpus=1)
    equal(gpu.marginals(), cpu.marginals())
    likelihood = np.arange(domain) / domain
    for evidence in ({"x3": 1}, {"x3": 0, "x5": likelihood}, {"x0": 2, "x1": 1, "x4": 0}, {}):
        cpu.set_evidence(evidence)
        gpu.set_evidence(evidence)
        equal(gpu.marginals(), cpu.marginals())
    assert gpu.computed == 0, "nothing was left to the CPU"
    first = gpu.marginals()
    for _ in range(100):
        again = gpu.marginals()
        assert again.log10_evidence == first.log10_evidence
        assert all((again[name] == table).all() for name, table in first.items())


def test_impossible_evidence_and_products_that_no_double_holds() -> None:
    model = grid(3, 12, 3, seed=5, tiny=1e-290)
    cpu, gpu = bucketflow.compile(model), bucketflow.compile(model, gpus=1)
    equal(gpu.marginals(), cpu.marginals())
    for compiled in (cpu, gpu):
        compiled.set_evidence({"x0": [0.0, 0.0, 0.0]})
    equal(gpu.marginals(), cpu.marginals())
    assert gpu.marginals().status == "infeasible"


def test_batches() -> None:
    """States, likelihoods, cases that are impossible, and more cases than blocks of threads."""
    model, rng = grid(4, 8, 3, seed=2), np.random.default_rng(3)
    cases = {f"x{v}": rng.integers(-1, 3, 5000) for v in (0, 7, 12, 20, 31)}
    cases["x9"] = rng.random((5000, 3))
    cases["x9"][17] = 0.0
    cpu, gpu = bucketflow.compile(model), bucketflow.compile(model, gpus=1)
    for compiled in (cpu, gpu):
        compiled.add("x2", [1.0, 5.0, 0.5])
    for asked in ("all", ["x5", "x0"]):
        expected, found = cpu.marginals_batch(cases, asked), gpu.marginals_batch(cases, asked)
        assert not found.possible[17]
        assert found.log10_evidence == pytest.approx(expected.log10_evidence, rel=1e-11)
        for name, table in expected.items():
            assert found[name] == pytest.approx(table, rel=1e-9, abs=1e-13)


def test_single_questions() -> None:
    model = grid(4, 10, 3, seed=4)
    equal(bucketflow.marginals(model, evidence={"x5": 1}, gpus=1), bucketflow.marginals(model, evidence={"x5": 1}))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kind", ["sums", "max", "cost"])
def test_slices_and_max_marginals(kind: str, parts: int) -> None:
    model = mixed_grid(4, 5, 6, "cost" if kind == "cost" else "markov")
    asked: dict[str, Any] = {"max_marginals": kind != "sums", "joint": ("x0", "x4"), "evidence": {"x7": 1}}
    expected = bucketflow.marginals(model, **asked)
    whole = bucketflow.marginals(model, **asked, gpus=1)
    assert whole.plan is not None
    found = bucketflow.marginals(model, **asked, gpus=1, gpu_memory=whole.plan.peak_bytes // parts)
    assert found.plan is not None
    assert (found.plan.slices > 1) == (parts > 1)
    assert found.status == expected.status
    assert found.value == expected.value
    for name, table in [*expected.items(), (("x0", "x4"), expected.joint["x0", "x4"])]:
        got = found.joint[name] if isinstance(name, tuple) else found[name]
        if kind == "cost":
            assert np.array_equal(got, table)
        else:
            assert got == pytest.approx(table, rel=1e-10, abs=1e-14)


def test_all_tables_together_may_have_more_cells_than_32_bits_count() -> None:
    if cupy.cuda.runtime.memGetInfo()[0] < 60 << 30:
        pytest.skip("less than 60 GiB of device memory")
    rng, cells = np.random.default_rng(0), 1 << 15
    a, b = (rng.integers(0, 1000, cells).astype(np.float64) for _ in range(2))
    sizes = {0: cells, 1: cells}
    first = Operation(2, (0, 1), lower([(0,), (1,)], (0, 1), sizes, "float64", MIN_PLUS).axes)
    longer = lower([(0, 1), (0,)], (0, 1), sizes, "float64", MIN_PLUS).axes
    last = Operation(9, (6, 1), lower([(0, 1), (1,)], (0,), sizes, "float64", MIN_PLUS).axes)
    operations = [first, *(Operation(n, (n - 1, 0), longer) for n in range(3, 7)), last]
    records = records_of(operations, {0: Constant(cells, 0), 1: Constant(cells, 0)}, {}, [9])
    assert records.slab_cells > 1 << 32
    targets, nothing = np.array([[records.slab_at[9], cells, 0, 0]], np.uint32), np.zeros(0, np.uint32)
    program = MessageProgram(records, records.constant_at, {}, targets, nothing, nothing, 0.0, "min_plus")
    constants = np.zeros(records.constant_cells)
    for table, values in enumerate((a, b)):
        constants[records.constant_at[table] :][:cells] = values
    answer = DeviceMessages(program, constants).run(np.ones(0))
    assert np.array_equal(answer[:-2], 5 * a + 2 * b.min())


def test_memory_is_kept_to() -> None:
    model = grid(4, 10, 4, seed=4)
    compiled = bucketflow.compile(model, gpus=1)
    assert compiled.device is not None
    program = compiled.device._program
    pool = cupy.get_default_memory_pool()
    del compiled
    pool.free_all_blocks()
    before = pool.used_bytes()
    device = DeviceMessages(program, np.ones(program.records.constant_cells))
    device.run(np.ones(program.records.finding_cells))
    # CuPy rounds each of its arrays up to 512 bytes
    assert pool.used_bytes() - before <= program.records.fixed_bytes + program.case_bytes + 10 * 512
