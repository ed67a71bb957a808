"""Functions that are built together from the numbers of a whole file are those that are read one by one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BucketflowError, BudgetError
from bucketflow.pipeline.formats import cfn, cfn_grammar, uai, wcsp
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.global_functions import global_kinds
from bucketflow.pipeline.formats.global_functions.decomposition import Decomposition

Rng = np.random.Generator
_ODD = ("-1", "x", "2-3", "1.0", "1e0", "+1", "07", "7", "inf", "nan", "1_0", str(2**63), str(2**62), str(-(2**62)))


def _wcsp(rng: Rng) -> str:
    """Return a file of dense tables, listed tuples, shared functions, a constant and a global function."""
    dims = rng.choice([1, 2, 3, 300], 9)
    top = rng.choice([50, 2**62 + 1, 2**64])
    lines = []
    for _ in range(25):
        scope = rng.choice(9, rng.integers(0, 4), replace=bool(rng.random() < 0.1))
        rows = [[int(rng.integers(dims[v])) for v in scope] for _ in range(rng.integers(0, 5))]
        head = [len(scope), *scope, rng.integers(0, 60), len(rows) if len(scope) else 0]
        lines.append(" ".join(map(str, head)))
        lines += [" ".join(map(str, [*row, rng.choice([0, 7, 60, top])])) for row in rows if row]
    lines.insert(0, "-1 0 5 1\n0 3")
    lines += ["1 0 5 -1", "2 1 2 -1 >= 0 0" if rng.random() < 0.5 else "0 3 0"]
    return f"random 9 {max(dims)} 28 {top}\n{' '.join(map(str, dims))}\n" + "\n".join(lines) + "\n"


def _uai(rng: Rng) -> str:
    """Return a Markov network; tables differ in size."""
    dims = rng.integers(1, 4, 9)
    scopes = [rng.choice(9, rng.integers(0, 4), replace=bool(rng.random() < 0.02)) for _ in range(20)]
    lines = ["MARKOV", "9", " ".join(map(str, dims)), "20"]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in scopes]
    for scope in scopes:
        values = rng.choice([0.0, 0.25, 1.5, 2.0], int(dims[scope].prod()))
        lines += [str(len(values)), " ".join(map(str, values))]
    return "\n".join(lines) + "\n"


_CFN_COSTS = ("0", "7", "-2", "1.5", '"3"', '"0.25"', "inf", "12345678901", str(10**18), str(2**62), "1e-1")
_CFN_NAMES = ("a", "0", "x1", "b c", "1", "c\\\\d", "é", "z")
_CFN_ODD = (
    *_ODD,
    "{",
    "}",
    "[",
    "]",
    '"',
    '"scope"',
    "costs",
    "defaultcost",
    "-inf",
    '"a"',
    "9",
    "1.",
    '"1"',
    "٣",
    "v",
)


def _cfn(rng: Rng) -> str:
    """Return a file whose tables have several shapes, with a global function, shared costs and labels."""
    sizes = [int(size) for size in rng.choice([1, 2, 3, 300], 8, p=(0.1, 0.4, 0.4, 0.1))]
    labelled = [rng.random() < 0.3 and size < 9 for size in sizes]
    few = _CFN_COSTS[: rng.choice([2, 3, 5, 7, len(_CFN_COSTS)], p=(0.2, 0.2, 0.3, 0.2, 0.1))]

    def quoted(word: str) -> str:
        return word if rng.random() < 0.3 and word.isalnum() else f'"{word}"'

    def table(k: int) -> str:
        scope = rng.choice(8, rng.integers(0, 4), replace=bool(rng.random() < 0.1))
        words = [quoted(_CFN_NAMES[v]) if rng.random() < 0.9 or v < 3 else str(v) for v in scope]
        head, cells = f"{quoted('scope')}: [{', '.join(words)}]", int(np.prod([sizes[v] for v in scope]))
        name = rng.choice(["", f'"f{k}": ', f"f{k % 3} "])
        if cells <= 30 and rng.random() < 0.6:
            return f"{name}{{{head}, {quoted('costs')}: [{', '.join(rng.choice(few, cells))}]}}"
        listed = dict.fromkeys(tuple(int(rng.integers(sizes[v])) for v in scope) for _ in range(rng.integers(0, 4)))
        marked = [labelled[v] and rng.random() < 0.8 for v in scope]
        rows = [[f"v{s}" if mark else str(s) for mark, s in zip(marked, states, strict=True)] for states in listed]
        tuples = [", ".join([*row, rng.choice(few)]) for row in rows]
        parts = [f"{quoted('defaultcost')}: {rng.choice(few)}", f"costs: [{', '.join(tuples)}]"]
        return f"{name}{{{', '.join([head, *(parts if rng.random() < 0.8 else parts[::-1])])}}}"

    domains = [
        f'"{name}": {[f"v{s}" for s in range(size)] if labels else size}'.replace("'", '"')
        for name, size, labels in zip(_CFN_NAMES, sizes, labelled, strict=True)
    ]
    functions = [table(k) for k in range(12)]
    if rng.random() < 0.3:
        functions.insert(5, '{scope: ["a", "x1"], type: disj, params: [1, 1, 2.5]}')
    if rng.random() < 0.3:
        functions.insert(3, '{scope: ["a"], costs: last}')
        functions.append(f'last {{"scope": [a], "costs": [{" ".join(["4"] * sizes[0])}]}}')
    bound = rng.choice(["", '"mustbe": "<99.5"', '"mustbe": ">-5"', '"mustbe": "<-3"'])
    listed = ",\n".join(functions)
    return f'{{"problem": {{{bound}}}, "variables": {{\n{", ".join(domains)}\n}}, "functions": {{\n{listed}\n}}}}\n'


def _damaged_cfn(rng: Rng, text: str) -> str:
    """Return the text with one token replaced, inserted or dropped."""
    tokens = list(cfn_grammar.TOKEN.finditer(text))
    token = tokens[rng.integers(len(tokens))]
    end = token.end() if rng.random() < 0.6 else token.start()
    return text[: token.start()] + (" " if rng.random() < 0.3 else f" {rng.choice(_CFN_ODD)} ") + text[end:]


def _damaged(rng: Rng, text: str) -> str:
    """Return the text with one word replaced, inserted or dropped."""
    lines = [line.split() for line in text.split("\n")]
    line = lines[rng.integers(len(lines) - 1)]
    place = int(rng.integers(len(line)))
    line[place : place + int(rng.integers(2))] = [] if rng.random() < 0.3 else [str(rng.choice(_ODD))]
    return "\n".join(map(" ".join, lines))


def _read(path: Path) -> list[object] | str:
    try:
        model = bucketflow.load(path)
    except BucketflowError as error:
        return str(error)
    tables = [
        (f.scope, f.default, f.child, f.values.dtype, f.values.shape, f.values.tobytes(), f.rows is None)
        for f in model.functions
    ]
    rows = [(f.rows.dtype, f.rows.shape, f.rows.tobytes()) for f in model.functions if f.rows is not None]
    return [model.kind, model.dims, model.top, model.notes, model.hidden, tables, rows]


@pytest.mark.parametrize(("suffix", "written", "reader"), [("wcsp", _wcsp, wcsp), ("uai", _uai, uai)])
@pytest.mark.parametrize("seed", range(60))
def test_functions_together_are_as_one_by_one(
    suffix: str, written: object, reader: object, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    assert callable(written)
    text = written(rng) if seed % 3 == 0 else _damaged(rng, written(rng))
    path = tmp_path / f"a.{suffix}"
    path.write_text(text)
    together = _read(path)
    monkeypatch.setattr(reader, "FEW", 10**9)
    assert _read(path) == together


@pytest.mark.parametrize("seed", range(40))
def test_tables_of_a_cfn_together_are_as_the_grammar_reads_them(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal models, and equal messages about damaged files."""
    rng = np.random.default_rng(seed)
    text = _cfn(rng)
    path = tmp_path / "a.cfn"
    for written in (text, *(_damaged_cfn(rng, text) for _ in range(4))):
        path.write_text(written)
        together = _read(path)
        with monkeypatch.context() as patch:
            patch.setattr(cfn, "RegularTables", lambda: None)
            assert _read(path) == together, written


def test_regular_tables_of_a_cfn_are_one_array(tmp_path: Path) -> None:
    path = tmp_path / "a.cfn"
    path.write_text(
        '{"variables": {"a": 2}, "functions": {"f": {"scope": ["a"], "costs": [1, 2]}, {scope: [a] costs: [3 4]}}}'
    )
    first, second = bucketflow.load(path).functions
    assert first.values.base is not None
    assert first.values.base is second.values.base
    assert [first.values.tolist(), second.values.tolist()] == [[1, 2], [3, 4]]


def test_global_functions_without_plain_tables_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text("p 2 3 20 9\n3 3\n" + "2 0 1 -1 sdisj 1 1 2 2 4 6\n" * 20)
    built: list[object] = []
    kind = global_kinds.KINDS["sdisj"]

    def build(parts: Decomposition, scope: tuple[int, ...], given: dict[str, Any]) -> None:
        built.append(scope)
        kind.build(parts, scope, given)

    monkeypatch.setitem(global_kinds.KINDS, "sdisj", replace(kind, build=build))
    assert len(bucketflow.load(path).functions) == len(built) == 20


def test_two_forbidden_ends_of_a_disjunction_do_not_overflow(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    most = 2**63 - 1
    path.write_text(f"p 2 3 1 {most}\n3 3\n2 0 1 -1 sdisj 1 1 2 2 {most} {most}\n")
    model = bucketflow.load(path)
    assert [model.cost([2, 2]), model.cost([0, 1]), model.cost([1, 1])] == [None, 0, None]


def test_tables_of_two_large_variables_are_built_when_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text("p 2 900 3 5000\n900 800\n2 0 1 -1 sdisj 30 20 700 600 4 6\n2 0 1 -1 disj 5 7 3\n2 1 0 -1 >= 9 4\n")
    model = bucketflow.load(path)
    assert all("values" not in vars(f) for f in model.functions)
    copies = pickle.loads(pickle.dumps(model.functions))
    assert all("values" not in vars(f) for f in copies)
    x, y = np.arange(900)[:, None], np.arange(800)
    missed = np.maximum(y.T[None] * -1 + x + 9, 0)
    ends = (x == 700) * 4 + (y == 600) * 6
    apart = (x >= y + 20) | (y >= x + 30) | (x >= 700) | (y >= 600)
    expected = [
        np.where((x <= 700) & (y <= 600) & apart, ends, 2**62),
        np.where((x >= y + 7) | (y >= x + 5), 0, 3),
        np.where(missed > 4, 2**62, missed).T,
    ]
    for own, copy, table in zip(model.functions, copies, expected, strict=True):
        assert np.array_equal(own.values, table)
        assert own.equals(copy)
        assert own.over((1, 0)).values is own.values
        assert not own.values.flags.writeable


def test_memory_of_deferred_tables_is_counted_when_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text("p 2 9000 1 5000\n9000 8000\n2 0 1 -1 disj 5 7 3\n")
    with pytest.raises(BudgetError, match="functions of global cost functions"):
        bucketflow.load(path, memory="100MB")


@pytest.mark.parametrize("sign", [">=", ">", "<=", "<", "="])
def test_distances_of_comparisons_do_not_overflow(sign: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(f"p 2 3 1 9\n3 3\n2 0 1 -1 {sign} {2**63 - 1} 0\n")
    assert bucketflow.load(path).cost([2, 1]) == (0 if sign in ("<=", "<") else None)


_REPEATED = (
    "sregular var 2 2 1 0 1 1 3 0 0 0 0 1 1 1 0 0",
    "wamong lin 2 1 1 1 2",
    "sgcc var 3 2 0 1 1 1 0 2",
    "salldiff var 2",
    "wsum hard 9 <= 3",
    "knapsackv 3 3 {0} 1 1 {1} 1 1 {2} 1 1",
    "knapsackv 3 3 {1} 1 1 {0} 1 1 {2} 1 1",
    "max 1 2 {2} 1 3 {0} 0 4",
)


@pytest.mark.parametrize("cells", [1, 1 << 16])
def test_equal_functions_over_other_variables_share_tables(
    cells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables and chains of hidden variables equal those of functions that are built separately."""
    path, scopes = tmp_path / "a.wcsp", [(0, 1, 2), (2, 3, 0), (4, 1, 3), (0, 5, 2), (4, 2, 1)]
    sizes = [2, 3, 2, 3, 2, 3]
    lines = [f"3 {s[0]} {s[1]} {s[2]} -1 {kind.format(*s)}" for kind in _REPEATED for s in scopes]
    path.write_text(f"p 6 3 {len(lines)} 1000\n{' '.join(map(str, sizes))}\n" + "\n".join(lines) + "\n")
    with FormatPolicy.using(global_table_cells=cells):
        shared = bucketflow.load(path)
        monkeypatch.setattr(global_kinds.GlobalKind, "_key", lambda *_: "")
        separate = bucketflow.load(path)
    assert (shared.dims, len(shared.functions)) == (separate.dims, len(separate.functions))
    for one, other in zip(shared.functions, separate.functions, strict=True):
        assert one.equals(other)
    arrays = [
        len({id(f.values if f.values.base is None else f.values.base) for f in m.functions}) for m in (shared, separate)
    ]
    assert arrays[0] < arrays[1]


@pytest.mark.parametrize("kind", ["disj {0} {0} 3", "sdisj {0} {0} 2 2 4 6"])
def test_distances_of_more_than_64_bits_are_never_reached(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    path.write_text(f"p 2 3 1 9\n3 3\n2 0 1 -1 {kind.format(2**70)}\n")
    assert bucketflow.load(path).cost([0, 1]) == (3 if kind.startswith("disj") else None)


def test_a_missing_blank_at_the_end_of_a_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.uai"
    path.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2-3 4\n")
    with pytest.raises(BucketflowError, match=r"a.uai:7: expected a finite number of at least 0, found '2-3'"):
        bucketflow.load(path)


def test_costs_of_17_decimals_are_rounded_where_64_bits_do_not_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "a.qpbo"
    path.write_text("2 2\n1 1 123.12345678901234567\n1 2 -1.5\n")
    model = bucketflow.load(path)
    assert model.notes == ("costs of 17 decimals are rounded to 13, because costs are integers of 64 bits",)
    assert float(model.objective(model.cost([1, 1]) or 0)) == pytest.approx(120.12345678901234, abs=1e-13)
    path.write_text("2 2\n1 1 0.12345678901234567\n1 2 -1.5\n")
    model = bucketflow.load(path)
    assert (model.decimals, model.notes) == (17, ())
