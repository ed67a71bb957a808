"""Random distributed problems for the tests."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path

import numpy as np

from bucketflow import Agent, Dcop, Model
from bucketflow.pipeline.models.model import FORBIDDEN, Function


def random_dcop(seed: int, *, variables: int = 6, agents: int | None = None, functions: int = 8) -> Dcop:
    """Costs over up to three variables, some forbidden, some negative; agents own variables at random."""
    rng = np.random.default_rng(seed)
    dims = tuple(int(d) for d in rng.integers(1, 4, variables))
    made = []
    for _ in range(functions):
        arity = int(rng.integers(1, min(4, variables + 1)))
        scope = tuple(int(v) for v in rng.choice(variables, arity, replace=False))
        costs = rng.integers(-4, 20, [dims[v] for v in scope])
        made.append(Function(scope, np.where(rng.random(costs.shape) < 0.1, FORBIDDEN, costs)))
    names = tuple(f"v{k}" for k in range(variables))
    labels = tuple(tuple(f"s{s}" for s in range(d)) for d in dims)
    model = Model("cost", names, dims, labels, tuple(made), maximize=bool(seed % 2), decimals=seed % 3)
    owners = range(variables) if agents is None else rng.integers(0, agents, variables).tolist()
    return Dcop(model, tuple(Agent(f"a{k}") for k in range(agents or variables)), tuple(owners))


def published(data: Path) -> list[dict[str, str]]:
    """The rows of the manifest that are distributed problems, or belong to them."""
    with (data / "MANIFEST.tsv").open(newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if row["path"].startswith("dcop/")]


def published_answer(row: dict[str, str]) -> Decimal | None:
    """The optimum of a row that has one; None if everything is forbidden."""
    answer = row["known_answer"].split()[0]
    return None if answer == "infeasible" else Decimal(answer)
