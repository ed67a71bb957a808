"""Stores of runs, finished and interrupted, open with plain Zarr: nothing in them but arrays that say what they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import bucketflow
from bucketflow.pipeline.runs.dense_boxes import write_scales
from bucketflow.storage import ledger
from bucketflow.storage.spec import Receipt, TableSpec
from bucketflow.storage.tables import create_group, delete_table
from bucketflow.tasks.steps.policy import BoxPolicy, RowPolicy
from tests.models import grid
from tests.opening import opened
from tests.pipeline.runs.test_outofcore import budget

#: How a question is asked so that its tables, or what its slices found, are in a store.
WAYS: Mapping[str, tuple[str, tuple[int, int, int, str], dict[str, Any]]] = {
    "boxes": ("optimum", (6, 6, 4, "cost"), {"fit": "spill"}),
    "sums": ("partition", (6, 6, 4, "markov"), {"fit": "spill"}),
    "beliefs": ("marginals", (5, 5, 4, "markov"), {"fit": "spill"}),
    "slices": ("marginals", (5, 5, 4, "markov"), {"fit": "slice"}),
    "rows": ("optimum", (4, 4, 4, "forbids"), {"fit": "spill", "representation": "rows"}),
}


def ask(way: str, run: Path, **options: Any) -> Any:
    query, shape, how = WAYS[way]
    model = grid(*shape)
    options["memory"] = "4MB" if way == "rows" else budget(model, query, 3)
    with RowPolicy.using(small_cells=1), BoxPolicy.using(memory_first=way != "rows"):
        if query == "marginals":
            return bucketflow.marginals(model, workdir=run, **how, **options)
        return bucketflow.solve(model, query, workdir=run, **how, **options)


def assert_described(run: Path, query: str) -> dict[str, zarr.Array]:
    """Check what a store says of itself, and that its receipts are beside it."""
    group, arrays = opened(run / "tables")
    assert group.attrs["query"] == {"marginals": "partition"}.get(query, query)
    assert group.attrs["semiring"] in ("min_plus", "sum_product")
    assert set(group.attrs["variables"]) <= set(grid(6, 6, 4).names)
    assert {path.name for path in (run / "tables").iterdir()} == {"zarr.json", *arrays}
    assert ledger.folder_of(run / "tables").is_dir()
    sizes: dict[str, int] = {}
    for array in arrays.values():
        names = array.metadata.dimension_names
        assert names is not None
        assert all(names)
        assert len(set(names)) == array.ndim
        for name, size in zip(names, array.shape, strict=True):
            assert sizes.setdefault(name, size) == size, "one data set has a size for each name"
        assert "kind" in array.attrs or {"step", "task", "variables", "semiring", "scale"} <= set(array.attrs)
    return arrays


@pytest.mark.parametrize("way", WAYS)
def test_the_store_of_a_finished_run_opens_without_a_warning(way: str, tmp_path: Path) -> None:
    ask(way, tmp_path / "run")
    arrays = assert_described(tmp_path / "run", WAYS[way][0])
    assert arrays or way == "sums"  # tables of sums are deleted once nobody reads them
    for array in arrays.values():
        assert array[...].size == array.size


@pytest.mark.parametrize("way", WAYS)
def test_the_store_of_an_interrupted_run_opens_without_a_warning_and_is_gone_on_with(way: str, tmp_path: Path) -> None:
    whole = ask(way, tmp_path / "whole")
    reports: list[int] = []

    def stop(done: int, planned: int) -> None:
        reports.append(done)
        if done > planned // 3:
            raise KeyboardInterrupt

    with pytest.raises(bucketflow.StoppedError):
        ask(way, tmp_path / "run", progress=stop)
    assert assert_described(tmp_path / "run", WAYS[way][0])
    again = ask(way, tmp_path / "run")
    if WAYS[way][0] == "marginals":
        assert all(again[name].tobytes() == whole[name].tobytes() for name in whole)
    else:
        assert (again.value, again.log10, again.assignment) == (whole.value, whole.log10, whole.assignment)
    assert_described(tmp_path / "run", WAYS[way][0])


def test_a_stored_table_is_that_of_a_sweep_in_memory(tmp_path: Path) -> None:
    """By step, of the same tree; boxes that fix what its reader does not know leave shares along these variables."""
    model, how = grid(6, 6, 4), {"tree": "bucket", "order": "min-fill"}
    memory = budget(model, "optimum", 3)
    spilled = bucketflow.solve(model, workdir=tmp_path / "disk", fit="spill", memory=memory, **how)
    whole = bucketflow.solve(model, workdir=tmp_path / "memory", keep_tables=0, **how)
    assert spilled.value == whole.value
    stored = opened(tmp_path / "disk" / "tables")[1].values()
    kept = {array.attrs["step"]: array for array in opened(tmp_path / "memory" / "tables")[1].values()}
    assert stored
    for array in stored:
        other, names = kept[array.attrs["step"]], list(array.attrs["variables"])
        assert names == list(array.metadata.dimension_names or ())
        wanted = list(other.attrs["variables"])
        shared = tuple(axis for axis, name in enumerate(names) if name not in wanted)
        values, left = array[...].min(axis=shared), [name for name in names if name in wanted]
        values = values.transpose([left.index(name) for name in wanted])
        top = min(array.attrs["top"], other.attrs["top"])
        assert np.array_equal(np.minimum(values, top), np.minimum(other[...], top))


def test_scales_beside_a_table_of_probabilities_give_its_true_values(tmp_path: Path) -> None:
    model, how = grid(5, 5, 4, "markov"), {"tree": "bucket", "order": "min-fill"}
    memory = budget(model, "marginals", 3)

    def stop(done: int, planned: int) -> None:
        if done > planned // 2:
            raise KeyboardInterrupt

    with pytest.raises(bucketflow.StoppedError):
        bucketflow.marginals(model, workdir=tmp_path / "disk", fit="spill", memory=memory, progress=stop, **how)
    bucketflow.marginals(model, workdir=tmp_path / "memory", keep_tables=0, **how)
    arrays = opened(tmp_path / "disk" / "tables")[1]
    stored = opened(tmp_path / "memory" / "tables")[1].values()
    kept = {array.attrs["step"]: array for array in stored if "step" in array.attrs}
    compared = 0
    for name in [name for name in arrays if f"{name}_log_scale" in arrays]:
        array, scales = arrays[name], arrays[f"{name}_log_scale"]
        names, cut = list(array.attrs["variables"]), list(scales.metadata.dimension_names or ())
        logs = arrays[f"{name}_logs"][...] if f"{name}_logs" in arrays else np.zeros(scales.shape)
        shape = [scales.shape[cut.index(axis)] if axis in cut else 1 for axis in names]
        scale, logs = (np.asarray(values).reshape(shape) for values in (scales[...], logs))
        true = np.where(logs, np.exp(array[...] + scale), array[...] * np.exp(scale))
        other = kept[array.attrs["step"]]
        shared = tuple(axis for axis, name in enumerate(names) if name not in other.attrs["variables"])
        left = [name for name in names if name in other.attrs["variables"]]
        true = true.sum(axis=shared).transpose([left.index(name) for name in other.attrs["variables"]])
        expected, there = other[...] * np.exp(other.attrs["log_scale"]), ~np.isnan(true)
        assert true[there] == pytest.approx(expected[there], rel=1e-9)
        compared += bool(there.any())
    assert compared


def test_logarithms_are_marked_by_chunk(tmp_path: Path) -> None:
    spec = TableSpec("t", (0, 1), ("a", "b"), (3, 2), frozenset((0,)), "float64", attributes={"semiring": "x"})
    create_group(tmp_path, {})
    receipts = [Receipt("t", (c, 0), 16, 0, 0.0, 0, {"log_scale": -float(c), "logs": c == 1}) for c in range(2)]
    write_scales(tmp_path, spec, receipts[:1])
    assert {*opened(tmp_path)[1]} == {"t_log_scale"}
    write_scales(tmp_path, spec, receipts)
    arrays = opened(tmp_path)[1]
    assert np.array_equal(arrays["t_log_scale"][...], [0.0, -1.0, np.nan], equal_nan=True)
    assert arrays["t_logs"][...].tolist() == [0, 1, 0]
    assert arrays["t_logs"].metadata.dimension_names == ("a",)
    delete_table(tmp_path, spec)
    assert not opened(tmp_path)[1]


def test_keys_of_stored_rows_are_read_by_their_attributes(tmp_path: Path) -> None:
    ask("rows", tmp_path / "run")
    group, arrays = opened(tmp_path / "run" / "tables")
    names = group.attrs["variables"]
    keys = [name for name in arrays if name.endswith("_keys")]
    assert keys
    model = grid(*WAYS["rows"][1])
    for name in keys:
        words = arrays[name][...].reshape(-1, arrays[name].shape[-1])[: arrays[name].attrs["rows"]]
        for variable, word, shift, bits in arrays[name].attrs["variable_word_shift_bits"]:
            states = words[:, word] >> np.uint64(shift) & np.uint64((1 << bits) - 1)
            assert states.max() < model.dims[model.index[names[variable]]]
        assert len(np.unique(words, axis=0)) == len(words)
        assert arrays[name.replace("_keys", "_values")].attrs["rows"] == len(words)
