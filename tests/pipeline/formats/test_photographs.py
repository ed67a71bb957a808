"""Photographs of satellites (.spot, .bep) against brute force, published optima, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.model import Model

from .test_global_data import DATA

Read = Callable[[str, str], Model]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cells", [1, 1 << 10])
def test_random_choices_of_cameras(read: Read, seed: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    cameras = [[1, 2, 3] if rng.random() < 0.6 else [13] for _ in range(5)]
    worth, used = rng.integers(1, 9, 5), [rng.integers(0, 40, len(own)) / 8 for own in cameras]
    forbidden = []
    for size in (2, 2, 3, 2):
        scope = rng.choice(5, size, replace=False).tolist()
        forbidden.append((scope, [[int(rng.choice(cameras[v])) for v in scope] for _ in range(2)]))
    capacity = 7.5
    lines = ["5"]
    for v, own in enumerate(cameras):
        pairs = " ".join(f"{camera} {amount}" for camera, amount in zip(own, used[v], strict=True))
        lines.append(f"{v} {worth[v]} {len(own)} {pairs} 42510 1")
    lines.append(str(len(forbidden)))
    for scope, rows in forbidden:
        lines.append(" ".join(map(str, [len(scope), *scope, *itertools.chain.from_iterable(rows)])))
    lines.append(str(capacity))
    with FormatPolicy.using(global_table_cells=cells):
        model = read("\n".join(lines) + "\n", "a.spot")
    costs = {}
    for states in itertools.product(*([0, *own] for own in cameras)):
        recorded = sum(used[v][cameras[v].index(s)] for v, s in enumerate(states) if s)
        clash = any([states[v] for v in scope] in rows for scope, rows in forbidden)
        if recorded <= capacity and not clash:
            costs[states] = int(sum(worth[v] for v, s in enumerate(states) if not s))
    found = bucketflow.solve(model)
    assert found.value == min(costs.values())
    assert found.assignment is not None
    assert costs[tuple(0 if s == "none" else int(s) for s in found.assignment.values())] == found.value
    assert bucketflow.solve(model, "count").value == len(costs)
    assert model.hidden == 0 or cells == 1


@pytest.mark.parametrize("seed", range(3))
def test_random_schedules(read: Read, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 4
    durations, earliest = rng.integers(1, 4, count), rng.integers(-2, 6, count)
    latest = np.maximum(earliest, 0) + durations + rng.integers(-1, 5, count)
    worth, delays = rng.integers(1, 30, count), rng.integers(0, 4, (count, count))
    rows = [f"{v + 1} 7 8 {durations[v]} {earliest[v]} {latest[v]} {worth[v]}" for v in range(count)]
    rows += [" ".join(map(str, own)) for own in delays]
    model = read(f"# bench EOLE photo\nan instance\n {count} 1 100 4.0\n" + "\n".join(rows), "a.bep")
    times = [[None, *range(max(0, earliest[v]), latest[v] - durations[v] + 1)] for v in range(count)]
    costs = {}
    for states in itertools.product(*times):
        taken = [v for v in range(count) if states[v] is not None]
        if all(
            states[i] >= states[j] + durations[j] + delays[j, i] or states[j] >= states[i] + durations[i] + delays[i, j]
            for i, j in itertools.combinations(taken, 2)
        ):
            costs[states] = int(sum(worth[v] for v in range(count) if v not in taken))
    found = bucketflow.solve(model)
    assert model.name == "an instance"
    assert found.value == min(costs.values())
    assert found.assignment is not None
    assert costs[tuple(None if s == "none" else int(s) for s in found.assignment.values())] == found.value
    assert bucketflow.solve(model, "count").value == len(costs)
    assert found.notes == ("the value is the revenue of the photographs not taken; toulbar2 counts it 3 times",)


SPOT = "2\n0 5 1 13 4.5\n1 6 2 1 2 3 2.5\n"
BEP = "# bep\nname\n2 1\n1 0 0 3 0 9 4\n2 0 0 3 0 9 5\n0 1\n1 0\n"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.spot", SPOT + "1\n2 0 1 13 2\n", None),
        ("a.spot", "1\n1 5 1 13 0\n0\n", "2: expected photographs in order, from 0 to 0, found '1'"),
        ("a.spot", "1\n0 5 2 13 0\n0\n", "2: expected a line of 2 cameras, each with its data size"),
        ("a.spot", "1\n0 5 2 13 0 13 0\n0\n", "2: expected different cameras"),
        ("a.spot", "1\n0 5 1 13 -1\n0\n", "2: expected what a camera records from 0 to"),
        ("a.spot", "1\n0 5 1 13 nan\n0\n", "2: expected what a camera records from 0 to"),
        ("a.spot", SPOT + "0\ninf\n", "5: expected the capacity from 0 to"),
        ("a.spot", "1\n0 5 1 13 x\n0\n", "2: expected what a camera records, a number, found 'x'"),
        ("a.spot", SPOT + "2\n2 0 1 13 1\n", "5: expected 2 lines of forbidden tuples, found 1 lines"),
        ("a.spot", SPOT + "1\n2 0 0 13 1\n", "5: expected 2 different photographs, and tuples of as many cameras"),
        ("a.spot", SPOT + "1\n2 0 1 13\n", "5: expected 2 different photographs"),
        ("a.spot", SPOT + "1\n2 0 2 13 1\n", "5: expected a photograph from 0 to 1, found '2'"),
        ("a.bep", BEP, None),
        ("a.bep", BEP.replace("2 0 0", "1 0 0"), "5: expected one line of each photograph, found a second one"),
        ("a.bep", BEP + "7\n", "8: expected 7 words of each of 2 photographs, and 4 delays, found 19 words"),
        ("a.bep", BEP.replace("9 5", "9 -5"), "5: expected a revenue from 0 to"),
        ("a.bep", "# bep\n", "expected the number of photographs"),
        ("nameless", BEP, None),
    ],
)
def test_what_is_wrong_is_said(read: Read, name: str, text: str, told: str | None) -> None:
    if told is None:
        assert bucketflow.solve(read(text, name)).value is not None
        return
    with pytest.raises(FormatError) as caught:
        read(text, name)
    assert told in str(caught.value)


def test_a_capacity_of_too_many_sums_is_refused(read: Read) -> None:
    rows = "\n".join(f"{v} 1 1 2 {3**v}" for v in range(18))
    with pytest.raises(BudgetError, match="the recorder over 18 variables needs more than 16384 states"):
        read(f"18\n{rows}\n1\n{3**17}\n", "a.spot")


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark files: {DATA} (set BUCKETFLOW_DATA)")
@pytest.mark.parametrize("name", ["8", "29", "54", "503"])
def test_published_choices_are_their_published_networks(name: str) -> None:
    if not (path := DATA / f"wcsp/spot5_orig/{name}.spot").is_file():
        pytest.skip(f"{path} is not there")
    model, network = load(path), load(path.with_suffix(".wcsp"))
    assert model.dims == network.dims
    rng = np.random.default_rng(0)
    for _ in range(40):
        states = [int(rng.integers(size)) if rng.random() < 0.1 else 0 for size in model.dims]
        assert model.cost(states) == network.cost(states)


def test_a_published_schedule() -> None:
    if not (path := Path(DATA / "wcsp/tb2_default/10_1b.bep")).is_file():
        pytest.skip(f"{path} is not there")
    assert bucketflow.solve(load(path)).value == 0
