"""Files are recognised by name and content: what is not read is named, with what to do instead."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.formats.text.unread import unread_by_name

from .test_formats import KNOWN
from .test_formats_fuzz import SAMPLES

WCSP = SAMPLES["a.wcsp"].encode()


def found(path: Path, data: bytes) -> str:
    """What an error says of a file."""
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        load(path)
    assert caught.value.expected in (KNOWN, "a readable file")
    return caught.value.found.removeprefix("this is ")


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.wcsp", data)
    return file.getvalue()


def tarred(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.wcsp")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def saved(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


R_DATA = "an R data file, which is not read: let bnlearn's write.bif or write.net save it"
PACKED: list[tuple[bytes, str]] = [
    (zipped(WCSP), "a zip archive: unpack it first"),
    (bz2.compress(WCSP), "a bzip2 archive: unpack it first"),
    (bz2.compress(b""), "a bzip2 archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd\x00rest", "a Zstandard archive: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c\x00\x04", "a 7z archive: unpack it first"),
    (b"Rar!\x1a\x07\x01\x00", "a RAR archive: unpack it first"),
    (b"\x04\x22\x4d\x18rest", "an LZ4 archive: unpack it first"),
    (b"\x1f\x9d\x90rest", "a file of compress (.Z): unpack it first"),
    (lzma.compress(lzma.compress(WCSP, lzma.FORMAT_ALONE)), "an lzma file inside another: unpack it first"),
    (tarred(WCSP), "a tar archive: unpack it first"),
    (gzip.compress(tarred(WCSP)), "a tar archive: unpack it first"),
    (gzip.compress(gzip.compress(WCSP)), "a gzip file inside another: unpack it first"),
    (gzip.compress(lzma.compress(WCSP)), "an xz file inside another: unpack it first"),
    (pickle.dumps({"a": 1}), "a Python pickle, which is not read: save its model in a format of text"),
    (saved(np.zeros(3)), "a NumPy array, which is not read: make a model with bucketflow.Model.build"),
    (gzip.compress(b"X\n\x00\x00\x00\x03"), R_DATA),
    (b"RDX3\nX\n\x00\x00", R_DATA),
    ("MARKOV\n1\n2\n0\n".encode("utf-16"), "UTF-16 text, which is not read: save it as UTF-8"),
    (b"%PDF-1.7\n", "a PDF document, which is not read: write its functions as tables of a .cfn, .wcsp or .uai"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, which is not read: write its functions as tables of a .cfn, .wcsp or .uai"),
]


@pytest.mark.parametrize("name", ["a", "a.wcsp", "a.uai"])
@pytest.mark.parametrize(("data", "what"), PACKED, ids=[what[:20] for _, what in PACKED])
def test_what_holds_no_text(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    assert found(tmp_path / name, data) == what


NAMED = {
    "a.mps": "a linear program, which is not read: save it as .lp",
    "a.fg": "a factor graph of libDAI, which is not read: write it as .uai",
    "a.o3prm": "a relational model (O3PRM), which is not read: let pyAgrum save it as .bif or .net",
    "a.xbn": "a network of Microsoft's tools, which is not read: let GeNIe save it as .xdsl",
    "a.rds": "an R data file, which is not read: let bnlearn's write.bif or write.net save it",
    "a.rda": "an R data file, which is not read: let bnlearn's write.bif or write.net save it",
    "a.mzn": "a MiniZinc model, which is not read: compile it to .fzn",
    "a.col": "a graph, which is not read: its variables have no tables",
    "a.gr": "a graph, which is not read: its variables have no tables",
    "a.td": "a tree decomposition, which is not read: its variables have no tables",
    "a.smt2": "an SMT problem, which is not read: write its functions as tables",
    "a.qdimacs": "a formula with quantifiers, which is not read: write its functions as tables",
    "a.nnf": "a compiled circuit, which is not read: give its model instead",
    "a.npz": "a compiled model, which is not read: bucketflow.Compiled.load reads it",
    "a.pkl": "a Python pickle, which is not read: save its model in a format of text",
    "a.csv": "a list, which is not read: bucketflow batch reads lists of queries",
    "a.zip": "a file named as a zip archive: unpack it first, or name it as what it is",
    "a.uai.bz2": "a file named as a bzip2 archive: unpack it first, or name it as what it is",
    "a.uai.zst": "a file named as a Zstandard archive: unpack it first, or name it as what it is",
    "a.tar": "a file named as a tar archive: unpack it first, or name it as what it is",
    "a.tar.gz": "a file named as a tar archive: unpack it first, or name it as what it is",
    "a.tgz": "a file named as a tar archive: unpack it first, or name it as what it is",
    "a.7z": "a file named as a 7z archive: unpack it first, or name it as what it is",
    "a.evid": "an evidence file, which goes with a model",
    "a.map": "a query or an answer, which goes with a model",
    "a.query": "a query or an answer, which goes with a model",
    "a.MAR": "an answer, not a model",
    "a.ub": "an upper bound, which goes with a model, as --upper-bound",
    "a.PR": "an answer, not a model",
}


@pytest.mark.parametrize("name", NAMED)
def test_what_a_name_says(tmp_path: Path, name: str) -> None:
    """Whatever is in it: also what could be read under another name."""
    for data in (b"1 2 3\n", WCSP):
        assert found(tmp_path / name, data).startswith(NAMED[name])


NAMELESS = [
    ('<?xml version="1.0"?>\n<ANALYSISNOTEBOOK NAME="n"/>', "a network of Microsoft's tools"),
    ("NAME test\nROWS\n N cost\n", "a linear program"),
    ("c a graph\np edge 3 2\ne 1 2\n", "a graph"),
    ("p tw 3 2\n1 2\n", "a graph"),
    ("(set-logic QF_LIA)\n(declare-const x Int)\n", "an SMT problem"),
    ("% a model\nvar 1..3: x;\nconstraint x > 1;\nsolve satisfy;\n", "a MiniZinc model"),
    ('include "globals.mzn";\n', "a MiniZinc model"),
    ("type state labels(ok, nok);\nclass A { state s; }\n", "a relational model (O3PRM)"),
]


@pytest.mark.parametrize(("text", "what"), NAMELESS)
def test_what_content_says(tmp_path: Path, text: str, what: str) -> None:
    assert found(tmp_path / "problem", text.encode()).startswith(f"{what}, which is not read: ")


def test_xml_of_another_kind(tmp_path: Path) -> None:
    assert found(tmp_path / "a.xml", b'<?xml version="1.0"?><!-- x --><svg width="3"/>') == "XML of <svg>"


CONTENTS = {
    "a.bifxml": '<?xml version="1.0"?>\n<BIF VERSION="0.3"><NETWORK></NETWORK></BIF>',
    "a.xdsl": '<?xml version="1.0"?>\n<smile version="1.0" id="n"><nodes/></smile>',
    "a.xml": SAMPLES["a.xml"],
    "a.cnf": "c a\np cnf 2 1\n1 2 0\n",
    "a.cfn": SAMPLES["a.cfn"],
    "a.uai": SAMPLES["a.uai"],
    "a.bif": SAMPLES["a.bif"],
    "a.net": SAMPLES["a.net"],
}
SAYS = {
    "a.bifxml": "XMLBIF (.bifxml)",
    "a.xdsl": "a GeNIe network (.xdsl)",
    "a.xml": "XCSP (.xml)",
    "a.cnf": "DIMACS clauses (.cnf or .wcnf)",
    "a.cfn": "JSON, as a .cfn is",
    "a.uai": "a model of the UAI format (.uai)",
    "a.bif": "a network of the interchange format (.bif)",
    "a.net": "a Hugin network (.net)",
}
OTHERS = ("wcsp", "cfn", "json", "uai", "LG", "erg", "bif", "bifxml", "xdsl", "net", "cnf", "wcnf", "yaml")
ALIKE = {"a.cnf": {"wcnf"}, "a.cfn": {"json", "yaml"}, "a.uai": {"LG"}}


@pytest.mark.parametrize("suffix", OTHERS)
@pytest.mark.parametrize("name", CONTENTS)
def test_names_and_contents_do_not_contradict_each_other(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"b.{suffix}"
    path.write_text(CONTENTS[name])
    own = suffix == name.removeprefix("a.") or suffix in ALIKE.get(name, set())
    with nullcontext() if own else pytest.raises(FormatError) as caught:
        try_to_read(path)
    if caught is not None:
        wanted = (f"what the name .{suffix.lower()} says", f"{SAYS[name]}: name the file as what it is")
        assert (caught.value.expected, caught.value.found) == wanted


def try_to_read(path: Path) -> None:
    """Read a file, which need not hold a whole model, but be what its name says."""
    try:
        load(path)
    except FormatError as error:
        if error.expected.startswith("what the name"):
            raise


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_names_are_not_needed(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / "model", tmp_path / "model.txt", tmp_path / name):
        path.write_text(SAMPLES[name])
        assert len(load(path).dims) >= 2


@pytest.mark.parametrize("word", ["network", "variable", "probability", "net", "class", "p", "var", "h", "NAME", "min"])
def test_a_wcsp_may_be_named_as_words_of_other_formats(tmp_path: Path, word: str) -> None:
    path = tmp_path / "a.wcsp"
    path.write_bytes(WCSP.replace(b"p ", f"{word} ".encode(), 1))
    assert load(path).name == word


@pytest.mark.parametrize("read", [lambda p: bucketflow.solve(p), bucketflow.marginals])
def test_a_path_stands_for_its_model(tmp_path: Path, read: Callable[[str], object]) -> None:
    with pytest.raises(bucketflow.FormatError, match=r"a\.wcsp: no such file"):
        read(str(tmp_path / "a.wcsp"))
    (tmp_path / "a.uai").write_text("MARKOV 1 2 1 1 0 2 0.5 1.5")
    assert read(str(tmp_path / "a.uai"))


def test_every_suffix_that_is_read_is_free() -> None:
    assert [suffix for suffix in OTHERS if unread_by_name(f".{suffix.lower()}")] == []


@pytest.mark.parametrize("name", ["{", "MARKOV", "net{", "variable{"])
def test_a_cost_network_may_be_called_like_another_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(f"{name} 2 2 1 9\n2 2\n2 0 1 3 1\n0 0 1\n")
    assert load(path).dims == (2, 2)
