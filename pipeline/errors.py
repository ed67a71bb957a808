"""The exceptions that bucketflow raises on purpose, each with one sentence and an exit code.

This module also formats names, numbers and sizes in messages, parses sizes and rates of users, and gives public classes
and functions their public names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import wraps
from inspect import unwrap
from itertools import islice
from math import isfinite, log2
from numbers import Integral
from os import PathLike
from types import FunctionType
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

from ..storage.faults import file_fault


def public(named: T) -> T:
    """Let a class or function say that it belongs to ``bucketflow``, as in ``<class 'bucketflow.Model'>``."""
    named.__module__ = __name__.partition(".")[0]
    return named


class ShortDir:
    """Let ``dir()`` and the completion of notebooks list the names that users need; the other names work too."""

    _SHOWN: ClassVar[tuple[str, ...]]

    def __dir__(self) -> Iterable[str]:
        return self._SHOWN


P = ParamSpec("P")
T = TypeVar("T")
N = TypeVar("N", bound=float | Decimal)

TUNE_REMOVED: Final = (
    "`tune` was removed in this version, because learnt launches gained too little; there is nothing to do instead"
)

# Text that is safe to show on a terminal and in a message: text from files and users, numbers, and sizes.

# No part of a path is longer, so that paths can be copied from a message.
_LONGEST_WORD = 255
_LONG_WORD = re.compile(rf"[^\s/]{{{_LONGEST_WORD + 1},}}")
_LONGEST_MESSAGE = 2000
# Words that one which is not known is compared with: some tenth of a second.
_COMPARED_WORDS = 20_000
#: Sums of numbers about 1 are right to this many digits after the point.
NOISE_DIGITS = 12
# Hopeless plans need more than any float says.
_LARGEST = int(sys.float_info.max)


def printable(text: str, width: int = 60) -> str:
    """Return text on one line, unprintable characters escaped, and cut in the middle beyond ``width`` characters."""
    return "".join(map(_escaped, _shortened(text, width)))


def message(text: str) -> str:
    """Return a message without control characters, long words and lists without their middle."""
    words = _LONG_WORD.sub(lambda word: _shortened(word.group(), _LONGEST_WORD), text)
    return "\n".join("".join(map(_escaped, line)) for line in _shortened(words, _LONGEST_MESSAGE).split("\n"))


def logarithm(value: float) -> str:
    """Write log10 of a probability with twelve digits; the rounding of sums about 1 is not shown."""
    return f"{round(value, NOISE_DIGITS) + 0.0:.12g}"


def rounded_sum(value: float, digits: int = 6) -> str:
    """Write a sum or difference of numbers about 1, such as bits and slopes, and show rounding noise as 0.

    >>> rounded_sum(1.7e-16), rounded_sum(-3e-17), rounded_sum(0.12345678)
    ('0', '0', '0.123457')
    """
    return f"{round(value, NOISE_DIGITS) + 0.0:.{digits}g}"


def finite(value: N | None) -> N | None:
    """Return a number, or None if it is infinite, as JSON has it; None stays None."""
    return value if value is not None and isfinite(value) else None


def short_number(value: float | Integral, digits: int = 4) -> str:
    """Write a number as tables and bars have it: an integer exactly, another number with a few digits.

    A tiny probability is no rounding noise, so it is not shown as 0; see :func:`rounded_sum` for sums.

    >>> short_number(1234567), short_number(0.123456), short_number(-0.0), short_number(float("-inf"))
    ('1,234,567', '0.1235', '0', '-∞')
    """
    if isinstance(value, Integral):
        return f"{int(value):,}"
    return f"{value or 0.0:.{digits}g}" if isfinite(value) else "∞" if value > 0 else "nan" if value != value else "-∞"


def power_of_ten(log10: float) -> str:
    """Write a probability with its log10; below 1e-300 the log10 alone.

    >>> power_of_ten(-1.3183), power_of_ten(-400.0)
    ('0.04805 (log10 -1.3183)', 'log10 -400')
    """
    text = f"log10 {logarithm(log10)}"
    return f"{10.0**log10:.4g} ({text})" if -300 < log10 < 300 else text


def shown_number(value: object) -> str:
    """Write a cost, or log10 of a probability; None is what is not known."""
    if value is None:
        return "unknown"
    return logarithm(value) if isinstance(value, float) else str(value)


def format_bytes(count: int) -> str:
    """Write a number of bytes with a decimal unit, as ``--memory`` reads it."""
    value = float(min(count, _LARGEST))
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 1000 or unit == "PB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError


def counted(count: int, noun: str) -> str:
    """Write how many things there are.

    >>> counted(1, "parameter"), counted(1200, "parameter")
    ('1 parameter', '1,200 parameters')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def enough_bytes(count: int) -> str:
    """Write a required number of bytes, rounded up so that the written number suffices as a budget.

    >>> format_bytes(1_060_491), enough_bytes(1_060_491)
    ('1.06 MB', '1.07 MB')
    """
    unit = 10 ** max(len(str(count)) - 3, 0)
    return format_bytes(-(-count // unit) * unit)


def size_option(count: int) -> str:
    """Write a number of bytes as the value of an option, rounded down so that the value does not exceed it.

    >>> size_option(219_999_999), size_option(1_239_000), size_option(17)
    ('219MB', '1.23MB', '17B')
    """
    unit = 10 ** max(len(str(count)) - 3, 0)
    return format_bytes(count // unit * unit).replace(" ", "")


def format_count(count: int) -> str:
    """Write a number with three digits, including a number too large for a float."""
    return f"{float(count):.3g}" if count < _LARGEST else f"2^{count.bit_length() - 1}"


def format_cells(count: int) -> str:
    """Write a number of cells, with its size as a power of two where it is large."""
    return f"{count:,}" if count < 10_000 else f"{float(count):.3g} (2^{log2(count):.1f})"


def meant(wrong: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: "; did you mean …?" with a similar known word, or "".

    Of very many known words the first are looked at.

    >>> meant("Strom", ["Season", "Storm"])
    "; did you mean 'Storm'?"
    """
    from difflib import get_close_matches

    words = {word.casefold(): word for word in islice(known, _COMPARED_WORDS)}
    near = get_close_matches(str(wrong)[:_LONGEST_WORD].casefold(), words, n=1)
    return f"; did you mean {words[near[0]]!r}?" if near else ""


#: Names that a message lists; then it says how many more there are.
MOST_NAMED = 8


def listed(words: Sequence[str]) -> str:
    """Return words as a sentence lists them: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def shorten(text: str, width: int = 40) -> str:
    """Return the text itself, or its beginning when it is longer than ``width`` characters."""
    return text if len(text) <= width else text[: width - 3] + "..."


def json_fault(error: ValueError | RecursionError) -> str:
    """Return a description of the fault in a text that ``json.loads`` refused, with its column."""
    if said := getattr(error, "msg", ""):  # a JSONDecodeError; testing for the attribute avoids importing its module
        return f"{said} at column {getattr(error, 'colno', 0)}"
    return "brackets nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def encodable(text: str) -> str:
    """Return text that a file in UTF-8 can hold: lone surrogates, as JSON and odd file names have them, are escapes."""
    return text.encode(errors="backslashreplace").decode()


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width * 2 // 3]}…{text[len(text) - width // 4 :]}"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


@public
class BucketflowError(Exception):
    """Base of all expected failures. ``exit_code`` is what the command line returns.

    Examples
    --------
    >>> import bucketflow
    >>> try:
    ...     bucketflow.load("nowhere.uai")
    ... except bucketflow.BucketflowError as error:
    ...     print(error)
    nowhere.uai: no such file
    """

    exit_code = 2

    def __str__(self) -> str:
        return message(super().__str__())


@public
class FormatError(BucketflowError):
    """A malformed input file.

    Parameters
    ----------
    path : str
        The file as the user named it.
    line : int or None
        One-based line, or None when no line is to blame (an empty file, a damaged archive).
    expected, found : str
        Content that the format requires at this place, and the content found there.

    Examples
    --------
    >>> import bucketflow
    >>> with open("odd.uai", "w") as file:
    ...     _ = file.write("MARKOV\\n2\\n2 two\\n")
    >>> try:
    ...     bucketflow.load("odd.uai")
    ... except bucketflow.FormatError as error:
    ...     print(error)
    odd.uai:3: expected a domain size, found 'two'
    """

    path: str
    line: int | None
    expected: str
    found: str

    def __init__(self, path: str, line: int | None, expected: str, found: str):
        self.path, self.line, self.expected, self.found = path, line, expected, found
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: expected {expected}, found {found}")

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, int | None, str, str]]:
        return FormatError, (self.path, self.line, self.expected, self.found)


class UnreadableError(FormatError):
    """A file that holds no text to read: it is missing, a folder, not permitted, empty, binary or not in UTF-8.

    Parameters
    ----------
    path : str
        The file as the user named it.
    fault : str
        What is wrong with the file, and what to do.
    """

    def __init__(self, path: str, fault: str):
        self.path, self.line, self.expected, self.found = path, None, "a readable file", fault
        BucketflowError.__init__(self, f"{path}: {fault}")

    def __reduce__(self) -> tuple[type[UnreadableError], tuple[str, str]]:  # type: ignore[override]
        return UnreadableError, (self.path, self.found)


def unreadable(path: str | PathLike[str], error: BaseException, hint: str = "") -> UnreadableError:
    """Return the error to raise if a file cannot be opened, read or decoded; ``hint`` is appended to the sentence."""
    return UnreadableError(str(path), file_fault(error, path) + hint)


@public
class ModelError(BucketflowError):
    """A model, evidence or query that contradicts itself (an unknown variable, a state out of range).

    Examples
    --------
    >>> import bucketflow
    >>> try:
    ...     bucketflow.solve("diagnosis", evidence={"Strom": "yes"})
    ... except bucketflow.ModelError as error:
    ...     print(error)
    evidence names 'Strom', which is not a variable of the model; did you mean 'Storm'?
    """


class KeywordError(ModelError, TypeError):
    """A keyword that a public function does not have."""


class MissingNameError(ModelError, KeyError):
    """A name that an answer does not have; with the name that was probably meant."""


@public
class BudgetError(BucketflowError):
    """A plan that does not fit its budget; raised before anything runs, with both numbers.

    Examples
    --------
    >>> import bucketflow
    >>> try:
    ...     bucketflow.solve("grid", "partition", memory="1kB", fit="refuse")
    ... except bucketflow.BudgetError as error:
    ...     print("refused")
    refused
    """

    exit_code = 3


@public
class IncompatibleRunError(BucketflowError):
    """A run directory that belongs to another model, query or version, or that cannot be used.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.solve("satellite", workdir="run")
    >>> try:
    ...     bucketflow.solve("frequency", workdir="run")
    ... except bucketflow.IncompatibleRunError as error:
    ...     print(str(error).partition(":")[0])
    run belongs to another run
    """


@public
class StoppedError(BucketflowError):
    """A run that stopped before its answer and can be resumed: a full disk, Ctrl-C, a lost cluster.

    Examples
    --------
    >>> import bucketflow
    >>> def stop(done: int, planned: int) -> None:
    ...     raise KeyboardInterrupt
    >>> try:
    ...     bucketflow.solve("grid", "partition", workdir="run", progress=stop, memory="2MB", fit="spill")
    ... except bucketflow.StoppedError:
    ...     found = bucketflow.resume("run")
    >>> round(found.log10, 4)
    70.4914
    """

    exit_code = 4


@public
class DeadlineError(BucketflowError):
    """A deadline that passed before anything was known, while the model was read.

    Examples
    --------
    >>> import bucketflow
    >>> issubclass(bucketflow.DeadlineError, bucketflow.BucketflowError)
    True
    """

    exit_code = 4


@public
class InternalError(BucketflowError):
    """An answer that failed its own check: a bug, never presented as an answer.

    Examples
    --------
    >>> import bucketflow
    >>> issubclass(bucketflow.InternalError, bucketflow.BucketflowError)
    True
    """

    exit_code = 1


def checks_keywords(function: Callable[P, T], name: str = "") -> Callable[P, T]:
    """Make a public function refuse unknown keywords, and suggest the keyword that was probably meant.

    Parameters
    ----------
    function : callable
        A function without ``**options``, or with the keywords of a typed dictionary: ``**options: Unpack[Keywords]``.
    name : str, optional
        The name that users call, if it differs from the function's name.
    """
    inner: Any = unwrap(function)
    code, unpacked = inner.__code__, inner.__annotations__.get("options", "")
    known = {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]} - {"self", "cls"}
    if unpacked.startswith("Unpack["):
        known |= {*inner.__globals__[unpacked.removeprefix("Unpack[").removesuffix("]")].__annotations__}
    called = name or inner.__name__

    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs.keys() <= known:
            raise refuse(kwargs)
        return function(*args, **kwargs)

    def refuse(kwargs: Mapping[str, object]) -> KeywordError:
        wrong = next(word for word in kwargs if word not in known)
        hint = meant(wrong, sorted(known)) or f"; known are {', '.join(sorted(known))}"
        return KeywordError(f"{called}() got an unexpected keyword {wrong!r}{hint}")

    # annotations are looked up where the function is written
    made: Any = FunctionType(checked.__code__, inner.__globals__, inner.__name__, None, checked.__closure__)
    return wraps(function)(made)


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[None]:
    """Turn a failure to write a file into one sentence.

    Raises
    ------
    ModelError
        Naming the file and the reason.
    """
    try:
        yield
    except OSError as error:
        raise ModelError(f"cannot write {path}: {file_fault(error, path, 'write')}") from error


_SIZE = re.compile(r"(?ia)(.*?)(?:([kmgtp])(i?))?b?")


def parse_size(size: int | str) -> int:
    """Read a size in bytes, as a number or as ``"4GB"`` or ``"512MiB"``.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        found = -1 if isinstance(size, bool) else size if isinstance(size, int) else _parsed(size)
    except (ValueError, OverflowError, TypeError, AttributeError):
        found = -1
    if found < 0:
        raise ModelError(f"{size!r} is not a size; write for example 4GB or 512MiB")
    return found


def _parsed(size: float | str) -> int:
    """Read a number and its unit as Dask does, which takes a tenth of a second to be imported."""
    if not isinstance(size, str):
        return int(size)
    parts = _SIZE.fullmatch(size.replace(" ", ""))
    if parts is None or not parts[0]:
        raise ValueError(size)
    number, prefix, binary = parts.groups()
    unit = (1024 if binary else 1000) ** ("kmgtp".index(prefix.lower()) + 1) if prefix else 1
    return int(float(number or 1) * unit)


def parse_rate(rate: float | str) -> float:
    """Read bytes per second, as a number or as ``"1GB/s"``.

    Raises
    ------
    ModelError
        If the rate is not a size per second, or is not above 0.
    """
    try:
        text = rate.replace(" ", "").removesuffix("/s") if isinstance(rate, str) else rate
        found = parse_size(int(text) if isinstance(text, float) else text)
    except (ModelError, ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise ModelError(f"{rate!r} is not a rate above 0; write for example 1GB/s")
    return float(found)
