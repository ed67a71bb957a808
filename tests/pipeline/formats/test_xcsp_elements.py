"""Every element and attribute of XCSP 2.1, of FRODO's and of XDisCSP: read, noted or refused, none passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

import bucketflow
from bucketflow import Dcop, FormatError
from tests.models import assignments

XML = """\
<?xml version="1.0"?>
<instance xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="schema.xsd">
<presentation name="p" format="XCSP 2.1"/>
<agents nbAgents="2"><agent name="A"/><agent name="B"/></agents>
<domains nbDomains="1"><domain name="D" nbValues="2">0..1</domain></domains>
<variables nbVariables="2"><variable name="x" domain="D" agent="A"/>
<variable name="y" domain="D" agent="B"/></variables>
<relations nbRelations="2">
<relation name="R" arity="2" nbTuples="2" semantics="soft" defaultCost="infinity">2:0 1|4:1 1</relation>
<relation name="S" arity="1" nbTuples="1" semantics="supports">1</relation>
</relations>
<predicates nbPredicates="1"><predicate name="P"><parameters>int a int b</parameters>
<expression><functional>ne(a,b)</functional></expression></predicate></predicates>
<functions nbFunctions="1"><function name="F" return="int"><parameters>int a</parameters>
<expression><functional>mul(3,a)</functional></expression></function></functions>
<constraints nbConstraints="3"><constraint name="c" arity="2" scope="x y" reference="R"/>
<constraint name="f" arity="1" scope="x" reference="F"><parameters>x</parameters></constraint>
<constraint name="s" arity="1" scope="y" reference="S"/></constraints>
</instance>
"""


def read(text: str, folder: Path) -> Dcop:
    (folder / "p.xml").write_text(text)
    return bucketflow.load_dcop(folder / "p.xml")


def costs(dcop: Dcop) -> list[int | None]:
    return [dcop.model.cost(states) for states in assignments(dcop.model, {})]


def with_attribute(tag: str, text: str, of: str = XML) -> str:
    assert f"<{tag} " in of
    return of.replace(f"<{tag} ", f"<{tag} {text} ", 1)


def test_the_file_itself(tmp_path: Path) -> None:
    dcop = read(XML, tmp_path)
    assert costs(dcop) == [None, 2, None, 7]
    assert dcop.notes == ()


# What only describes: neither answers nor notes depend on it.
DESCRIBING = [
    *(("presentation", name) for name in ("benchmark", "model", "description")),
    *(("agent", name) for name in ("id", "description")),
    *(("domain", name) for name in ("id", "description")),
    *(("variable", name) for name in ("id", "description")),
    *(("relation", name) for name in ("id", "description")),
    *(("predicate", name) for name in ("id", "description")),
    *(("function", name) for name in ("id", "description")),
    *(("constraint", name) for name in ("id", "description")),
]


@pytest.mark.parametrize(("tag", "name"), DESCRIBING)
def test_descriptions_change_nothing(tag: str, name: str, tmp_path: Path) -> None:
    dcop = read(with_attribute(tag, f'{name}="anything"'), tmp_path)
    assert (costs(dcop), dcop.notes) == ([None, 2, None, 7], ())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("</instance>", '<GuiPresentation type="a" nbTeams="3"/></instance>'),
        ('<presentation name="p" format="XCSP 2.1"/>', '<presentation><stats name="s">3</stats>text</presentation>'),
        ("</functional>", "</functional><infix>a != b</infix><postfix>a b !=</postfix><math><ne/></math>"),
        ("<presentation ", '<presentation maxConstraintArity="2" type="WCSP" constraintModel="TKC" nbSolutions="?" '),
        ("<constraint ", '<constraint agent="PUBLIC" model="TKC" '),
        ("<constraints ", '<constraints initialCost="0" maximalCost="infinity" '),
    ],
)
def test_what_says_nothing_new_changes_nothing(old: str, new: str, tmp_path: Path) -> None:
    assert old in XML
    dcop = read(XML.replace(old, new, 1), tmp_path)
    assert (costs(dcop), dcop.notes) == ([None, 2, None, 7], ())


READ = [
    ("constraints", 'initialCost="1"', [None, 3, None, 8]),
    ("constraints", 'initialCost="-1.5"', [None, 5, None, 55]),
    ("constraints", 'maximalCost="7"', [None, 2, None, None]),
    ("constraints", 'maximalCost="7" initialCost="5"', [None, None, None, None]),
    ("constraints", 'maximalCost="8" initialCost="5"', [None, 7, None, None]),
    ("constraints", 'initialCost="infinity"', [None] * 4),
    ("presentation", 'maximize="false"', [None, 2, None, 7]),
]


@pytest.mark.parametrize(("tag", "text", "expected"), READ)
def test_what_is_read(tag: str, text: str, expected: list[int | None], tmp_path: Path) -> None:
    dcop = read(with_attribute(tag, text), tmp_path)
    assert costs(dcop) == expected
    assert dcop.notes == ()


def test_initial_costs_in_answers(tmp_path: Path) -> None:
    """As the format says: they count in the total that maximalCost forbids."""
    text = with_attribute("constraints", 'initialCost="1"')
    dcop = read(text, tmp_path)
    assert bucketflow.solve(dcop.model).value == bucketflow.dpop(dcop).value == 3
    assert bucketflow.solve(read(with_attribute("constraints", 'maximalCost="3"', text), tmp_path).model).status == (
        "infeasible"
    )
    assert bucketflow.solve(bucketflow.load(tmp_path / "p.xml"), "count").value == 0
    utilities = with_attribute("presentation", 'maximize="true"', text.replace('"infinity"', '"-infinity"'))
    assert bucketflow.solve(read(utilities, tmp_path).model).value == 8


@pytest.mark.parametrize("suffix", [".xml", ".yaml", ".cfn"])
def test_initial_costs_are_written(suffix: str, tmp_path: Path) -> None:
    dcop = read(with_attribute("constraints", 'initialCost="1"'), tmp_path)
    bucketflow.save(dcop, tmp_path / f"q{suffix}")
    assert bucketflow.solve(bucketflow.load(tmp_path / f"q{suffix}")).value == 3


COUNTS = {
    "nbAgents": ("agents", "7"),
    "nbDomains": ("domains", "7"),
    "nbValues": ("domain", "7"),
    "nbVariables": ("variables", "7"),
    "nbRelations": ("relations", "7"),
    "nbTuples": ("relation", "7"),
    "nbPredicates": ("predicates", "7"),
    "nbFunctions": ("functions", "7"),
    "nbConstraints": ("constraints", "7"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_are_wrong_are_noted(name: str, tmp_path: Path) -> None:
    tag, said = COUNTS[name]
    place = XML.index(f"<{tag} ")
    value = XML.index(f'{name}="', place) + len(name) + 2
    dcop = read(f"{XML[:value]}{said}{XML[value + 1 :]}", tmp_path)
    (note,) = dcop.notes
    assert note.startswith(f"the attribute '{name}' of <{tag}> (line ")
    assert f"is wrong: it says '7', but there are {XML[value]}" in note
    assert costs(dcop) == [None, 2, None, 7]
    assert bucketflow.solve(dcop.model).notes == (note,)


NOTED = [
    ("presentation", 'maxConstraintArity="3"', "is wrong: it says '3', but there are 2"),
    ("presentation", 'nbSolutions="2"', "is not compared with answers"),
    ("presentation", 'minViolatedConstraints="0"', "is not compared with answers"),
    ("presentation", 'solution="0 1"', "is not compared with answers"),
    ("presentation", 'type="BINARY"', "the type 'BINARY' of <presentation> (line 3) is not read"),
    ("presentation", 'constraintModel="PKC"', "the constraintModel 'PKC'"),
    ("presentation", 'maximizing="true"', "the attribute 'maximizing' of <presentation> (line 3) is not read"),
    ("agents", 'self="A"', "the attribute 'self' of <agents>"),
    ("agent", 'capacity="3"', "the attribute 'capacity' of <agent> (line 4) is not read"),
    ("domain", 'type="integer"', "the attribute 'type' of <domain>"),
    ("variable", 'type="shared"', "the attribute 'type' of <variable>"),
    ("variable", 'scope="A B"', "the attribute 'scope' of <variable>"),
    ("variable", 'weight="3"', "the attribute 'weight' of <variable>"),
    ('relation name="S"', 'defaultCost="3"', "the attribute 'defaultCost' of <relation> of supports"),
    ("relation", 'weight="3"', "the attribute 'weight' of <relation>"),
    ("predicate", 'weight="3"', "the attribute 'weight' of <predicate>"),
    ("function", 'weight="3"', "the attribute 'weight' of <function>"),
    ("constraint", 'agent="A"', "the attribute 'agent' of <constraint> (line 16) is not read: owners of its"),
    ("constraint", 'model="PKC"', "the attribute 'model' of <constraint>"),
    ("constraint", 'weight="3"', "the attribute 'weight' of <constraint>"),
    ("constraints", 'weight="3"', "the attribute 'weight' of <constraints>"),
    ("instance", 'weight="3"', "the attribute 'weight' of <instance>"),
]


@pytest.mark.parametrize(("tag", "text", "phrase"), NOTED)
def test_what_is_noted(tag: str, text: str, phrase: str, tmp_path: Path) -> None:
    dcop = read(with_attribute(tag, text), tmp_path)
    assert phrase in dcop.notes[0]
    assert len(dcop.notes) == 1
    assert costs(dcop) == [None, 2, None, 7]


@pytest.mark.parametrize(
    ("old", "new", "phrase"),
    [
        ("</instance>", "<extension><solver/></extension></instance>", "the element <extension> in <instance>"),
        ("</agents>", "<team/></agents>", "the element <team> in <agents>"),
        ("</predicate>", "<comment/></predicate>", "the element <comment> in <predicate>"),
        (' reference="R"/>', ' reference="R"><parameters>x</parameters></constraint>', "<parameters> in <constraint>"),
        (' defaultCost="infinity"', "", "the attribute 'defaultCost' of <relation> (line 9) is not there"),
        ('"A"/>', '"A" note="a"/>', "the attribute 'note' of <agent> (line 4)"),
    ],
)
def test_elements_that_are_noted(old: str, new: str, phrase: str, tmp_path: Path) -> None:
    (note,) = read(XML.replace(old, new, 1), tmp_path).notes
    assert phrase in note


def test_notes_of_many_are_one(tmp_path: Path) -> None:
    (note,) = read(XML.replace("<constraint ", '<constraint weight="1" '), tmp_path).notes
    assert note == "the attribute 'weight' of <constraint> (line 16, and 2 more) is not read"


REFUSED = [
    ("</instance>", '<quantification nbBlocks="1"><block/></quantification></instance>', "quantified variables (QCSP)"),
    ("</instance>", '<probabilities nbProbabilities="0"/></instance>', "random variables (of FRODO's stochastic"),
    ("</instance>", "<constraints/></instance>", "one section <constraints>, found a second one"),
    ("<presentation ", '<presentation type="QCSP+" ', "one of type 'QCSP+'"),
    ("<presentation ", '<presentation type="MaxDisCSP" ', "one of type 'MaxDisCSP'"),
    ("<presentation ", '<presentation maximize="1" ', "expected maximize true or false, found '1'"),
    ('<variable name="x"', '<variable type="random" name="x"', "one of type 'random'"),
    ("0..1", "<i>0</i><i>1</i>", ":5: expected <domain> as text, found the element <i>, which is not read"),
    ("0..1", '<interval min="0" max="1"/>', "found the element <interval>"),
    ("2:0 1|4:1 1", '<tuple cost="2"><i>0</i></tuple>', "expected <relation> as text, found the element <tuple>"),
    ("<parameters>x</parameters>", '<parameters><var name="x"/></parameters>', "the element <var>, which is not read"),
    ("<functional>ne(a,b)</functional>", "<math><ne/></math>", "an expression in functional notation, found <math>"),
    ("<functional>ne(a,b)</functional>", "<infix>a != b</infix>", "found <infix>"),
    ("<functional>ne(a,b)</functional>", "<postfix>a b !=</postfix>", "found <postfix>"),
    ('return="int"', 'return="boolean"', "expected a function that returns int, found 'boolean'"),
    ('semantics="supports">1<', 'semantics="supports">4:1<', "expected tuples without costs, found '4:1'"),
    ('semantics="supports"', 'semantics="fuzzy"', "found 'fuzzy'"),
    ('reference="R"', 'reference="global:element"', "the global constraint 'element', which is not read"),
    ("<constraints ", '<constraints initialCost="-infinity" ', "a cost that is not infinitely good"),
    ("<constraints ", '<constraints initialCost="cheap" ', "a cost, a number or infinity, found 'cheap'"),
    ("0..1", f"{'9' * 2000}..{'9' * 2000}", "numbers of at most 1000 digits in a range"),
]


@pytest.mark.parametrize(("old", "new", "phrase"), REFUSED)
def test_what_is_refused(old: str, new: str, phrase: str, tmp_path: Path) -> None:
    assert old in XML
    with pytest.raises(FormatError) as refused:
        read(XML.replace(old, new, 1), tmp_path)
    assert phrase in str(refused.value)


def test_global_constraints_are_refused_whatever_their_parameters_are(tmp_path: Path) -> None:
    text = XML.replace(
        ' reference="R"/>', ' reference="global:weightedSum"><parameters>[ {2 x} ]<eq/>3</parameters></constraint>'
    )
    with pytest.raises(FormatError, match="the global constraint 'weightedSum', which is not read"):
        read(text, tmp_path)


def test_ranges_of_long_numbers(tmp_path: Path) -> None:
    ends = "9" * 21, "1" + "0" * 21
    text = XML.replace("0..1", "..".join(ends)).replace("2:0 1|4:1 1", f"2:{ends[0]} {ends[1]}|4:{ends[1]} {ends[1]}")
    text = text.replace('semantics="supports">1<', f'semantics="supports">{ends[1]}<')
    constraint = '<constraint name="f" arity="1" scope="x" reference="F"><parameters>x</parameters></constraint>\n'
    dcop = read(text.replace(constraint, "").replace('nbConstraints="3"', 'nbConstraints="2"'), tmp_path)
    assert dcop.model.states[0] == ends
    assert costs(dcop) == [None, 2, None, 4]
