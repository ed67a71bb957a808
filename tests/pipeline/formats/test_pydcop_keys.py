"""Every key of pyDCOP's format: read, noted or refused, none passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import bucketflow
from bucketflow import Dcop, FormatError
from tests.models import assignments

PROBLEM: dict[str, Any] = {
    "name": "p",
    "objective": "min",
    "domains": {"d": {"values": [0, 1]}},
    "variables": {"a": {"domain": "d", "cost_function": "3 * a"}, "b": {"domain": "d"}},
    "external_variables": {"e": {"domain": "d", "initial_value": 1}},
    "constraints": {
        "i": {"type": "intention", "function": "a * b + e"},
        "x": {"type": "extensional", "variables": ["a", "b"], "values": {5: "0 1"}, "default": 2},
    },
    "agents": {"one": {"capacity": 10}, "two": {}},
    "routes": {"default": 3, "one": {"two": 4}},
    "hosting_costs": {"default": 5, "two": {"default": 6, "computations": {"b": 0}}},
    "distribution_hints": {"must_host": {"one": ["a"]}},
}


def read(folder: Path, changes: dict[str, Any]) -> Dcop:
    """Read the problem with other values at some places, such as ``variables/a/domain``."""
    problem = yaml.safe_load(yaml.safe_dump(PROBLEM, sort_keys=False))
    for place, value in changes.items():
        *path, last = place.split("/")
        at = problem
        for key in path:
            at = at[key]
        if value is None:
            del at[last]
        else:
            at[last] = value
    (folder / "p.yaml").write_text(yaml.safe_dump(problem, sort_keys=False))
    return bucketflow.load_dcop(folder / "p.yaml")


def costs(dcop: Dcop) -> list[int | None]:
    return [dcop.model.cost(states) for states in assignments(dcop.model, {})]


UNCHANGED = [3, 6, 6, 7]


def test_the_problem_itself(tmp_path: Path) -> None:
    dcop = read(tmp_path, {})
    assert (costs(dcop), dcop.notes, dcop.owners) == (UNCHANGED, (), (0, 1))


@pytest.mark.parametrize("place", ["name", "description", "domains/d/type"])
def test_descriptions_change_nothing(place: str, tmp_path: Path) -> None:
    dcop = read(tmp_path, {place: "anything"})
    assert (costs(dcop), dcop.notes) == (UNCHANGED, ())


READ = [
    ("objective", "max", [-3, -6, -6, -7]),
    ("domains/d/values", ["0 .. 1"], UNCHANGED),
    ("variables/a/cost_function", "4 * a", [3, 6, 7, 8]),
    ("variables/a/domain", "f", [3, 6, 6, 7, 9, 11]),
    ("external_variables/e/initial_value", 0, [2, 5, 5, 6]),
    ("constraints/i/function", "a + b", [2, 6, 6, 7]),
    ("constraints/i/partial", {"b": 1}, [3, 6, 7, 7]),
    ("constraints/x/values", {7: "1 1"}, [3, 3, 6, 12]),
    ("constraints/x/default", 1, [2, 6, 5, 6]),
    ("constraints/x/variables", ["b", "a"], [3, 3, 9, 7]),
    ("agents/one/capacity", 3, UNCHANGED),
    ("routes/one/two", 9, UNCHANGED),
    ("routes/default", 9, UNCHANGED),
    ("hosting_costs/default", 9, UNCHANGED),
    ("hosting_costs/two/default", 9, UNCHANGED),
    ("hosting_costs/two/computations", {"b": 9}, UNCHANGED),
    ("distribution_hints/must_host", {"two": ["a"]}, UNCHANGED),
    ("variables/a/noise_level", 0.5, UNCHANGED),
]


@pytest.mark.parametrize(("place", "value", "expected"), READ)
def test_what_is_read(place: str, value: Any, expected: list[int], tmp_path: Path) -> None:
    """Costs are others, or what is known of agents."""
    before = read(tmp_path, {})
    dcop = read(tmp_path, {"domains/f": {"values": [0, 1, 2]}, place: value})
    assert costs(dcop) == expected
    told = [(each.agents, each.owners, each.default_route, each.noise) for each in (before, dcop)]
    assert expected != UNCHANGED or told[0] != told[1] or place == "domains/d/values"
    assert dcop.model.notes == ()


NOTED = [
    ("distribution", {"one": ["a"]}, "'distribution' of the problem (line 49) is not read: --agents takes one"),
    ("events", [{"id": "w"}], "'events' of the problem"),
    ("include", "other.yaml", "'include' of the problem"),
    (
        "domains/d/initial_value",
        1,
        "'initial_value' of domains (line 8) is only a starting point for local search, and is not used",
    ),
    ("domains/d/unit", "lux", "'unit' of domains"),
    ("variables/a/initial_value", 1, "'initial_value' of variables (line 12) is only a starting point"),
    ("variables/a/yourkey", "yourvalue", "'yourkey' of variables (line 12) is not read"),
    ("external_variables/e/foo", 1, "'foo' of external variables"),
    ("constraints/i/noise", "random.randint(0, 20)", "'noise' of intentions"),
    ("constraints/i/noise_level", 0.02, "'noise_level' of intentions"),
    ("constraints/i/values", {1: "0 1"}, "'values' of intentions"),
    ("constraints/i/variables", ["a"], "'variables' of intentions"),
    ("constraints/x/function", "a", "'function' of extensions"),
    ("constraints/x/partial", {"a": 1}, "'partial' of extensions"),
    ("agents/one/foo", "bar", "'foo' of agents"),
    ("hosting_costs/two/other", 3, "'other' of hosting costs of agents"),
    ("distribution_hints/host_with", {"a": ["b"]}, "'host_with' of distribution hints"),
    ("distribution_hints/near", {"a": ["b"]}, "'near' of distribution hints"),
]


@pytest.mark.parametrize(("place", "value", "phrase"), NOTED)
def test_what_is_noted(place: str, value: Any, phrase: str, tmp_path: Path) -> None:
    dcop = read(tmp_path, {place: value})
    (note,) = dcop.notes
    assert note.startswith(phrase)
    assert costs(dcop) == UNCHANGED
    assert bucketflow.solve(dcop.model).notes == (note,)


REFUSED = [
    ("objective", "less", "the objective min or max"),
    ("constraints/i/source", "f.py", "a file of Python code, which is not run"),
    ("constraints/i/type", "global", "of type intention or extensional"),
    ("agents/one", 3, "properties of agent 'one', found '3'"),
    ("variables", None, "a variable of the problem, found 'a'"),
    ("domains/d/values", None, "values of domain 'd'"),
    ("variables/a/domain", None, "domain of variable 'a'"),
    ("external_variables/e/initial_value", None, "initial_value of external variable 'e'"),
    ("constraints/i/function", None, "function of constraint 'i'"),
    ("constraints/x/variables", None, "variables of constraint 'x'"),
    ("constraints/x/values", None, "values of constraint 'x'"),
    ("constraints/x/default", None, "a default, or all assignments, of 'x'"),
    ("routes/three", {"one": 1}, "the unknown agent 'three'"),
    ("hosting_costs/three", {"default": 1}, "the unknown agent 'three'"),
]


@pytest.mark.parametrize(("place", "value", "phrase"), REFUSED)
def test_what_is_refused(place: str, value: Any, phrase: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError) as refused:
        read(tmp_path, {place: value})
    assert phrase in str(refused.value)
