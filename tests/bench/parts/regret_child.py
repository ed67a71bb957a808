"""One question, one way, in a process of its own: ``regret_child.py JSON`` prints a line of JSON.

Reading the file is not counted; seconds are the process's CPU seconds and wall seconds.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from typing import Any

import bucketflow
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.errors import BucketflowError
from bucketflow.pipeline.orders.depth_first import bucket_cells
from bucketflow.pipeline.orders.min_fill import min_fill_order
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.trees.costs import tree_cost

#: CPU seconds after the limit until the kernel ends the process for good.
_DYING_SECONDS = 10
#: Nominal seconds of the search for a tree that says how many cells a sweep has.
_SEARCHED_SECONDS = 1.0


def main() -> None:
    """Answer, and say what it took."""
    asked = json.loads(sys.argv[1])
    model = bucketflow.load(asked["path"])
    if asked["way"] == "size":
        found = _size(model, asked)
    else:
        cpu, wall = time.process_time(), time.perf_counter()
        if (limit := asked.get("cpu_limit")) is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu + limit), math.ceil(cpu + limit) + _DYING_SECONDS))
        found = _answer(model, asked)
        found |= {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps(found))


def _size(model: bucketflow.Model, asked: dict[str, Any]) -> dict[str, Any]:
    """Cells of the tree that a short search finds, and of the buckets of the order that it begins with."""
    network, _ = question_of(model, asked["query"], asked["evidence"]).reduced
    dims, scopes = network.dims, network.scopes
    if not scopes:
        return {"end": "sized", "cells": 0.0, "bucket_cells": 0.0}
    found = tree_cost(TreeSearch(dims, scopes, seconds=_SEARCHED_SECONDS).cheapest()).cells
    return {
        "end": "sized",
        "cells": float(found),
        "bucket_cells": bucket_cells(dims, scopes, min_fill_order(dims, scopes, 0)),
    }


def _answer(model: bucketflow.Model, asked: dict[str, Any]) -> dict[str, Any]:
    query, evidence, options = asked["query"], asked["evidence"], asked["options"]
    try:
        if query == "marginals":
            marginals = bucketflow.marginals(model, evidence=evidence, **options)
            return {"end": "answered", "value": marginals.log10_evidence, **_turns(marginals)}
        result = bucketflow.solve(model, query, evidence=evidence, **options)
    except BucketflowError as error:
        return {"end": "refused", "why": str(error)[:200]}
    value = result.value if result.log10 is None else result.log10
    shown = "infeasible" if value is None else str(value) if query == "count" else float(value)
    return {"end": "answered" if result.status != "bounded" else "bounded", "value": shown, **_turns(result)}


def _turns(found: Any) -> dict[str, Any]:
    """The engines that had turns, with CPU seconds, and seconds of compiling; old checkouts may lack both."""
    tried = [[turn.engine, round(turn.seconds, 3)] for turn in getattr(found, "tried", ())]
    return {"tried": tried, "compiled": getattr(found, "seconds", {}).get("compile", 0.0)}


if __name__ == "__main__":
    main()
