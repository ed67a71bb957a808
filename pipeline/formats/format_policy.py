"""Tuned numbers of reading and writing files: sizes of blocks, and limits for untrusted files. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...tasks.steps.policy import Policy


@dataclass(frozen=True)
class FormatPolicy(Policy):
    """Numbers of readers and writers that no format fixes.

    Parameters
    ----------
    default_cells : int
        A `default` row may stand for this many entries, or else for three times as many as are written out.
    uniform_cells : int
        A potential without data is uniform; it may not claim more entries than this.
    expression_work : int
        Most parts of expressions that are evaluated on columns; more would take minutes.
    python_work : int
        A part that Python evaluates takes as long as this many.
    predicate_cells : int
        Assignments that are evaluated at once; a table of at most this many is dense whatever it holds.
    predicate_work : int
        Most parts of predicates that are evaluated; more would take ten seconds or longer.
    predicate_sample : int
        Assignments of the sample that tells whether a predicate holds rarely.
    predicate_rows_part : int
        Rows are kept where they are at most one part in this many of all assignments.
    chained_cells : int
        Maximum entries of a table for a distribution that takes its parents one after another: half a megabyte, which
        any query can handle. Larger distributions become chains of hidden variables.
    global_table_cells : int
        A global cost function of at most this many assignments is one table; of more, a chain of hidden variables.
    machine_states : int
        Most states of a global cost function between two of its variables.
    joint_machine_states : int
        Values are counted together where that takes at most this many states, or else each by itself.
    machine_moves : int
        Most moves between such states that are tried, of a counter or as long as its; more would take seconds.
    head_bytes : int
        Bytes of a file's beginning that tell its format.
    chunk_bytes : int
        Bytes that are read at a time.
    token_block_bytes : int
        Bytes that are split into words at a time: a block is then a few megabytes of strings.
    single_numbers : int
        Fewer numbers are read one by one.
    parsed_words : int
        As many integers or more are parsed at once, without a string for each.
    written_entries : int
        Entries of a function that are Python's own numbers at the same time.
    aliased_values : int
        Most values that aliases stand for, each as often as it is meant.
    long_keys : int
        Most keys of a length at which their hashes could be chosen to collide.
    written_bytes : int
        Bytes that are written together.
    """

    default_cells: int = 1024
    uniform_cells: int = 1 << 20
    expression_work: int = 1 << 36
    python_work: int = 32
    predicate_cells: int = 1 << 16
    predicate_work: int = 1 << 32
    predicate_sample: int = 4096
    predicate_rows_part: int = 8
    chained_cells: int = 1 << 16
    global_table_cells: int = 1 << 10
    machine_states: int = 1 << 14
    joint_machine_states: int = 1 << 9
    machine_moves: int = 1 << 21
    head_bytes: int = 1 << 16
    chunk_bytes: int = 1 << 20
    token_block_bytes: int = 1 << 17
    single_numbers: int = 16
    parsed_words: int = 1024
    written_entries: int = 1 << 14
    aliased_values: int = 1_000_000
    long_keys: int = 1000
    written_bytes: int = 1 << 18
