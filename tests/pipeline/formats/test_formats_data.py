"""The readers on published benchmark files, against the sizes in their manifest and two other programs."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.formats.read import load, load_evidence
from bucketflow.pipeline.models.model import Model

DATA = Path(os.environ.get("BUCKETFLOW_DATA") or Path(__file__).resolve().parents[3] / ".." / "shared" / "data")
KINDS = ("wcsp", "cfn", "uai", "bif", "hugin-net")
MAX_COMPRESSED_BYTES = 300_000
SIZES = ("n_vars", "max_domain", "n_functions", "max_arity")
REFUSED = {"bn/odd/carpo.bif.xz": "function max"}
# The manifest has sizes of these files without what global cost functions add.
GLOBAL = (
    *(f"wcsp/cfn/{name}.cfn" for name in ("clique", "knapsackc", "latin4", "max")),
    *(f"wcsp/misc/{name}.wcsp" for name in ("10_1", "B1-LU04-dec", "donald", "golomb4")),
    *(f"wcsp/misc/{name}.wcsp.xz" for name in ("cat_paths_60_170_0005_clq", "magic4")),
)

pytestmark = pytest.mark.skipif(
    not (DATA / "MANIFEST.tsv").is_file(),
    reason=f"no benchmark files: {DATA} has no MANIFEST.tsv (set BUCKETFLOW_DATA)",
)


def manifest() -> list[dict[str, str]]:
    """Return the rows of the model files that are present and not too large."""
    if not (DATA / "MANIFEST.tsv").is_file():
        return []
    with (DATA / "MANIFEST.tsv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["kind"].split("(")[0] in KINDS]
    present = [row for row in rows if (DATA / row["path"]).is_file()]
    return [row for row in present if (DATA / row["path"]).stat().st_size <= MAX_COMPRESSED_BYTES]


@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["path"])
def test_sizes_agree_with_the_manifest(row: dict[str, str]) -> None:
    path = DATA / row["path"]
    if row["path"] in REFUSED:
        with pytest.raises(FormatError, match=REFUSED[row["path"]]):
            load(path)
        return
    model = load(path)
    if row["path"] in GLOBAL:
        assert row["n_vars"] in ("", str(len(model.own_names)))
        return
    sizes = (
        len(model.dims),
        max(model.dims),
        len(model.functions),
        max(len(f.scope) for f in model.functions),
    )
    if row["n_vars"]:
        assert sizes == tuple(int(row[column]) for column in SIZES)
    if row["n_evidence"] not in ("", "0"):
        assert len(load_evidence(evidence_of(path), model)) == int(row["n_evidence"])


def evidence_of(path: Path) -> Path:
    base = path.with_suffix("") if path.suffix in (".gz", ".xz") else path
    names = [f"{stem}.evid{suffix}" for stem in (base, base.with_suffix("")) for suffix in ("", ".gz", ".xz")]
    return next(Path(name) for name in names if Path(name).is_file())


@pytest.mark.parametrize(
    "name",
    [
        "misc/zebra.wcsp",
        "misc/warehouse.wcsp",
        "misc/example.wcsp",
        "pedigree/oconnell.wcsp",
        "spot5_orig/8.wcsp",
        "cfn/simple.cfn",
        "cfn/maximization.cfn",
    ],
)
def test_optimum_agrees_with_toulbar2(name: str) -> None:
    model = load(DATA / "wcsp" / name)
    [(solution, value)] = toulbar2([DATA / "wcsp" / name])
    cost = model.cost(solution)
    assert cost is not None
    assert value == pytest.approx((-cost if model.maximize else cost) / 10**model.decimals)


@pytest.mark.parametrize("name", ["warehouse.wcsp", "example.wcsp", "zebra.wcsp"])
def test_costs_agree_with_toulbar2(name: str, tmp_path: Path) -> None:
    path = DATA / "wcsp" / "misc" / name
    model = load(path)
    [(solution, _)] = toulbar2([path])
    rng = random.Random(3)
    near = [
        [s if rng.random() < 0.9 else rng.randrange(d) for s, d in zip(solution, model.dims, strict=True)]
        for _ in range(30)
    ]
    fixed = [write_fixed(path.read_text(), states, tmp_path / f"{k}.wcsp") for k, states in enumerate(near)]
    expected = [None if found is None else round(found[1]) for found in toulbar2(fixed)]
    assert [model.cost(states) for states in near] == expected


def toulbar2(paths: list[Path]) -> list[tuple[list[int], float] | None]:
    """Solve files of one format, in a process of its own: toulbar2 keeps the format of the first file."""
    pytest.importorskip("pytoulbar2")
    script = """
import json, sys, pytoulbar2
answers = []
for path in sys.argv[1:]:
    try:
        problem = pytoulbar2.CFN()
        problem.Read(path)
        answers.append(problem.Solve())
    except pytoulbar2.pytb2.Contradiction:
        answers.append(None)
print("answers", json.dumps(answers))
"""
    command = [sys.executable, "-c", script, *map(str, paths)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    answers = json.loads(next(line for line in lines if line.startswith("answers")).removeprefix("answers"))
    return [None if answer is None else (answer[0], answer[1]) for answer in answers]


def write_fixed(text: str, states: list[int], path: Path) -> Path:
    """Write a .wcsp file with a unary function more for each variable, which allows one state only."""
    title, n_vars, largest, n_functions, top, *rest = text.split()
    head = [title, n_vars, largest, str(int(n_functions) + len(states)), top]
    unary = [f"1 {v} {top} 1 {state} 0" for v, state in enumerate(states)]
    path.write_text("\n".join([" ".join(head), " ".join(rest), *unary, ""]))
    return path


@pytest.mark.parametrize(
    "name", ["asia.bif.gz", "alarm.bif.gz", "hailfinder.bif.gz", "net/alarm.net", "net/agrum_test2.net"]
)
def test_distributions_agree_with_pyagrum(name: str, tmp_path: Path) -> None:
    agrum = pytest.importorskip("pyagrum")
    raw = (DATA / "bn" / name).read_bytes()
    plain = tmp_path / name.removesuffix(".gz").rpartition("/")[2]
    plain.write_bytes(gzip.decompress(raw) if name.endswith(".gz") else raw)
    model, network = load(DATA / "bn" / name), agrum.loadBN(str(plain))
    rng = random.Random(2)
    within = (
        2e-6 if any("were normalised: rows summed to 0.9999988 to 1.000001" in note for note in model.notes) else 1e-7
    )
    for _ in range(20):
        states = [rng.randrange(d) for d in model.dims]
        for f in model.functions:
            assert f.at([states[v] for v in f.scope]) == pytest.approx(
                cpt_value(network, model, f.child, states), abs=within
            )


def cpt_value(network: object, model: Model, child: int | None, states: list[int]) -> float:
    """Return one entry of a distribution of a pyAgrum network, by the names of variables and states."""
    table = network.cpt(model.names[child])  # type: ignore[attr-defined]
    wanted = {}
    for variable in table.variablesSequence():
        v = model.index[variable.name()]
        labels = model.states[v]
        wanted[variable.name()] = labels[states[v]] if labels else states[v]
    return float(np.asarray(table[wanted]).ravel()[0])


def test_packed_and_plain_read_the_same(tmp_path: Path) -> None:
    packed = DATA / "wcsp" / "spot5" / "404.wcsp.xz"
    plain = tmp_path / "404.wcsp"
    plain.write_bytes(lzma.decompress(packed.read_bytes()))
    a, b = load(packed), load(plain)
    assert all(np.array_equal(f.values, g.values) for f, g in zip(a.functions, b.functions, strict=True))
