"""Functions that are built together from the numbers of a whole file are those that are read one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BucketflowError
from bucketflow.pipeline.formats import uai, wcsp

Rng = np.random.Generator
_ODD = ("-1", "x", "2-3", "1.0", "1e0", "+1", "07", "7", "inf", "nan", "1_0", str(2**63), str(2**62), str(-(2**62)))


def _wcsp(rng: Rng) -> str:
    """Return a file of dense tables, listed tuples, shared functions, a constant and a global function."""
    dims = rng.choice([1, 2, 3, 300], 9)
    top = rng.choice([50, 2**62 + 1, 2**64])
    lines = []
    for _ in range(25):
        scope = rng.choice(9, rng.integers(0, 4), replace=bool(rng.random() < 0.1))
        rows = [[int(rng.integers(dims[v])) for v in scope] for _ in range(rng.integers(0, 5))]
        head = [len(scope), *scope, rng.integers(0, 60), len(rows) if len(scope) else 0]
        lines.append(" ".join(map(str, head)))
        lines += [" ".join(map(str, [*row, rng.choice([0, 7, 60, top])])) for row in rows if row]
    lines.insert(0, "-1 0 5 1\n0 3")
    lines += ["1 0 5 -1", "2 1 2 -1 >= 0 0" if rng.random() < 0.5 else "0 3 0"]
    return f"random 9 {max(dims)} 28 {top}\n{' '.join(map(str, dims))}\n" + "\n".join(lines) + "\n"


def _uai(rng: Rng) -> str:
    """Return a Markov network; tables differ in size."""
    dims = rng.integers(1, 4, 9)
    scopes = [rng.choice(9, rng.integers(0, 4), replace=bool(rng.random() < 0.02)) for _ in range(20)]
    lines = ["MARKOV", "9", " ".join(map(str, dims)), "20"]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in scopes]
    for scope in scopes:
        values = rng.choice([0.0, 0.25, 1.5, 2.0], int(dims[scope].prod()))
        lines += [str(len(values)), " ".join(map(str, values))]
    return "\n".join(lines) + "\n"


def _damaged(rng: Rng, text: str) -> str:
    """Return the text with one word replaced, inserted or dropped."""
    lines = [line.split() for line in text.split("\n")]
    line = lines[rng.integers(len(lines) - 1)]
    place = int(rng.integers(len(line)))
    line[place : place + int(rng.integers(2))] = [] if rng.random() < 0.3 else [str(rng.choice(_ODD))]
    return "\n".join(map(" ".join, lines))


def _read(path: Path) -> list[object] | str:
    try:
        model = bucketflow.load(path)
    except BucketflowError as error:
        return str(error)
    tables = [
        (f.scope, f.default, f.child, f.values.dtype, f.values.shape, f.values.tobytes(), f.rows is None)
        for f in model.functions
    ]
    rows = [(f.rows.dtype, f.rows.shape, f.rows.tobytes()) for f in model.functions if f.rows is not None]
    return [model.kind, model.dims, model.top, model.notes, model.hidden, tables, rows]


@pytest.mark.parametrize(("suffix", "written", "reader"), [("wcsp", _wcsp, wcsp), ("uai", _uai, uai)])
@pytest.mark.parametrize("seed", range(60))
def test_functions_together_are_as_one_by_one(
    suffix: str, written: object, reader: object, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    assert callable(written)
    text = written(rng) if seed % 3 == 0 else _damaged(rng, written(rng))
    path = tmp_path / f"a.{suffix}"
    path.write_text(text)
    together = _read(path)
    monkeypatch.setattr(reader, "FEW", 10**9)
    assert _read(path) == together


def test_a_missing_blank_at_the_end_of_a_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.uai"
    path.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2-3 4\n")
    with pytest.raises(BucketflowError, match=r"a.uai:7: expected a finite number of at least 0, found '2-3'"):
        bucketflow.load(path)


def test_costs_of_17_decimals_are_rounded_where_64_bits_do_not_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "a.qpbo"
    path.write_text("2 2\n1 1 123.12345678901234567\n1 2 -1.5\n")
    model = bucketflow.load(path)
    assert model.notes == ("costs of 17 decimals are rounded to 13, because costs are integers of 64 bits",)
    assert float(model.objective(model.cost([1, 1]) or 0)) == pytest.approx(120.12345678901234, abs=1e-13)
    path.write_text("2 2\n1 1 0.12345678901234567\n1 2 -1.5\n")
    model = bucketflow.load(path)
    assert (model.decimals, model.notes) == (17, ())
