"""Tuned numbers of reading and writing files: sizes of blocks, and limits for untrusted files. Pure."""

from __future__ import annotations

from typing import Final

from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.policy import Policy

#: Bytes that a reader needs for a word or a number with its place in a list, and for a Decimal or a value of a domain
#: with its name. Readers check them against the allowance before they use the memory.
WORD_BYTES, STATE_BYTES = 64, 136
#: For a tuple or a part of YAML, an object with its name (a variable, a term, a function without its table), and an XML
#: element.
ENTRY_BYTES, OBJECT_BYTES, ELEMENT_BYTES = 320, 640, 1024
# Most levels of lists or blocks inside each other in a file of nested text.
MOST_LEVELS: Final = 32
# Entries of a function that are Python's own numbers at the same time.
WRITTEN_ENTRIES: Final = 1 << 14
# States or entries that a file may have without writing each of them.
UNWRITTEN: Final = 1 << 20


@dataclass(frozen=True)
class FormatPolicy(Policy):
    """Tuned numbers of readers and writers.

    Parameters
    ----------
    predicate_cells : int
        Maximum assignments that are evaluated together. A table of at most this number of cells is always dense. A
        larger distribution that combines its parents one by one becomes a chain of hidden variables.
    global_table_cells : int
        Maximum assignments of a global cost function that is one table. A larger function becomes a chain of hidden
        variables.
    machine_states : int
        Maximum states of a global cost function between two of its variables.
    joint_machine_states : int
        Maximum states of one machine that counts several values. With more states, each value is counted separately.
    chunk_bytes : int
        Bytes that are read or written at a time.
    token_block_bytes : int
        Bytes that are split into words at a time. The strings of a block take a few megabytes.
    parsed_words : int
        Minimum number of integers that are parsed together, without a string for each integer.
    wide_values : int
        Variables with more values are reduced before tables are built. Other variables keep all values, so that each
        value can be observed.
    row_group : int
        Draws or answers of a row group of Parquet. As Python objects, these answers take about 50 MB.
    """

    predicate_cells: int = 1 << 16
    global_table_cells: int = 1 << 10
    machine_states: int = 1 << 14
    joint_machine_states: int = 1 << 9
    chunk_bytes: int = 1 << 20
    token_block_bytes: int = 1 << 17
    parsed_words: int = 1024
    wide_values: int = 1 << 10
    row_group: int = 1 << 17
