"""Integers of a file are parsed many at a time, as they are one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.text.tokens import are_entries, parsed_numbers


@given(st.lists(st.text("0123456789-", min_size=1, max_size=21), min_size=1, max_size=30), st.sampled_from(" \n\t"))
def test_integers_are_parsed_at_once_as_one_by_one(words: list[str], space: str) -> None:
    found = parsed_numbers((space.join(words) + space).encode(), len(words), np.int64)
    try:
        wanted = [int(word) for word in words]
    except ValueError:
        assert found is None
        return
    if found is None:
        assert any(abs(number) >= 2**63 - 1 for number in wanted)
    else:
        assert found.tolist() == wanted


@pytest.mark.parametrize(
    "text", ["", "1 2_0 ", "1 2.0 ", "1 - 2 ", "1 --2 ", "1 2-", "1-2", "1\x1c2 ", "1 \xb2 ", "-", "1 +", "- -3"]
)
def test_other_words_are_not_parsed_at_once(text: str) -> None:
    assert parsed_numbers(text.encode("latin-1"), len(text.split()), np.int64) is None


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**30, -(2**63), -(10**30)])
def test_integers_that_may_be_cut_are_not_parsed_at_once(number: int) -> None:
    assert parsed_numbers(f"1 {number} 2".encode(), 3, np.int64) is None


def test_a_table_across_blocks_is_read_as_in_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.unique(rng.integers(0, 7, (300, 3)), axis=0)
    lines = [f"{a} {b} {c} {rng.integers(0, 99)}" for a, b, c in rows]
    path = tmp_path / "blocks.wcsp"
    path.write_text(f"blocks 3 7 1 1000\n7 7 7\n3 0 1 2 5 {len(rows)}\n" + "\n".join(lines) + "\n")
    whole = bucketflow.load(path).functions[0]
    with FormatPolicy.using(token_block_bytes=256, parsed_words=8):
        parsed = bucketflow.load(path).functions[0]
        path.write_text(path.read_text().replace(lines[200], "1 2 9 3"))
        with pytest.raises(FormatError, match=r"blocks.wcsp:204: expected a state from 0 to 6, found '9'"):
            bucketflow.load(path)
    assert np.array_equal(whole.dense((7, 7, 7)), parsed.dense((7, 7, 7)))


@given(
    st.lists(st.from_regex(r"[0-9]{0,9}\.?[0-9]{0,9}|[-+]?[0-9.e]{1,7}", fullmatch=True).filter(bool), min_size=1),
    st.sampled_from(" \n\t"),
)
def test_decimals_are_parsed_at_once_to_the_last_bit(words: list[str], space: str) -> None:
    found = parsed_numbers((space.join(words) + space).encode(), len(words), np.float64)
    try:
        wanted = [float(word) for word in words]
    except ValueError:
        assert found is None
        return
    assert found is not None
    assert found.tobytes() == np.array(wanted).tobytes()


@given(st.lists(st.floats(allow_nan=False, width=64), min_size=1))
def test_floats_as_python_prints_them_are_parsed_exactly(numbers: list[float]) -> None:
    found = parsed_numbers(" ".join(map(repr, numbers)).encode(), len(numbers), np.float64)
    assert found is not None
    assert found.tobytes() == np.array(numbers).tobytes()


@pytest.mark.parametrize(
    "text", ["", "1 .", "1 1.2.3", "1 0x1", "1_0", "\x02 1", "1 2e", "1-2", "-", "1 +", "- -3", "- 1"]
)
def test_other_words_are_no_decimals(text: str) -> None:
    assert parsed_numbers(text.encode(), len(text.split()), np.float64) is None


def test_entries_are_finite_and_not_negative_but_logarithms() -> None:
    for values, potentials, logs in (([0, 1], True, True), ([0, -1], False, True), ([0, -np.inf], False, True)):
        assert (are_entries(np.array(values, float)), are_entries(np.array(values, float), True)) == (potentials, logs)
    assert not any(are_entries(np.array([0, bad]), logs) for bad in (np.nan, np.inf) for logs in (False, True))


def test_entries_across_blocks_are_read_as_in_one(tmp_path: Path) -> None:
    values = [*np.random.default_rng(0).random(343).round(6).tolist()]
    values[100], values[200] = "1e-3", 0.12345678901234567
    path = tmp_path / "blocks.uai"
    path.write_text("MARKOV\n3\n7 7 7\n1\n3 0 1 2\n343\n" + "\n".join(map(str, values)) + "\n")
    whole = bucketflow.load(path).functions[0]
    with FormatPolicy.using(token_block_bytes=256, parsed_words=8):
        parsed = bucketflow.load(path).functions[0]
        path.write_text(path.read_text().replace("1e-3", "-1e-3"))
        with pytest.raises(FormatError, match=r"blocks.uai:107: expected a finite number of at least 0, found '-1e-3'"):
            bucketflow.load(path)
    assert whole.values.ravel().tolist() == parsed.values.ravel().tolist() == [*map(float, values)]
