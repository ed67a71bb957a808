"""A missing blank never changes an answer: the file is read as before, refused, or noted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bucketflow import load_circuit
from bucketflow.pipeline.errors import BucketflowError, FormatError
from bucketflow.pipeline.formats.read import load, load_evidence

from .test_formats_fuzz import SAMPLES

OTHERS = {
    "plain.cnf": "p cnf 3 2\n1 -2 0\n2 3 0\n",
    "counted.cnf": "c p show 1 2 0\nc p weight 1 .25 0\nc p weight -1 .75 0\np cnf 3 2\n1 -2 0\n2 3 0\n",
    "sampled.cnf": "c ind 1 2 0\np cnf 3 2\n1 -2 0\n2 3 0\n",
    "cachet.cnf": "p cnf 2 1\nw 1 .5\nw 2 .25\n1 -2 0\n",
    "hard.wcnf": "h 1 -2 0\n3 2 3 0\n4.5 -1 0\n",
    "top.wcnf": "p wcnf 3 2 9\n3 1 -2 0\n9 2 3 0\n",
    "products.opb": "min: 2 x1 -3 x2 +4 x3 x1 ;\n1 x1 +1 x2 -2 ~x3 >= 1 ;\n2 x4 x5 -1 x3 >= -1 ;\n",
    "names.opb": "min: +2 a[1] -3 y_2 ;\n+1 a[1] +1 ~y_2 >= 1 ;\n",
    "exponents.opb": "min: 2 e1 -1 x1 +3 e1 x1 ;\n1 e1 +1 x1 = 1 ;\n",
    "stars.opb": "min: 2 * x1 -3 * x2 ;\n1 * x1 +1 * x2 >= 1 ;\n",
    "exponents.lp": "min\n o: 2 e1 - 3 x + 1 y\nst\n c: e1 + x <= 1\n d: 3 <= e1 + 3 y\nbin\n e1 x y\nend\n",
    "shared.wcsp": "p 2 2 2 9\n2 2\n-2 0 1 0 1\n0 1 5\n2 1 0 0 -1\n",
    "logs.LG": "MARKOV\n2\n2 2\n1\n2 0 1\n4\n-1 0 -2.5 -.5\n",
    "a.spot": "2\n0 10 2 1 0 2 0\n1 20 3 1 0 2 0 3 0\n1\n2 0 1 1 1 2 2\n",
}
FILES = SAMPLES | OTHERS
_BLANK = re.compile(r"[ \t\n]+")


def content(path: Path) -> Any:
    """Everything of a model that answers depend on."""
    model = load(path)
    functions = [(function.scope, function.dense(model.dims).tolist()) for function in model.functions]
    counted = model.projection and model.projection.variables
    head = model.kind, model.names, model.dims, model.states, model.top, model.decimals, model.maximize
    return (*head, counted, functions), model.notes


def without_a_blank(text: str) -> Iterator[str]:
    """Yield a text without one of its blanks; but two numbers in one are another number, and no reader can tell."""
    for found in _BLANK.finditer(text):
        before, behind = text[: found.start()], text[found.end() :]
        in_comment = "#constraint=" in before.rpartition("\n")[2] and "\n" in found[0]
        if not (before[-1:].isdigit() and re.match(r"[0-9]|$", behind)) and not in_comment:
            yield before + behind


def without_blanks_at_signs(text: str) -> str:
    """Return a text without the blanks before and behind signs, as programs write it that print no blanks."""
    return re.sub(r"(?<=[^\w\s.\"'~]) +| +(?=[^\w\s.\"'~+-])", "", text)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_blank_never_changes_an_answer(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    expected, notes = content(path)
    changed = [*without_a_blank(FILES[name]), without_blanks_at_signs(FILES[name])]
    assert changed
    for text in changed:
        path.write_text(text)
        try:
            found, said = content(path)
        except BucketflowError:
            continue
        assert found == expected or set(said) - set(notes), text


@pytest.mark.parametrize("text", ["2 x0 1 x1 0", "1 2 x0 1 x1 0", "2 0 B 1 u"])
def test_a_missing_blank_in_evidence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.uai"
    path.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n")
    model, evidence = load(path), tmp_path / "a.evid"
    for each in [text, *without_a_blank(text)]:
        evidence.write_text(each)
        try:
            found = load_evidence(evidence, model)
        except FormatError:
            continue
        assert found == {0: 1, 1: 0}, each


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("min:+3x1-2x2+1x4;", -2),
        ("min:3x1+2x2;x1+x2>=1;", None),
        ("min:3x1+2x2;1x1+1x2>=1;", 2),
        ("min: 2*x1 +3*x2 -1*x3;\n+1*x1 +1*x2 >= 1;\n-1*x3 +1*x2 >= 0;", 2),
        ("min: 2*x1*x2 -3*~x1*x2;", -3),
        ("min: +1 open[a] +2 y_2 +5 x#3 ;\n+1 open[a] +1 y_2 >= 1 ;\n+1 ~y_2 +1 x#3 >= 1 ;", 1),
        ("min: 1 up-2 ;", None),
        ("min: 1 up-2x2 ;", None),
        ("min: 2e1x4 ;", None),
        ("min: -2e1 x4 ;", -20),
        ("min: 1 x1x2 -1 x1 -1 x2 ;", None),
        ("min: 1 x1 * ;", None),
    ],
)
def test_terms_of_pseudo_boolean_files(tmp_path: Path, text: str, value: int | None) -> None:
    from bucketflow import solve

    path = tmp_path / "a.opb"
    path.write_text(text)
    if value is None:
        with pytest.raises(FormatError):
            load(path)
    else:
        assert solve(path).value == value


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("* #variable= 2 #constraint= 2", ()),
        ("* #variable= 2 #constraint= 3", ("the header says 3 constraints, the file has 2",)),
        ("* #variable= 3 #constraint= 2", ("the header says 3 variables, the file has 2",)),
    ],
)
def test_headers_that_count_otherwise_are_noted(tmp_path: Path, header: str, said: tuple[str, ...]) -> None:
    path = tmp_path / "a.opb"
    path.write_text(f"{header}\n1 a +1 b >= 1 ;\n1 a -1 b <= 0 ;\n")
    assert load(path).notes == said


def arabic(digits: str) -> str:
    """Write a number in other digits, which ``int`` reads as the same number."""
    return "".join(chr(ord("٠") + int(digit)) for digit in digits)


def grouped(digits: str) -> str:
    """Write a number with an underscore, which ``int`` ignores."""
    return f"{digits[0]}_{digits[1:]}" if len(digits) > 1 else f"0_{digits}"


@pytest.mark.parametrize("written", [arabic, grouped])
@pytest.mark.parametrize("name", sorted(FILES))
def test_numbers_that_only_python_reads_are_none(name: str, written: Callable[[str], str], tmp_path: Path) -> None:
    """They are refused, are other names, or stand in a part that no answer depends on."""
    if name.endswith(".yaml") and written is grouped:
        pytest.skip("YAML 1.1 and formulas in Python have numbers such as 1_0")
    text, path = FILES[name], tmp_path / name
    path.write_text(text)
    right, _ = content(path)
    ignored = ("property p = ", "VERSION=", "GumJsonVersion", "#variable= ", "#constraint= ", "version=", "DNET-")
    for found in list(re.finditer(r"[0-9]+", text))[:40]:
        before = text[: found.start()]
        if any(part in before[-24:] for part in ignored):
            continue
        path.write_text(before + written(found[0]) + text[found.end() :])
        with suppress(BucketflowError):
            assert content(path)[0] != right, (found[0], before[-24:])


@pytest.mark.parametrize("number", ["²", "1_0", "١"])
@pytest.mark.parametrize("text", ["nnf {} 0 1\nL 1\n", "nnf 1 0 1\nL {}\n"])
def test_circuits_have_plain_numbers(number: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.nnf"
    path.write_text(text.format(number))
    with pytest.raises(FormatError):
        load_circuit(path)


@pytest.mark.parametrize("size", ["[3][1000000000]", "3", "[x]"])
def test_a_size_of_an_array_is_quoted(size: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    array = f'<array id="x" size="{size}"> 0..1 </array>'
    path.write_text(f'<instance format="XCSP3" type="CSP"><variables>{array}</variables></instance>')
    with pytest.raises(FormatError, match=rf"such as \[3\]\[4\], of at most 9 digits, found '{re.escape(size)}'"):
        load(path)
