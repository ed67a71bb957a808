"""Files of distributed problems: what is read is what is meant, what is written reads back, what is wrong is named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import BucketflowError, Dcop, Model, ModelError
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.models.dcop import Agent, External
from tests.models import assignments
from tests.pipeline.agents.problems import published, published_answer, random_dcop

YAML = """\
name: lights
objective: min
domains:
  level: {values: [0 .. 2]}
  color: {values: [R, G]}
  onoff: {values: [true, false]}
variables:
  a: {domain: level, cost_function: 0.5 * a, noise_level: 0.2, initial_value: 1}
  b: {domain: color}
external_variables:
  dark: {domain: onoff, initial_value: false}
constraints:
  inside:
    type: intention
    function: |
      if dark:
          return 100
      if a == 2:
          bonus = 3
      else:
          bonus = 0
      return {'R': 4, 'G': 1.25}[b] - bonus
  listed: {type: extensional, variables: [a, b], default: 9, values: {1: 0 R | 1 R, 2: 2 G}}
  one: {type: extensional, variables: b, values: {7: R, 0.5: G}}
  full: {type: extensional, variables: [b, a], values: [[0, 1, 2], [3, 4, .inf]]}
  part: {type: intention, function: a * c + b, partial: {c: 2, b: 1}}
agents:
  lamp: {capacity: 10}
  blind: {capacity: 2.5}
routes: {default: 5, lamp: {blind: 3}}
hosting_costs: {default: 7, blind: {default: 2, computations: {b: 1}}}
"""

XML = """\
<?xml version="1.0"?>
<instance>
  <presentation maximize="{maximize}" format="XCSP 2.1_FRODO"/>
  <agents nbAgents="2"><agent name="A"/><agent name="B"/></agents>
  <domains nbDomains="2"><domain name="D" nbValues="3">1..2 5</domain><domain name="E" nbValues="2"/></domains>
  <variables nbVariables="2">
    <variable name="X" domain="D" agent="A"/>
    <variable name="Y" domain="E" agent="{agent}"/>
  </variables>
  <relations nbRelations="3">
    <relation name="soft" arity="2" semantics="soft" defaultCost="{default}">2.5: 1 1|1 2|4: 5 2|0:2 1</relation>
    <relation name="yes" arity="1" nbTuples="2" semantics="supports">1|2</relation>
    <relation name="no" arity="2" nbTuples="1" semantics="conflicts">2 1</relation>
  </relations>
  <constraints nbConstraints="3">
    <constraint name="c0" arity="2" scope="X Y" reference="{reference}"/>
    <constraint name="c1" arity="1" scope="X" reference="yes"/>
    <constraint name="c2" arity="2" scope="X Y" reference="no"/>
  </constraints>
</instance>
"""


def xml(maximize: str = "false", agent: str = "B", default: str = "infinity", reference: str = "soft") -> str:
    return XML.format(maximize=maximize, agent=agent, default=default, reference=reference)


def read(text: str, path: Path, agents: str | None = None) -> Dcop:
    path.write_text(text)
    if agents is not None:
        (path.parent / "agents").write_text(agents)
    return bucketflow.load_dcop(path, agents=None if agents is None else path.parent / "agents")


def total(dcop: Dcop, **states: str) -> Decimal | int | None:
    """The value of an assignment, as the file's author means it."""
    model = dcop.model
    cost = model.cost([model.state_index(v, states[name]) for v, name in enumerate(model.names)])
    return None if cost is None else model.objective(cost)


def test_yaml_as_it_is_meant(tmp_path: Path) -> None:
    dcop = read(YAML, tmp_path / "p.yaml")
    assert dcop.model.states == (("0", "1", "2"), ("R", "G"))
    assert total(dcop, a="0", b="R") == 0 + 4 + 1 + 7 + 0 + 1
    assert total(dcop, a="2", b="R") == 1 + (4 - 3) + 9 + 7 + 2 + 5
    assert total(dcop, a="1", b="G") == Decimal("0.5") + Decimal("1.25") + 9 + Decimal("0.5") + 4 + 3
    assert total(dcop, a="2", b="G") is None
    assert [agent.name for agent in dcop.agents] == ["lamp", "blind"]
    assert dcop.agents[0].capacity == 10
    assert dcop.owners == (1, 1)  # both cost least there
    assert dcop.route(0, 1) == dcop.route(1, 0) == 3
    assert dcop.functions == ("cost_a", "inside", "listed", "one", "full", "part")


def test_xml_as_it_is_meant(tmp_path: Path) -> None:
    dcop = read(xml(), tmp_path / "p.xml")
    assert dcop.owners == (0, 1)
    assert total(dcop, X="1", Y="1") == total(dcop, X="1", Y="2") == Decimal("2.5")
    assert total(dcop, X="2", Y="1") is None  # a conflict
    assert total(dcop, X="5", Y="2") is None  # not supported
    assert total(dcop, X="2", Y="2") is None  # not listed, and so infinite
    assert bucketflow.solve(read(xml("true", default="-infinity"), tmp_path / "q.xml").model).value == Decimal("2.5")
    assert bucketflow.solve(read(xml("true", default="7"), tmp_path / "r.xml").model).value == 7


@pytest.mark.parametrize(("agent", "names"), [(' agent="B"', ["A", "B"]), ("", ["A", "Y"])])
def test_xml_without_a_section_of_agents(agent: str, names: list[str], tmp_path: Path) -> None:
    text = xml().replace('<agents nbAgents="2"><agent name="A"/><agent name="B"/></agents>', "")
    dcop = read(text.replace(' agent="B"', agent), tmp_path / "p.xml")
    assert [each.name for each in dcop.agents] == names


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("suffix", [".xml", ".yaml", ".xml.gz"])
def test_what_is_written_reads_back(seed: int, suffix: str, tmp_path: Path) -> None:
    dcop = random_dcop(seed, agents=None if seed % 2 else 3)
    assert bucketflow.save(dcop, tmp_path / f"p{suffix}") == ()
    again = bucketflow.load_dcop(tmp_path / f"p{suffix}")
    assert (again.owners, again.agents, again.model.names) == (dcop.owners, dcop.agents, dcop.model.names)
    assert again.model.states == dcop.model.states
    for states in assignments(dcop.model, {}):
        given, read_back = dcop.model.cost(states), again.model.cost(states)
        assert (given is None) == (read_back is None)
        assert given is None or dcop.model.objective(given) == again.model.objective(read_back or 0)


def test_decimals_beyond_floats_are_read_as_written(tmp_path: Path) -> None:
    long = ("43999999999999999.1", "43999999999999999.3", "-.25", "1e3")
    one = f"one: {{type: extensional, variables: b, values: {{{long[0]}: R, {long[1]}: G}}}}"
    full = f"full: {{type: extensional, variables: [b, a], values: [[0, {long[2]}, 2], [3, {long[3]}, .inf]]}}"
    lines = [line for line in YAML.splitlines() if not line.startswith(("  one:", "  full:"))]
    at = lines.index("agents:")
    dcop = read("\n".join([*lines[:at], f"  {one}", f"  {full}", *lines[at:]]), tmp_path / "p.yaml")
    model = dcop.model
    ones, costs = (model.functions[dcop.functions.index(n)].dense(model.dims) for n in ("one", "full"))
    assert [model.objective(int(cost)) for cost in ones] == [Decimal(text) for text in long[:2]]
    assert [model.objective(int(cost)) for cost in costs[:, 1]] == [Decimal("-0.25"), 1000]


def test_agents_and_what_they_cost_are_written(tmp_path: Path) -> None:
    dcop = read(YAML, tmp_path / "p.yaml")
    assert bucketflow.save(dcop, tmp_path / "q.yaml") == ()
    assert bucketflow.load_dcop(tmp_path / "q.yaml").agents == dcop.agents
    assert "capacities, routes" in bucketflow.save(dcop, tmp_path / "q.xml")[0]


def test_noise_and_external_variables_are_kept(tmp_path: Path) -> None:
    dcop = read(YAML.replace("[true, false]", '[true, false, "a\\x7f|b"]'), tmp_path / "p.yaml")
    assert dcop.noise == {"a": Decimal("0.2")}
    assert bucketflow.save(dcop, tmp_path / "q.yaml") == ()
    again = bucketflow.load_dcop(tmp_path / "q.yaml")
    assert (again.noise, again.externals) == (dcop.noise, dcop.externals)
    assert again.externals == (External("dark", ("True", "False", "a\x7f|b"), 1),)
    note = "answers ignore the random noise of 1 variable"
    assert bucketflow.dpop(again).to_dict()["notes"] == [note]
    assert "noise and external variables are not kept" in bucketflow.save(dcop, tmp_path / "q.xml")
    assert bucketflow.dpop(replace(again, noise={"a": Decimal(0)})).notes == ()


def test_external_variables_give_way_to_numbered_names(tmp_path: Path) -> None:
    model = bucketflow.Model.build("cost", {"a b": 2}, [(["a b"], [1, 2])])
    dcop = Dcop(model, (Agent("one"),), (0,), externals=(External("x0", ("0", "1"), 0),))
    assert "names of external variables are not kept" in bucketflow.save(dcop, tmp_path / "p.yaml")[-1]
    assert bucketflow.load_dcop(tmp_path / "p.yaml").externals[0].name == "e0"


@pytest.mark.parametrize("suffix", ["wcsp", "cfn", "cfn.gz"])
def test_who_owns_what_is_written_beside(suffix: str, tmp_path: Path) -> None:
    dcop = replace(random_dcop(3, agents=3), agents=(Agent("no"), Agent("a: [b]"), Agent("1")))
    notes = bucketflow.save(dcop, tmp_path / f"p.{suffix}")
    assert notes[-1] == "the owners of variables are stored in p.agents.yaml, for --agents"
    again = bucketflow.load_dcop(tmp_path / f"p.{suffix}", agents=tmp_path / "p.agents.yaml")
    assert (again.agents, again.owners) == (dcop.agents, dcop.owners)
    assert bucketflow.dpop(again).status == bucketflow.dpop(dcop).status


def test_agents_named_as_their_variables_need_no_file(tmp_path: Path) -> None:
    for kind in ("grid.wcsp", "grid.cfn"):
        assert bucketflow.save(bucketflow.generate("grid", variables=4, domain=2), tmp_path / kind) == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.cfn", "grid.wcsp"]


def test_converting_keeps_who_owns_what(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(xml())
    done = CliRunner().invoke(main, ["convert", str(tmp_path / "p.xml"), str(tmp_path / "q.cfn")])
    assert "note: the owners of variables are stored in q.agents.yaml" in done.stderr
    again = bucketflow.load_dcop(tmp_path / "q.cfn", agents=tmp_path / "q.agents.yaml")
    assert [agent.name for agent in again.agents] == ["A", "B"]
    assert bucketflow.dpop(again).value == Decimal("2.5")


def test_names_that_a_format_cannot_hold_are_numbered(tmp_path: Path) -> None:
    model = bucketflow.Model.build("cost", {"a b": ["x|y", "z"], "c": 2}, [(["a b", "c"], [[1, 2], [3, 0]]), ([], 4)])
    for suffix in ("xml", "yaml"):
        notes = bucketflow.save(model, tmp_path / f"p.{suffix}")
        assert [note.split(",")[0] for note in notes] == [
            "names of variables are not kept",
            "names of agents are not kept",
            "values of 1 variables are not kept",
        ]
        assert bucketflow.solve(bucketflow.load(tmp_path / f"p.{suffix}")).value == 4


def test_tops_are_written_or_named(tmp_path: Path) -> None:
    model = bucketflow.Model.build("cost", {"a": 2, "b": 3}, [(["a"], [3, 4]), (["b"], [9, 2, 3])], top=7)
    assert bucketflow.save(model, tmp_path / "p.xml") == ()
    assert bucketflow.load(tmp_path / "p.xml").top == 7
    assert bucketflow.save(model, tmp_path / "p.yaml") == ("totals of 7 and more are allowed in the file",)
    assert bucketflow.solve(bucketflow.load(tmp_path / "p.yaml")).value == 5


def pair(costs: list[int], top: int | None, *, maximize: bool = False) -> Model:
    """Two variables of two states with the same costs."""
    model = Model.build("cost", {"a": 2, "b": 2}, [(("a",), costs), (("b",), costs)], top=top)
    return replace(model, maximize=maximize)


def test_tops_that_a_format_does_not_hold_are_named(tmp_path: Path) -> None:
    utilities = pair([-7, 4], 5, maximize=True)  # -8, where both are 4, is forbidden
    for suffix in ("xml", "yaml"):
        lost = bucketflow.save(utilities, tmp_path / f"p.{suffix}")
        assert lost == ("totals of -5 and less are allowed in the file",)
    large = pair([0, 10**18 - 1], 10**18)
    assert bucketflow.save(large, tmp_path / "p.xml") == (
        "totals of 1000000000000000000 and more are allowed in the file",
    )
    assert bucketflow.save(pair([0, 4], 5), tmp_path / "p.xml") == ()


@pytest.mark.parametrize("suffix", ["xml", "yaml"])
def test_what_would_not_read_back_is_refused(tmp_path: Path, suffix: str) -> None:
    for costs in ([0, 10**18], [-(10**18), 0]):
        with pytest.raises(ModelError, match=f"as .{suffix}, where costs of 1000000000000000000 and more are infinite"):
            bucketflow.save(pair(costs, None), tmp_path / f"p.{suffix}")
    with pytest.raises(ModelError, match="the model has no variables"):
        bucketflow.save(Model.build("cost", {}, [((), 3)]), tmp_path / f"p.{suffix}")
    assert not any(tmp_path.iterdir())


AGENTS = [
    ("distribution: {one: [X, c0], two: [Y]}", "there is no agent 'one' in the problem"),
    ("A: [X, Y, c0]\nB:", None),
    ('{"A": ["Y"], "B": "X"}', None),
    ("A: [X]", "variable 'Y' has no agent"),
    ("A: [X, Z]\nB: [Y]", "agent 'A' is given 'Z', which is not a variable"),
    ("A: [X, Y]\nB: [Y]", "variable 'Y' is given to two agents"),
    ("- X", "expected agents, each with a list of its variables, found a list of 1"),
    ("A: [[X]]", "expected the name of a variable"),
    ("A: {X: 1}", "expected the name of a variable"),
]


@pytest.mark.parametrize(("text", "message"), AGENTS)
def test_files_of_agents(text: str, message: str | None, tmp_path: Path) -> None:
    if message is None:
        assert read(xml(), tmp_path / "p.xml", text).owned in (((0, 1), ()), ((1,), (0,)))
        return
    with pytest.raises(BucketflowError, match=message):
        read(xml(), tmp_path / "p.xml", text)


def test_agents_of_other_formats(tmp_path: Path) -> None:
    text = "p 2 2 1 9\n2 2\n2 0 1 0 1\n0 0 5\n"
    assert [agent.name for agent in read(text, tmp_path / "p.wcsp").agents] == ["x0", "x1"]
    dcop = read(text, tmp_path / "p.wcsp", "office: [x1, x0]")
    assert (dcop.agents[0].name, dcop.owners) == ("office", (0, 0))
    with pytest.raises(BucketflowError, match="this one holds probabilities"):
        bucketflow.load_dcop("diagnosis")


WRONG_XML = [
    (xml().replace(' agent="B"', ""), ":8: expected the agent of variable 'Y', found no owner"),
    (xml(agent="C"), ":8: expected an agent of the problem, found the unknown agent 'C'"),
    (xml(reference="global:weightedSum"), "found the global constraint 'weightedSum', which is not read"),
    (xml(default="x"), "expected a cost, a number or infinity, found 'x'"),
    (xml(maximize="true"), "expected a cost that is not infinitely good"),
    (xml().replace("2.5: 1 1", "1 1"), ":11: expected a cost before the first tuple"),
    (xml().replace("1 1|", "1 1 1|"), "expected tuples of 2 values, found '2.5: 1 1 1'"),
    (xml().replace("5 2|", "4 2|"), ":11: expected values of variable 'X', found the value '4'"),
    (xml().replace('scope="X Y" reference="soft"', 'scope="X Z" reference="soft"'), "found 'Z'"),
    (xml().replace('scope="X Y" reference="soft"', 'scope="X X" reference="soft"'), "a scope of different variables"),
    (xml().replace('scope="X Y" reference="soft"', 'scope="X" reference="soft"'), "a scope of 2 variables"),
    (
        xml().replace('"c0" arity="2"', '"c0" arity="7"'),
        "a scope of 7 variables, as its arity says, found 2",
    ),
    (xml().replace('name="yes"', 'name="soft"'), ":12: expected a relation with a name of its own, found 'soft'"),
    (xml().replace('name="E"', 'name="D"'), ":5: expected a domain with a name of its own, found 'D'"),
    (xml().replace("1..2 5", "1..2 2"), "expected different values of domain 'D'"),
    (xml().replace("1..2 5", "5..2"), "expected a range such as 1..10, found '5..2'"),
    (xml().replace('name="B"/', 'name="A"/'), "expected an agent with a name of its own, found 'A'"),
    (xml().replace('domain="E"', 'domain="F"'), "expected a domain of variable 'Y', found 'F'"),
    (xml().replace('semantics="supports"', 'semantics="fuzzy"'), "found 'fuzzy'"),
    (xml().replace("</instance>", ""), "well-formed XML"),
    (xml().replace("<instance>", '<instance format="XCSP3">'), "<presentation>, which is not read"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_XML)
def test_wrong_xml(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BucketflowError) as refused:
        read(text, tmp_path / "p.xml")
    assert message in str(refused.value)


WRONG_YAML = [
    ("function: a * c + b, partial", "function: __import__('os').getcwd(), partial", "found a call of something"),
    ("function: a * c + b, partial", "function: open(a), partial", "found a call of the unknown function 'open'"),
    ("function: a * c + b, partial", "function: a ** 99, partial", "found an exponent beyond 64"),
    ("function: a * c + b, partial", "function: nobody, partial", "a variable of the problem, found 'nobody'"),
    (
        "function: a * c + b, partial",
        "source: evil.py, function: source.f(a), partial",
        "Python code, which is not run",
    ),
    ("      return {'R'", "      import os\n      return {'R'", "found an import"),
    ("0.5 * a", "0.5 * b", "expected a cost of 'a' alone, found the name 'b'"),
    ("objective: min", "objective: less", "expected the objective min or max, found 'less'"),
    ("values: [R, G]", "values: [R, R]", "different values of domain 'color'"),
    ("{domain: color}", "{domain: hue}", "expected a domain of variable 'b', found 'hue'"),
    ("  b: {domain: color}", "  b: {}", "expected domain of variable 'b', found none"),
    ("initial_value: false", "initial_value: dim", "a value of external variable 'dark', found 'dim'"),
    ("noise_level: 0.2", "noise_level: -1", "p.yaml:8: expected a number of at least 0, found -1"),
    ("noise_level: 0.2", "noise_level: .inf", "expected a number of at least 0, found Infinity"),
    ("noise_level: 0.2", "noise_level: loud", "p.yaml:8: expected a number, found 'loud'"),
    ("default: 9, values: {1", "values: {1", "a default, or all assignments, of 'listed', found 3 of 6"),
    ("2: 2 G}", "2: 3 G}", "values of 2 variables, of their domains, found '3 G'"),
    ("2: 2 G}", "2: 2}", "values of 2 variables, of their domains, found '2'"),
    ("2: 2 G}", "1: 2 G}", "expected every key once, found '1' again"),
    (
        "partial: {c: 2, b: 1}",
        "partial: {c: [2], b: 1}",
        "expected a word or a number as a value, found a list of 1",
    ),
    ("values: {1: 0 R", f"values: {{{'9' * 5000}: 0 R", "(5000 characters)"),
    ("2: 2 G}", "x: 2 G}", "expected a number, found 'x'"),
    ("[3, 4, .inf]", "[3, 4]", "expected a list of 3, found a list of 2"),
    ("[3, 4, .inf]", "[3, 4, -.inf]", "a cost that is not infinitely good"),
    ("variables: b, ", "variables: z, ", "a variable of the problem, found 'z'"),
    (
        "type: extensional, variables: b",
        "type: global, variables: b",
        "of type intention or extensional, found 'global'",
    ),
    ("lamp: {blind: 3}", "lamp: {door: 3}", "the unknown agent 'door'"),
    ("blind: {default: 2", "door: {default: 2", "the unknown agent 'door'"),
    ("capacity: 10", "capacity: -1", "expected a number of at least 0, found -1"),
    ("name: lights", "name: &n lights\ndescription: *n", "expected a file without aliases"),
    ("name: lights", "name: !!python/object:os.system lights", "expected plain YAML, found the tag"),
    ("name: lights", "name: [", "expected well-formed YAML"),
    ("name: lights", "name: lights\n# é\x84", "p.yaml:2: expected text in YAML, found the character U+0084"),
    ("name: lights", "deep: " + "[" * 40 + "]" * 40, "at most 32 levels"),
    ("agents:", "distribution_hints: {must_host: {door: [a]}}\nagents:", "the unknown agent 'door'"),
    ("agents:", "distribution_hints: {must_host: {lamp: [z]}}\nagents:", "a variable or constraint to host, found 'z'"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG_YAML)
def test_wrong_yaml(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in YAML
    with pytest.raises(BucketflowError) as refused:
        read(YAML.replace(old, new, 1), tmp_path / "p.yaml")
    assert message in str(refused.value)


def test_formats_are_told_by_their_content(tmp_path: Path) -> None:
    assert read(YAML, tmp_path / "nameless").model.name == "lights"
    assert read(xml(), tmp_path / "also").model.names == ("X", "Y")


def test_every_command_reads_them_and_convert_writes_them(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(YAML)
    for command in ("solve", "info", "plan"):
        assert CliRunner().invoke(main, [command, str(tmp_path / "p.yaml")]).exit_code == 0
    assert CliRunner().invoke(main, ["convert", str(tmp_path / "p.yaml"), str(tmp_path / "p.xml")]).exit_code == 0
    assert bucketflow.load_dcop(tmp_path / "p.xml").agents[0].name == "lamp"
    result = CliRunner().invoke(main, ["convert", "satellite", str(tmp_path / "p.xml"), "--agents", "missing"])
    assert result.exit_code == 2


def test_info_names_who_owns_most(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(YAML)
    told = CliRunner().invoke(main, ["info", str(tmp_path / "p.yaml"), "--json"])
    facts = json.loads(told.stdout)
    assert (facts["agents"], facts["largest_agent"], facts["largest_agent_variables"]) == (2, "blind", 2)
    assert re.search(r"largest agent +blind", CliRunner().invoke(main, ["info", str(tmp_path / "p.yaml")]).output)
    assert "agents" not in json.loads(CliRunner().invoke(main, ["info", "satellite", "--json"]).output)


def test_answers_without_the_noise_say_so(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(YAML.replace(", initial_value: 1", ""))
    note = "note: answers ignore the random noise of 1 variable\n"
    told = CliRunner().invoke(main, ["solve", str(tmp_path / "p.yaml"), "--json"])
    assert note in told.stderr
    assert json.loads(told.stdout)["status"] == "optimal"
    (tmp_path / "p.yaml").write_text(YAML.replace(", noise_level: 0.2, initial_value: 1", ""))
    assert "note" not in CliRunner().invoke(main, ["solve", str(tmp_path / "p.yaml")]).stderr


def test_published_problems(data: Path) -> None:
    """Sizes and optima of the manifest, which counts unary functions that stand with variables apart.

    Its optima leave out what every assignment costs besides.
    """
    rows = [row for row in published(data) if row["n_vars"]]
    assert len(rows) >= 40
    for row in rows:
        dcop = bucketflow.load_dcop(data / row["path"])
        functions = [name for name in dcop.functions if not name.startswith("cost_v") or "seperate" in row["path"]]
        own = sum(name.startswith("cost_l") or name == "initialCost" for name in functions)
        besides = sum(f.at(()) for f in dcop.model.functions if not f.scope)
        assert (len(dcop.model.dims), len(functions) - own) == (int(row["n_vars"]), int(row["n_functions"]))
        if row["known_answer"] and float(row["minfill_width"]) <= 12:
            answer = published_answer(row)
            expected = answer if answer is None else answer + besides
            assert bucketflow.solve(dcop.model).value == expected, row["path"]


def test_files_that_are_no_problems(data: Path) -> None:
    for name, message in (("evtdist_0", "a distribution, which --agents takes"), ("scenario_2", "every key once")):
        with pytest.raises(BucketflowError, match=message):
            bucketflow.load(data / "dcop" / "pydcop" / f"{name}.yaml")
