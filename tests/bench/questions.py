"""Questions about many assignments, about information and of circuits, each beside a peer that has it.

``python tests/bench/questions.py [--network alarm] [--samples 10000] [--repeat 3] [--circuits alarm,water] [--formulas
4step,min-2s]``: one table, CPU seconds of one thread, the best of some repetitions; reading and making a peer's model
are not counted. A dash where a peer is not installed or has no such question. ``agree`` says what was compared.

``python tests/bench/questions.py --mmap 20 [--only pedigree] [--jobs 8]``: marginal MAP on the folders ``uai/mmap_*``,
so many seconds each: what was proved, the interval otherwise, and the best value that the evaluation of 2022 knows. A
line comes as soon as it is known. With ``--jobs`` so many instances at once share cores and half of the free memory.

``python tests/bench/questions.py --best 10 --models celar/CELAR6-SUB0,spot5_orig/412 [--time 60]``: the M best of files
in the folder ``wcsp``, beside the optimum alone and toulbar2, which is given what the last of them costs and lists as
many that cost no more, in no order; CPU seconds, one run.

``python tests/bench/questions.py --draw munin3,pigs,diabetes [--samples 1000000] [--gpus 1]``: independent draws of all
variables of networks of the folder ``bn``, without evidence and given five states; CPU seconds, or with ``--gpus 1``
wall seconds, planning and copies back included.

``python tests/bench/questions.py --sweep 4,16,64 [--bandwidths 2,3] [--attributes 128] [--gpus 1]``: the sweep that mbi
is measured by (``mbi/marginal_oracles.py:default_oracle``): a function of each few attributes in a row, of so many
states each, and the marginals of all of them, which are the gradient of ln Z; in float64. Its compiled program is
compared with a question that is asked anew, and with ``bucketflow.jax``; with ``--gpus 1`` in wall seconds, those of
JAX where it has the GPU too (``XLA_PYTHON_CLIENT_PREALLOCATE=false`` leaves memory to both).
"""

from __future__ import annotations

import argparse
import lzma
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from parts.instances import marginal_map_instances
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow import Model
from bucketflow.cluster.memory import default_memory_bytes

# Wall seconds that a peer's rejection of draws may take.
_PATIENCE = 10
# Formulas of which PySDD makes an SDD within half a minute.
_SDDS = ("4step",)
Asked = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A question, how it is asked here and of a peer, and what two answers have in common."""

    question: str
    ours: Asked
    peer: str = ""
    theirs: Asked | None = None
    agree: Callable[[Any, Any], str] = lambda ours, theirs: ""


def measured(ask: Asked, repeat: int, clock: Callable[[], float] = time.process_time) -> tuple[float, Any]:
    """Return the least seconds of a clock, those of the CPU by default, and the answer."""
    least, answer = float("inf"), None
    for _ in range(repeat):
        start = clock()
        answer = ask()
        least = min(least, clock() - start)
    return least, answer


def evidence_of(model: Model, count: int) -> dict[str, int]:
    """Evidence that is possible: some variables of a draw."""
    drawn = bucketflow.sample(model, 1, seed=1)
    names = np.random.default_rng(0).choice(model.names, min(count, len(model.names) // 3), replace=False)
    return {str(name): int(drawn[name][0]) for name in names}


def network_rows(model: Model, draws: int) -> Iterator[Row]:
    """Questions about a Bayesian network, beside pyAgrum where it is there."""
    evidence = evidence_of(model, 5)
    free = [name for name in model.names if name not in evidence]
    target, other = free[0], free[-1]
    gum: Any = __import__("pyagrum") if find_spec("pyagrum") else None
    peer = None if gum is None else bucketflow.to_pyagrum(model)

    def theirs(ask: Callable[[Any], Any]) -> Asked | None:
        return None if peer is None else lambda: ask(peer)

    def forward(network: Any) -> Any:
        return gum.BNDatabaseGenerator(network).drawSamples(draws)

    def conditioned(network: Any) -> Any:
        """By rejection, which takes long where evidence is rare."""
        drawn = gum.BNDatabaseGenerator(network)
        seen = gum.Instantiation()
        for name, state in evidence.items():
            seen.add(network.variable(name))
            seen.chgVal(network.variable(name), state)
        drawn.drawSamples(draws // 100, seen, _PATIENCE)
        return drawn.samplesNbRows()

    def informed(network: Any) -> Any:
        engine = gum.LazyPropagation(network)
        engine.setEvidence(evidence)
        return gum.InformationTheory(engine, [target], [other]).mutualInformationXY()

    def compiled() -> Any:
        found = bucketflow.compile(model)
        found.set_evidence(evidence)
        return found

    size = f"{draws:,} of {len(model.names):,} variables"
    yield Row(f"samples, {size}", lambda: bucketflow.sample(model, draws), "pyAgrum", theirs(forward))
    rare = f"samples given {len(evidence)} states, {draws // 100:,}"
    yield Row(
        *(rare, lambda: bucketflow.sample(model, draws // 100, evidence=evidence), "pyAgrum", theirs(conditioned)),
        lambda ours, drawn: f"{len(ours)} and {drawn} drawn",
    )
    yield Row("the optimum", lambda: bucketflow.solve(model, evidence=evidence))
    yield Row("the 10 best", lambda: [*bucketflow.best(model, 10, evidence=evidence)])
    yield Row(
        "mutual information of two",
        lambda: compiled().mutual_information([target], [other]),
        *("pyAgrum", theirs(informed)),
        lambda a, b: f"to {abs(a - b):.0e} bits",
    )
    yield Row("value of information, all", lambda: compiled().value_of_information(target))
    yield Row("conflict of evidence", lambda: compiled().conflict())
    yield Row("derivatives of ln Z", lambda: bucketflow.marginals(model, evidence=evidence, derivatives=True))


def circuit_rows(name: str, cases: int) -> Iterator[Row]:
    """The circuit of a network, and its batches beside those of a compiled model; derivatives in JAX."""
    model = bucketflow.load(data_folder() / "bn" / f"{name}.bif.gz")
    found = bucketflow.circuit(model)
    size = f"{found.graph.nodes:,} nodes, {found.graph.edges:,} edges"
    yield Row(f"{name}: circuit, {size}", lambda: bucketflow.circuit(model))
    drawn = bucketflow.sample(model, cases, seed=1)
    given = {seen: drawn[seen] for seen in evidence_of(model, 5)}
    compiled = bucketflow.compile(model, background=False)
    yield Row(
        *(f"{name}: marginals of {cases:,} cases", lambda: found.marginals(given)),
        *("compiled model", lambda: compiled.marginals_batch(given)),
        lambda ours, theirs: f"to {max(abs(ours[v] - theirs[v]).max() for v in model.names):.0e}",
    )
    yield Row(f"{name}: sums of {cases:,} cases", lambda: found.log10(given))
    if find_spec("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)
        log_z = bucketflow.jax.log_partition(model)
        forward, gradient = jax.jit(log_z), jax.jit(jax.value_and_grad(log_z))
        yield Row(
            *(f"{name}: ln Z with its gradient, JAX", lambda: jax.block_until_ready(gradient(log_z.logs))),
            *("ln Z alone", lambda: jax.block_until_ready(forward(log_z.logs))),
            lambda ours, alone: f"to {abs(float(ours[0] - alone)):.0e}",
        )


def sweep_rows(attributes: int, states: int, bandwidth: int, gpus: int | None) -> Iterator[Row]:
    """Marginals of all functions of a row of attributes, beside those of mbi where it is there."""
    rng = np.random.default_rng(0)
    names = [f"a{k}" for k in range(attributes)]
    cliques = [tuple(names[k : k + bandwidth]) for k in range(attributes - bandwidth + 1)]
    logs = [rng.normal(size=(states,) * bandwidth) for _ in cliques]
    functions = [([*clique], np.exp(table)) for clique, table in zip(cliques, logs, strict=True)]
    model = Model.build("markov", dict.fromkeys(names, states), functions)
    what = f"{attributes} attributes of {states} states, {bandwidth} in a row"

    def planned() -> list[Any]:
        tables = bucketflow.marginals(model, families=True, gpus=gpus).families
        return [tables[f] for f in range(len(cliques))]

    if not find_spec("jax"):
        yield Row(f"{what}: asked anew", planned)
        return
    import jax

    jax.config.update("jax_enable_x64", True)
    if gpus and jax.default_backend() != "gpu":
        yield Row(f"{what}: asked anew", planned)
        return
    peer: tuple[Any, ...] = ()
    if find_spec("mbi"):
        theirs = _mbi_oracle(names, states, cliques, logs)
        peer = "mbi", theirs, lambda a, b: f"to {max(abs(x - y).max() for x, y in zip(a, b, strict=True)):.0e}"
    log_z = bucketflow.jax.log_partition(model)
    gradient = jax.jit(jax.grad(log_z))
    known = [jax.numpy.asarray(table) for table in logs]
    yield Row(f"{what}: asked anew", planned, *peer)
    yield Row(f"{what}: gradient in JAX", lambda: jax.block_until_ready(gradient(known)), *peer)


def _mbi_oracle(names: list[str], states: int, cliques: list[tuple[str, ...]], logs: list[Any]) -> Asked:
    """The marginals of mbi, by the oracle that it chooses, compiled."""
    import jax
    import mbi

    peer: Any = mbi
    domain = peer.Domain(tuple(names), (states,) * len(names))
    tables = {
        clique: peer.Factor(domain.project(clique), jax.numpy.asarray(table))
        for clique, table in zip(cliques, logs, strict=True)
    }
    potentials = peer.CliqueVector(domain, cliques, tables)
    oracle = jax.jit(peer.marginal_oracles.default_oracle(cliques, domain, has_constraints=False))

    def asked() -> list[Any]:
        found = jax.block_until_ready(oracle(potentials))
        return [found[clique].values for clique in cliques]

    return asked


def draw_rows(names: str, draws: int, gpus: int | None) -> Iterator[Row]:
    """Draws of all variables of some networks, and how many a second."""
    for name in names.split(","):
        model = bucketflow.load(data_folder() / "bn" / f"{name}.bif.gz")
        for evidence in ({}, evidence_of(model, 5)):
            bucketflow.sample(model, draws, evidence=evidence, gpus=gpus)  # loads what is compiled
            notes: list[str] = []

            def ours(model: Model = model, evidence: Any = evidence, notes: list[str] = notes) -> Any:
                found = bucketflow.sample(model, draws, evidence=evidence, gpus=gpus)
                notes[:] = [note for note in found.notes if "draws were made" in note]
                return found

            clock = time.perf_counter if gpus else time.process_time
            start = clock()
            size = ours().states.size
            rate = size / (clock() - start)
            what = f"{name} given {len(evidence)}: {draws:,} of {len(model.names):,}, {rate / 1e6:,.0f} million/s"
            yield Row("; ".join((what, *notes)), ours)


def formula_rows(name: str) -> Iterator[Row]:
    """The circuit of a formula, beside an SDD of it where that is made in seconds."""
    path = data_folder() / "cnf" / "counting" / f"{name}.cnf.xz"
    model = bucketflow.load(path)
    found = bucketflow.circuit(model)
    size = f"{name}: circuit, {found.graph.nodes:,} nodes, {found.graph.edges:,} edges"
    if name not in _SDDS or not find_spec("pysdd"):
        yield Row(size, lambda: bucketflow.circuit(model))
        return
    from pysdd.sdd import SddManager

    def theirs() -> Any:
        with NamedTemporaryFile(suffix=".cnf") as file:
            file.write(lzma.decompress(path.read_bytes()))
            file.flush()
            return SddManager.from_cnf_file(file.name.encode())

    def agree(ours: Any, sdd: Any) -> str:
        counted = round(math.exp(sdd[1].wmc(log_mode=True).propagate()))
        return f"{ours.count():,} and {counted:,}; SDD of size {sdd[1].size():,}"

    yield Row(size, lambda: bucketflow.circuit(model), "PySDD", theirs, agree)


def cost_rows() -> Iterator[Row]:
    """Questions about a cost network, beside toulbar2 where it is there."""
    model = bucketflow.load("satellite")
    draws, optima = 1000, Row("all optima, counted and listed", lambda: _all_optima(model))
    if find_spec("pytoulbar2"):
        optima = Row(
            *("all optima, counted and listed", lambda: _all_optima(model), "toulbar2", lambda: _toulbar2(model)),
            lambda a, b: f"{a} and {b}",
        )
    yield Row(f"samples at a temperature, {draws:,}", lambda: bucketflow.sample(model, draws, temperature=1.0))
    yield optima


def ranked_rows(names: str, most: int, seconds: float) -> Iterator[Row]:
    """The best of some cost networks, beside the optimum alone and toulbar2."""
    for name in names.split(","):
        (path,) = (data_folder() / "wcsp").glob(f"{name}.wcsp*")
        model = bucketflow.load(path)
        bucketflow.solve(model, time=seconds)  # loads what is compiled
        listed: list[Any] = []

        def ours(model: Model = model, listed: list[Any] = listed) -> list[Any]:
            listed[:] = [each.value for each in bucketflow.best(model, most, time=seconds)]
            return listed

        def theirs(model: Model = model, listed: list[Any] = listed) -> list[Any]:
            peer = bucketflow_cfn(model, int(listed[-1]) + 1)
            peer.Solve(allSolutions=most, timeLimit=int(seconds))
            return sorted(int(cost) for cost, _ in peer.GetSolutions())

        yield Row(f"{name}: optimum", lambda model=model: bucketflow.solve(model, time=seconds))
        if find_spec("pytoulbar2"):
            yield Row(f"{name}: {most} best", ours, "toulbar2", theirs, lambda a, b: f"{len(a)} to {a[-1]}, {len(b)}")
        else:
            yield Row(f"{name}: {most} best", ours)


def _all_optima(model: Model) -> int:
    return sum(1 for _ in bucketflow.best(model, within=0, count_optimal=True))


def _toulbar2(model: Model) -> int:
    """Solve for the optimum, then enumerate what is as good, as its option ``-a`` does."""
    best = bucketflow.solve(model).value
    peer: Any = bucketflow_cfn(model, int(best or 0) + 1)
    peer.Solve(allSolutions=1 << 20)
    return len(peer.GetSolutions())


def bucketflow_cfn(model: Model, upper: int) -> Any:
    """A model of dense costs as toulbar2 has it."""
    import pytoulbar2

    peer = pytoulbar2.CFN(ubinit=upper, verbose=-1)
    for name, size in zip(model.names, model.dims, strict=True):
        peer.AddVariable(name, range(size))
    for f in model.functions:
        peer.AddFunction([model.names[v] for v in f.scope], f.dense(model.dims).reshape(-1).tolist())
    peer.Option.allSolutions = 1 << 20
    return peer


def marginal_maps(seconds: float, only: str, jobs: int) -> None:
    """Print a line for each instance of marginal MAP; some side by side share cores and memory evenly."""
    folder = data_folder()
    known = {}
    for line in (folder / "answers" / "uai2022_results.tsv").read_text().splitlines():
        task, name, best = line.split("\t")[:3]
        if task == "MMAP":
            known[name] = best
    asked = [each for each in marginal_map_instances(folder) if only in each[0]]
    print(f"{'instance':28s} {'status':9s} {'log10':>12s} {'at most':>12s} {'known':>8s} {'wall s':>7s}", flush=True)
    statuses: Counter[str] = Counter()
    context, cores = get_context("spawn"), sorted(os.sched_getaffinity(0))
    shares = context.Queue()
    for job in range(jobs):
        shares.put(set(cores[job::jobs]) or set(cores))
    memory = default_memory_bytes() // 2 // jobs
    with ProcessPoolExecutor(jobs, context, _stay, (shares,)) as pool:
        waiting = {pool.submit(marginal_map, path, queries, seconds, memory): name for name, path, queries in asked}
        for done in as_completed(waiting):
            status, text = done.result()
            statuses[status] += 1
            name = waiting[done]
            print(f"{name:28s} {status:9s} {text.format(known=known.get(name, ''))}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in statuses.most_common()))


def _stay(shares: Any) -> None:
    """Keep a process to its share of the cores."""
    os.sched_setaffinity(0, shares.get())


def marginal_map(path: Path | None, queries: Path, seconds: float, memory: int) -> tuple[str, str]:
    """Answer an instance; returns how it ended, and what was found with a place for the known value."""
    if path is None:
        return "no model", ""
    model = bucketflow.load(path)
    start = time.perf_counter()
    try:
        found = bucketflow.solve(model, "mmap", maximize=queries, time=seconds, memory=memory)
    except bucketflow.BucketflowError as refused:
        return "refused", str(refused)[:80].replace("{", "{{").replace("}", "}}")
    spent = time.perf_counter() - start
    proof = found.proof
    above = found.log10 if proof is None else proof.upper
    shown = [f"{x:12.4f}" if isinstance(x, float) else f"{'–':>12s}" for x in (found.log10, above)]
    return found.status, f"{shown[0]} {shown[1]} {{known:>8s}} {spent:7.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="alarm", help="a .bif.gz of the folder bn, without the ending")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--circuits", default="alarm,water", help="networks whose circuits are made and evaluated")
    parser.add_argument(
        "--formulas", default="4step,5step,s344_7_4,min-2s,tire-1,log-1", help="formulas whose circuits are made"
    )
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--mmap", type=float, metavar="S", help="marginal MAP instead, S seconds each")
    parser.add_argument("--only", default="", help="instances of marginal MAP whose names have this")
    parser.add_argument("--jobs", type=int, default=1, help="instances of marginal MAP side by side, a core each")
    parser.add_argument("--best", type=int, metavar="M", help="the M best of --models instead")
    parser.add_argument("--models", default="celar/CELAR6-SUB0", help="of the folder wcsp, without the ending")
    parser.add_argument("--time", type=float, default=60.0, help="seconds for each of them")
    parser.add_argument("--draw", default="", help="draws from networks of the folder bn instead")
    parser.add_argument("--sweep", default="", help="mbi's sweep instead: numbers of states")
    parser.add_argument("--bandwidths", default="2,3", help="attributes of a function of that sweep")
    parser.add_argument("--attributes", type=int, default=128)
    parser.add_argument("--gpus", type=int, choices=(1,), help="draws or that sweep on a GPU, in wall seconds")
    asked = parser.parse_args()
    if asked.mmap is not None:
        marginal_maps(asked.mmap, asked.only, asked.jobs)
        return
    if asked.best is not None:
        print_rows(ranked_rows(asked.models, asked.best, asked.time), 1)
        return
    clock = time.perf_counter if asked.gpus else time.process_time
    if asked.draw:
        print_rows(draw_rows(asked.draw, asked.samples, asked.gpus), asked.repeat, clock)
        return
    if asked.sweep:
        asks = [(int(states), int(wide)) for wide in asked.bandwidths.split(",") for states in asked.sweep.split(",")]
        for states, wide in asks:  # one after the other: tables of some are large
            print_rows(sweep_rows(asked.attributes, states, wide, asked.gpus), asked.repeat, clock)
        return
    model = bucketflow.load(data_folder() / "bn" / f"{asked.network}.bif.gz")
    circuits = [row for name in asked.circuits.split(",") if name for row in circuit_rows(name, asked.cases)]
    formulas = [row for name in asked.formulas.split(",") if name for row in formula_rows(name)]
    print_rows((*network_rows(model, asked.samples), *cost_rows(), *circuits, *formulas), asked.repeat)


def print_rows(rows: Iterable[Row], repeat: int, clock: Callable[[], float] = time.process_time) -> None:
    """Measure and print some rows as a table."""
    unit = "CPU s" if clock is time.process_time else "wall s"
    table = Table("question", f"here, {unit}", "peer", f"its {unit}", "agree")
    for row in rows:
        seconds, ours = measured(row.ours, repeat, clock)
        if row.theirs is None:
            table.add_row(row.question, f"{seconds:.4f}", "–", "–", "")
            continue
        theirs_seconds, theirs = measured(row.theirs, repeat, clock)
        table.add_row(row.question, f"{seconds:.4f}", row.peer, f"{theirs_seconds:.4f}", row.agree(ours, theirs))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
