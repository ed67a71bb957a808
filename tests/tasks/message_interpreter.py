"""The records of a propagation read by NumPy, word for word as ``cuda/messages.cu`` reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketflow.tasks.message_records import AXIS_WORDS, COMPUTED, CONSTANT, HEAD_WORDS, INPUT_WORDS, Records

SAFE_EXPONENT = 995
HEAD = np.dtype(
    [
        (name, "u4")
        for name in (
            *("inputs", "outputs", "tile", "pieces", "highs", "piece_highs", "lows"),
            *("lanes_out", "lanes_low", "out_fast", "out_axes", "high_axes", "low_axes", "table", "first_tile"),
            *("out", "scratch", "axes_at", "inputs_at", "low_at", "high_at", "start_at"),
        )
    ]
)


def offsets(words: NDArray[np.uint32], cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return offsets of cells of a group of axes, (cells, 1 + inputs), the output first; with the device's division."""
    where = np.zeros((len(cells), words.shape[1] - 3), dtype=np.int64)
    cells = cells.astype(np.uint64)
    for number in range(len(words) - 1, -1, -1):
        size, magic, shift = (int(w) for w in words[number, :3])
        rest = np.zeros_like(cells)
        if number:
            rest = (cells * np.uint64(magic) >> np.uint64(32)) >> np.uint64(shift)
        digit = (cells - rest * np.uint64(size)).astype(np.int64)
        where += digit[:, None] * words[number, 3:].astype(np.int64)
        cells = rest
    return where


def interpret(records: Records, constants: NDArray[Any], slab: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Run all items in order on one case; returns the maxima of the tables and whether a range is not safe.

    A read of a table that is not ready and a cell written twice are errors.
    """
    failed = False
    bounds = np.zeros((len(records.numbers), 2))
    bounds[:, 1] = np.inf
    done = np.zeros(len(records.numbers), dtype=np.int64)
    arrived: dict[int, int] = {}
    written = np.zeros(slab.size, dtype=bool)
    for start, length, tile, piece in records.items.tolist():
        words = records.words[start : start + length]
        head = dict(zip(HEAD.names or (), words[:HEAD_WORDS].tolist(), strict=True))
        assert head["lanes_out"] * head["lanes_low"] <= 128
        inputs = words[HEAD_WORDS : HEAD_WORDS + INPUT_WORDS * head["inputs"]].reshape(-1, INPUT_WORDS)
        axes = words[HEAD_WORDS + INPUT_WORDS * head["inputs"] :].reshape(-1, AXIS_WORDS + head["inputs"])
        outs, highs, lows = np.split(axes, np.cumsum([head["out_axes"], head["high_axes"]]))
        factor, sources = 1.0, []
        low, high = 0, head["highs"].bit_length() + head["lows"].bit_length()
        for kind, table, at, need, least in inputs.astype(np.int32).tolist():
            sources.append((constants if kind == CONSTANT else slab)[at:])
            if kind == COMPUTED:
                assert done[table] == need
                factor *= 1.0 / bounds[table, 0] if bounds[table, 0] else 0.0
                least = np.frexp(bounds[table, 1])[1] - 1 if bounds[table, 0] else 0
                high += max(np.frexp(bounds[table, 0])[1], 0)
            low += min(least, 0)
        failed |= low < -SAFE_EXPONENT or high > SAFE_EXPONENT
        first = tile * head["tile"]
        cells = np.arange(first, min(first + head["tile"], head["outputs"]))
        first_high = piece * head["piece_highs"]
        last_high = min(first_high + head["piece_highs"], head["highs"])
        at = offsets(outs, cells)
        deep = offsets(highs, np.arange(first_high, last_high))[:, None] + offsets(lows, np.arange(head["lows"]))[None]
        deep = deep.reshape(-1, deep.shape[-1])
        product = np.ones((len(cells), len(deep)))
        for i, source in enumerate(sources, start=1):
            product *= source[at[:, None, i] + deep[None, :, i]]
        sums = product.sum(axis=1)
        if head["pieces"] > 1:
            scratch = head["scratch"] + np.arange(head["pieces"])[:, None] * head["outputs"] + cells
            slab[scratch[piece]] = sums
            assert not written[scratch[piece]].any()
            written[scratch[piece]] = True
            key = head["first_tile"] + tile
            arrived[key] = arrived.get(key, 0) + 1
            if arrived[key] < head["pieces"]:
                continue
            sums = slab[scratch].sum(axis=0)
        where = head["out"] + at[:, 0]
        assert not written[where].any()
        assert len(set(where.tolist())) == len(where)
        written[where] = True
        slab[where] = sums * factor
        number = head["table"]
        bounds[number, 0] = max(bounds[number, 0], slab[where].max())
        bounds[number, 1] = min(bounds[number, 1], slab[where].min(initial=np.inf, where=slab[where] > 0.0))
        done[number] += 1
    assert all(count <= records.split_tiles for count in (len(arrived), max(arrived, default=-1) + 1))
    return bounds[:, 0], failed
