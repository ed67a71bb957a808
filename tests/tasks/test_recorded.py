"""Launches of a sweep that are made once and repeated: the same tables as step by step, wherever these lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketflow.tasks.gpu import launch, recorded
from bucketflow.tasks.gpu.arrays import PACKED, Packing, upload
from bucketflow.tasks.gpu.device_policy import DevicePolicy
from bucketflow.tasks.gpu.recorded import Request, placed_in_turn
from bucketflow.tasks.steps.semiring import Semiring, min_plus, mod_sum_product
from bucketflow.tasks.steps.step import make_step
from bucketflow.tasks.sweeps import device_sweep
from bucketflow.tasks.sweeps.device_sweep import device_program
from bucketflow.tasks.sweeps.program import Program
from bucketflow.tasks.sweeps.sweep import Plain, StepReport

from ..device_stand_in import StandIn, device
from ..memory import traced
from ..programs import branch_program, chain_program

COSTS = min_plus("int16", 4)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with device(monkeypatch) as there:
        device_sweep._RECORDS.forget()
        yield there


@pytest.mark.parametrize("semiring", [COSTS, mod_sum_product(2147483647)])
def test_it_makes_the_tables_of_a_sweep_step_by_step(semiring: Semiring) -> None:
    program = chain_program(semiring)
    expected = program.run(keep=[step.node for step in program.steps])
    for change in (0, 1, 0):
        leaves = {node: (table + change).astype(semiring.dtype) for node, table in program.leaves.items()}
        wanted = program.again(program.steps, leaves).run(keep=[step.node for step in program.steps])
        there = device_program(program.again(program.steps, leaves), fetched=False)
        found = there.run(keep=[step.node for step in program.steps])
        assert found.keys() == wanted.keys() == expected.keys()
        for node, table in found.items():
            assert type(table) is not np.ndarray
            np.testing.assert_array_equal(table.get(), wanted[node])


def test_launches_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program, made = chain_program(COSTS), list[int]()
    real = device_sweep.RecordedSweep

    def counted(*args: Any) -> Any:
        made.append(1)
        return real(*args)

    monkeypatch.setattr(device_sweep, "RecordedSweep", counted)
    results = [device_program(program, fetched=True).run()[program.outputs[0]] for _ in range(3)]
    assert len(made) == 1
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_a_step_begins_when_all_passes_of_the_step_before_have_ended(
    place: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of several steps share memory. Here a step has two joins, a pass that reads both, and one beside them."""
    found: list[list[list[int]]] = []

    def prepare(lowered: Any) -> Any:
        run: Any = place.prepare(lowered)
        run.waits = ((), (), (0, 1), ())
        run.bound = lambda *_: [lowered] * 4
        return run

    def bound_launches(launches: list[Any], waits: list[Any]) -> Any:
        found.append([list(before) for before in waits])
        return lambda: None

    monkeypatch.setattr(launch, "prepare", prepare)
    monkeypatch.setattr(recorded, "bound_launches", bound_launches)
    device_program(chain_program(COSTS), fetched=False).run()
    waits = found[-1]
    begun = next(k for k, before in enumerate(waits) if before == [k - 2, k - 1]) - 2
    last: list[int] = [begun - 1] if begun else []
    for k in range(begun, len(waits), 4):
        assert waits[k : k + 4] == [last, last, [k, k + 1], last]
        last = [k + 2, k + 3]


def test_steps_are_reported_and_tables_that_are_wanted_are_there() -> None:
    program, told = chain_program(COSTS), list[int]()
    report = StepReport(lambda step: told.append(step.node))
    nodes = [step.node for step in program.steps]
    device_program(program, fetched=True).run(on_table=report)
    assert told == nodes
    tables = dict[int, Any]()
    device_program(program, fetched=True).run(on_table=lambda step, table: tables.update({step.node: table.get()}))
    for node, table in program.run(keep=nodes).items():
        np.testing.assert_array_equal(tables[node], table)


def sliced_chain() -> Program[Any]:
    """A chain whose slices fix the last variable."""
    program = chain_program(COSTS)
    inner = {v: 1 if v == 7 else n for v, n in enumerate(program.dims)}
    steps = [make_step(s.node, s.inputs, s.input_axes, s.axes, inner, COSTS) for s in program.steps]
    return program.again(tuple(steps), program.leaves)


def test_slices_repeat_them(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = list[int]()
    real = device_sweep.RecordedSweep.run

    def counted(self: Any, tables: Any) -> Any:
        runs.append(1)
        return real(self, tables)

    monkeypatch.setattr(device_sweep.RecordedSweep, "run", counted)
    states, sliced = [{7: state} for state in range(8)], sliced_chain()
    expected = list(sliced.run_slices(states))
    found = list(device_program(sliced, fetched=True).run_slices(states))
    assert len(runs) == len(states)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[sliced.outputs[0]], other[sliced.outputs[0]])


@pytest.mark.parametrize("count", [2, 8])
def test_slices_take_one_block_in_turn(count: int, place: StandIn) -> None:
    program = sliced_chain()
    assert len([*device_program(program, fetched=True).run_slices([{7: 0}])]) == 1
    alone = place.peaks[0]
    for _ in device_program(program, fetched=True).run_slices([{7: state} for state in range(count)]):
        assert place.held[0] == 0
    assert place.peaks[0] == alone


@pytest.mark.parametrize("semiring", [COSTS, min_plus("float64", 4)], ids=lambda s: s.dtype)
def test_small_steps_are_done_on_the_device(semiring: Semiring, place: StandIn) -> None:
    done, counts, steps = list[int](), list[int](), branch_program(semiring, 0).steps
    place.on_step = lambda: done.append(1)
    for seed in range(3):
        program = branch_program(semiring, seed).again(steps, branch_program(semiring, seed).leaves)
        with DevicePolicy.using(step_least_cells=64):
            found = device_program(program, fetched=True).run(keep=[2])
        counts.append(len(done))
        for node, table in program.run(keep=[2]).items():
            np.testing.assert_array_equal(found[node], table)
    assert counts == [2, 4, 6]


def test_progress_is_told_once_where_one_piece_is_too_large(place: StandIn) -> None:
    told, program = list[int](), branch_program(COSTS, 0)
    place.largest_table_bytes = 64
    device_program(program, fetched=True).run(on_table=StepReport(lambda step: told.append(step.node)))
    assert told == [2, 3]


def test_where_one_piece_is_too_large_each_step_finds_its_own(place: StandIn) -> None:
    program = chain_program(COSTS)
    place.largest_table_bytes = max(step.lowered.out_cells for step in program.steps) * 2
    (found,) = device_program(program, fetched=True).run().values()
    np.testing.assert_array_equal(found, program.run()[program.outputs[0]])


def test_where_a_result_has_no_room_beside_the_rest_each_step_finds_its_own(place: StandIn) -> None:
    step = make_step(2, (0, 1), ((0,), (1,)), (0, 1), {0: 64, 1: 64}, COSTS)
    leaves = {node: np.arange(64, dtype=np.int16) for node in range(2)}
    program = Program((step,), leaves, {0: (0,), 1: (1,)}, (2,), (64, 64), Plain(COSTS))
    place.largest_table_bytes, place.patience = leaves[0].nbytes * 32, 1
    (found,) = device_program(program, fetched=True).run().values()
    assert place.refused == 1
    np.testing.assert_array_equal(found, program.run()[2])


@given(st.lists(st.integers(0, 400), max_size=20), st.sampled_from([1, 600, 1 << 24]), st.sampled_from([0, 300, 9999]))
def test_tables_are_packed_where_they_are_said_to_be(cells: list[int], most: int, together: int) -> None:
    rng = np.random.default_rng(1)
    tables = [rng.integers(0, 9, n).astype(np.int16).reshape(-1, 1) for n in cells]
    with DevicePolicy.using(packed_cells=200, packed_together=together, packed_bytes=most):
        packing = Packing(cells, "int16")
    block = np.full(packing.nbytes // 2, -1, np.int16)
    for start, piece in packing.pieces(tables):
        assert piece.nbytes <= max(most, PACKED)
        assert np.all(block[start : start + piece.size] == -1)
        block[start : start + piece.size] = piece
    assert np.all(block >= 0)
    for table, at in zip(tables, packing.places, strict=True):
        assert at % PACKED == 0
        np.testing.assert_array_equal(block[at // 2 : at // 2 + table.size], table.reshape(-1))


def test_what_goes_to_the_device_takes_a_piece_of_the_host_however_large_it_is() -> None:
    tables = [np.full(5000 + n, n, np.int16 if n % 2 else np.float64) for n in range(20)]
    whole, piece = sum(table.nbytes for table in tables), 1 << 14
    with DevicePolicy.using(packed_bytes=piece):
        peak, found = traced(lambda: upload(tables), within=whole + 3 * piece)
    assert peak <= whole + 3 * piece  # the stand-in's tables are the host's
    for there, here in zip(found, tables, strict=True):
        assert there.dtype == here.dtype
        np.testing.assert_array_equal(there.get(), here)


def test_tables_of_another_dtype_are_refused() -> None:
    for cells in (3, 1 << 13):
        with pytest.raises(TypeError):
            [*Packing([cells], "int16").pieces([np.zeros(cells)])]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3), st.integers(0, 8)), max_size=40))
def test_nothing_overlaps_in_turn(drawn: list[tuple[int, int, int]]) -> None:
    requests, first = list[Request](), 0
    for size, later, length in drawn:
        first += later
        requests.append(Request(500 * size, first, first + length))
    places, nbytes = placed_in_turn(requests)
    for i, (a, at) in enumerate(zip(requests, places, strict=True)):
        assert at % 512 == 0
        assert at + a.nbytes <= nbytes
        for b, other in list(zip(requests, places, strict=True))[:i]:
            together = a.first <= b.last and b.first <= a.last
            assert not together or at + a.nbytes <= other or other + b.nbytes <= at
