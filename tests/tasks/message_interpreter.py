"""The records of a propagation read by NumPy, word for word as ``cuda/messages.cu`` reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketflow.tasks.gpu.messages.layout import AXIS_WORDS, HEAD_WORDS, INPUT_WORDS
from bucketflow.tasks.gpu.messages.records import COMPUTED, CONSTANT, FINDING, MessageRecords
from bucketflow.tasks.gpu.messages.tiles import LINE_CELLS

SAFE_EXPONENT = 995
HEAD = np.dtype(
    [
        (name, "u4")
        for name in (
            *("inputs", "outputs", "tile", "pieces", "highs", "piece_highs", "lows"),
            *("lanes_out", "lanes_low", "out_fast", "out_axes", "high_axes", "low_axes", "table", "first_tile"),
            *("out", "scratch", "group", "case_outputs", "axes_at", "inputs_at", "low_at", "high_at", "start_at"),
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


def interpret(
    records: MessageRecords, constants: NDArray[Any], slab: NDArray[Any], law: str = "sum_product"
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Run all items in order on one group of cases, whose slabs lie behind each other.

    Returns the maxima of the tables, shape (cases, tables), and for which cases a range is not safe. A read of a
    table that is not ready and a cell written twice are errors.
    """
    times, plus, one = (np.multiply, np.add, 1.0) if law == "sum_product" else (np.add, np.minimum, 0.0)
    cases, tables = records.group, len(records.numbers)
    failed = np.zeros(cases, dtype=bool)
    tops, bottoms = np.zeros((cases, tables)), np.full((cases, tables), np.inf)
    done = np.zeros(tables, dtype=np.int64)
    arrived: dict[int, int] = {}
    written = np.zeros(slab.size, dtype=bool)

    def write(where: NDArray[np.int64], values: NDArray[Any]) -> None:
        assert not written[where].any()
        assert len(set(where.tolist())) == len(where)
        written[where] = True
        slab[where] = values

    for start, length, tile, piece in records.items.tolist():
        words = records.words[start : start + length]
        head = dict(zip(HEAD.names or (), words[:HEAD_WORDS].tolist(), strict=True))
        assert head["lanes_out"] * head["lanes_low"] <= 128
        assert head["group"] == cases
        inputs = words[HEAD_WORDS : HEAD_WORDS + INPUT_WORDS * head["inputs"]].reshape(-1, INPUT_WORDS)
        axes = words[HEAD_WORDS + INPUT_WORDS * head["inputs"] :].reshape(-1, AXIS_WORDS + head["inputs"])
        outs, highs, lows = np.split(axes, np.cumsum([head["out_axes"], head["high_axes"]]))
        factor, sources = np.ones(cases), []
        low = np.zeros(cases, dtype=np.int64)
        high = low + head["highs"].bit_length() + head["lows"].bit_length()
        for kind, table, at, need, least in inputs.astype(np.int32).tolist():
            first = at if kind == FINDING else LINE_CELLS * at
            sources.append((constants if kind == CONSTANT else slab)[first:])
            if kind == COMPUTED:
                assert done[table] == need
                top = tops[:, table]
                factor *= np.where(top > 0.0, 1.0 / np.where(top > 0.0, top, 1.0), 0.0)
                low += np.where(top > 0.0, np.minimum(np.frexp(bottoms[:, table])[1] - 1, 0), 0)
                high += np.where(top > 0.0, np.maximum(np.frexp(top)[1], 0), 0)
            else:
                low += min(least, 0)
        if law == "sum_product":
            failed |= (low < -SAFE_EXPONENT) | (high > SAFE_EXPONENT)
        first = tile * head["tile"]
        cells = np.arange(first, min(first + head["tile"], head["outputs"]))
        case, cell = np.divmod(cells, head["case_outputs"])
        first_high = piece * head["piece_highs"]
        last_high = min(first_high + head["piece_highs"], head["highs"])
        at = offsets(outs, cells)
        deep = offsets(highs, np.arange(first_high, last_high))[:, None] + offsets(lows, np.arange(head["lows"]))[None]
        deep = deep.reshape(-1, deep.shape[-1])
        product = np.full((len(cells), len(deep)), one)
        for i, source in enumerate(sources, start=1):
            times(product, source[at[:, None, i] + deep[None, :, i]], out=product)
        sums = plus.reduce(product, axis=1)
        if head["pieces"] > 1:
            rows = np.arange(head["pieces"])[:, None] * head["case_outputs"]
            scratch = LINE_CELLS * head["scratch"] + case * records.slab_cells + rows + cell
            write(scratch[piece], sums)
            key = head["first_tile"] + tile
            arrived[key] = arrived.get(key, 0) + 1
            if arrived[key] < head["pieces"]:
                continue
            sums = plus.reduce(slab[scratch], axis=0)
        values = sums * factor[case] if law == "sum_product" else sums
        write(LINE_CELLS * head["out"] + at[:, 0], values)
        number = head["table"]
        np.maximum.at(tops[:, number], case, values)
        np.minimum.at(bottoms[:, number], case, np.where(values > 0.0, values, np.inf))
        done[number] += 1
    assert all(count <= records.split_tiles for count in (len(arrived), max(arrived, default=-1) + 1))
    return tops, failed
