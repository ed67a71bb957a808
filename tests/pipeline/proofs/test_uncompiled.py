"""An optimum within a time, where loops are not compiled yet: what would not be ready in it is left out, and said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.orders import depth_first as orders
from bucketflow.pipeline.proofs import team
from bucketflow.pipeline.proofs.provers import branch_and_bound as search
from bucketflow.pipeline.proofs.provers import diagrams as cut_offs
from bucketflow.tasks.compiler.compile_limits import NotCompiledError
from tests.models import grid


def late(*_: Any, **__: Any) -> Any:
    raise NotCompiledError("loop")


def hard() -> Model:
    """An optimum that is not swept at once."""
    rng = np.random.default_rng(0)
    names = {f"x{r}_{c}": 5 for r in range(14) for c in range(14)}
    pairs = [((r, c), (r + a, c + 1 - a)) for r in range(14) for c in range(14) for a in (0, 1)]
    scopes = [(f"x{r}_{c}", f"x{s}_{e}") for (r, c), (s, e) in pairs if s < 14 and e < 14]
    return Model.build("cost", names, [(scope, rng.integers(0, 9, (5, 5))) for scope in scopes])


@cache
def expected() -> bucketflow.Result:
    """The optimum of what is not swept at once."""
    return bucketflow.solve(hard(), time=600)


@pytest.mark.parametrize(("method", "way", "place"), [
    ("search", "search", (search.Search, "run")),
    ("diagram", "diagram", (cut_offs.Deepening, "run")),
])  # fmt: skip
def test_a_way_that_is_not_compiled_is_left_out_and_named(
    method: Any, way: str, place: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*place, late)
    found = bucketflow.solve(grid(6, 6, 3), method=method, time=600, prune=False)
    assert (found.status, found.assignment) == ("bounded", None)
    assert found.notes == (
        f"the loops of {way} are not compiled, and compiling them would have exceeded the time; "
        "`bucketflow warm` compiles all loops once",
    )


def test_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert expected().status == "optimal"
    for place in ((search.Search, "run"), (cut_offs.Deepening, "run"), (team, "prepare")):
        monkeypatch.setattr(*place, late)
    found = bucketflow.solve(hard(), time=600)
    assert (found.status, found.value, found.notes) == ("optimal", expected().value, ())


def test_an_order_that_is_not_compiled_is_the_first() -> None:
    dims, scopes = (2,) * 9, [(i, (i + 2) % 9) for i in range(9)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketflow.pipeline.orders.tried_orders.search_order", late)
        found = orders.depth_first_order(dims, scopes, seconds=1.0)
    assert sorted(found) == list(range(9))


FRESH = """
import json, sys
sys.path.insert(0, sys.argv[1])
import bucketflow
from tests.pipeline.proofs.test_uncompiled import hard
from bucketflow.tasks.compiler import kept_code
kept_code.SECONDS_PER_BYTE = 1e9
from bucketflow.tasks.compiler import working_time
asked = json.loads(sys.argv[2])
found = bucketflow.solve(hard(), **asked) if asked.pop("solve") else bucketflow.bound(hard(), **asked)
ends = found.proof if hasattr(found, "proof") else found
print(json.dumps([found.status, ends.lower, ends.upper, working_time._compiling[0]]))
"""


@pytest.mark.parametrize("asked", [{"solve": True, "time": 2}, {"solve": False, "time": 1}])
def test_on_a_fresh_cache_nothing_is_compiled_that_takes_too_long(asked: dict[str, Any], tmp_path: Path) -> None:
    """However long the machine takes: nothing at all is compiled where everything would take for ever."""
    fresh = {"NUMBA_CACHE_DIR": str(tmp_path), "BUCKETFLOW_CACHE": str(tmp_path / "rates")}
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", FRESH, root, json.dumps(asked)], capture_output=True, text=True, env=os.environ | fresh
    )
    assert done.returncode == 0, done.stderr
    status, lower, upper, compiling = json.loads(done.stdout)
    assert compiling == 0.0
    best = expected().value
    assert isinstance(best, int)
    assert lower is not None
    assert lower <= best
    assert upper is None or best <= upper
    assert status in ("optimal", "bounded")
