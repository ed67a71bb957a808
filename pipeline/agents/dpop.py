"""The public function ``dpop``: a distributed problem, solved by its agents; and the task graph of their messages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from os import PathLike
from time import perf_counter
from typing import Any

from ...cluster.dask_pool import DaskPool
from ...cluster.memory import peak_rss_bytes
from ...tasks.gpu.cold_kernels import AVOIDED_START, cores_end_first
from ...tasks.sweeps.device_sweep import kernels_of
from ..compiling import counts_compiling
from ..errors import InternalError, ModelError, checks_keywords, public
from ..machine.resources import Resources
from ..models.dcop import Dcop, with_agents
from ..models.model import Model
from ..models.query import TaskSize
from ..options import Options, checked_order, parse_size
from ..plans.problem import DEVICE_LOADING_SECONDS
from ..plans.task_graph import TaskGraph, TaskNode
from ..plans.worker_parts import TASK_SECONDS
from ..results.dpop_result import DpopMetrics, DpopResult, DpopStatus
from ..runs.pools import NOTHING_SENT, DaskPools, not_sent, sent_work, serial_pool
from ..trees.costs import Rates, gpu_rates
from .agent import constant_of
from .agent_plan import AgentPlan
from .network import SimulatedNetwork
from .pseudo_tree import CHEAPEST, PseudoTree, pseudo_parents
from .solving import AgentOptions, Planned, Ran, check_tables_fit, plan_dcop, run_dcop


def message_graph(dcop: Dcop, tree: PseudoTree, plans: Mapping[int, AgentPlan], itemsize: int) -> TaskGraph:
    """Return the tasks of DPOP: UTIL messages from the leaves to the roots, then VALUE messages back.

    Parameters
    ----------
    dcop : Dcop
    tree : PseudoTree
    plans : mapping of int to AgentPlan
    itemsize : int
        Bytes of a cell of a message.
    """
    names, dims = dcop.model.names, dcop.model.dims
    util = {agent: f"util-{dcop.agents[agent].name}.{agent}" for agent in tree.walk}
    value = {agent: f"value-{dcop.agents[agent].name}.{agent}" for agent in tree.walk}
    nodes: dict[str, TaskNode] = {}
    runs: dict[int, int] = {}
    for agent in tree.walk:  # an agent after its parent
        asked = runs[tree.parents[agent]] if plans[agent].context else 1
        runs[agent] = asked * math.prod(dims[v] for v in plans[agent].iterated)

    def named(variables: Iterable[int]) -> tuple[str, ...]:
        return tuple(names[v] for v in variables)

    def add(key: str, **facts: object) -> None:
        needs: tuple[str, ...] = facts["needs"]  # type: ignore[assignment]
        level = 1 + max((nodes[need].level for need in needs), default=-1)
        nodes[key] = TaskNode(key=key, level=level, seconds=None, **facts)  # type: ignore[arg-type]

    for agent in reversed(tree.walk):
        plan = plans[agent]
        add(
            util[agent],
            kind="elimination",
            needs=tuple(util[child] for child in tree.children[agent]),
            functions=len(plan.functions),
            variables=named(plan.separator),
            eliminated=named(plan.owned),
            cells=plan.matched_cells + sum([step.lowered.cells for step in plan.steps]),
            nbytes=itemsize * plan.message_cells,
            place=f"agent {dcop.agents[agent].name}",
            repeats=runs[agent],
            bucket=util[agent],
        )
    for agent in tree.walk:
        parent = tree.parents[agent]
        add(
            value[agent],
            kind="message",
            needs=(util[agent], *([value[parent]] if parent >= 0 else [])),
            functions=len(plans[agent].functions),
            variables=named(plans[agent].owned),
            eliminated=(),
            cells=math.prod(dims[v] for v in plans[agent].owned),
            nbytes=itemsize * len(plans[agent].owned),
            place=f"agent {dcop.agents[agent].name}",
            bucket=util[agent],
        )
    return TaskGraph(nodes, tuple(value.values()))


@public
@checks_keywords
@counts_compiling
def dpop(
    problem: Dcop | Model,
    *,
    order: str | Sequence[str] = CHEAPEST,
    z: int | None = None,
    memory: int | str | None = None,
    latency: float = 0.0,
    bandwidth: float | None = None,
    threads: int = 1,
    seed: int = 0,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Any = None,
    tasks: TaskSize = "auto",
    dashboard: bool = False,
    dask_report: str | PathLike[str] | None = None,
    gpus: int | str | None = None,
) -> DpopResult:
    """Solve a distributed problem as its agents would: by UTIL and VALUE messages along a pseudo-tree.

    DPOP (Petcu & Faltings, IJCAI 2005), ADPOP with ``z``, MB-DPOP with ``memory``. Every agent gets its own functions
    and its children's messages, and nothing else. The dense engine joins tables. If agents share a process or a worker,
    the runtime with one computer per agent is simulated from the measured work of each agent.

    Parameters
    ----------
    problem : Dcop or Model
        From :func:`bucketflow.load_dcop`; variables of a model have an agent each.
    order : str or sequence of str, optional
        Preference of the depth-first walk: ``"max-degree"``, ``"most-connected"`` (most visited neighbours, then fewest
        neighbours), ``"most-constrained"`` (fewest joint states), ``"given"``, or names of all agents. ``"planned"`` is
        the tree of a good elimination order, in which parents need not be neighbours. ``"cheapest"``, the default, is
        the tree with the fewest joint states among these; the result names it.
    z : int, optional
        Most variables of a mini-bucket: a bound, an assignment and what it is worth, with messages of at most
        ``z - 1`` variables (a function with more is not split).
    memory : int or str, optional
        Most bytes of a message's table: variables are cut, and messages sent for each of their assignments, so that
        the answer stays exact.
    latency, bandwidth : float, optional
        Seconds that a message takes, and bytes a second; 0, and no limit, by default.
    threads : int, optional
        Cores of an agent.
    seed : int, optional
        Of the search for a planned tree.
    workers, scheduler, client : optional
        Where agents run as tasks: local Dask processes, or a running cluster. Each message is a Dask future, which
        depends on the futures of the children's messages.
    tasks : {"auto", "steps"}, optional
        "auto" sends nothing if the agents need less time than sending their messages; "steps" always sends them.
        ``dask`` of the answer reports what was sent.
    dashboard, dask_report : optional
        As in :func:`bucketflow.solve`.
    gpus : int or "all", optional
        Run large joins on this number of GPUs, of this machine or of the workers of ``scheduler`` or ``client``. With
        several GPUs, agents are tasks of GPU workers, and the kept tables of an agent stay on its device.

    Raises
    ------
    ModelError
        If an argument does not fit the problem.
    BudgetError
        If the tables of all agents do not fit memory, or bounded messages would be too many.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.dpop(bucketflow.load_dcop("meetings"))
    >>> found.value, found.metrics.messages
    (67, {'tree': 12, 'util': 6, 'value': 6})
    """
    start = perf_counter()
    dcop = with_agents(problem)
    where = {"workers": workers, "scheduler": scheduler, "client": client, "gpus": gpus, "tasks": tasks}
    options = Options(**where, dashboard=dashboard, dask_report=dask_report, threads=threads, seed=seed)
    resources = Resources(options)
    asked = AgentOptions(
        checked_order(order),
        z,
        None if memory is None else parse_size(memory),
        options.seed,
        threads,
        network=SimulatedNetwork(latency) if bandwidth is None else SimulatedNetwork(latency, bandwidth),
    )
    if not dcop.model.dims:
        raise ModelError("the problem has no variables for agents to own")
    planned, notes = plan_dcop(dcop, asked, math.inf), list[str]()
    # a short problem ends before a sleeping device has started, or before its kernels are compiled
    if why_cores := _why_cores(planned, resources):
        resources = resources.without_devices()
        notes.append(f"gpus had no effect: all joins take less time on the CPU than {why_cores}")
    elif resources.gpu_count:
        planned = replace(planned, asked=replace(asked, device=True))
    check_tables_fit(planned, resources.memory_bytes)
    begun = perf_counter()
    graph = message_graph(dcop, planned.tree, planned.plans, planned.semiring.itemsize)
    why = _why_here(graph, resources)
    with serial_pool(resources) if why else DaskPools(resources, model=dcop.model.title) as pool:
        with AVOIDED_START.counted(bool(why_cores)):
            ran = run_dcop(planned, pool)
        dask = sent_work(pool, options) if isinstance(pool, DaskPool) else None
    if resources.distributed and why:
        dask = not_sent(options, why)
        notes += [NOTHING_SENT] if options.dask_report else []
    found = _result(planned, ran, {"plan": begun - start, "run": ran.seconds})
    return replace(found, notes=(*found.notes, *notes), dask=dask, graph=graph)


def _why_cores(planned: Planned, resources: Resources) -> str:
    """Return the preparation of a device that takes longer than the whole run on the cores; "" if the device is used.

    The kernels do not count for agents that are tasks of GPU workers, because each worker compiles its own kernels.
    Bounded agents always use the device, because they may send their messages often.
    """
    sleeps = resources.device_sleeps
    if resources.asked.gpus is None or planned.bounded or planned.table_bytes > resources.host_bytes:
        return ""
    cores, device = (planned.joined_cells / rates.cells_per_second for rates in (Rates(), gpu_rates(planned.semiring)))
    if sleeps and cores <= DEVICE_LOADING_SECONDS:
        return "starting a device"
    if resources.distributed:
        return ""
    kernels = chain.from_iterable(kernels_of(plan.steps) for plan in planned.plans.values())
    start = DEVICE_LOADING_SECONDS if sleeps else 0.0
    return "compiling the kernels of a device" if cores_end_first(kernels, cores, device, start) else ""


def _why_here(graph: TaskGraph, resources: Resources) -> str:
    """Return why this process runs the agents; an empty text if workers do."""
    if not resources.distributed:
        return "no cluster was requested"
    if resources.gpu_count or resources.asked.tasks == "steps":
        return ""
    rates, least = Rates(), 2 * TASK_SECONDS
    cells = sum(node.cells * node.repeats for node in graph.nodes.values())
    seconds = cells / rates.cells_per_second + rates.step_seconds * graph.runs
    sending = f"sending their messages to workers pays only from {least:.2g} s on"
    return "" if seconds >= least else f"all agents together take {seconds:.2g} s, and {sending}"


def _result(planned: Planned, ran: Ran, seconds: dict[str, float]) -> DpopResult:
    """Evaluate the assignment on the whole problem, and compare its cost with the result at the roots.

    Parameters
    ----------
    planned : Planned
    ran : Ran
    seconds : dict
        Seconds of planning and of the run.

    Raises
    ------
    InternalError
        If the cost of the assignment contradicts the result at the roots.
    """
    dcop, model, found = planned.dcop, planned.dcop.model, ran.found
    constant = constant_of(model)
    total = None if found.total is None or constant is None else found.total + constant
    if total is not None and model.top is not None and total >= model.top:
        total = None
    named, cost = None, None
    if total is not None:
        states = [found.states[v] for v in range(len(model.dims))]
        named = {name: model.label(v, states[v]) for v, name in enumerate(model.names)}
        cost = model.cost(states)
        # with mini-buckets the result at the roots is only a lower bound of the cost
        if (planned.exact and cost != total) or (cost is not None and cost < total):
            raise InternalError(f"the agents found {total}, but their assignment costs {cost}")
        if cost is None:
            named = None
    status: DpopStatus = "infeasible" if total is None else "optimal" if cost == total else "bounded"
    owned = [(dcop.agents[agent].name, dcop.owned[agent]) for agent in planned.tree.walk]
    return DpopResult(
        status,
        None if cost is None else model.objective(cost),
        None if total is None else model.objective(total),
        named,
        {} if named is None else {name: {model.names[v]: named[model.names[v]] for v in own} for name, own in owned},
        *_tree(planned),
        planned.tree.heuristic,
        _metrics(planned, ran),
        seconds,
        peak_rss_bytes(),
        dcop.notes,
    )


def _tree(planned: Planned) -> tuple[dict[str, str | None], dict[str, tuple[str, ...]]]:
    """Parents and pseudo-parents, by name."""
    names = [agent.name for agent in planned.dcop.agents]
    above = {agent: planned.tree.parents[agent] for agent in planned.tree.walk}
    further = pseudo_parents(planned.dcop, planned.tree)
    return (
        {names[agent]: None if parent < 0 else names[parent] for agent, parent in above.items()},
        {names[agent]: tuple(names[other] for other in others) for agent, others in further.items()},
    )


def _metrics(planned: Planned, ran: Ran) -> DpopMetrics:
    dcop, plans, traffic, found = planned.dcop, planned.plans.values(), ran.traffic, ran.found
    names = [agent.name for agent in dcop.agents]
    return DpopMetrics(
        agents=len(plans),
        variables=len(dcop.model.dims),
        depth=planned.tree.depth,
        width=max(len(plan.separator) for plan in plans),
        largest_table_cells=max(plan.message_cells for plan in plans),
        messages={str(phase): count for phase, count in traffic.messages.items()},
        message_bytes={str(phase): count for phase, count in traffic.nbytes.items()},
        largest_message_bytes=traffic.largest,
        link_bytes={(names[sender], names[receiver]): count for (sender, receiver), count in traffic.links.items()},
        routed_bytes=sum(
            (dcop.route(*link) * count for link, count in traffic.links.items()), start=dcop.default_route * 0
        ),
        nccc=found.util.checks + found.value.checks,
        simulated_seconds={
            "tree": ran.building.seconds,
            "util": found.util.seconds,
            "value": found.value.seconds,
        },
        computing_seconds=found.computing,
    )
