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
    """Numbers of readers and writers that no format fixes.

    Parameters
    ----------
    predicate_cells : int
        Assignments that are evaluated at once; a table of at most this many is dense whatever it holds. A larger
        distribution that takes its parents one after another becomes a chain of hidden variables.
    global_table_cells : int
        A global cost function of at most this many assignments is one table; of more, a chain of hidden variables.
    machine_states : int
        Most states of a global cost function between two of its variables.
    joint_machine_states : int
        Values are counted together where that takes at most this many states, or else each by itself.
    chunk_bytes : int
        Bytes that are read, or written, at a time.
    token_block_bytes : int
        Bytes that are split into words at a time: a block is then a few megabytes of strings.
    parsed_words : int
        As many integers or more are parsed at once, without a string for each.
    wide_values : int
        Variables with more values are reduced before tables are made; others keep each value, so that it can be
        observed.
    row_group : int
        Draws, or answers, of a row group of Parquet: some 50 MB of answers while they are Python objects.
    naming_seconds : float
        Wall seconds of reading a file after which a shell is offered no names of variables.
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
    naming_seconds: float = 0.5
