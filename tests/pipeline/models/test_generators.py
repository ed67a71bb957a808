"""Random problems have the sizes that were asked for, and are the same for the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import BucketflowError, Dcop
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.model import FORBIDDEN
from bucketflow.pipeline.models.random_dcops import KINDS, grid_graph, random_graph, scale_free_graph
from bucketflow.pipeline.preprocessing.preprocess import components


@pytest.mark.parametrize(("nodes", "density"), [(1, 1.0), (10, 0.3), (10, 1.0), (20, 0.1), (20, 0.02), (5, 0.0)])
def test_random_graphs(nodes: int, density: float) -> None:
    edges = random_graph(nodes, density, np.random.default_rng(1))
    assert len(set(edges)) == len(edges) == round(density * nodes * (nodes - 1) / 2)
    assert all(0 <= a < b < nodes for a, b in edges)
    if nodes > 1 and len(edges) >= nodes - 1:
        assert components(nodes, edges) == 1


@pytest.mark.parametrize(("nodes", "count"), [(1, 0), (4, 4), (9, 12), (12, 17), (49, 84)])
def test_grids(nodes: int, count: int) -> None:
    edges = grid_graph(nodes)
    assert len(set(edges)) == len(edges) == count
    assert nodes == 1 or components(nodes, edges) == 1


@pytest.mark.parametrize(("nodes", "links"), [(1, 2), (2, 2), (50, 1), (50, 2), (50, 3)])
def test_scale_free_graphs(nodes: int, links: int) -> None:
    edges = scale_free_graph(nodes, links, np.random.default_rng(2))
    first = min(links, nodes)
    assert len(set(edges)) == len(edges) == first * (first - 1) // 2 + (nodes - first) * links
    assert nodes == 1 or components(nodes, edges) == 1
    degrees = np.bincount(np.array(edges, dtype=int).reshape(-1), minlength=nodes)
    if nodes == 50:
        assert degrees.max() > 3 * links


def dense(dcop: Dcop) -> np.ndarray[Any, Any]:
    return np.concatenate([function.values.reshape(-1) for function in dcop.model.functions])


def test_costs_and_tightness() -> None:
    dcop = bucketflow.generate("random", variables=20, domain=10, density=0.5, tightness=0.25, cost=50, seed=3)
    assert (dcop.model.dims, len(dcop.agents), len(dcop.model.functions)) == ((10,) * 20, 20, 95)
    values = dense(dcop)
    assert (values == FORBIDDEN).mean() == 0.25
    assert (values[values < FORBIDDEN].min(), values[values < FORBIDDEN].max()) == (0, 50)
    again, other = (
        bucketflow.generate("random", variables=20, domain=10, density=0.5, tightness=0.25, cost=50, seed=seed)
        for seed in (3, 4)
    )
    assert (dense(again) == values).all()
    assert (dense(other) != values).any()


def test_colours_and_meetings() -> None:
    colours = bucketflow.generate("coloring", variables=6, domain=2, density=1.0, cost=1)
    assert bucketflow.dpop(colours).value == 6  # two cliques of three
    meetings = bucketflow.generate("meetings", variables=3, domain=6, agents=4, density=0.5, tightness=0.2, seed=1)
    assert len(meetings.model.dims) == 6
    found = bucketflow.dpop(meetings)
    assert found.value == bucketflow.solve(meetings.model).value
    assert found.assignment is not None
    times: dict[str, set[object]] = {}
    for name, time in found.assignment.items():
        times.setdefault(name.split("_")[0], set()).add(time)
    assert all(len(each) == 1 for each in times.values())
    assert all(len(set(own.values())) == len(own) for own in found.by_agent.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["yaml", "xml", "wcsp"])
def test_the_command(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"p.{suffix}"
    done = CliRunner().invoke(main, ["generate", kind, str(path), "--variables", "4", "--domain", "4", "--seed", "5"])
    assert done.exit_code == 0
    made = bucketflow.generate(kind, variables=4, domain=4, cost=1 if kind == "coloring" else 100, seed=5)
    assert bucketflow.solve(bucketflow.load(path)).value == bucketflow.dpop(made).value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "tree"}, "unknown kind 'tree'; one of random, grid"),
        ({"variables": 0}, "variables is 0; expected 1 to 100000"),
        ({"density": 1.5}, "density is 1.5; expected a fraction"),
        ({"tightness": -0.1}, "tightness is -0.1"),
        ({"seed": -1}, "seed is -1"),
        ({"variables": 4.5}, "variables is 4.5, which is not an integer"),
        ({"density": "half"}, "density is 'half'; expected a fraction"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BucketflowError, match=message):
        bucketflow.generate(**{"kind": "random", **options})
