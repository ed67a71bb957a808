"""Every method on random and on public models, compared: ``python tests/bench/agree.py [--models 2000] [--real 200]``.

Random models are answered by enumeration too; public ones have known answers. A difference is an answer that is not
the optimum, an assignment that is not worth what is said, or bounds that do not enclose the optimum.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from parts.instances import Question, questions
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.answering.answer_question import valued
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY, StrategyPolicy
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.cost_networks.cost_network import cost_network
from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.models.model import FORBIDDEN, Function, Model
from bucketflow.pipeline.options import Method, Options, ProofOptions
from bucketflow.pipeline.preprocessing.preprocess import fixed_value
from bucketflow.pipeline.proofs.limits import ProofLimits
from bucketflow.pipeline.proofs.portfolio import Portfolio

METHODS = get_args(Method)
#: None is so small that it is simply swept.
_POLICY: StrategyPolicy = replace(POLICY, quick_seconds={"optimum": -1.0}, soon_cells=0)
#: Assignments that are enumerated.
_MOST = 1 << 14
_TOLERANCE = 1e-9
#: Every how many models all bounds on the way are looked at; no multiple of shapes or kinds.
_STEPPED = 3
Rng = np.random.Generator
Scopes = list[tuple[int, ...]]


def grid(rng: Rng) -> tuple[list[int], Scopes]:
    """Rows and columns of neighbours."""
    rows, columns = (int(n) for n in rng.integers(2, 5, 2))
    here = [r * columns + c for r in range(rows) for c in range(columns)]
    pairs = [(v, v + 1) for v in here if (v + 1) % columns] + [
        (v, v + columns) for v in here if v + columns < len(here)
    ]
    return [2 if len(here) > 9 else int(rng.integers(1, 4)) for _ in here], pairs


def clique(rng: Rng) -> tuple[list[int], Scopes]:
    """All pairs."""
    n = int(rng.integers(3, 7))
    return [int(d) for d in rng.integers(1, 6, n)], list(itertools.combinations(range(n), 2))


def tree_with_chords(rng: Rng) -> tuple[list[int], Scopes]:
    """A tree, and a few more pairs."""
    n = int(rng.integers(4, 10))
    pairs = [(int(rng.integers(v)), v) for v in range(1, n)]
    chords = [tuple(int(v) for v in rng.choice(n, 2, replace=False)) for _ in range(int(rng.integers(0, 4)))]
    return [int(d) for d in rng.integers(1, 4, n)], [*pairs, *chords]


def hypergraph(rng: Rng) -> tuple[list[int], Scopes]:
    """Functions of one to four variables, some of the same."""
    n = int(rng.integers(4, 9))
    sizes = rng.integers(1, 5, int(rng.integers(3, 9)))
    return [int(d) for d in rng.integers(1, 4, n)], [tuple(map(int, rng.choice(n, k, replace=False))) for k in sizes]


def wide_domains(rng: Rng) -> tuple[list[int], Scopes]:
    """Few variables, with up to forty states."""
    dims = [int(d) for d in rng.choice([1, 2, 5, 40], 4)]
    while math.prod(dims) > _MOST:
        dims[dims.index(max(dims))] = 2
    return dims, [(0, 1), (1, 2), (2, 3), (0, 3), (1,)]


SHAPES: dict[str, Callable[[Rng], tuple[list[int], Scopes]]] = {
    f.__name__: f for f in (grid, clique, tree_with_chords, hypergraph, wide_domains)
}


def cost_values(rng: Rng, shape: list[int], largest: int, step: int) -> NDArray[Any]:
    """Costs with ties and what is forbidden, some negative; all are multiples of a step."""
    low = int(rng.choice([0, 0, -largest]))
    costs = rng.integers(low, largest + 1, shape)
    if rng.random() < 0.3:
        costs = rng.choice([0, 1, largest], shape)
    return np.where(rng.random(shape) < rng.choice([0.0, 0.1, 0.5]), FORBIDDEN, step * costs)


def cost_model(rng: Rng, dims: list[int], scopes: Scopes) -> Model:
    """A cost network; half of them with a ``top`` that sums may reach."""
    largest = int(rng.choice([1, 7, 1000, 10**6, 2**40, 2**52, 2**61 // max(4, 2 * len(scopes))]))
    step = int(rng.choice([1, 1, 10, 1000])) if largest <= 10**6 else 1
    values = [cost_values(rng, [dims[v] for v in scope], largest, step) for scope in scopes]
    functions = tuple(Function(scope, table) for scope, table in zip(scopes, values, strict=True))
    top = int(step * largest * len(scopes) * rng.choice([0.1, 0.4, 1.1])) + 1 if rng.random() < 0.5 else None
    return _model("cost", dims, functions, top)


def markov_model(rng: Rng, dims: list[int], scopes: Scopes) -> Model:
    """Potentials of like or of very different size, with zeros and ties."""
    spread = float(rng.choice([0.0, 3.0, 300.0]))
    functions = []
    for scope in scopes:
        shape = [dims[v] for v in scope]
        values = 10.0 ** rng.uniform(-spread, min(spread, 3.0), shape)
        functions.append(Function(scope, np.where(rng.random(shape) < rng.choice([0.0, 0.3]), 0.0, values)))
    return _model("markov", dims, tuple(functions))


def bayes_model(rng: Rng, dims: list[int], scopes: Scopes) -> Model:
    """Conditional distributions: each variable is the child of the one function where it is last."""
    parents: dict[int, tuple[int, ...]] = dict.fromkeys(range(len(dims)), ())
    for scope in scopes:
        *before, child = sorted(set(scope))
        parents[child] = tuple(before)
    functions = []
    for child, given in parents.items():
        counts = rng.integers(0, 4, [*(dims[p] for p in given), dims[child]]).astype(float)
        counts[..., int(rng.integers(dims[child]))] += 1e-300 if rng.random() < 0.1 else 1.0
        functions.append(Function((*given, child), counts / counts.sum(-1, keepdims=True), child=child))
    return _model("bayes", dims, tuple(functions))


def _model(kind: Any, dims: list[int], functions: tuple[Function, ...], top: int | None = None) -> Model:
    names = tuple(f"x{v}" for v in range(len(dims)))
    return Model(kind, names, tuple(dims), (None,) * len(dims), functions, top=top)


def decimal_model(rng: Rng, dims: list[int], scopes: Scopes) -> Model:
    """A ``.cfn`` file, half of them maximised."""
    sign, digits = (">", "-") if rng.random() < 0.5 else ("<", ""), 2
    bound = f"{sign[0]}{sign[1]}{rng.choice([3, 30, 3000])}.{'0' * digits}"
    functions = {
        f"f{k}": {
            "scope": [f"x{v}" for v in scope],
            "costs": [round(float(c), digits) for c in rng.uniform(-5, 9, math.prod(dims[v] for v in scope))],
        }
        for k, scope in enumerate(scopes)
    }
    content = {
        "problem": {"name": "random", "mustbe": bound},
        "variables": {f"x{v}": d for v, d in enumerate(dims)},
        "functions": functions,
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "random.cfn"
        path.write_text(json.dumps(content))
        return bucketflow.load(path)


KINDS: dict[str, Callable[[Rng, list[int], Scopes], Model]] = {
    "cost": cost_model,
    "markov": markov_model,
    "bayes": bayes_model,
    "cfn": decimal_model,
}


def random_models(count: int, seed: int) -> Iterator[tuple[str, str, int, Model]]:
    """Yield shape, kind, seed and model."""
    pairs = list(itertools.product(SHAPES, KINDS))
    for number in range(seed, seed + count):
        rng = np.random.default_rng(number)
        shape, kind = pairs[number % len(pairs)]
        dims, scopes = SHAPES[shape](rng)
        yield shape, kind, number, KINDS[kind](rng, dims, scopes)


def enumerated(model: Model) -> Any:
    """The optimum of a small model; None if nothing is possible."""
    worth = model.cost if model.kind == "cost" else model.log10_value
    found = [w for states in itertools.product(*map(range, model.dims)) if (w := worth(states)) is not None]
    if model.kind != "cost":
        return None if max(found) == -math.inf else max(found)
    return model.objective(int(min(found))) if found else None


@dataclass
class Checks:
    """What was compared, and what differs."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def that(self, right: bool, about: str, what: str) -> None:
        """Note a difference."""
        if not right:
            self.wrong.append(f"{about}: {what}")
            print("DIFFERENCE", self.wrong[-1], flush=True)


@dataclass(frozen=True)
class Case:
    """A model with its optimum: None if it is infeasible."""

    name: str
    model: Model
    best: Any
    evidence: Any = None
    tolerance: float = _TOLERANCE

    @property
    def least(self) -> bool:
        """Whether smaller values are better."""
        return self.model.kind == "cost" and not self.model.maximize

    def same(self, value: Any) -> bool:
        """Whether a value is the optimum."""
        return self.no_better(value) and self.no_worse(value)

    def no_better(self, value: Any) -> bool:
        """Whether a value is at most as good as the optimum."""
        return self._order(value, self.best)

    def no_worse(self, value: Any) -> bool:
        """Whether a value is at least as good as the optimum."""
        return self._order(self.best, value)

    def _order(self, worse: Any, better: Any) -> bool:
        if self.model.kind == "cost":
            return bool(worse >= better if self.least else worse <= better)
        return bool(worse <= better + self.tolerance * (1 + abs(better)))


def value_of(result: bucketflow.Result) -> Any:
    """What an answer says."""
    return result.value if result.log10 is None else result.log10


def check_result(case: Case, result: bucketflow.Result, about: str, checks: Checks) -> None:
    """Compare an answer, its assignment and its bounds with the optimum."""
    if result.status == "infeasible" or case.best is None:
        checks.that(case.best is None and result.status != "optimal", about, f"{result.status}, not {case.best}")
        return
    value, proof = value_of(result), result.proof
    if result.status == "optimal":
        checks.that(case.same(value), about, f"optimum {value}, not {case.best}")
    if value is not None:
        checks.that(case.no_better(value), about, f"{value} is better than the optimum {case.best}")
        checks.that(value == _worth(case.model, result), about, f"the assignment is not worth {value}")
    if proof is not None:
        bound = proof.lower if case.least else proof.upper
        checks.that(case.no_worse(bound), about, f"the bound {bound} excludes the optimum {case.best}")


def _worth(model: Model, result: bucketflow.Result) -> Any:
    assert result.assignment is not None
    states = [model.state_index(v, result.assignment[name]) for v, name in enumerate(model.names)]
    if model.kind != "cost":
        return model.log10_value(states)
    cost = model.cost(states)
    return None if cost is None else model.objective(cost)


def _solved(case: Case, method: Method, memory: Any = None, **effort: Any) -> bucketflow.Result:
    """Answer by one method, or by all of them in turn."""
    question = question_of(case.model, "optimum", case.evidence)
    return valued(question, Options(memory=memory), ProofOptions(method=method, **effort), policy=_POLICY)


def check_methods(case: Case, checks: Checks, **limits: Any) -> None:
    """Ask every method, with and without pruning."""
    for method, prune in itertools.product(METHODS, (True, False)):
        about = f"{case.name} {method}{'' if prune else ' unpruned'}"
        try:
            result = _solved(case, method, prune=prune, **limits)
        except bucketflow.BudgetError as error:
            checks.done[f"{method}: refused"] += 1
            checks.that("time" in limits or "between" in str(error), about, str(error))
            continue
        except Exception:
            checks.that(False, about, traceback.format_exc())
            continue
        checks.done[f"{method}: {result.status}"] += 1
        check_result(case, result, about, checks)


def check_limits(case: Case, checks: Checks, rng: Rng) -> None:
    """Ask with little time, with a gap, and with bounds that the optimum meets and misses."""
    method = str(rng.choice(METHODS))
    asked: list[dict[str, Any]] = [{"time": 0.0}, {"time": float(rng.uniform(0, 0.02))}, {"gap": 0.0}, {"gap": 0.3}]
    for limits in asked:
        about = f"{case.name} {method} {limits}"
        result = _solved(case, method, **limits)
        checks.done["limited"] += 1
        check_result(case, result, about, checks)
        if limits.get("gap") == 0:
            checks.that(result.status != "bounded" or not _exact(case.model), about, "not closed")
    if case.best is None:
        return
    met = _solved(case, method, upper_bound=case.best)
    check_result(case, met, f"{case.name} {method} upper_bound={case.best}", checks)
    step = 1e-6 * (1 + abs(case.best)) if case.model.kind != "cost" else Decimal(1).scaleb(-case.model.decimals)
    better = case.best - step if case.least else case.best + step
    missed = _solved(case, method, upper_bound=better)
    checks.that(
        missed.status == "infeasible" or (missed.status == "bounded" and not _exact(case.model)),
        f"{case.name} {method} upper_bound={better}",
        f"{missed.status} {value_of(missed)}",
    )


def _exact(model: Model) -> bool:
    """Whether the integers of the bounds are the costs."""
    return cost_network(question_of(model, "optimum").reduced[0])[1].exact


def _noted(seen: list[tuple[int, int | None]]) -> Callable[[int, int | None], None]:
    return lambda lower, total: seen.append((lower, total))


def check_steps(case: Case, checks: Checks) -> None:
    """Look at all bounds that the portfolio tells."""
    network, _ = question_of(case.model, "optimum").reduced
    if fixed_value(network) is None or not network.leaves:
        return
    costs, _ = cost_network(network)
    for method, prune in itertools.product(("auto", "rows", "diagram", "search"), (True, False)):
        seen: list[tuple[int, int | None]] = []
        limits = ProofLimits(1 << 28, prune=prune, on_bounds=_noted(seen))
        portfolio = Portfolio(costs, None, method, limits)
        seen.append((portfolio.incumbent.lower, None))
        outcome = portfolio.run()
        checks.done["steps"] += len(seen)
        about = f"{case.name} {method}{'' if prune else ' unpruned'} steps"
        checks.that(outcome.proved, about, "not proved")
        least = math.inf if outcome.total is None else outcome.total
        for lower, total in seen:
            checks.that(lower <= least, about, f"bound {lower} above the optimum {least}")
            checks.that(total is None or total >= least, about, f"an incumbent {total} below the optimum {least}")


def random_cases(options: argparse.Namespace, checks: Checks) -> None:
    """Compare on random models."""
    for shape, kind, number, model in random_models(options.models, options.seed):
        if options.only not in f"{shape} {kind}":
            continue
        case = Case(f"{shape} {kind} {number}", model, enumerated(model))
        checks.done["models"] += 1
        check_methods(case, checks)
        check_limits(case, checks, np.random.default_rng(number))
        if number % _STEPPED == 0:
            check_steps(case, checks)


def real_cases(options: argparse.Namespace, checks: Checks) -> None:
    """Compare on public instances whose optimum is known and exact, the easiest first."""
    known = [q for q in questions(data_folder()) if q.query == "optimum" and _proved(q)]
    known = [q for q in known if options.only in q.name]
    for question in sorted(known, key=lambda q: q.log2_clique)[: options.real]:
        start = time.perf_counter()
        try:
            model = bucketflow.load(question.path)
        except FormatError as error:
            print(f"{question.name}: not read: {error}", flush=True)
            continue
        reference = question.references[0]
        best: Any = reference.value
        if best is not None:
            best = float(best) if model.kind != "cost" else best if model.decimals else int(best)
        case = Case(question.name, model, best, question.evidence, max(1e-6, float(reference.tolerance)))
        checks.done["instances"] += 1
        check_methods(case, checks, time=options.seconds, memory=options.memory)
        print(f"{question.name}: {time.perf_counter() - start:.1f} s", flush=True)


def _proved(question: Question) -> bool:
    return any(reference.relation == "=" for reference in question.references)


def main() -> None:
    """Compare, and print what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--real", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each method on a public instance")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    checks = Checks()
    start = time.process_time()
    random_cases(options, checks)
    real_cases(options, checks)
    seconds = time.process_time() - start
    table = Table("what", "how often", title=f"{len(checks.wrong)} differences, {seconds:.0f} CPU-s")
    for what, count in sorted(checks.done.items()):
        table.add_row(what, f"{count:,}")
    Console().print(table)
    raise SystemExit(bool(checks.wrong))


if __name__ == "__main__":
    main()
