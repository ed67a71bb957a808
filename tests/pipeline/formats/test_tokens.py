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
from bucketflow.pipeline.formats.text.tokens import plain_integers


@given(st.lists(st.text("0123456789-", min_size=1, max_size=21), min_size=1, max_size=30), st.sampled_from(" \n\t"))
def test_integers_are_parsed_at_once_as_one_by_one(words: list[str], space: str) -> None:
    found = plain_integers(bytearray((space.join(words) + space).encode()), len(words))
    try:
        wanted = [int(word) for word in words]
    except ValueError:
        assert found is None
        return
    if found is None:
        assert any(len(word) > 17 for word in words)
    else:
        assert found.tolist() == wanted


@pytest.mark.parametrize("text", ["", "1 +2 ", "1 2_0 ", "1 2.0 ", "1 - 2 ", "1 --2 ", "1 2-", "1\x1c2 ", "1 \xb2 "])
def test_other_words_are_not_parsed_at_once(text: str) -> None:
    assert plain_integers(text.encode("latin-1"), len(text.split())) is None


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
