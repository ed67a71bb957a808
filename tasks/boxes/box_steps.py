"""A box as several tasks: an input read, a step, a table stored, and the end, which makes all receipts count."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from ...storage.spec import Receipt
from .box import Box, Left, Receipts, States, Wanted, read_part

T = TypeVar("T")


def read_input(box: Box[T], node: int, receipts: Receipts, states: States) -> T:
    """Task: the part of an input that agrees with ``states``, its shares added up."""
    return read_part(box, node, receipts, states, there=False)


def store_table(box: Box[T], number: int, states: States, wanted: Wanted, node: int, table: T) -> list[Receipt]:
    """Task: store the wanted chunks of a table; return their receipts, which do not count yet."""
    left = Left(box, number, states, wanted, (), time.perf_counter())
    left.take(node, table, states)
    return left.done


def end_box(
    box: Box[T], number: int, states: States, wanted: Wanted, nodes: tuple[int, ...], *ends: Any
) -> list[Receipt]:
    """Task: write what a box found, and make its receipts count.

    Parameters
    ----------
    nodes : tuple of int
        Results and roots that steps made.
    *ends
        Receipts of each table that was stored, then the tables ``nodes``.
    """
    left = Left(box, number, states, wanted, (), time.perf_counter())
    first = len(ends) - len(nodes)
    left.done += [receipt for stored in ends[:first] for receipt in stored]
    leaves = [node for node in {*box.results, *box.roots} if node in box.program.leaves]
    left.end({**box.program.leaves_at(states, leaves), **dict(zip(nodes, ends[first:], strict=True))}, states)
    return left.recorded()
