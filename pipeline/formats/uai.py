"""The .uai format: Markov networks of potentials and Bayesian networks; .LG has natural logarithms of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.steps.number_limits import LARGEST_EXPONENT
from ..errors import BudgetError, FormatError, ModelError
from ..models.bayesian_networks import network_fault
from ..models.checks import fitting
from ..models.function import FEW, Function, compact, dense_function, many_functions
from ..models.model import Kind, Model
from .bayesian.network_draft import Refuse, checked_product
from .text.source import BLOCK_COMMENT, Source, check_deadline
from .text.tables import (
    MAX_AXES,
    cell_count,
    every_entry,
    full_table,
    read_domains,
    take_function,
    take_functions,
)
from .text.tokens import Tokens, WordStream, are_entries
from .text.written_words import WrittenFile

# Factors beside potentials are functions, each of at most that.
_MOST_SHIFT = 1e6
# No entry of a .uai is negative, and no exponent begins a number.
_NEGATIVE = re.compile(rb"(?<![0-9.eE])-(?:[0-9.]|inf)")


def holds_logarithms(source: Source) -> bool:
    """Whether entries are logarithms: by the name, or by negative ones where the name does not say .uai."""
    return source.suffix == ".lg" or (source.suffix != ".uai" and _NEGATIVE.search(source.data) is not None)


def exponentials(logs: NDArray[np.float64], shifts: bool) -> tuple[NDArray[np.float64], float]:
    """Return potentials, and the logarithm of a factor that belongs to all of them: 0 where doubles hold them without.

    Parameters
    ----------
    logs : ndarray
        Below infinity; minus infinity is the potential 0.
    shifts : bool
        Whether there may be a factor.

    Raises
    ------
    ValueError
        If doubles do not hold them; the message says what is expected.
    """
    finite = logs[logs > -math.inf]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if low >= -LARGEST_EXPONENT and high <= LARGEST_EXPONENT:
        return np.exp(logs), 0.0
    most = _MOST_SHIFT if shifts else LARGEST_EXPONENT
    if max(-low, high) > most:
        raise ValueError(f"natural logarithms from {-most:.0f} to {most:.0f}")
    if high - low > 2 * LARGEST_EXPONENT:
        raise ValueError(f"natural logarithms of a table within {2 * LARGEST_EXPONENT:.0f} of each other")
    shift = (low + high) / 2
    return np.exp(logs - shift), shift


def factors(tokens: Tokens, log: float) -> Iterator[Function]:
    """Yield functions of no variables whose product has this natural logarithm; none for 0."""
    count = math.ceil(abs(log) / LARGEST_EXPONENT)
    take_functions(tokens, count, 0)
    for _ in range(count):
        yield dense_function((), np.array(math.exp(log / count)))


# pyAgrum writes comments after a number sign: the variable's name after a scope of a Bayesian network. These tables
# list the first parent fastest, although the format lists it slowest.
_AGRUM = re.compile(rb"^[0-9][0-9 ]*   # \S", re.MULTILINE)
# pgmpy writes tables with the first variable of the scope fastest, and nothing else beside the numbers.
_PGMPY = re.compile(rb"BAYES\n\d+\n\d+(?: \d+)*\n\d+\n(?:\d+(?: \d+)+\n)+\n\d+\n")
_COMMENT = re.compile(rb"/\*.*?(?:\*/|\Z)|#[^\n]*", re.DOTALL)
_KINDS: dict[str, Kind] = {"MARKOV": "markov", "BAYES": "bayes"}
_OTHERS = {
    **dict.fromkeys(("ID", "LIMID"), "an influence diagram"),
    **dict.fromkeys(("SPARSE", "S-MARKOV", "S-BAYES"), "a network of sparse tables"),
    **dict.fromkeys(("CREDAL", "V-CREDAL", "H-CREDAL"), "a credal network"),
    **dict.fromkeys(("WCSP", "CFN", "COST"), "a cost network: write .wcsp or .cfn"),
    **dict.fromkeys(("DYNAMIC", "DBN"), "a dynamic network"),
    **dict.fromkeys(("PR", "MAR", "MAP", "MPE", "MMAP"), "an answer of an evaluation, not a model"),
}
_LOGS = ("entries are read as natural logarithms, as in .LG files, because some are negative",)


def read_uai(source: Source) -> Model:
    """Read a .uai file; in a ``BAYES`` file the last variable of each scope is the child.

    In an .LG file entries are natural logarithms. In a file with any other name they are logarithms if some are
    negative. Tables are in row-major order, with the last variable of a scope fastest (UAI 2008 evaluation). The order
    of pgmpy's tables is recognised.

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Returns
    -------
    Model
        Potentials or conditional probabilities, float64, an axis for each variable of a scope.

    Raises
    ------
    FormatError
        If the file is malformed, or a ``BAYES`` file no Bayesian network.
    """
    reversed_rows = _PGMPY.match(source.data) is not None
    agrum = b"#" in source.data and _AGRUM.search(source.data) is not None
    tokens = WordStream(source.blank(_COMMENT if b"#" in source.data else BLOCK_COMMENT))
    kind = _KINDS.get(tokens.peek(0).upper())
    if kind is None:
        other = _OTHERS.get(tokens.peek(0).upper())
        raise tokens.fail(0, "MARKOV or BAYES", other and f"{other}, which is not read")
    logs = holds_logarithms(source)
    n_vars = tokens.integer(1, "the number of variables", 0, len(tokens))
    dims = read_domains(tokens, 2, n_vars)
    n_functions = tokens.integer(2 + n_vars, "the number of functions", 0, len(tokens))
    network = _Network(tokens, kind, dims, n_functions, logs)
    taken = tokens.allowance.taken
    read = None
    if not agrum and n_functions >= FEW:
        with suppress(BudgetError, ValueError):
            read = _joint_tables(network)
    if read is None:
        tokens.allowance.taken = taken
        read = _single_tables(network, agrum)
    functions, places = read
    model = potential_model(kind, dims, functions, source.stem)
    if logs and source.suffix != ".lg":
        model = replace(model, notes=_LOGS)
    if kind != "bayes" or not source.checked:
        return model
    return checked_product(model, refusal(tokens, places), backwards=reversed_rows)


@dataclass(frozen=True, eq=False)
class _Network:
    """The beginning of a .uai file, and whether its entries are logarithms."""

    tokens: WordStream
    kind: Kind
    dims: tuple[int, ...]
    n_functions: int
    logs: bool

    def child(self, scope: Sequence[int]) -> int | None:
        """Return the variable whose distribution a table is."""
        return scope[-1] if self.kind == "bayes" and scope else None


def _single_tables(network: _Network, agrum: bool) -> tuple[list[Function], list[int]]:
    """Read functions one by one. Return them and where their tables start."""
    tokens, dims = network.tokens, network.dims
    at, scopes = 3 + len(dims), list[list[int]]()
    for _ in range(network.n_functions):
        scopes.append(read_scope(tokens, at, len(dims)))
        if agrum and network.kind == "bayes" and len(scopes[-1]) > 2:
            raise tokens.fail(at, "tables with the first parent slowest", "one of pyAgrum's; let it save .bif or .net")
        at += 1 + len(scopes[-1])
    functions, places, factor = [], [], 0.0
    for scope in scopes:
        try:
            function, shift = read_table(tokens, at, scope, dims, network.child(scope), network.logs)
        except FormatError as error:
            raise _with_hint(error) from None
        functions.append(function)
        places.append(at)
        factor += shift
        at += 1 + cell_count(scope, dims)
    check_end(tokens, at)
    return [*functions, *factors(tokens, factor)], places


def _joint_tables(network: _Network) -> tuple[list[Function], list[int]] | None:
    """Read functions from the numbers of the whole file, whose parts are the tables.

    Returns
    -------
    functions : list of Function
    places : list of int
        Where their tables start.
        None for both if something is wrong: functions are then read one by one, for the message.
    """
    tokens, dims = network.tokens, network.dims
    numbers = tokens.numbers(np.float64)
    if numbers is None or not are_entries(numbers, network.logs):
        return None
    tokens.allowance.take(numbers.nbytes, "its tables")
    take_functions(tokens, network.n_functions, 0)
    words: Any = numbers.data  # a memoryview, whose items are Python's floats
    at, arities, scopes = 3 + len(dims), list[int](), list[tuple[int, ...]]()
    for _ in range(network.n_functions):
        if at >= len(words) or not 0 <= words[at] < len(words):
            return None
        arities.append(int(words[at]))
        at += 1 + arities[-1]
    take_functions(tokens, 0, sum(arities))
    listed = numbers[3 + len(dims) : at]
    ends = np.cumsum(np.array(arities, np.int64) + 1)
    if len(listed) < ends[-1] or listed.min() < 0 or listed.max() >= max(len(dims), 1 + max(arities)):
        return None
    sizes, starts = np.append(dims, np.zeros(1 + max(arities), np.int64))[listed.astype(np.int64)], ends - 1 - arities
    sizes[starts] = 1
    with np.errstate(over="ignore"):
        cells = np.multiply.reduceat(sizes, starts, dtype=np.float64)
    if cells.min() < 1 or cells.sum() + len(cells) != len(words) - at:
        return None
    stops = at + np.cumsum(cells.astype(np.int64) + 1)
    places = stops - cells.astype(np.int64) - 1
    if (numbers[places] != cells).any() or not tokens.are_digits(np.append(np.arange(1, at), places)):
        return None
    flat, tables, factor = listed.astype(np.int64).tolist(), list[NDArray[np.float64]](), 0.0
    numbers.flags.writeable = False
    for arity, end, place, stop in zip(arities, ends.tolist(), places.tolist(), stops.tolist(), strict=True):
        if tokens.allowance.timed:
            check_deadline()
        scope, values, shift = tuple(flat[end - arity : end]), numbers[place + 1 : stop], 0.0
        if arity > MAX_AXES or len(set(scope)) < arity:
            return None
        if network.logs:
            values, shift = exponentials(values, shifts=network.child(scope) is None)
        scopes.append(scope)
        tables.append(values.reshape([dims[v] for v in scope]))
        factor += shift
    functions = map(compact, many_functions(scopes, tables, children=map(network.child, scopes)))
    return [*functions, *factors(tokens, factor)], places.tolist()


def refusal(tokens: Tokens, places: list[int]) -> Refuse:
    """Return a function that builds the error at a table, or at the end for a missing table."""
    return lambda f, *what: tokens.fail(len(tokens) if f is None else places[f], *what)


def _with_hint(error: FormatError) -> FormatError:
    """Say where logarithms are read, if a negative entry is wrong."""
    if not error.found.startswith("'-") or "at least 0" not in error.expected:
        return error
    return FormatError(error.path, error.line, error.expected, f"{error.found}: name a file of natural logarithms .LG")


def read_scope(tokens: Tokens, at: int, n_vars: int) -> list[int]:
    """Read a scope: the number of variables, then the variables."""
    arity = tokens.integer(at, "the number of variables of a scope", 0, len(tokens))
    take_function(tokens, arity)
    scope = tokens.integers(at + 1, at + 1 + arity, "a variable of the scope")
    for k, variable in enumerate(scope):
        if not 0 <= variable < n_vars:
            raise tokens.fail(at + 1 + k, f"a variable from 0 to {n_vars - 1}")
    return scope


def read_table(
    tokens: Tokens, at: int, scope: list[int], dims: tuple[int, ...], child: int | None, logs: bool = False
) -> tuple[Function, float]:
    """Read a table: its size, then its entries, the last variable of the scope fastest.

    Returns
    -------
    function : Function
    log : float
        The natural logarithm of a factor that belongs to it.
    """
    cells = cell_count(scope, dims)
    tokens.integer(at, "the number of table entries,", cells, cells)
    stop = min(at + 1 + cells, len(tokens))
    tokens.allowance.take(8 * (stop - at - 1), f"a table of {cells} entries")
    values, log = tokens.table(at + 1, stop, logs), 0.0
    if len(values) < cells:
        raise tokens.fail(len(tokens), f"{cells} table entries")
    if logs:
        try:
            values, log = exponentials(values, shifts=child is None)
        except ValueError as error:
            found = f"from {values[values > -inf].min():g} to {values.max():g}"
            raise tokens.fail(at + 1, str(error), found) from None
    return full_table(scope, dims, values, tokens, at, child), log


def check_end(tokens: Tokens, at: int) -> None:
    """Refuse anything behind the last table."""
    if at < len(tokens):
        raise tokens.fail(at, "the end of the file after the last table")


def potential_model(kind: Kind, dims: tuple[int, ...], functions: list[Function], name: str) -> Model:
    """Build a model whose file names neither variables nor states."""
    n_vars = len(dims)
    names = tuple(f"x{v}" for v in range(n_vars))
    return Model(kind, names, dims, (None,) * n_vars, fitting(kind, dims, functions), name=name)


# The .erg format of the UAI 2006 and 2008 evaluations: Bayesian networks.


def read_erg(source: Source) -> Model:
    """Read a .erg file: for each variable its parents, then for each variable its distribution.

    Names of the variables and labels of the states follow in most files.

    Raises
    ------
    FormatError
        If the file is malformed or no Bayesian network.
    """
    tokens = WordStream(source.blank(BLOCK_COMMENT))
    n_vars = tokens.integer(0, "the number of variables", 0, len(tokens))
    dims = read_domains(tokens, 1, n_vars)
    at = 1 + n_vars
    scopes: list[list[int]] = []
    for variable in range(n_vars):
        parents = read_scope(tokens, at, n_vars)
        if variable in parents:
            raise tokens.fail(at, f"parents of variable {variable}", "the variable itself")
        at += 1 + len(parents)
        scopes.append([*parents, variable])
    functions, places = [], []
    for variable, scope in enumerate(scopes):
        places.append(at)
        functions.append(read_table(tokens, at, scope, dims, variable)[0])
        at += 1 + cell_count(scope, dims)
    model = _named(tokens, at, potential_model("bayes", dims, functions, source.stem))
    return checked_product(model, refusal(tokens, places)) if source.checked else model


def _named(tokens: WordStream, at: int, model: Model) -> Model:
    """Read what may follow the tables: all variable names, then all state labels."""
    n_vars, dims = len(model.dims), model.dims
    labels_at = at + n_vars
    ends = list(accumulate(dims, initial=labels_at))
    if len(tokens) == at:
        return model
    if len(tokens) not in (labels_at, ends[-1]):
        what = f"the end of the file, {n_vars} names, or as many names and {sum(dims)} labels"
        raise tokens.fail(at, what, f"{len(tokens) - at} words")
    tokens.allowance.take(64 * (len(tokens) - at), "names")
    names = _words(tokens, at, labels_at)
    if len(set(names)) < n_vars:
        raise tokens.fail(at, "different variable names")
    if len(tokens) == labels_at:
        return replace(model, names=names)
    states = tuple(_words(tokens, i, j) for i, j in pairwise(ends))
    for labels, start in zip(states, ends, strict=False):
        if len(set(labels)) < len(labels):
            raise tokens.fail(start, "different states of a variable")
    return replace(model, names=names, states=states)


def _words(tokens: WordStream, start: int, stop: int) -> tuple[str, ...]:
    return tuple(word for _, part in tokens.parts(start, stop) for word in part)


# The UAI format: probabilities and potentials, every entry of every table.


def uai_file(model: Model) -> WrittenFile:
    """Return the lines of a file, and what is not as in the model.

    Raises
    ------
    ModelError
        If the model holds costs, or, where lines are made, a table would be too long.
    """
    if model.kind == "cost":
        raise ModelError("a cost model cannot be written as .uai, which holds probabilities; write .wcsp or .cfn")
    readable, notes = _readable(model)
    return WrittenFile(_lines(readable), notes)


def _readable(model: Model) -> tuple[Model, tuple[str, ...]]:
    """Return potentials in place of distributions that are no Bayesian network, which would not be read again."""
    if model.kind != "bayes":
        return model, ()
    fault = network_fault(model.functions, model.names, model.dims, model.states)
    if fault is None:
        return model, ()
    functions = tuple(function.changed(child=None) for function in model.functions)
    note = f"tables are written as potentials (MARKOV), because they do not form a Bayesian network: {fault.found}"
    return replace(model, kind="markov", functions=functions), (note,)


def _lines(model: Model) -> Iterator[str]:
    functions = [f.child_last() if model.kind == "bayes" else f for f in model.functions]
    yield "BAYES" if model.kind == "bayes" else "MARKOV"
    yield str(len(model.dims))
    yield " ".join(map(str, model.dims))
    yield str(len(functions))
    for f in functions:
        yield " ".join(map(str, (len(f.scope), *f.scope)))
    for f in functions:
        values = every_entry(f, model.dims, ".uai").ravel()
        yield f"\n{values.size}"
        yield " ".join(map(repr, values.tolist()))
