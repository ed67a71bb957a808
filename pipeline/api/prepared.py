"""A question that is planned and ready to run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

from ..budget.device_fit import fitted_for_device
from ..budget.fit import Prices, fitted
from ..budget.stored import stored_plan
from ..errors import ModelError
from ..evidence.findings import named_findings
from ..formats import load_evidence
from ..models.model import Model
from ..models.preprocess import QUERIES, Network, reduce_model
from ..options import Options
from ..plans.plan import Plan, PlanOptions, Problem
from ..queries.arithmetic import Arithmetic, arithmetic_for
from ..rates.disk import measured_disk_rate
from ..trees.costs import Rates
from .devices import around_device, device_rates

Evidence = str | PathLike[str] | Mapping[str, str | int] | None


@dataclass(frozen=True)
class Prepared:
    """A query that is planned and ready to run; ``prices`` is None where nothing is left to eliminate."""

    network: Network
    arithmetic: Arithmetic[Any]
    problem: Problem
    prices: Prices | None
    seconds: float
    memory_bytes: int
    evidence: dict[int, int]

    @property
    def plan(self) -> Plan | None:
        """The plan that runs."""
        return self.prices.chosen if self.prices else None


def prepare(
    model: Model, query: str, evidence: Evidence, options: Options, stored: Mapping[str, Any] | None = None
) -> Prepared:
    """Preprocess and plan a query; ``stored`` is the plan of an earlier run to be made again."""
    start = time.perf_counter()
    if query not in QUERIES:
        raise ModelError(f"unknown query {query!r}; one of {', '.join(QUERIES)}")
    if query == "partition" and model.kind == "cost":
        raise ModelError("a cost network has no partition function; ask for its optimum or count")
    findings = observed(model, evidence)
    network = reduce_model(model, query, findings)
    arithmetic = arithmetic_for(network)
    semiring = arithmetic.semiring
    problem = Problem(network.dims, network.scopes, semiring, semiring.itemsize, model.nbytes)
    wanted, fit = plan_options(network, options), options.fit
    prices = None
    if network.leaves:
        rate = partial(measured_disk_rate, options.folder)
        if stored is not None:
            prices = Prices(stored_plan(problem, wanted, Rates(), stored))
        elif options.gpu_count:
            device = device_rates(options, semiring)
            around = around_device(options, device.link_bytes_per_second)
            prices = fitted_for_device(problem, wanted, fit, around, device.rates, options.gpu_count)
        else:
            prices = fitted(problem, wanted, Rates(), fit, options.disk_bytes, rate)
    seconds = time.perf_counter() - start
    memory_bytes = stored["memory_bytes"] if stored else wanted.memory_bytes
    return Prepared(network, arithmetic, problem, prices, seconds, memory_bytes, findings)


def observed(model: Model, evidence: Evidence) -> dict[int, int]:
    """Read evidence from a mapping, a pandas Series or a file into variable index → state index."""
    evidence = named_findings(evidence)
    if evidence is None:
        return dict(model.evidence)
    if isinstance(evidence, Mapping):
        return model.observe(evidence)
    found = load_evidence(evidence, model)
    return model.observe({model.names[v]: s for v, s in found.items()})


def plan_options(network: Network, options: Options) -> PlanOptions:
    """Turn what the caller asks into what the planner is asked."""
    order: Any = options.order
    if not isinstance(order, str):
        order = _local_order(network, order)
    return PlanOptions(
        tree=options.tree,
        order=order,
        order_seconds=options.order_time,
        seed=options.seed,
        memory_bytes=options.memory_bytes,
        decode=network.query == "optimum",
        threads=1 if options.distributed else options.thread_count,
    )


def _local_order(network: Network, names: Sequence[str]) -> list[int]:
    """Turn an order given by names into local variables; it must name all that are left to eliminate."""
    model = network.model
    unknown = [name for name in names if name not in model.index]
    if unknown:
        raise ModelError(f"the order names {unknown[0]!r}, which is not a variable of the model")
    if len(set(names)) < len(names):
        raise ModelError("the order names a variable twice")
    listed = [network.local[model.index[n]] for n in names if model.index[n] in network.local]
    missing = set(range(len(network.dims))) - set(listed)
    if missing:
        name = model.names[network.variables[min(missing)]]
        raise ModelError(f"the order lacks {len(missing)} variables, {name!r} among them")
    return listed
