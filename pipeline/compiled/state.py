"""The state of a compiled model: its findings, and the messages that are up to date under them."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes, peak_rss_bytes
from ...tasks.incremental.kept_tables import Incremental, KeptTables, loops_are_loaded
from ...tasks.sweeps.scaled import QuickSumProduct, Scaled, weighted
from ..answering.question import Names, asked_of, is_every
from ..machine.resources import Resources
from ..models.cases import Cases
from ..models.certainty import check_log10
from ..models.findings import Finding, finding_vector, findings_of, same_finding, variable_index
from ..models.model import Model
from ..options import Options
from ..plans.plan import Plan
from ..queries.arithmetic import ScaledPartition
from ..queries.asked import BeliefRequest, local_targets
from ..queries.beliefs import Beliefs, posteriors
from ..queries.expansion import dressed
from ..results.posteriors import Marginals
from ..trees.tree import Target
from .structure import Skeleton, check_memory

if TYPE_CHECKING:
    from .device_cases import GpuPropagation

Array = NDArray[Any]

# A compiled model is asked again and again: compilers pay sooner than in a single run, and for small models
# in the end.
_COMPILED_CELLS = 1 << 20
_LOADING_SECONDS = 0.5


class CompiledState:
    """A model with its tree, plan and messages, one question at a time."""

    def __init__(self, skeleton: Skeleton, options: Options) -> None:
        self.skeleton = skeleton
        self.options = options
        self.resources = Resources(options)
        self.findings: dict[int, Array] = {}
        self._partition = ScaledPartition(skeleton.network)
        self._hosts = skeleton.hosts
        self._base: dict[int, Scaled] = {}
        self._tables: KeptTables | None = None
        self._pending: set[int] = set()
        self.device: GpuPropagation | None = None
        plan = skeleton.plan
        if plan is not None and skeleton.fixed is not None:
            self._base = self._partition.leaves(dict(enumerate(plan.layouts[: len(skeleton.network.leaves)])))
            several = plan.cells >= _COMPILED_CELLS or loops_are_loaded()
            self._tables = kept_tables(plan, self._base, several)
            if self.resources.gpu_count:
                from .device_cases import GpuPropagation

                self.device = GpuPropagation(
                    skeleton.network, plan, self._base, self._hosts, skeleton.fixed, self.resources.memory_bytes
                )

    @property
    def model(self) -> Model:
        """The model."""
        return self.skeleton.model

    @property
    def plan(self) -> Plan | None:
        """The plan of both sweeps; None where preprocessing left nothing to eliminate."""
        return self.skeleton.plan

    @property
    def computed(self) -> int:
        """Number of steps that were run so far."""
        return 0 if self._tables is None else self._tables.computed

    def set_evidence(self, evidence: Mapping[str, Finding] | None) -> None:
        """Replace all findings."""
        new = {} if evidence is None else findings_of(self.model, evidence)
        self._change({**dict.fromkeys(self.findings), **new})

    def add(self, name: str, finding: Finding) -> None:
        """Add a finding, or replace the one on that variable."""
        self._change(findings_of(self.model, {name: finding}))

    def clear(self, *names: str) -> None:
        """Take back the findings on some variables; all findings without names."""
        self._change(dict.fromkeys([variable_index(self.model, n) for n in names] if names else self.findings))

    def reset(self) -> None:
        """Forget all findings and messages; the plan stays."""
        self.findings.clear()
        self._pending.clear()
        if self._tables is not None:
            self._tables.reset(self._base)

    def marginals(self, query_vars: Names = "all") -> Marginals:
        """Return the posteriors under the present findings; ``"all"`` includes what was compiled in."""
        start = time.perf_counter()
        skeleton = self.skeleton
        asked, targets = skeleton.asked, skeleton.targets
        if not is_every(query_vars):
            asked = asked_of(self.model, query_vars, (), False)
            targets = local_targets(skeleton.network, asked)
        beliefs = self._beliefs(targets)
        found = dressed(self.model, skeleton.network, self._partition, asked, beliefs, self.findings)
        check_log10(self.model, found.log10_evidence, self.findings.values())
        seconds = {"run": time.perf_counter() - start}
        return replace(
            found,
            plan=skeleton.plan,
            seconds=seconds,
            peak_rss_bytes=peak_rss_bytes(),
            notes=self.model.notes,
        )

    def partition(self) -> float:
        """Return log10 of the probability of the findings; -inf if they are impossible."""
        network = self.skeleton.network
        found = dressed(
            self.model, network, self._partition, BeliefRequest((), (), ()), self._beliefs([]), self.findings
        )
        assert found.log10_evidence is not None
        check_log10(self.model, found.log10_evidence, self.findings.values())
        return found.log10_evidence

    def current_tables(self) -> dict[int, Scaled]:
        """Return the messages that are up to date, leaves not among them."""
        if self._tables is None:
            return {}
        self._enter_pending()
        return self._tables.current()

    def restore(self, findings: Mapping[int, Array], tables: Mapping[int, Scaled]) -> None:
        """Enter findings with messages that were computed under them."""
        self._change(findings)
        if self._tables is not None:
            self._enter_pending()
            self._tables.restore(tables)

    def shared_tables(self, varying: Collection[int]) -> dict[int, Scaled] | None:
        """Return all tables under the findings on variables that do not vary; None where there are none."""
        plan, tables = self.plan, self._tables
        if plan is None or tables is None:
            return None
        with self._findings({v: f for v, f in self.findings.items() if v not in varying}):
            self._enter_pending()
            made = [step.node for step in plan.steps]
            tables.refresh(made, plan.kept_threads)
            return tables.copies((*self._base, *made))

    def asked_alone(self, cases: Cases, case: int, variables: Iterable[int]) -> Marginals:
        """Answer one case by itself, and forget it again."""
        model = self.model
        others = {v: f for v, f in self.findings.items() if v not in cases.columns}
        vectors = {v: finding_vector(model, v, f) for v, f in cases.findings(case).items()}
        with self._findings({**others, **vectors}):
            return self.marginals([model.names[v] for v in variables])

    @contextmanager
    def _findings(self, findings: Mapping[int, Array]) -> Iterator[None]:
        """Answer under other findings for a while."""
        before = dict(self.findings)
        self._change({**dict.fromkeys(before), **findings})
        try:
            yield
        finally:
            self._change({**dict.fromkeys(self.findings), **before})

    def _beliefs(self, targets: list[Target]) -> Beliefs:
        """Bring the tables up to date that some targets need, and read them."""
        skeleton = self.skeleton
        if skeleton.fixed is None or skeleton.plan is None or self._tables is None:
            return Beliefs(skeleton.fixed, {})
        plan, tables = skeleton.plan, self._tables
        if self.device is not None:
            on_device = None if self.options.remote else self.device.beliefs(self.findings, targets)
            if on_device is not None:
                return on_device
            check_memory(plan, default_memory_bytes())
            self._enter_pending()
        threads = plan.kept_threads
        tables.refresh(plan.tree.roots, threads)
        total = self._partition.total([tables.table(r) for r in plan.tree.roots])
        if total == -math.inf:
            return Beliefs(None, {})
        nodes = tuple([plan.results[target] for target in targets])
        tables.refresh(nodes, threads)
        found = self._read(dict(zip(targets, nodes, strict=True)))
        self._change_pace()
        return Beliefs(skeleton.fixed + total, found)

    def _read(self, nodes: Mapping[Target, int]) -> dict[Target, Array]:
        """Normalise and shape the tables of some targets."""
        plan, tables = self.plan, self._tables
        assert plan is not None
        assert tables is not None
        flat = tables.posteriors(tuple(nodes.values()))
        if flat is None:
            return posteriors({target: tables.table(node) for target, node in nodes.items()}, plan.dims)
        return {
            target: table if len(target) == 1 else table.reshape([plan.dims[v] for v in target])
            for target, table in zip(nodes, flat, strict=True)
        }

    def _change_pace(self) -> None:
        """Turn to compiled loops once as much time was spent without them as it takes to load them."""
        tables, plan = self._tables, self.plan
        if tables is not None and plan is not None and not tables.compiled and tables.seconds > _LOADING_SECONDS:
            self._tables = kept_tables(plan, tables.copies(self._base), True)
            self._tables.restore(tables.current())

    def _change(self, changes: Mapping[int, Array | None]) -> None:
        """Enter findings (None takes one back) and rebuild the leaves that they are multiplied into."""
        touched = set()
        for v, vector in dict(changes).items():
            old = self.findings.pop(v, None)
            if vector is not None:
                self.findings[v] = vector
            local = self.skeleton.network.local.get(v)
            if local is not None and not same_finding(old, vector):
                touched.add(self._hosts[local])
        self._pending |= touched
        if self.device is None:
            self._enter_pending()

    def _enter_pending(self) -> None:
        """Rebuild the leaves whose findings changed; with a GPU only when the CPU has to answer."""
        if self._tables is not None:
            for leaf in self._pending:
                self._tables.set_leaf(leaf, self._leaf(leaf))
        self._pending.clear()

    def _leaf(self, leaf: int) -> Scaled:
        """Multiply a leaf table by the findings that it hosts."""
        assert self.plan is not None
        network, axes = self.skeleton.network, self.plan.layouts[leaf]
        found = {}
        for axis, v in enumerate(axes):
            variable = network.variables[v]
            if self._hosts[v] == leaf and variable in self.findings:
                found[axis] = self.findings[variable][network.domains[variable]]
        return weighted(self._base[leaf], [network.dims[v] for v in axes], found) if found else self._base[leaf]


def kept_tables(plan: Plan, leaves: Mapping[int, Scaled], compiled: bool) -> KeptTables:
    """Keep all tables of a plan, in compiled loops or as NumPy goes."""
    if compiled:
        from ...tasks.incremental.packed import Packed

        algebra = QuickSumProduct(plan.tree.dims, True)
        return Packed(plan.steps, len(plan.up), leaves, algebra, plan.kept_threads)
    return Incremental(plan.steps, len(plan.up), leaves, QuickSumProduct(plan.tree.dims, False))
