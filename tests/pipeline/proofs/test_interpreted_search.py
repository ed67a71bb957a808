"""Branch and bound in the interpreter: node by node the search that machine code does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import bucketflow
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork
from bucketflow.pipeline.proofs.provers import branch_and_bound
from bucketflow.pipeline.proofs.provers.branch_and_bound import Search
from bucketflow.tasks.compiler.compile_beside import run_interpreted
from bucketflow.tasks.compiler.compile_limits import compiled_until
from bucketflow.tasks.search.state import REST_CELLS, least_costs
from tests.models import grid
from tests.pipeline.proofs.networks import cost_networks


class Interpreted:
    """Runs every loop in the interpreter."""

    @staticmethod
    def call(function: Any, *arguments: Any) -> Any:
        return run_interpreted(function, *arguments, replaced=(("least_costs", least_costs),))


@settings(deadline=None)
@given(cost_networks())
def test_the_interpreter_searches_the_same_nodes(network: CostNetwork) -> None:
    found = []
    for limited in (False, True):
        search = Search(network, range(len(network.dims)), None)
        search._state.memory[REST_CELLS] = 0  # nothing is enumerated: there are more nodes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(branch_and_bound, "INTERPRETER", Interpreted)
            with compiled_until(3600.0 if limited else np.inf):
                outcome = search.run()
        found.append((outcome, search.nodes, search.lower, search.best))
    assert found[0] == found[1]


FRESH = """
import json, sys
sys.path.insert(0, sys.argv[1])
import bucketflow
from tests.models import grid
from bucketflow.tasks.compiler import kept_code
kept_code.SECONDS_PER_BYTE = 1e9
found = bucketflow.solve(grid(4, 4, 3), method="search", time=3600, prune=False)
print(json.dumps([found.status, found.value]))
"""


def test_without_a_compiler_a_small_optimum_is_proved_within_a_time_limit(tmp_path: Path) -> None:
    fresh = {"NUMBA_CACHE_DIR": str(tmp_path), "BUCKETFLOW_CACHE": str(tmp_path / "rates")}
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", FRESH, root], capture_output=True, text=True, env=os.environ | fresh, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["optimal", bucketflow.solve(grid(4, 4, 3)).value]
    assert not list(tmp_path.rglob("*.nbc"))
