"""Keywords of the public functions have types, so that type checkers see typing errors; queries have one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack, get_type_hints

import numpy as np
import pytest

import bucketflow
from bucketflow import Model, ModelError
from bucketflow.pipeline.answering import running
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.query import QUERIES, VALUES
from bucketflow.pipeline.options import Bounding, Keywords, Options, Sharing, Where

PAIR = Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), [[3, 1], [2, 5]])])


def test_keywords_are_the_options() -> None:
    assert get_type_hints(Sharing) == {name: get_type_hints(Options)[name] for name in Options.__dataclass_fields__}
    assert get_type_hints(Sharing).keys() - get_type_hints(Keywords).keys() == {"priority", "most_workers"}


def test_bounds_take_some_of_them() -> None:
    every = get_type_hints(Keywords)
    assert {name: every[name] for name in get_type_hints(Bounding)} == get_type_hints(Bounding)


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        *((function, Keywords) for function in (bucketflow.solve, bucketflow.plan, bucketflow.marginals)),
        *((function, Keywords) for function in (bucketflow.compile, bucketflow.sample, bucketflow.best)),
        (bucketflow.conditional, Keywords),
        (bucketflow.dynamic, Keywords),
        (bucketflow.submit, Sharing),
        (bucketflow.bound, Bounding),
        *((function, Where) for function in (bucketflow.resume, bucketflow.Compiled.marginals_batch)),
        (bucketflow.Compiled.batches, Where),
    ],
)
def test_public_functions_say_which_keywords_they_take(function: Callable[..., Any], keywords: type) -> None:
    assert function.__annotations__["options"] == f"Unpack[{keywords.__name__}]"
    assert inspect.unwrap(function).__globals__[keywords.__name__] is keywords
    assert function.__globals__["Unpack"] is Unpack


def test_every_query_has_an_answer_and_is_known_on_the_command_line() -> None:
    assert list(running._ANSWERS) == [name for name, kind in QUERIES.items() if not kind.left]
    assert {kind.left for kind in QUERIES.values()} < {"", *VALUES}
    offered = {
        name: next(p.type for p in main.commands[name].params if p.name == "query") for name in ("solve", "plan")
    }
    assert [list(choice.choices) for choice in offered.values()] == [[*VALUES, "sample"], list(QUERIES)]
    for name, kind in QUERIES.items():
        assert kind.name == name
        assert QUERIES[kind.swept].swept == kind.swept
        assert not QUERIES[kind.swept].both_ways


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1.5}, "seed is 1.5, which is not an integer"),
        ({"seed": -1}, "seed is -1; expected at least 0"),
        ({"seed": None}, "seed is None, which is not an integer"),
        ({"threads": 0}, "threads is 0; expected at least 1"),
        ({"threads": "2"}, "threads is '2', which is not an integer"),
        ({"workers": -1}, "workers is -1; expected at least 1"),
        ({"order_time": "x"}, "order_time is x; it must be a number of seconds, 0 or more"),
        ({"time": "3"}, "time is 3; it must be a number of seconds, 0 or more"),
        ({"gap": "x"}, "gap is x; it must be a fraction such as 0.01, 0 or more"),
        ({"upper_bound": True}, "the bound True is not a number"),
        ({"order": 5}, "the order is 5; it must be the name of a heuristic"),
        ({"order": [0, 1]}, "or list names"),
        ({"workdir": 5}, "workdir is 5; it must be a path"),
        ({"scheduler": 5}, "scheduler is 5; it must be an address"),
        ({"evidence": 5}, "evidence is a mapping of names to states, or a file"),
        ({"evidence": [("a", 1)]}, "evidence is a mapping of names to states, or a file"),
        ({"evidence": {"a": np.array([0.5, 0.5])}}, "'a' has no state"),
    ],
)
def test_options_of_another_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bucketflow.solve(PAIR, **options)


@pytest.mark.parametrize(("options", "message"), [({"z": 2.5}, "z is 2.5, which"), ({"time": "x"}, "time is x; it")])
def test_bounds_refuse_them_too(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bucketflow.bound(PAIR, **options)


def test_what_is_no_model_and_no_path_is_named() -> None:
    with pytest.raises(ModelError, match="a Model is expected, found int"):
        bucketflow.compile(5)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="the path of a file is expected, found int"):
        bucketflow.load(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", VALUES)
def test_options_may_be_of_numpy(query: str) -> None:
    options: dict[str, Any] = {"seed": np.int64(3), "threads": np.int32(1), "memory": np.int64(10**9)}
    model = PAIR if query in ("optimum", "count") else bucketflow.load("diagnosis")
    last: dict[str, Any] = {"maximize": np.array(model.names[-2:])} if query == "mmap" else {}
    expected = bucketflow.solve(model, query, **last)
    order = np.array(model.names)
    for more in (options, {"order": order, "order_time": np.float32(0.01)}):
        found = bucketflow.solve(model, query, **last, **more)
        assert (found.value, found.assignment) == (expected.value, expected.assignment)


@pytest.mark.parametrize(
    "options",
    [
        {"time": np.float32(300), "gap": np.float32(0.1), "prune": np.bool_(False), "memory": np.int64(10**9)},
        {"memory": np.int64(10**9), "disk": np.int64(10**8), "order_time": np.float32(0.1), "seed": np.int8(1)},
    ],
)
def test_options_of_numpy_are_kept_in_a_run_directory(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.wcsp"
    bucketflow.save(PAIR, path)
    found = bucketflow.solve(bucketflow.load(path), workdir=tmp_path / "run", **options)
    assert bucketflow.resume(tmp_path / "run").value == found.value == 1


MEANT: list[tuple[Callable[[], Any], str, str, str]] = [
    (lambda: bucketflow.simulate(bucketflow.plan("satellite"), worker=2), "simulate", "worker", "workers"),
    (lambda: bucketflow.solve(PAIR, memmory="4GB"), "solve", "memmory", "memory"),
    (lambda: bucketflow.plan(PAIR, presentation="rows"), "plan", "presentation", "representation"),
    (lambda: bucketflow.marginals(PAIR, gpu=1), "marginals", "gpu", "gpus"),
    (lambda: bucketflow.fit(PAIR, {}, priors=1), "fit", "priors", "prior"),
    (lambda: bucketflow.bound(PAIR, orders="min-fill"), "bound", "orders", "order"),
    (lambda: bucketflow.sample(PAIR, 1, temprature=1), "sample", "temprature", "temperature"),
    (lambda: bucketflow.best(PAIR, 1, withing=1), "best", "withing", "within"),
    (lambda: bucketflow.compile(PAIR, thread=1), "compile", "thread", "threads"),
    (lambda: bucketflow.einsum("i->", [1], semirng="log"), "einsum", "semirng", "semiring"),
    (lambda: bucketflow.conditional(PAIR, "a", givn="b"), "conditional", "givn", "given"),
    (lambda: bucketflow.circuit(PAIR, memry=1), "circuit", "memry", "memory"),
    (lambda: bucketflow.sensitivity("grid", "x0", 0, memori=1), "sensitivity", "memori", "memory"),
    (lambda: bucketflow.load_circuit(pat="a.npz"), "load_circuit", "pat", "path"),
    (lambda: bucketflow.check_circuit(PAIR, modell=PAIR), "check_circuit", "modell", "model"),
    (lambda: bucketflow.dynamic(PAIR, suffix=1), "dynamic", "suffix", "suffixes"),
    (lambda: bucketflow.submit(PAIR, most_worker=1), "submit", "most_worker", "most_workers"),
    (lambda: bucketflow.batch("list.csv", "out", maxtime=1), "batch", "maxtime", "max_time"),
    (lambda: bucketflow.serve(prt=1), "serve", "prt", "port"),
    (lambda: bucketflow.resume("run", worker=1), "resume", "worker", "workers"),
    (lambda: bucketflow.dpop(PAIR, latence=1), "dpop", "latence", "latency"),
    (lambda: bucketflow.entropy(PAIR, "a", evidnce={}), "entropy", "evidnce", "evidence"),
    (lambda: bucketflow.mutual_information(PAIR, "a", "b", givn="c"), "mutual_information", "givn", "given"),
    (lambda: bucketflow.draw(PAIR, posterior=True), "draw", "posterior", "posteriors"),
    (lambda: bucketflow.info(PAIR, chek=True), "info", "chek", "check"),
    (lambda: bucketflow.convert(PAIR, "a.uai", agent="b"), "convert", "agent", "agents"),
    (lambda: bucketflow.evaluate(PAIR, asignment={}), "evaluate", "asignment", "assignment"),
    (lambda: bucketflow.report("run", outt="a.html"), "report", "outt", "out"),
    (lambda: bucketflow.load("grid", memry="4GB"), "load", "memry", "memory"),
    (lambda: bucketflow.load_dcop("meetings", agent="a.yaml"), "load_dcop", "agent", "agents"),
    (lambda: bucketflow.save(PAIR, pat="a.uai"), "save", "pat", "path"),
    (lambda: bucketflow.jobs(schedule="tcp://host:1"), "jobs", "schedule", "scheduler"),
    (lambda: bucketflow.generate("grid", variable=9), "generate", "variable", "variables"),
    (lambda: bucketflow.from_pgmpy(PAIR, netwrk=1), "from_pgmpy", "netwrk", "network"),
    (lambda: bucketflow.from_pyagrum(PAIR, netwrk=1), "from_pyagrum", "netwrk", "network"),
    (lambda: bucketflow.from_pytoulbar2(PAIR, netwrk=1), "from_pytoulbar2", "netwrk", "network"),
    (lambda: bucketflow.from_arrays([], [], [], tops=1), "from_arrays", "tops", "top"),
    (lambda: bucketflow.from_cpmpy(PAIR, modell=1), "from_cpmpy", "modell", "model"),
    (lambda: bucketflow.from_networkx(PAIR, edge=1), "from_networkx", "edge", "edges"),
    (lambda: bucketflow.from_pandas([], defalt=1), "from_pandas", "defalt", "default"),
    (lambda: bucketflow.to_pgmpy(PAIR, modell=1), "to_pgmpy", "modell", "model"),
    (lambda: bucketflow.to_pyagrum(PAIR, modell=1), "to_pyagrum", "modell", "model"),
    (lambda: Model.build("cost", {}, [], tops=3), "build", "tops", "top"),
    (
        lambda: bucketflow.compile(bucketflow.load("diagnosis")).marginals_batch({}, memori=1),
        "marginals_batch",
        "memori",
        "memory",
    ),
    (lambda: bucketflow.compile(bucketflow.load("diagnosis")).batches({}, variabels="a"), "batches", "variabels",
     "variables"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "name", "wrong", "meant"), MEANT, ids=[name for _, name, _, _ in MEANT])
def test_a_keyword_that_is_not_there_is_refused_and_the_one_that_was_meant_is_named(
    ask: Callable[[], Any], name: str, wrong: str, meant: str
) -> None:
    with pytest.raises(ModelError) as refused:
        ask()
    assert str(refused.value) == f"{name}() got an unexpected keyword {wrong!r}; did you mean {meant!r}?"
    assert isinstance(refused.value, TypeError)  # as any function of Python's says it


def test_every_public_function_names_keywords() -> None:
    functions = {name for name in bucketflow.__all__ if type(getattr(bucketflow, name)).__name__ == "function"}
    without_keywords = {"examples", "formats", "asolve", "amarginals"}
    assert functions - without_keywords == {name for _, name, _, _ in MEANT} - {"build", "marginals_batch", "batches"}


def test_a_keyword_that_is_like_none_is_refused_with_all_there_are() -> None:
    with pytest.raises(ModelError, match=r"load\(\) got an unexpected keyword 'xyz'; known are check, memory, path"):
        bucketflow.load("grid", xyz=1)  # type: ignore[call-arg]
