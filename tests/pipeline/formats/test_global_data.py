"""Published files with global cost functions: the validation set of toulbar2 and its examples, with their optima."""

from __future__ import annotations

import csv
import os
import re
from decimal import Decimal
from pathlib import Path

import pytest

import bucketflow
from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.formats.read import load

DATA = Path(os.environ.get("BUCKETFLOW_DATA") or Path(__file__).resolve().parents[3] / ".." / "shared" / "data")
CASES = DATA.parent / "cases"
# What contradicts itself is refused by name.
REFUSED = {
    # its automata of 2 states have transitions to state 2, which toulbar2 writes beside its table
    "wcsp/tb2_decomposable/B1-LU04-test.wcsp.xz": "75: expected a state of the automaton from 0 to 1, found 2 in the "
    "global cost function 'wregular'",
}
OLDER = {
    "wcsp/cfn/clique.cfn": "0",
    "wcsp/cfn/knapsackc.cfn": "7",
    "wcsp/cfn/latin4.cfn": "35",
    "wcsp/cfn/max.cfn": "4",
    "wcsp/misc/B1-LU04-dec.wcsp": "92",
    "wcsp/misc/donald.wcsp": "0",
    "wcsp/misc/golomb4.wcsp": "6",
}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark files: {DATA} (set BUCKETFLOW_DATA)")


def published() -> dict[str, str]:
    """Return the optimum of each file that has a known one."""
    found = dict(OLDER)
    if (DATA / "MANIFEST_2026.tsv").is_file():
        with (DATA / "MANIFEST_2026.tsv").open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                optimum = re.search(r"optimum=([-0-9.]+)", row["known_answer"] or "")
                if re.match(r"wcsp/tb2_\w+/[^/]+\.(wcsp|cfn)(\.xz)?$", row["path"]) and optimum:
                    found[row["path"]] = optimum[1]
    return {path: value for path, value in found.items() if (DATA / path).is_file()}


@pytest.mark.parametrize("path", published())
def test_optima_are_those_published(path: str) -> None:
    if path in REFUSED:
        return
    model = load(DATA / path)
    result = bucketflow.solve(model)
    assert result.status == "optimal"
    assert result.assignment is not None
    assert Decimal(str(result.value)) == Decimal(published()[path])
    assert [*result.assignment] == [*model.own_names]
    states = [model.state_index(v, result.assignment[name]) for v, name in enumerate(model.own_names)]
    assert model.cost(states) is not None
    assert model.objective(model.cost(states) or 0) == result.value


@pytest.mark.parametrize("path", REFUSED)
def test_what_contradicts_itself_is_refused(path: str) -> None:
    if not (DATA / path).is_file():
        pytest.skip(f"{path} is not there")
    with pytest.raises(FormatError) as caught:
        load(DATA / path)
    assert str(caught.value).endswith(f":{REFUSED[path]}")


def every_network() -> list[str]:
    """Return the paths of all networks, as far as they are not too large for a test."""
    paths = [path for path in (DATA / "wcsp").rglob("*") if re.search(r"\.(wcsp|cfn)(\.gz|\.xz)?$", path.name)]
    return sorted(str(path.relative_to(DATA)) for path in paths if path.stat().st_size <= 100_000)


@pytest.mark.parametrize("path", every_network())
def test_every_network_is_read_or_refused_by_name(path: str) -> None:
    if path in REFUSED:
        with pytest.raises(FormatError):
            load(DATA / path)
    else:
        assert load(DATA / path).kind == "cost"


def test_counts_of_published_files() -> None:
    if not (DATA / "wcsp/tb2_enum/base2.wcsp").is_file():
        pytest.skip("the validation set of toulbar2 is not there")
    assert bucketflow.solve(load(DATA / "wcsp/tb2_default/4queens-salldiff.wcsp"), "count").value == 2


@pytest.mark.parametrize(
    ("name", "optimum", "count"),
    [("wcsp_disj", 0, 9), ("wcsp_interval", 0, 15), ("wcsp_knapsack", 0, 3), ("wcsp_salldiff", 0, 24)],
)
def test_small_public_cases(name: str, optimum: int, count: int) -> None:
    if not (path := CASES / f"{name}.wcsp").is_file():
        pytest.skip(f"{path} is not there")
    model = load(path)
    assert bucketflow.solve(model).value == optimum
    assert bucketflow.solve(model, "count").value == count
