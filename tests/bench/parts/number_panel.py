"""Short questions that together read most tuned numbers: ``number_panel.py OUT [PART/PARTS]``, for `tuned_numbers`.

A line of JSON for each question goes to OUT: CPU seconds, the answer, and digests of decisions by field. Decisions are
the engine, the tree, the layouts, the slices, the stages, the steps of a device, the provers and their work.

``NUMBER_DIGESTS`` names a file of digests of sources. The machine code of loops is then found as if these sources had
not been edited. ``NUMBER_TRACE`` names a file for the functions that run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from parts.instances import evidence_beside
from parts.needs import data_folder

import bucketflow
from bucketflow.tasks.compiler import code_cache

_KEPT = {"memory": "1GB", "threads": 1, "seed": 0}
_DECIDED = (
    *("dims", "layouts", "cuts", "sliced", "leaf_bytes", "peak_bytes", "variant_from", "threads", "device", "group"),
    *("row_bounds", "rows_stored", "stored_bytes", "most_stored_bytes", "spill", "needs", "parts", "evaluations"),
)
#: Numbers in texts are seconds, or repeat other fields.
_FIGURES = re.compile(r"\d[\d.,e+-]*")


@cache
def model(name: str) -> Any:
    """Read a file of the instances, or an example."""
    path = data_folder() / name
    return bucketflow.load(path if path.exists() else name)


def evidence(name: str) -> str | None:
    """Return the evidence that belongs to a file, if any."""
    return evidence_beside(data_folder() / name)


def ask(function: Callable[..., Any], name: str, *more: Any, **options: Any) -> Any:
    """Call a function with a model, its evidence, and options; by default with 1 GB, one thread and seed 0."""
    return function(model(name), *more, evidence=evidence(name), **{**_KEPT, **options})


def digest(value: Any) -> str:
    """Return a short digest of the text of a value."""
    return sha256(repr(value).encode()).hexdigest()[:12]


def decided(plan: Any) -> dict[str, Any]:
    """Return the decisions and the predictions of a plan."""
    steps = [(s.node, s.inputs, s.axes) for s in plan.steps]
    found = {"tree": digest((plan.tree.children, steps)), "slices": plan.slices, "cells": plan.cells}
    found |= {name: digest(getattr(plan, name)) for name in _DECIDED}
    return {**found, "predicted": f"{plan.predicted_seconds:.9g} {plan.seconds:.9g}"}


def work(value: Any) -> Any:
    """Return the counted work of an engine."""
    return None if value is None else {f.name: plain(getattr(value, f.name)) for f in fields(value)}


def plain(value: Any) -> Any:
    """Return a text without figures, or a value as JSON takes it."""
    return (
        _FIGURES.sub("#", value) if isinstance(value, str) else value if isinstance(value, int | float) else str(value)
    )


def of_result(found: Any) -> tuple[Any, dict[str, Any]]:
    """Return the answer of a solution, and what was decided on the way."""
    proof, open_ = found.proof, found.status == "bounded"
    answer = None if open_ else [found.status, str(found.value), found.log10]
    decisions = {name: work(getattr(found, name)) for name in ("diagram", "search", "rows_work")}
    decisions |= {"engines": [(turn.engine, plain(turn.ended)) for turn in found.tried]}
    decisions |= {"notes": [*map(plain, found.notes)], "assignment": digest(found.assignment)}
    if proof is not None:
        decisions |= {"prover": proof.method, "tried": list(proof.tried), "removed": digest(proof.removed)}
        decisions |= {"bounds": [str(proof.lower), str(proof.upper)], "sweep_cells": proof.sweep_cells}
    return answer, decisions | (decided(found.plan) if found.plan else {})


def of_arrays(tables: Mapping[Any, Any], *others: Any) -> tuple[Any, dict[str, Any]]:
    """Return numbers of an answer, each to a few digits, and the digest of all."""
    arrays = [np.asarray(table, dtype=np.float64).ravel() for table in tables.values()]
    flat = np.concatenate(arrays) if arrays else np.zeros(0)
    finite = np.where(np.isfinite(flat), flat, -1e3)
    answer = [float(finite.sum()), float(np.abs(finite).max(initial=0.0))]
    return answer, {"bits": digest(flat.tobytes()), "more": digest(others)}


def solve(name: str, query: str = "optimum", provers: str = "", **options: Any) -> tuple[Any, dict[str, Any]]:
    """Ask for a value, of some provers only if they are named."""
    from bucketflow.pipeline.proofs.prover_registry import ALL_PROVERS, using

    chosen = [each for each in ALL_PROVERS if not each.package and (not provers or each.name in provers.split())]
    with using(chosen):
        if "maximize" in options:
            options["maximize"] = data_folder() / options["maximize"]
        return of_result(ask(bucketflow.solve, name, query, **options))


def spilled(name: str, query: str = "optimum", **options: Any) -> tuple[Any, dict[str, Any]]:
    """Ask for a value with tables on disk."""
    with TemporaryDirectory() as folder:
        return solve(name, query, workdir=f"{folder}/run", **options)


def marginals(name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Ask for all marginals."""
    found = ask(bucketflow.marginals, name, **options)
    answer, decisions = of_arrays(dict(found))
    return answer, decisions | (decided(found.plan) if found.plan else {})


def planned(name: str, query: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Plan a question, or tell how it is refused."""
    try:
        return None, decided(ask(bucketflow.plan, name, query, **options))
    except bucketflow.BudgetError as refused:
        return None, {"refused": plain(str(refused))}


def on_device(name: str, query: str, memory: int, devices: int = 1) -> tuple[Any, dict[str, Any]]:
    """Plan a question for devices, and lower all its steps for one, without a card."""
    from bucketflow.pipeline.answering.prepared import problem_of
    from bucketflow.pipeline.answering.question import question_of
    from bucketflow.pipeline.budget.device_fit import HostBudget, fitted_for_device, fitted_propagation_for_device
    from bucketflow.pipeline.plans.planner import Planner
    from bucketflow.pipeline.plans.problem import PlanOptions
    from bucketflow.pipeline.queries.arithmetic import arithmetic_for
    from bucketflow.pipeline.trees.costs import gpu_rates
    from bucketflow.tasks.gpu.tiling.device_lowering import device_step, launched_seconds

    network, targets = question_of(model(name), query, evidence(name)).reduced
    problem = problem_of(network, arithmetic_for(network), targets)
    options = PlanOptions(memory_bytes=memory, decode=query == "optimum", device=True, threads=1)
    planner = Planner(problem, options, gpu_rates(problem.semiring))
    around = HostBudget(1 << 26, False, 1 << 40, lambda: 1e9)
    try:
        fit = fitted_for_device if targets is None else fitted_propagation_for_device
        chosen = fit(planner, "auto", around if targets is None else lambda: around, devices).chosen
    except bucketflow.BudgetError as refused:
        return None, {"refused": plain(str(refused))}
    lowered = [s.lowered for s in chosen.steps]
    passes = [device_step(each) for each in lowered]
    priced = [launched_seconds(each) for each in lowered]
    kinds = Counter(type(each).__name__ for step in passes for each in step.passes)
    return None, {**decided(chosen), "passes": digest(passes), "priced": digest(priced), "kinds": kinds}


def bounded(name: str, query: str = "optimum", **options: Any) -> tuple[Any, dict[str, Any]]:
    """Ask for bounds."""
    found = bucketflow.bound(model(name), query, evidence=evidence(name), memory="1GB", **options)
    rounds = [(r.variables, r.limit, r.cells, r.largest, r.exact, r.way, r.disk_bytes) for r in found.rounds]
    return None, {"rounds": digest(rounds), "bounds": [str(found.lower), str(found.upper)]}


def sampled(name: str, n: int, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Draw samples."""
    found = ask(bucketflow.sample, name, n, **options)
    return [len(found.states)], {"states": digest(found.states.tobytes()), "tried": found.tried, **decided(found.plan)}


def listed(name: str, count: int, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Ask for the best assignments."""
    found = ask(bucketflow.best, name, count, **options)
    ranked = [(str(each.value), each.assignment) for each in found]
    decisions = {"assignments": digest(ranked), "notes": [*map(plain, found.notes)]}
    return [value for value, _ in ranked], decisions | (decided(found.plan) if found.plan else {})


def compiled(name: str, cases: int, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Compile a model, and ask many cases together and a few one by one."""
    given = model(name)
    program = bucketflow.compile(given, **{**_KEPT, **options})
    names, drawn = list(given.variables), bucketflow.sample(given, cases, seed=0, threads=1).states
    states = {name: drawn[:, v] for v, name in enumerate(names) if v % 7 == 0}
    labels = {name: [given.variables[name][state] for state in column] for name, column in states.items()}
    tables = dict(program.marginals_batch(labels, names[1:40:5]))
    for case in range(3):
        program.set_evidence({name: given.variables[name][int(states[name][case])] for name in list(states)[:2]})
        tables |= {(case, name): table for name, table in dict(program.marginals()).items()}
    return of_arrays({key: np.nan_to_num(np.asarray(table)) for key, table in tables.items()}, repr(program))


def circuit(name: str, method: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Build a circuit, and evaluate it."""
    found = bucketflow.circuit(model(name), evidence=evidence(name), method=method, memory="1GB", **options)
    return [float(found.log10()[0])], {"circuit": repr(found), "draws": digest(found.sample(50, seed=0).tobytes())}


def agents(name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Let agents agree."""
    path = data_folder() / name
    found = bucketflow.dpop(bucketflow.load_dcop(path if path.exists() else name), **options)
    messages = {key: plain(value) for key, value in vars(found.metrics).items() if "seconds" not in key}
    decisions = {"assignment": digest(found.assignment), "parents": digest(found.parents), "bound": str(found.bound)}
    return [found.status, str(found.value)], {**decisions, "messages": digest(messages)}


def learnt() -> tuple[Any, dict[str, Any]]:
    """Learn tables from data with missing cells."""
    rows = Path(bucketflow.__file__).parent / "pipeline/examples/diagnosis.csv"
    found = bucketflow.fit("diagnosis", rows, iterations=4)
    return of_arrays({v: function.values for v, function in enumerate(found.model.functions)})


def repeated() -> tuple[Any, dict[str, Any]]:
    """Filter and smooth a network that repeats."""
    rng = np.random.default_rng(0)
    names = [f"x{v}" for v in range(6)]
    first = bucketflow.Model.build("markov", dict.fromkeys(names, 3), [((name,), rng.random(3)) for name in names])
    scopes = [(f"{a}_prev", b) for a in names for b in names if a <= b]
    states = {**dict.fromkeys((f"{name}_prev" for name in names), 3), **dict.fromkeys(names, 3)}
    network = bucketflow.dynamic(
        first, bucketflow.Model.build("markov", states, [(s, rng.random((3, 3))) for s in scopes])
    )
    found = network.smoothed({"x0": rng.integers(0, 3, 40)})
    path = network.path({"x0": rng.integers(0, 3, 40)})
    return of_arrays({name: found[name] for name in names}, path.log10)


def contracted() -> tuple[Any, dict[str, Any]]:
    """Contract arrays, and tell the path."""
    rng = np.random.default_rng(0)
    letters = "abcdefghijklmnop"
    scopes = [letters[i] + letters[(i + d) % 16] for i in range(16) for d in (1, 4)]
    arrays = [rng.random((4, 4)) for _ in scopes]
    text = f"{','.join(scopes)}->a"
    return of_arrays({s: bucketflow.einsum(text, *arrays, semiring=s) for s in ("real", "min-plus")})


def many(count: int) -> tuple[Any, dict[str, Any]]:
    """Answer a batch of rows."""
    asked = [(ALARM, "marginals", {"evidence": f"CVP={i % 3}"}) for i in range(count)]
    asked += [(SPOT54, "optimum", {}), (WATER, "partition", {}), (WATER, "optimum", {})]
    rows = [{"model": str(data_folder() / file), "query": query, **more} for file, query, more in asked]
    with TemporaryDirectory() as folder:
        found = bucketflow.batch(rows, f"{folder}/out", memory="1GB", threads=1)
        return [found.rows, found.answered, found.failed], {}


def simulated(name: str, query: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Predict a run on workers."""
    plan = ask(bucketflow.plan, name, query, **options)
    found = bucketflow.simulate(plan, (1, 8), storage_bandwidth="1GB/s", losses=1.0)
    return None, {"runs": digest(found), "text": repr(found)[:200]}


CELAR6, CELAR7 = "wcsp/celar/CELAR6-SUB0.wcsp.xz", "wcsp/celar/CELAR7-SUB0.wcsp.xz"
SPOT54, SPOT404 = "wcsp/spot5/54.wcsp", "wcsp/spot5/404.wcsp.xz"
GRID28, GRID = "uai/uai2014map/Grids_28.uai.xz", "uai/uai2014/Grids_11.uai"
ALARM, WATER, MUNIN = "bn/alarm.bif.gz", "bn/water.bif.gz", "bn/munin3.bif.gz"
PLANNING = "uai/mmap_planning/bw_p24_6.uai"
QUESTIONS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "dense optimum": partial(solve, SPOT404, method="dense"),
    "slices": partial(solve, SPOT54, method="dense", fit="slice", memory="1MB"),
    "spill": partial(spilled, SPOT404, method="dense", fit="spill", memory="4MB"),
    "spilled sum": partial(spilled, GRID, "partition", fit="spill", memory="2MB"),
    "store": partial(spilled, "satellite", fit="store"),
    "rows": partial(solve, SPOT54, representation="rows"),
    "rows on disk": partial(spilled, "satellite", representation="rows", fit="spill", memory="4MB"),
    "partition": partial(solve, MUNIN, "partition"),
    "partition of a grid": partial(solve, GRID, "partition"),
    "sum of rows": partial(solve, WATER, "partition", representation="rows"),
    "sum by diagrams": partial(solve, ALARM, "partition", method="diagram"),
    "sum by search": partial(solve, "cnf/counting/4step.cnf.xz", "partition", method="search"),
    "count": partial(solve, "cnf/counting/5step.cnf.xz", "count"),
    "count by search": partial(solve, "cnf/counting/5step.cnf.xz", "count", method="search"),
    "optimum, fields": partial(solve, "fields"),
    "optimum, CELAR": partial(solve, CELAR7),
    "optimum, Promedas": partial(solve, "uai/uai2014map/Promedas_29.uai.xz"),
    "optimum, circuits": partial(solve, "wcsp/iscas89/s953.wcsp.xz"),
    "optimum, turns": partial(solve, "wcsp/spot5_vac/408_VAC.wcsp.xz"),
    "optimum by rows": partial(solve, "wcsp/spot5/29.wcsp", method="rows"),
    "optimum by search": partial(solve, CELAR6, method="search"),
    "optimum by diagrams": partial(solve, SPOT54, method="diagram"),
    "optimum, mesh": partial(solve, GRID28),
    **{
        f"fields by {name}": partial(solve, "fields", provers=name)
        for name in ("triangles", "subtrees", "rows", "dense")
    },
    "marginals": partial(marginals, MUNIN),
    "marginals in slices": partial(marginals, WATER, memory="200kB", fit="slice"),
    "marginals from disk": partial(marginals, WATER, memory="1300kB", fit="spill"),
    "max-marginals": partial(marginals, SPOT54, max_marginals=True),
    "junction tree": partial(marginals, ALARM, tree="junction", families=True, derivatives=True),
    "bound": partial(bounded, GRID28, z=4),
    "bound on a sum": partial(bounded, GRID, "partition", z=4),
    "bounds in turn": partial(bounded, SPOT54),
    "marginal MAP": partial(solve, f"{PLANNING}.xz", "mmap", maximize=f"{PLANNING}.map"),
    "samples": partial(sampled, ALARM, 3000),
    "samples of costs": partial(sampled, SPOT54, 500, temperature=5.0),
    "best": partial(listed, SPOT54, 10),
    "best by search": partial(listed, CELAR7, 5),
    "compiled": partial(compiled, ALARM, 300),
    "compiled, large": partial(compiled, WATER, 8),
    "circuit": partial(circuit, ALARM, "buckets"),
    "circuit by search": partial(circuit, "cnf/counting/4step.cnf.xz", "search"),
    "agents": partial(agents, "meetings"),
    "learnt": learnt,
    "dynamic": repeated,
    "einsum": contracted,
    "batch": partial(many, 4),
    "simulated": partial(simulated, SPOT54, "optimum", memory="300kB", fit="slice"),
    "plan, link": partial(planned, "bn/link.bif.gz", "marginals", memory="64MB"),
    **{
        f"device, {query}, {memory >> 10} KiB": partial(on_device, name, query, memory)
        for name, query, small in (
            (SPOT404, "optimum", 1 << 22),
            (GRID, "partition", 1 << 23),
            (WATER, "marginals", 1 << 18),
        )
        for memory in (small, 60 << 30)
    },
    "devices": partial(on_device, SPOT404, "optimum", 1 << 24, 4),
    "device, large": partial(on_device, CELAR6, "optimum", 60 << 30),
}


def answered(name: str) -> dict[str, Any]:
    """Answer one question; return the answer, the decisions and the CPU seconds."""
    start = process_time()
    try:
        answer, decisions = QUESTIONS[name]()
        found = {"answer": answer, "decisions": decisions}
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {error}"[:300]}
    return {"question": name, **found, "seconds": process_time() - start}


def called(run: Callable[[], None]) -> Iterator[str]:
    """Run something, and yield the places of the package's functions that were called."""
    codes = set[Any]()
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    run()
    sys.setprofile(None)
    root = Path(bucketflow.__file__).parent
    for code in codes:
        if Path(code.co_filename).is_relative_to(root):
            yield f"{Path(code.co_filename).relative_to(root)}:{code.co_firstlineno}"


def main() -> None:
    """Answer all questions, or one part of them."""
    out, (part, parts) = Path(sys.argv[1]), map(int, sys.argv[2].split("/"))
    if digests := os.environ.get("NUMBER_DIGESTS"):
        known = json.loads(Path(digests).read_text())
        own = code_cache.sources_digest
        root = code_cache.PACKAGE
        code_cache.sources_digest = lambda source: known.get(str(source.relative_to(root))) or own(source)

    def run() -> None:
        with out.open("w") as file:
            for name in list(QUESTIONS)[part::parts]:
                file.write(json.dumps(answered(name), default=str) + "\n")

    if trace := os.environ.get("NUMBER_TRACE"):
        Path(trace).write_text("\n".join(called(run)))
    else:
        run()


if __name__ == "__main__":
    main()
