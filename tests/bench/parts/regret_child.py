"""One question, one way, in a process of its own: ``regret_child.py JSON`` prints ``loaded``, then a line of JSON.

Reading the file is not counted; seconds are the process's CPU seconds and wall seconds.
"""

from __future__ import annotations

import json
import math
import random
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bucketflow
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.errors import BucketflowError
from bucketflow.pipeline.orders.depth_first import bucket_cells
from bucketflow.pipeline.orders.min_fill import min_fill_order
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.trees.costs import tree_cost

#: The line that says that the clock runs: the model is read.
_LOADED = "loaded"
#: CPU seconds after the limit until the kernel ends the process for good.
_DYING_SECONDS = 10
#: What is swept for queries that have no sweep of their own.
_SIZED = {"mmap": "partition", "samples": "partition", "best": "optimum", "cases": "marginals"}
#: What is asked for: draws, assignments in order, cases of one model.
_DRAWS, _LISTED, _CASES = 1000, 10, 20
#: Characters of the reason that a question was refused.
_WHY = 200
#: Nominal seconds of the search for a tree that says how many cells a sweep has.
_SEARCHED_SECONDS = 1.0


def main() -> None:
    """Answer, and say what it took."""
    asked = json.loads(sys.argv[1])
    model = bucketflow.load(asked["path"])
    print(_LOADED, flush=True)
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
    query = _SIZED.get(asked["query"], asked["query"])
    evidence = None if asked["query"] in ("mmap", "cases") else asked["evidence"]
    network, _ = question_of(model, query, evidence).reduced
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
    options = {**asked["options"]}
    try:
        return _ASKED.get(asked["query"], _one)(model, asked, options, options.pop("by", ""))
    except BucketflowError as error:
        return {"end": "refused", "why": str(error)[:_WHY]}


def _one(model: bucketflow.Model, asked: dict[str, Any], options: dict[str, Any], by: str) -> dict[str, Any]:
    query = asked["query"]
    if query == "mmap":
        options = {**options, "maximize": asked["evidence"], "time": asked["seconds"]}
    result = bucketflow.solve(model, query, evidence=None if query == "mmap" else asked["evidence"], **options)
    value = result.value if result.log10 is None else result.log10
    shown = "infeasible" if value is None else str(value) if query == "count" else float(value)
    return {"end": "answered" if result.status != "bounded" else "bounded", "value": shown, **_turns(result)}


def _marginals(model: bucketflow.Model, asked: dict[str, Any], options: dict[str, Any], by: str) -> dict[str, Any]:
    """All of them; the probability of the evidence, or what is best, is compared."""
    evidence = asked["evidence"]
    if by == "circuit":
        made = bucketflow.circuit(model, evidence=evidence, **options)
        made.marginals()
        return {"end": "answered", "value": float(made.log10()[0])}
    if by == "compiled":
        found = _compiled(model, evidence, options).marginals()
    else:
        found = bucketflow.marginals(
            model, evidence=evidence, max_marginals=asked["query"] == "max-marginals", **options
        )
    value = found.log10_evidence if found.log10_evidence is not None else found.value
    return {"end": "answered", "value": "infeasible" if value is None else float(value), **_turns(found)}


def _compiled(model: bucketflow.Model, evidence: str | None, options: dict[str, Any]) -> bucketflow.Compiled:
    hard, soft = (question := question_of(model, "marginals", evidence)).hard, question.soft
    found = bucketflow.compile(model, background=False, **options)
    found.set_evidence({model.names[v]: state for v, state in {**soft, **hard}.items()})
    return found


def _samples(model: bucketflow.Model, asked: dict[str, Any], options: dict[str, Any], by: str) -> dict[str, Any]:
    """A thousand draws, of costs at temperature 1; nothing is compared."""
    if by == "circuit":
        bucketflow.circuit(model, evidence=asked["evidence"], **options).sample(_DRAWS)
        return {"end": "answered", "value": "drawn"}
    found = bucketflow.sample(model, _DRAWS, evidence=asked["evidence"], **options)
    return {"end": "answered", "value": "drawn", "compiled": found.seconds.get("compile", 0.0)}


def _best(model: bucketflow.Model, asked: dict[str, Any], options: dict[str, Any], by: str) -> dict[str, Any]:
    """What the last of ten is worth."""
    found = bucketflow.best(model, _LISTED, evidence=asked["evidence"], **options)
    worth = [each.value if each.log10 is None else each.log10 for each in found]
    value = float(worth[-1]) if worth else "infeasible"
    end = "answered" if found.unproved is None else "bounded"
    return {"end": end, "value": value, "compiled": found.seconds.get("compile", 0.0)}


def _cases(model: bucketflow.Model, asked: dict[str, Any], options: dict[str, Any], by: str) -> dict[str, Any]:
    """All marginals given each of twenty cases, each the state of a variable of a draw of random states."""
    chosen = random.Random(0).choices(range(len(model.names)), k=_CASES)
    cases = [{model.names[v]: 0} for v in chosen]
    if by == "circuit":
        made = bucketflow.circuit(model, **options)
        found = list(made.log10(cases))
        made.marginals(cases)
    elif by == "compiled":
        found = list(bucketflow.compile(model, background=False, **options).marginals_batch(cases).log10_evidence)
    elif by == "alone":
        found = [bucketflow.marginals(model, evidence=case, **options).log10_evidence for case in cases]
    else:
        rows = [{"model": model, "query": "marginals", "evidence": case} for case in cases]
        with TemporaryDirectory() as folder:
            bucketflow.batch(rows, folder, **options)
            lines = (Path(folder) / "results.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        if without := [each for each in records if each["status"] != "answered"]:
            return {"end": without[0]["status"], "why": without[0]["message"][:_WHY]}
        found = [each["answer"]["log10_evidence"] or -math.inf for each in records]
    return {"end": "answered", "value": float(sum(value for value in found if math.isfinite(value)))}


#: How queries are asked that ``solve`` does not answer.
_ASKED = {
    "marginals": _marginals,
    "max-marginals": _marginals,
    "samples": _samples,
    "best": _best,
    "cases": _cases,
}


def _turns(found: Any) -> dict[str, Any]:
    """The engines that had turns, with CPU seconds, and seconds of compiling; old checkouts may lack both."""
    tried = [[turn.engine, round(turn.seconds, 3)] for turn in getattr(found, "tried", ())]
    return {"tried": tried, "compiled": getattr(found, "seconds", {}).get("compile", 0.0)}


if __name__ == "__main__":
    main()
