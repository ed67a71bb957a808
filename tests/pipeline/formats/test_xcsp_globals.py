"""allDifferent as FRODO has it: values differ, whatever their places are; every two variables share a constraint."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import bucketflow
from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.formats.read import load_dcop

XML = """<instance>
<presentation name="s" maxConstraintArity="3" maximize="false" format="XCSP 2.1_FRODO" />
<agents nbAgents="2"><agent name="A"/><agent name="B"/></agents>
<domains nbDomains="2"><domain name="d" nbValues="3">0..2</domain><domain name="e" nbValues="3">1..3</domain></domains>
<variables nbVariables="3"><variable name="x" domain="d" agent="A"/><variable name="y" domain="e" agent="B"/>
<variable name="z" domain="d" agent="B"/></variables>
<relations nbRelations="1">
<relation name="R" arity="1" nbTuples="1" semantics="soft" defaultCost="5">0:1</relation></relations>
<constraints nbConstraints="2"><constraint name="u" arity="1" scope="x" reference="R"/>
<constraint name="c" arity="3" scope="x y z" reference="global:allDifferent">
<parameters>[ x y z ]</parameters></constraint>
</constraints></instance>
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.xml").write_text(XML)
    return tmp_path / "a.xml"


def test_values_differ(path: Path) -> None:
    model = bucketflow.load(path)
    for x, y, z in itertools.product(range(3), repeat=3):
        differ = len({x, y + 1, z}) == 3
        assert model.cost([x, y, z]) == ((0 if x == 1 else 5) if differ else None)
    assert bucketflow.solve(model, "count").value == 10
    assert model.notes == ()


def test_agents_share_constraints_of_two(path: Path) -> None:
    dcop = load_dcop(path)
    assert dcop.functions == ("u", "c.0", "c.1", "c.2")
    assert bucketflow.dpop(dcop).value == 0


@pytest.mark.parametrize("parameters", ["", "<parameters>z y x</parameters>"])
def test_parameters_may_be_left_out_or_in_another_order(parameters: str, path: Path) -> None:
    path.write_text(XML.replace("<parameters>[ x y z ]</parameters>", parameters))
    assert bucketflow.solve(bucketflow.load(path), "count").value == 10


def test_other_parameters_are_refused(path: Path) -> None:
    path.write_text(XML.replace("[ x y z ]", "[ x y 3 ]"))
    with pytest.raises(FormatError, match=r":10: expected the variables of the scope as parameters, found 'x y 3'"):
        bucketflow.load(path)
