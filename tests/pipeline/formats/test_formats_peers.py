"""Networks of other programs: files that pyAgrum writes give its posteriors; XML within bounds; what nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, FormatError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.model import Model

Read = Callable[[str, str], Model]
# pyAgrum 3 writes (and reads) these with the first of several parents fastest.
REVERSED = ("uai", "xdsl")


@pytest.mark.parametrize("suffix", REVERSED)
def test_tables_in_another_order_are_refused(tmp_path: Path, suffix: str) -> None:
    agrum = pytest.importorskip("pyagrum")
    path = tmp_path / f"net.{suffix}"
    agrum.saveBN(agrum.fastBN("a->c<-b"), str(path))
    with pytest.raises(FormatError, match="expected tables with the first parent slowest, found one of pyAgrum's"):
        load(path)


def test_xdsl_of_genie(read: Read) -> None:
    model = read(
        '<?xml version="1.0" encoding="UTF-8"?><smile version="1.0" id="N" numsamples="1"><nodes>'
        '<cpt id="a"><state id="n"/><state id="y"/><probabilities>.25 .75</probabilities></cpt>'
        '<cpt id="b"><state id="n"/><state id="y"/><state id="z"/><probabilities>.25 .5 .25</probabilities></cpt>'
        '<cpt id="c"><state id="u"/><state id="v"/><parents>a b</parents>'
        "<probabilities>1 0 .9 .1 .8 .2 .7 .3 .6 .4 .5 .5</probabilities></cpt></nodes></smile>",
        "a.xdsl",
    )
    assert model.name == "N"
    assert model.functions[2].scope == (0, 1, 2)
    assert model.functions[2].at((0, 1, 1)) == 0.1


@pytest.mark.parametrize("suffix", ["uai", "bif", "bifxml", "xdsl", "net", "xml"])
def test_posteriors_agree_with_pyagrum(tmp_path: Path, suffix: str) -> None:
    agrum = pytest.importorskip("pyagrum")
    agrum.initRandom(7)
    joins = "" if suffix in REVERSED else ";a->c;d->e"
    network = agrum.fastBN(f"a{{no|yes}}->b[3]->c{{x|y|z}}->d[4];b->e{{u|v}}{joins}")
    path = tmp_path / f"net.{suffix}"
    written = tmp_path / f"net.{'bifxml' if suffix == 'xml' else suffix}"
    agrum.saveBN(network, str(written))
    written.rename(path)
    model = load(path)
    names = ("a", "b", "c", "d", "e")
    ours = dict(zip(names, model.names, strict=True)) if suffix == "uai" else {name: name for name in names}
    exact = agrum.LazyPropagation(network)
    exact.setEvidence({"d": 2})
    found = bucketflow.marginals(model, evidence={ours["d"]: 2})
    for name in names:
        assert found[ours[name]] == pytest.approx(exact.posterior(name).toarray(), abs=1e-5)
    assert 10**found.log10_evidence == pytest.approx(exact.evidenceProbability(), rel=1e-4)
    if suffix != "uai":
        assert model.states[model.index["c"]] == ("x", "y", "z")


XMLBIF = """<?xml version="1.0"?>
<!DOCTYPE BIF [ <!ELEMENT BIF ( NETWORK )*> <!ATTLIST BIF VERSION CDATA #REQUIRED> ]>
<BIF VERSION="0.3"><NETWORK><NAME>dog &amp; bone</NAME>
<VARIABLE TYPE="nature"><NAME>out</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>bark</NAME><OUTCOME>u</OUTCOME><OUTCOME>v</OUTCOME><OUTCOME>w</OUTCOME></VARIABLE>
<DEFINITION><FOR>bark</FOR><GIVEN>out</GIVEN><TABLE>.1 .2 .7 <!-- out = yes --> 1 0 0</TABLE></DEFINITION>
<DEFINITION><FOR>out</FOR><TABLE>0.25 0.75</TABLE></DEFINITION>
</NETWORK></BIF>
"""


def test_xmlbif(read: Read) -> None:
    for name in ("a.bifxml", "a.xml", "nameless"):
        model = read(XMLBIF, name)
        assert (model.name, model.names) == ("dog & bone", ("out", "bark"))
        assert model.states == (("no", "yes"), ("u", "v", "w"))
        assert [f.scope for f in model.functions] == [(0, 1), (0,)]
        assert model.functions[0].values.tolist() == [[0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("</BIF>", "", 9, "expected well-formed XML, found no element found"),
        ("<BIF VERSION", "<!-- <BIF > --><BIV VERSION", 8, "well-formed XML, found mismatched tag"),
        ("<!ELEMENT BIF", '<!ENTITY e "boom"> <!ELEMENT BIF', 2, "a file without entities, found the entity 'e'"),
        ('TYPE="nature"><NAME>bark', 'TYPE="utility"><NAME>bark', 5, "nodes of nature, found a node of kind 'utility'"),
        ("<NAME>bark", "<NAME>out", 5, "a variable with a name of its own, found 'out'"),
        ("<OUTCOME>v", "<OUTCOME>u", 5, "different states of variable 'bark'"),
        ("<GIVEN>out", "<GIVEN>cat", 6, "a variable of the network, found 'cat'"),
        ("<GIVEN>out", "<GIVEN>bark", 6, "one distribution of 'bark', over different variables"),
        ("1 0 0", "1 0", 6, "6 probabilities of 'bark', found 5"),
        ("1 0 0", "1 nan 0", 6, "finite numbers of at least 0, found 'nan'"),
        ("1 0 0", "1 1_0 0", 6, "finite numbers of at least 0, found '1_0'"),
        (
            "<DEFINITION><FOR>out</FOR><TABLE>0.25 0.75</TABLE></DEFINITION>",
            "",
            3,
            "one distribution of each variable, found none of 'out'",
        ),
    ],
)
def test_xmlbif_errors(read: Read, old: str, new: str, line: int | None, message: str) -> None:
    assert old in XMLBIF
    with pytest.raises(FormatError) as caught:
        read(XMLBIF.replace(old, new, 1) if old != "</BIF>" else XMLBIF.replace(old, new), "bad.bifxml")
    assert message in str(caught.value)
    assert caught.value.line == line


def test_xml_within_bounds(read: Read, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="at most 64 elements inside each other"):
        read("<BIF>" + "<a>" * 1000, "deep.bifxml")
    path = tmp_path / "wide.xdsl"
    path.write_text("<smile><nodes>" + "<cpt/>" * 200_000 + "</nodes></smile>")
    with pytest.raises(BudgetError, match=r"wide\.xdsl: .*with its XML elements"):
        load(path, memory=1)


def test_xdsl_errors(read: Read) -> None:
    with pytest.raises(FormatError, match="a node of kind 'noisyadder', which is not read"):
        read('<smile><nodes><noisyadder id="a"/></nodes></smile>', "a.xdsl")
    with pytest.raises(FormatError, match=r"expected what the name \.xdsl says, found XMLBIF \(\.bifxml\)"):
        read(XMLBIF, "a.xdsl")


def test_line_comments_of_uai(read: Read) -> None:
    model = read("MARKOV # kind\n2\n2 2\n1 # one function\n2 0 1 # a b\n4\n# the table\n1 2 3 4\n", "a.uai")
    assert model.functions[0].values.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(FormatError, match=r"a\.uai:5: expected a finite number of at least 0, found 'x'"):
        read("MARKOV # kind\n1 2\n1 1 0 # a\n2 # b\n1 x\n", "a.uai")
