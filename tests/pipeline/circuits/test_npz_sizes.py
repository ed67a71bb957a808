"""Archives whose arrays are too large are refused from their headers, before any array takes memory."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import BucketflowError, BudgetError, FormatError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.compiled import file as compiled_file
from bucketflow.pipeline.report.report import report

ZEROS = 8_000_000
ALLOWED = 16 << 20


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    bucketflow.circuit(bucketflow.load("diagnosis")).save(tmp_path / "circuit.npz")
    return tmp_path / "circuit.npz"


def arrays_of(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def peak_of(call: Callable[[], object], error: type[Exception]) -> tuple[int, str]:
    """The most bytes that a refused call allocated, and its message."""
    tracemalloc.start()
    try:
        with pytest.raises(error) as refused:
            call()
        return tracemalloc.get_traced_memory()[1], str(refused.value)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["indicators", "parameters", "values", "is_sum", "starts", "children", "header"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_an_array_of_zeros_is_refused_by_its_size(circuit: Path, name: str, save: Callable[..., None]) -> None:
    arrays = arrays_of(circuit)
    shape = (2, ZEROS // 2) if arrays[name].ndim == 2 else (ZEROS,)
    save(circuit, **{**arrays, name: np.zeros(shape, arrays[name].dtype)})
    peak, message = peak_of(lambda: bucketflow.load_circuit(circuit, memory=ALLOWED), BucketflowError)
    assert peak < ZEROS // 4
    assert str(circuit) in message
    assert "\n" not in message


def test_a_whole_circuit_that_is_too_large_names_both_sizes(circuit: Path) -> None:
    arrays = arrays_of(circuit)
    large = {
        "is_sum": np.zeros(ZEROS, bool),
        "starts": np.zeros(ZEROS + 1, np.int64),
        "children": np.zeros(ZEROS, np.int64),
    }
    np.savez_compressed(circuit, **{**arrays, **large})
    peak, message = peak_of(lambda: bucketflow.load_circuit(circuit, memory=ALLOWED), BudgetError)
    assert peak < ZEROS // 4
    assert "allowed 16.8 MB" in message
    assert "give a larger --memory" in message


@pytest.mark.parametrize("shape", [(10**12,), (10**12, 10**12), (-5,)])
def test_a_header_that_claims_more_than_there_is_is_refused(circuit: Path, shape: tuple[int, ...]) -> None:
    arrays = arrays_of(circuit)
    with zipfile.ZipFile(circuit, "w") as archive:
        for name, array in arrays.items():
            plain = io.BytesIO()
            if name == "children":
                told = {"descr": "<i8", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(plain, told)
            else:
                np.save(plain, array)
            archive.writestr(f"{name}.npy", plain.getvalue())
    peak, message = peak_of(lambda: bucketflow.load_circuit(circuit), FormatError)
    assert peak < ZEROS // 4
    assert "this is not a circuit" in message


def test_an_nnf_takes_no_more_than_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "wide.nnf"
    path.write_text("nnf 2 0 1\nL 1\n" + "A 0\n" * 300_000)
    with pytest.raises(BudgetError, match=r"with 1\d\d,\d\d\d lines.*give a larger --memory"):
        bucketflow.load_circuit(path, memory="1kB")


def test_evaluate_takes_a_memory(circuit: Path, tmp_path: Path) -> None:
    run = CliRunner()
    good = run.invoke(main, ["evaluate", str(circuit), "--memory", "10MB", "--json"])
    assert good.exit_code == 0
    small = run.invoke(main, ["evaluate", str(circuit), "--memory", "1kB"])
    assert small.exit_code == 3
    assert "allowed 1 kB" in small.stderr


def test_cases_are_the_same_within_any_memory(circuit: Path) -> None:
    whole = bucketflow.load_circuit(circuit)
    name = whole.model.own_names[0]
    states = whole.model.states[0] or ()
    cases = {name: [states[k % len(states)] for k in range(50)]}
    for memory in (300_000, 1 << 20):
        found = bucketflow.load_circuit(circuit, memory=memory)
        assert found._block() <= whole._block()
        np.testing.assert_array_equal(found.log10(cases), whole.log10(cases))
        np.testing.assert_array_equal(found.marginals(cases)[name], whole.marginals(cases)[name])


def test_a_compiled_model_of_zeros_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "compiled.npz"
    with path.open("wb") as file:
        np.savez_compressed(file, header=np.zeros(1, np.uint8), functions=np.zeros(ZEROS))
    compiled_file._seal(path)
    monkeypatch.setattr(compiled_file, "default_memory_bytes", lambda: ALLOWED)
    peak, message = peak_of(lambda: compiled_file.load_compiled(path, lambda saved: saved), BudgetError)
    assert peak < ZEROS
    assert "allowed 16.8 MB" in message


def test_json_is_refused_before_its_objects_take_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answer.json"
    path.write_text("[" + "[]," * 300_000 + "[]]")
    for module in ("report.report", "formats.answer_files"):
        monkeypatch.setattr(f"bucketflow.pipeline.{module}.default_memory_bytes", lambda: 32 << 20)
    model = bucketflow.load("diagnosis")
    from bucketflow.pipeline.formats.answer_files import given_assignment

    for call in (lambda: report(path, tmp_path / "page.html"), lambda: given_assignment(model, [str(path)])):
        peak, message = peak_of(call, BudgetError)
        assert peak < 32 << 20
        assert "with its values" in message
    assert json.loads(path.read_text())
