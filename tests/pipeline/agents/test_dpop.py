"""Agents find what brute force finds, with any tree, split or bounded messages, in this process or as tasks."""

from __future__ import annotations

import json
import math
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import Agent, BucketflowError, BudgetError, Dcop, DpopResult, Model
from bucketflow.cluster.pool import SerialPool
from bucketflow.pipeline.agents import solving
from bucketflow.pipeline.agents.agent_plan import joint_states
from bucketflow.pipeline.agents.agent_tasks import AgentLabels, run_agents
from bucketflow.pipeline.agents.bounded import AgentPolicy, BoundedRun
from bucketflow.pipeline.agents.dpop import dpop
from bucketflow.pipeline.agents.network import SimulatedNetwork, Traffic
from bucketflow.pipeline.agents.pseudo_tree import (
    HEURISTICS,
    PseudoTree,
    agent_scopes,
    neighbours,
    next_hop,
    pseudo_tree,
)
from bucketflow.pipeline.agents.solving import AgentOptions, chosen_tree, knowledge, plan_dcop, run_dcop
from bucketflow.pipeline.cli.main import main
from tests.device_stand_in import device
from tests.models import brute_optimum, cost_models
from tests.pipeline.agents.problems import published, published_answer, random_dcop

PROBLEMS = st.builds(
    random_dcop,
    st.integers(0, 10_000),
    variables=st.integers(1, 6),
    agents=st.sampled_from([None, 1, 2, 4]),
    functions=st.integers(0, 10),
)
ORDERS = st.sampled_from(HEURISTICS)


def optimum(dcop: Dcop) -> int | Decimal | None:
    best = brute_optimum(dcop.model, {})
    return None if best is None else dcop.model.objective(int(best))


def check(found: DpopResult, dcop: Dcop) -> None:
    """What was found is the optimum, and its assignment is worth it."""
    best = optimum(dcop)
    assert found.value == found.bound == best
    assert found.status == ("infeasible" if best is None else "optimal")
    if best is not None:
        assert found.assignment is not None
        model = dcop.model
        states = [model.state_index(v, found.assignment[name]) for v, name in enumerate(model.names)]
        cost = model.cost(states)
        assert cost is not None
        assert model.objective(cost) == best
        told = {name: state for own in found.by_agent.values() for name, state in own.items()}
        assert told == found.assignment


@given(PROBLEMS, ORDERS)
@settings(max_examples=120)
def test_dpop_is_exact(dcop: Dcop, order: str) -> None:
    check(dpop(dcop, order=order), dcop)


@given(cost_models(), ORDERS, st.sampled_from([None, 1, 20]))
@settings(max_examples=80)
def test_any_cost_network_has_an_agent_a_variable(model: Model, order: str, memory: int | None) -> None:
    """Tops that totals reach, listed assignments with defaults, constants, variables in no function."""
    assert dpop(model, order=order, memory=memory).value == brute_optimum(model, {})


@given(PROBLEMS, ORDERS, st.integers(1, 5))
@settings(max_examples=100)
def test_adpop_brackets_the_optimum(dcop: Dcop, order: str, z: int) -> None:
    found, best, sign = dpop(dcop, order=order, z=z), optimum(dcop), -1 if dcop.model.maximize else 1
    if best is None:
        assert found.value is None
        return
    assert found.bound is not None
    assert sign * found.bound <= sign * best
    assert found.value is None or sign * found.value >= sign * best
    if z > found.metrics.width:
        check(found, dcop)


@given(cost_models(), ORDERS, st.integers(1, 4))
@settings(max_examples=80)
def test_adpop_brackets_any_cost_network(model: Model, order: str, z: int) -> None:
    """Tops, forbidden assignments, constants."""
    found, best = dpop(model, order=order, z=z), brute_optimum(model, {})
    if best is None:
        assert found.value is None
    else:
        assert found.bound is not None
        assert found.bound <= best
        assert found.value is None or found.value >= best


@pytest.mark.parametrize("kind", ["grid", "random", "scale-free"])
def test_matched_buckets_bound_better(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With messages of the same size; totals that are too large for exact shares are not matched."""
    better = 0
    for seed in range(4):
        dcop = bucketflow.generate(kind, variables=12, domain=3, density=0.5, tightness=0.1, seed=seed)  # type: ignore[arg-type]
        found = dpop(dcop, z=2, order="planned")
        with monkeypatch.context() as patched:
            patched.setattr(solving, "LARGEST", -1)
            plain = dpop(dcop, z=2, order="planned")
        assert found.metrics.message_bytes == plain.metrics.message_bytes
        assert found.bound is not None
        assert plain.bound is not None
        assert plain.bound <= found.bound <= (dpop(dcop).value or 0)
        better += found.bound > plain.bound
    assert better >= 3


def test_costs_that_shares_cannot_be_exact_for() -> None:
    far = grid(3)
    functions = tuple(replace(f, values=f.values * 2**50) for f in far.model.functions)
    far = replace(far, model=replace(far.model, functions=functions))
    found, best = dpop(far, z=2), dpop(far).value
    assert found.bound is not None
    assert best is not None
    assert found.bound <= best


@given(PROBLEMS, st.sampled_from(["max-degree", "planned"]), st.sampled_from([1, 4, 12, 40, 1000]))
@settings(max_examples=100)
def test_bounded_messages_are_exact(dcop: Dcop, order: str, memory: int) -> None:
    found = dpop(dcop, order=order, memory=memory)
    check(found, dcop)
    assert found.metrics.largest_table_cells <= max(1, memory // 2)


def above(tree: PseudoTree, agent: int) -> list[int]:
    """The agents above one, its parent first."""
    return [] if (parent := tree.parents[agent]) < 0 else [parent, *above(tree, parent)]


@given(PROBLEMS, ORDERS)
@settings(max_examples=60)
def test_every_function_lies_on_one_branch(dcop: Dcop, order: str) -> None:
    tree = pseudo_tree(dcop, order)
    assert sorted(tree.walk) == [agent for agent, own in enumerate(dcop.owned) if own]
    for scope in agent_scopes(dcop):
        for agent in scope:
            assert all(other in above(tree, agent) or agent in (other, *above(tree, other)) for other in scope)
    if tree.heuristic != "planned":
        around = neighbours(dcop)
        assert all(tree.parents[a] in around[a] for a in tree.walk if tree.parents[a] >= 0)
        assert len(tree.tokens) == 2 * (len(tree.walk) - len(tree.roots))


def grid(side: int, dim: int = 3, seed: int = 0) -> Dcop:
    """A square grid of random costs, an agent a variable."""
    rng = np.random.default_rng(seed)
    names = [f"v{r}_{c}" for r in range(side) for c in range(side)]
    pairs = [(f"v{r}_{c}", f"v{r}_{c + 1}") for r in range(side) for c in range(side - 1)]
    pairs += [(f"v{r}_{c}", f"v{r + 1}_{c}") for r in range(side - 1) for c in range(side)]
    functions = [(pair, rng.integers(0, 100, (dim, dim))) for pair in pairs]
    model = Model.build("cost", dict.fromkeys(names, dim), functions)
    return Dcop(model, tuple(map(Agent, names)), tuple(range(side * side)))


def test_orders_of_the_walk() -> None:
    dcop = grid(3)
    assert pseudo_tree(dcop, "max-degree").roots == (4,)  # the middle
    assert pseudo_tree(dcop, "given").walk[:3] == (0, 1, 2)
    assert pseudo_tree(dcop, list(dcop.model.names[::-1])).roots == (8,)
    found = dpop(grid(2), order="given")
    assert found.parents == {"v0_0": None, "v0_1": "v0_0", "v1_1": "v0_1", "v1_0": "v1_1"}
    assert found.pseudo_parents == {"v0_0": (), "v0_1": (), "v1_1": (), "v1_0": ("v0_0",)}
    assert next_hop([3, 1, 2], {3}) == 1
    assert next_hop([3], {3}) is None
    planned, walked = dpop(grid(4), order="planned"), dpop(grid(4), order="given")
    assert planned.value == walked.value == bucketflow.solve(grid(4).model).value
    assert planned.metrics.width <= walked.metrics.width


def looked_up(dcop: Dcop, tree: PseudoTree) -> int:
    """Joint states of each variable of a problem of one variable an agent, and of the ancestors that it depends on."""
    total = 0
    for agent in tree.walk:
        branch = {other for other in tree.walk if other == agent or agent in above(tree, other)}
        reached = {other for scope in agent_scopes(dcop) if branch & set(scope) for other in scope}
        joined = reached & {agent, *above(tree, agent)}
        total += math.prod(dcop.model.dims[v] for other in joined for v in dcop.owned[other])
    return total


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 10))
@settings(max_examples=30)
def test_the_default_is_the_cheapest_tree_there_is(seed: int, variables: int, functions: int) -> None:
    dcop = random_dcop(seed, variables=variables, agents=None, functions=functions)
    trees = {order: pseudo_tree(dcop, order) for order in HEURISTICS}
    with AgentPolicy.using(easy_states=0):
        found = chosen_tree(dcop)
    states = {order: looked_up(dcop, tree) for order, tree in trees.items()}
    assert found == trees[found.heuristic]
    assert states[found.heuristic] == joint_states(dcop, found) == min(states.values())
    assert joint_states(dcop, found, states[found.heuristic] - 1) == math.inf
    assert found.depth == min(tree.depth for order, tree in trees.items() if states[order] == states[found.heuristic])
    assert chosen_tree(dcop).heuristic != "planned"  # so few states are not worth a search
    assert dpop(dcop).order == chosen_tree(dcop).heuristic


def test_the_default_solves_grids_that_the_greatest_degree_cannot() -> None:
    dcop = grid(7, 4)
    with pytest.raises(BudgetError, match="--order cheapest for a narrower tree"):
        plan_dcop(dcop, AgentOptions(order="max-degree"), 1 << 30)
    assert dpop(dcop).value == bucketflow.solve(dcop.model).value


@pytest.mark.parametrize("side", [4, 6, 9])
def test_most_connected_walks_keep_grids_narrow(side: int) -> None:
    dcop = bucketflow.generate("grid", variables=side * side, domain=2)
    connected, degree = (
        plan_dcop(dcop, AgentOptions(order=order), 1 << 60).plans.values() for order in ("most-connected", "max-degree")
    )
    assert max(len(plan.separator) for plan in connected) <= side
    assert max(len(plan.separator) for plan in degree) > side


def test_asking_neighbours_who_was_visited_is_counted() -> None:
    """On a ring the first agent asks its two neighbours, which answer at the same time; then there is no choice."""
    names = list("abcd")
    functions = [((names[k], names[(k + 1) % 4]), [[0, 1], [1, 0]]) for k in range(4)]
    model = Model.build("cost", dict.fromkeys(names, 2), functions)
    metrics = dpop(model, order="most-connected", latency=1.0).metrics
    assert metrics.messages["tree"] == 6 + 4
    assert metrics.message_bytes["tree"] == 4 * (1 + 2 + 3 + 4 + 4 + 4) + 4 * 4
    assert metrics.simulated_seconds["tree"] == 6 + 2


def test_large_joins_run_on_compiled_kernels_as_well() -> None:
    dcop = grid(4, dim=8)
    assert dpop(dcop, order="planned").value == bucketflow.solve(dcop.model).value


def test_large_joins_run_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages travel through the host's memory, whatever ran where."""
    here = dpop(grid(4, dim=4), order="planned")
    parts = dpop(grid(4, dim=4), order="planned", z=3)
    with device(monkeypatch, least_cells=30):
        there = dpop(grid(4, dim=4), order="planned", gpus=1)
        bounded = dpop(grid(4, dim=4), order="planned", gpus=1, memory=60)
        split = dpop(grid(4, dim=4), order="planned", gpus=1, z=3)
    assert (there.value, there.assignment) == (here.value, here.assignment)
    assert there.metrics.message_bytes == here.metrics.message_bytes
    assert bounded.value == here.value
    assert (split.bound, split.value) == (parts.bound, parts.value)


def test_a_hub_of_many_neighbours() -> None:
    functions = [(["hub", f"v{k}"], [[k, 1], [2, k % 5]]) for k in range(200)]
    model = Model.build("cost", dict.fromkeys(["hub", *(f"v{k}" for k in range(200))], 2), functions)
    assert dpop(model).value == bucketflow.solve(model).value


def test_long_chains_do_not_recurse() -> None:
    names = [f"v{k}" for k in range(1500)]
    functions = [(pair, [[0, 2], [3, 1]]) for pair in pairwise(names)]
    assert dpop(Model.build("cost", dict.fromkeys(names, 2), functions), order="given").value == 0


def test_evidence_tops_and_constants() -> None:
    model = Model.build("cost", {"a": 2, "b": 2}, [(["a", "b"], [[5, 1], [2, 3]]), ([], 4)], top=8)
    assert dpop(model).value == 5
    assert dpop(replace(model, evidence={1: 0})).value == 6
    assert dpop(replace(model, evidence={0: 1, 1: 1})).value == 7
    assert dpop(replace(model, top=5)).status == "infeasible"


class Watched(SerialPool):
    """Runs tasks from what would travel to another machine, and remembers it."""

    def __init__(self) -> None:
        self.payloads: list[tuple[str, bytes]] = []

    def submit(self, function: Callable[..., Any], *args: Any, priority: int = 0, label: Any = None) -> Any:
        payload = pickle.dumps(args)
        self.payloads.append((function.__name__, payload))
        return function(*pickle.loads(payload))


MARKS = {k: np.int64(7_000_001 + 1_000_003 * k) for k in range(24)}


def marked() -> Dcop:
    """A grid each of whose functions has a cost that nothing else contains, which shows wherever its table is."""
    dcop = grid(4, dim=2)
    tables = [np.array([[0, mark], [mark + 13, mark + 29]]) for mark in MARKS.values()]
    functions = [replace(f, values=values) for f, values in zip(dcop.model.functions, tables, strict=True)]
    return replace(dcop, model=replace(dcop.model, functions=tuple(functions)))


def held(payload: bytes, dtype: np.dtype[Any]) -> set[int]:
    """Functions whose tables are in a task, either way round."""
    found = set()
    for k, mark in MARKS.items():
        rows = ((0, mark, mark + 13, mark + 29), (0, mark + 13, mark, mark + 29))
        if any(np.array(row, dtype).tobytes() in payload for row in rows):
            found.add(k)
    return found


@pytest.mark.parametrize("agents", [16, 5])
def test_a_task_that_answers_requests_receives_its_own_functions_only(agents: int) -> None:
    """Of agents with one variable or several, whose messages are bounded."""
    dcop = marked()
    owners = tuple(v % agents for v in range(16))
    dcop = replace(dcop, agents=tuple(Agent(f"a{k}") for k in range(agents)), owners=owners)
    planned = plan_dcop(dcop, AgentOptions(order="given", message_bytes=16), 1 << 30)
    assert planned.bounded
    pool = Watched()
    found = BoundedRun(planned.tree, knowledge(planned), pool, SimulatedNetwork(), Traffic(), AgentLabels()).run()
    assert found.total == dpop(dcop).value
    dtype = np.dtype(planned.semiring.dtype)
    asked = [(name, payload) for name, payload in pool.payloads if name in ("answer", "decide")]
    assert len(asked) > 2 * len(planned.tree.walk)
    seen = set()
    for _, payload in asked:
        known, place, *_ = pickle.loads(payload)
        own = set(planned.plans[place.agent].functions)
        assert set(known.plan.functions) == own
        assert held(payload, dtype) == own
        assert not [name for name in dcop.model.names if name.encode() in payload]
        seen.add(place.agent)
    assert seen == set(planned.tree.walk)
    for name, payload in pool.payloads:
        if name not in ("answer", "decide", "merged"):
            assert held(payload, dtype) == set(), name


@pytest.mark.parametrize("z", [None, 2])
@pytest.mark.parametrize("agents", [16, 5])
def test_a_task_never_receives_another_agents_function(agents: int, z: int | None) -> None:
    dcop = marked()
    owners = tuple(v % agents for v in range(16))
    dcop = replace(dcop, agents=tuple(Agent(f"a{k}") for k in range(agents)), owners=owners)
    planned = plan_dcop(dcop, AgentOptions(order="given", z=z), 1 << 30)
    pool = Watched()
    found = run_agents(planned.tree, knowledge(planned), pool, SimulatedNetwork(), Traffic(), AgentLabels())
    assert found.total is not None
    dtype = np.dtype(planned.semiring.dtype)
    tasks = [payload for name, payload in pool.payloads if name == "util"]
    assert len(tasks) == len(planned.tree.walk) == agents
    for agent, payload in zip(reversed(planned.tree.walk), tasks, strict=True):
        own = set(planned.plans[agent].functions)
        assert held(payload, dtype) == own
        assert all(agent in [dcop.owners[v] for v in dcop.model.functions[k].scope] for k in own)
        names = [name for name in dcop.model.names if name.encode() in payload]
        assert names == []
    for name, payload in pool.payloads:
        if name in ("known_of", "decide"):
            assert len(held(payload, dtype)) <= (4 if agents == 16 else 12)
        if name == "report_of":
            assert len(held(payload, dtype)) <= (4 if agents == 16 else 12)


def test_what_a_run_costs() -> None:
    """A chain of three agents with two states each: every number by hand."""
    functions = [(["a", "b"], [[0, 9], [9, 1]]), (["b", "c"], [[0, 9], [9, 1]])]
    model = Model.build("cost", dict.fromkeys("abc", 2), functions)
    metrics = dpop(model, order="given", latency=1.0, bandwidth=1000).metrics
    assert (metrics.agents, metrics.depth, metrics.width, metrics.largest_table_cells) == (3, 2, 1, 2)
    assert metrics.messages == {"tree": 4, "util": 2, "value": 2}
    assert metrics.message_bytes == {"tree": 4 + 8 + 12 + 12, "util": 2 * (8 + 4 + 2 * 2), "value": 2 * 8}
    assert metrics.link_bytes["c", "b"] == 12 + 16
    assert metrics.largest_message_bytes == 16
    # c joins 4 cells of 1 table, b 4 cells of 2, a 2 cells of 1; each then looks its tables up for two states
    assert metrics.nccc == 4 + 8 + 2 + (2 + 4 + 2)
    seconds = metrics.simulated_seconds
    assert seconds["tree"] == pytest.approx(4 + 0.036)
    assert 2 + 0.032 < seconds["util"] < 2 + 0.032 + metrics.computing_seconds
    assert 2 + 0.016 < seconds["value"] < 2 + 0.016 + metrics.computing_seconds


def test_agents_that_work_at_the_same_time() -> None:
    """A star's leaves send at once: the simulated time is one message, not four."""
    functions = [(["hub", f"v{k}"], [[0, 1], [1, 0]]) for k in range(4)]
    model = Model.build("cost", dict.fromkeys(["hub", "v0", "v1", "v2", "v3"], 2), functions)
    metrics = dpop(model, latency=1.0).metrics
    assert 1 < metrics.simulated_seconds["util"] < 2
    assert metrics.depth == 1


def test_routes_weigh_the_load() -> None:
    dcop = grid(2)
    agents = (replace(dcop.agents[0], routes={"v0_1": Decimal("2.5")}), *dcop.agents[1:])
    metrics = dpop(replace(dcop, agents=agents, default_route=Decimal(2)), order="given").metrics
    direct = sum(n for link, n in metrics.link_bytes.items() if set(link) == {"v0_0", "v0_1"})
    assert metrics.routed_bytes == 2 * metrics.network_load + Decimal("0.5") * direct


def test_bounded_messages_ask_again(tmp_path: Path) -> None:
    dcop = grid(4)
    free, bounded = dpop(dcop), dpop(dcop, memory=18)
    assert free.value == bounded.value
    assert free.metrics.largest_table_cells > 9 >= bounded.metrics.largest_table_cells
    assert bounded.metrics.messages["context"] > 0
    assert bounded.metrics.total_messages > free.metrics.total_messages


def test_agents_as_tasks_on_workers() -> None:
    dcop = grid(3)
    here, there = dpop(dcop), dpop(dcop, workers=2, tasks="steps")
    assert (there.value, there.assignment) == (here.value, here.assignment)
    assert there.metrics.message_bytes == here.metrics.message_bytes


def test_bounded_messages_on_workers() -> None:
    from distributed import Client

    free = dpop(grid(4))
    with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client:
        alone, shared = dpop(grid(4), memory=18), dpop(grid(4), memory=18, client=client, tasks="steps")
        parts, split = dpop(grid(4), z=2), dpop(grid(4), z=2, client=client, tasks="steps")
    assert (shared.value, shared.assignment) == (free.value, alone.assignment)
    assert shared.metrics.message_bytes == alone.metrics.message_bytes
    assert shared.metrics.messages == alone.metrics.messages
    assert shared.metrics.nccc == alone.metrics.nccc
    assert (split.bound, split.value) == (parts.bound, parts.value)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batches_of_requests_do_not_change_answers(batch: int) -> None:
    with AgentPolicy.using(batch_requests=batch):
        for seed in range(40):
            dcop = random_dcop(seed, variables=6, agents=None if seed % 3 else 3, functions=9)
            check(dpop(dcop, memory=seed % 5 + 1), dcop)


def test_long_branches_of_bounded_messages_do_not_recurse() -> None:
    """All messages of a chain are about a hub too, which is cut for all of them."""
    names = ["hub", *(f"v{k}" for k in range(400))]
    near = [(list(pair), [[0, 2], [1, 0]]) for pair in pairwise(names[1:])]
    model = Model.build(
        "cost", dict.fromkeys(names, 2), near + [(["hub", name], [[0, 3], [1, 1]]) for name in names[1:]]
    )
    found = dpop(model, order=names, memory=4)
    assert found.value == dpop(model, order="planned").value
    assert found.metrics.messages["context"] > 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"order": "best"},
            "unknown order 'best'; one of cheapest, planned, most-connected, max-degree, most-constrained, given",
        ),
        ({"order": ["v0_0", "x"]}, "the order names 'x', which is not an agent"),
        ({"order": ["v0_0", "v0_0"]}, "an agent twice"),
        ({"order": ["v0_0", "v0_1"]}, "the order does not name the agent 'v1_0'"),
        ({"z": 0}, "z is 0; a mini-bucket has at least 1 variable"),
        ({"z": 2.5}, "z is 2.5, which is not an integer"),
        ({"seed": -1}, "seed is -1; expected at least 0"),
        ({"z": 2, "memory": 8}, "give only one of the two"),
        ({"memory": "much"}, "'much' is not a size"),
        ({"latency": -1.0}, "latency is -1.0"),
        ({"latency": "x"}, "latency is 'x'; it must be a number of seconds"),
        ({"bandwidth": "x"}, "bandwidth is 'x'; it must be bytes a second"),
        ({"order": 5}, "the order is 5; it must be the name of a heuristic"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BucketflowError, match=message):
        dpop(grid(2), **options)


def test_only_problems_are_solved() -> None:
    with pytest.raises(BucketflowError, match="a Dcop or a Model is expected, found str"):
        dpop("meetings")  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    names = [f"v{k}" for k in range(20)]
    functions = [((a, b), np.ones((40, 40), int)) for k, a in enumerate(names) for b in names[:k]]
    model = Model.build("cost", dict.fromkeys(names, 40), functions)
    with pytest.raises(
        BucketflowError, match=r"a message of agent .* PB; .* are free: limit the bytes of a message with --memory"
    ):
        dpop(model)
    with pytest.raises(BucketflowError, match=r"would send .* give a larger --memory"):
        dpop(model, memory="1kB")
    with pytest.raises(BucketflowError, match=r"more than 2\*\*61"):
        dpop(Model.build("cost", {"a": 2}, [("a", [0, 1 << 61])]))


@pytest.mark.usefixtures("compiled_at_once")
def test_tables_take_what_was_planned() -> None:
    planned = plan_dcop(grid(4, dim=8), AgentOptions(order="max-degree"), 1 << 40)
    run_dcop(planned, SerialPool())
    tracemalloc.start()
    try:
        run_dcop(planned, SerialPool())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert planned.table_bytes > 1 << 20
    assert 0.5 < peak / planned.table_bytes < 1.2


def test_the_command(tmp_path: Path) -> None:
    bucketflow.save(grid(3), tmp_path / "p.yaml")
    (tmp_path / "agents").write_text("one: [x0]\nrest: [x1, x2, x3]\n")
    found = CliRunner().invoke(main, ["dpop", str(tmp_path / "p.yaml"), "--json", "--order", "planned"])
    assert found.exit_code == 0
    answer = json.loads(found.stdout)
    assert answer["value"] == answer["bound"] == bucketflow.solve(grid(3).model).value
    assert answer["metrics"]["messages"]["total"] == sum(answer["metrics"]["messages"][p] for p in ("util", "value"))
    assert set(answer["agents"]) == set(answer["parents"]) == set(grid(3).model.names)
    shown = CliRunner().invoke(main, ["dpop", str(tmp_path / "p.yaml"), "--z", "2", "--latency", "0.1"])
    assert shown.exit_code == 0
    for word in ("simulated runtime", "network load", "induced width", "NCCC", "busiest link"):
        assert word in shown.stdout
    wrong = CliRunner().invoke(main, ["dpop", str(tmp_path / "p.yaml"), "--agents", str(tmp_path / "agents")])
    assert wrong.exit_code == 2
    assert "there is no agent 'one' in the problem" in wrong.stderr
    assert CliRunner().invoke(main, ["dpop", "diagnosis"]).exit_code == 2


def test_published_problems(data: Path) -> None:
    """DPOP equals the manifest; so do bounded messages and wide enough mini-buckets on the smaller ones."""
    answered = [row for row in published(data) if row["known_answer"] and float(row["minfill_width"]) <= 9]
    assert len(answered) >= 30
    for row in answered:
        dcop = bucketflow.load_dcop(data / row["path"])
        besides = sum(f.at(()) for f in dcop.model.functions if not f.scope)  # the manifest leaves it out
        answer = published_answer(row)
        value = None if answer is None else answer + besides
        found = dpop(dcop, order="planned")
        assert found.value == value, row["path"]
        if found.metrics.width <= 4:
            assert dpop(dcop, memory=400, order="planned").value == value, row["path"]
            assert dpop(dcop, z=found.metrics.width + 1, order="planned").value == value


@pytest.mark.parametrize("limits", [{}, {"z": 2}])
def test_the_graph_has_every_message_in_order(limits: dict[str, Any], tmp_path: Path) -> None:
    found = bucketflow.dpop(bucketflow.load_dcop("meetings"), **limits)
    assert found.graph is not None
    nodes = found.graph.nodes
    assert len(nodes) == 2 * len(found.parents)
    sent = sum(node.repeats for node in nodes.values() if node.kind == "elimination" and node.variables)
    assert sent == found.metrics.messages["util"]
    for agent, parent in found.parents.items():
        util, value = (next(key for key in nodes if key.startswith(f"{kind}-{agent}.")) for kind in ("util", "value"))
        assert set(nodes[util].needs) < set(nodes)
        if parent is not None:
            above = next(key for key in nodes if key.startswith(f"util-{parent}."))
            assert util in nodes[above].needs
            assert nodes[value].level > nodes[util].level
    path = tmp_path / "messages.json"
    done = CliRunner().invoke(main, ["dpop", "meetings", "--graph", str(path)])
    assert done.exit_code == 0, done.output
    assert json.loads(path.read_text())["tasks"] == len(nodes)
