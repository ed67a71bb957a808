"""Tables that are kept for whoever wants to look: exact, by name, within the disk, and refused where there are none."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.cli.main import main
from tests.models import grid
from tests.opening import opened
from tests.pipeline.runs.test_outofcore import budget


def message(model: bucketflow.Model, below: list[int], names: list[str], *, least: bool) -> np.ndarray:
    """Combine functions by brute force; what remains is over some variables, in their order."""
    scope = sorted({v for f in below for v in model.functions[f].scope})
    kept = [model.index[name] for name in names]
    combine = np.add if least else np.multiply
    table = np.full([model.dims[v] for v in scope], 0.0 if least else 1.0)
    for f in below:
        function = model.functions[f]
        values = np.asarray(function.values, float).reshape([model.dims[v] for v in function.scope])
        order = sorted(range(values.ndim), key=lambda axis: function.scope[axis])
        shape = [model.dims[v] if v in function.scope else 1 for v in scope]
        table = combine(table, values.transpose(order).reshape(shape))
    gone = tuple(i for i, v in enumerate(scope) if v not in kept)
    table = table.min(axis=gone) if least else table.sum(axis=gone)
    left = [v for v in scope if v in kept]
    return table.transpose([left.index(v) for v in kept])


def functions_below(plan: Any, leaves: list[list[int]]) -> dict[int, list[int]]:
    """For each table of the tree the functions that it is made of."""
    below = dict(enumerate(leaves))
    for step in plan.up:
        below[step.node] = [f for i in step.inputs for f in below[i]]
    return below


@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("partition", "markov")])
def test_every_table_is_there_and_is_what_it_says(query: str, kind: str, tmp_path: Path) -> None:
    model = grid(3, 4, 3, kind)
    plain = bucketflow.solve(model, query, tree="bucket", method="dense")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketflow.tasks.boxes.box.MOST_CHUNK_BYTES", 32)
        found = bucketflow.solve(model, query, tree="bucket", workdir=tmp_path / "run", keep_tables=0, prune=False)
    assert (found.value, found.log10, found.assignment) == (plain.value, plain.log10, plain.assignment)
    group, arrays = opened(tmp_path / "run" / "tables")
    assert found.plan is not None
    assert {array.attrs["step"] for array in arrays.values()} == {step.node for step in found.plan.up}
    assert {array.attrs["task"] for array in arrays.values()} <= found.plan.graph().nodes.keys()
    # what a leaf table is made of follows from its variables: of a grid each pair is a function
    pairs = {frozenset(f.scope): i for i, f in enumerate(model.functions)}
    local = [model.index[name] for name in group.attrs["variables"]]
    leaves = [[pairs[frozenset(local[v] for v in scope)]] for scope in found.plan.tree.leaves if len(scope) == 2]
    assert len(leaves) == found.plan.tree.n_leaves == len(model.functions)
    below = functions_below(found.plan, leaves)
    shift = [int(np.min(f.values)) if query == "optimum" else 0 for f in model.functions]
    for array in arrays.values():
        names = list(array.metadata.dimension_names or ())
        assert names == list(array.attrs["variables"])
        expected = message(model, below[array.attrs["step"]], names, least=query == "optimum")
        if query == "optimum":
            expected = expected - sum(shift[f] for f in below[array.attrs["step"]])
            assert np.array_equal(array[...], expected)
        else:
            assert array[...] * np.exp(array.attrs.get("log_scale", 0.0)) == pytest.approx(expected, rel=1e-9)


def test_marginals_keep_messages_of_both_ways(tmp_path: Path) -> None:
    model = grid(4, 4, 3, "markov")
    found = bucketflow.marginals(model, workdir=tmp_path / "run", keep_tables=0)
    _, arrays = opened(tmp_path / "run" / "tables")
    assert found.plan is not None
    assert {array.attrs["task"].split("-")[0] for array in arrays.values() if "task" in array.attrs} == {
        "eliminate",
        "message",
        "result",
    }
    results = {int(a.attrs["step"]): a for a in arrays.values() if str(a.attrs.get("task", "")).startswith("result")}
    for (variable,), table in found.plan.results.items():
        values = results[table][...]
        name = results[table].attrs["variables"][0]
        assert model.names.index(name) >= 0
        assert values / values.sum() == pytest.approx(found[name], rel=1e-9), variable


def test_where_no_table_is_large_enough_a_note_says_so(tmp_path: Path) -> None:
    model, told = grid(5, 5, 4), "no table is as large as 1 GB, so that none is kept"
    assert told in bucketflow.solve(model, workdir=tmp_path / "none", keep_tables="1GB").notes
    assert told not in bucketflow.solve(model, workdir=tmp_path / "some", keep_tables=200).notes
    assert (
        told in bucketflow.marginals(model, workdir=tmp_path / "neither", keep_tables="1GB", max_marginals=True).notes
    )


def test_only_large_tables_are_kept(tmp_path: Path) -> None:
    model = grid(5, 5, 4)
    bucketflow.solve(model, workdir=tmp_path / "run", keep_tables=200)
    _, arrays = opened(tmp_path / "run" / "tables")
    assert arrays
    plan = bucketflow.plan(model)
    large = [step for step in plan.steps if step.lowered.out_cells * plan.itemsize >= 200]
    assert 0 < len(large) < len(plan.steps)
    assert {array.attrs["step"] for array in arrays.values()} == {step.node for step in large}
    assert sum(array.nbytes for array in arrays.values()) == plan.kept_tables_bytes(200)


def test_a_finished_run_makes_its_tables_when_they_are_asked_for(tmp_path: Path) -> None:
    model = grid(4, 4, 3)
    first = bucketflow.solve(model, method="dense", workdir=tmp_path / "run")
    assert not (tmp_path / "run" / "tables").exists()
    again = bucketflow.solve(model, method="dense", workdir=tmp_path / "run", keep_tables=0)
    assert (again.value, again.assignment) == (first.value, first.assignment)
    assert opened(tmp_path / "run" / "tables")[1]


@pytest.mark.parametrize("query", ["partition", "marginals"])
def test_stored_tables_of_sums_stay(query: str, tmp_path: Path) -> None:
    model = grid(6, 6, 4, "markov")
    how: dict[str, Any] = {"fit": "spill", "memory": budget(model, query, 3), "keep_tables": 0}
    if query == "marginals":
        found: Any = bucketflow.marginals(model, workdir=tmp_path / "run", **how)
    else:
        found = bucketflow.solve(model, query, workdir=tmp_path / "run", **how)
    _, arrays = opened(tmp_path / "run" / "tables")
    assert found.plan.spill.tables
    assert {table.name for table in found.plan.spill.tables.values()} <= set(arrays)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"workdir": None}, bucketflow.ModelError, "give workdir with keep_tables"),
        ({"gpus": 1}, bucketflow.ModelError, "leave out gpus, or keep_tables"),
        ({"workers": 1}, bucketflow.ModelError, "leave out workers, or use fit 'spill'"),
        ({"representation": "rows"}, bucketflow.ModelError, "use fit 'spill'"),
        ({"memory": "30kB", "fit": "slice"}, bucketflow.ModelError, "slices has its own tables"),
        ({"time": 1.0}, bucketflow.ModelError, "leave out time, gap and upper_bound"),
        ({"disk": 100}, bucketflow.BudgetError, "of disk, allowed 100 B; keep only "),
        ({"keep_tables": "much"}, bucketflow.ModelError, "'much' is not a size"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    options: dict[str, Any], error: type[Exception], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=re.escape(says)):
        bucketflow.solve(grid(6, 6, 4), **{"workdir": tmp_path / "run", "keep_tables": 0, **options})


@BudgetPolicy.using(margin_bytes=1 << 12)
@pytest.mark.parametrize("share", [1, 2])
def test_a_store_has_all_tables_of_memory_or_those_of_a_spill(share: int, tmp_path: Path) -> None:
    model = grid(5, 5, 4)
    plan = bucketflow.plan(model)
    assert plan is not None
    how: dict[str, Any] = {"memory": plan.peak_bytes // share, "method": "dense"}
    found = bucketflow.solve(model, workdir=tmp_path / "store", fit="store", **how)
    same = bucketflow.solve(
        model, workdir=tmp_path / "keep", keep_tables=0, fit="spill" if share > 1 else "auto", **how
    )
    assert found.plan is not None
    assert found.plan.way == ("memory" if share == 1 else "disk")
    assert found.value == same.value
    (_, stored), (_, kept) = (opened(tmp_path / name / "tables") for name in ("store", "keep"))
    assert stored
    assert stored.keys() == kept.keys()
    for name, array in stored.items():
        assert np.array_equal(array[...], kept[name][...])


@pytest.mark.parametrize(
    ("options", "says"), [({}, "give workdir with fit 'store'"), ({"gpus": 1}, "leave out gpus, or fit 'store'")]
)
def test_a_store_needs_a_run_directory_and_no_gpu(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    folder = tmp_path / "run" if options else None
    with pytest.raises(bucketflow.ModelError, match=re.escape(says)):
        bucketflow.solve(grid(3, 3, 2), fit="store", workdir=folder, **options)


def test_inspect_lists_the_arrays(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    asked = ["solve", "satellite", "--method", "dense", "--workdir", run, "--keep-tables", "0"]
    assert CliRunner().invoke(main, asked).exit_code == 0
    done = CliRunner().invoke(main, ["inspect", run, "--json"])
    assert done.exit_code == 0, done.output
    told = {array["name"]: array for array in json.loads(done.stdout)["arrays"]}
    _, arrays = opened(tmp_path / "run" / "tables")
    assert told.keys() == arrays.keys()
    for name, array in arrays.items():
        shown = told[name]
        assert (shown["shape"], shown["chunk_shape"]) == (list(array.shape), list(array.chunks))
        assert (shown["step"], shown["dtype"]) == (array.attrs["step"], str(array.dtype))
        assert shown["variables"] == list(array.attrs["variables"])
        assert shown["bytes_on_disk"] == array.nbytes
        assert shown["ratio"] == 1.0
        assert shown["chunks_done"] == shown["chunks"] == array.nchunks
    printed = CliRunner().invoke(main, ["inspect", run])
    assert printed.exit_code == 0
    assert all(name in printed.stdout for name in list(arrays)[:3])


def test_brute_force_of_this_file_is_brute_force() -> None:
    model = grid(2, 2, 2)
    total = message(model, list(range(len(model.functions))), ["x0"], least=True)
    for state in range(2):
        costs = [
            sum(int(f.values.reshape([2] * len(f.scope))[tuple(states[v] for v in f.scope)]) for f in model.functions)
            for states in product(range(2), repeat=4)
            if states[0] == state
        ]
        assert total[state] == min(costs)
