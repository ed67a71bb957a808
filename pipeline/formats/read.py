"""Read files of models, distributed problems and variables, and evidence in any form."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import count as counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster.memory import default_memory_bytes
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import CELL_BYTES
from ..errors import BudgetError, DeadlineError, FormatError, ModelError, format_bytes, shorten
from ..examples import file_or_example
from ..models.dcop import Dcop, model_of, with_agents
from ..models.findings import is_state, likelihood, named_findings
from ..models.model import Model, checked_model
from ..options import parse_size
from .registry import detect_format
from .text.source import BLOCK_COMMENT, Source, read_source
from .text.tokens import WordStream
from .text.unread import beside_a_model


def read_evidence(source: Source, model: Model) -> dict[int, int]:
    """Read an evidence file into variable index → state index.

    ``n v x v x ...`` and ``1 n v x ...`` (one sample) are both in use; the number of tokens tells them
    apart. Variables are numbers or names of the model, states are numbers or labels; ``/* */`` is a
    comment, and an empty file or a lone ``0`` observes nothing.

    Raises
    ------
    FormatError
        If the file is malformed, or names a variable or state that the model does not have.
    """
    if what := beside_a_model(source.suffix):
        raise FormatError(source.path, None, "an evidence file", what)
    tokens = WordStream(source.blank(BLOCK_COMMENT))
    if not len(tokens):
        return {}
    start = 0
    if len(tokens) % 2 == 0:
        tokens.integer(0, "one sample, a number", 1, 1)
        start = 1
    count = tokens.integer(start, "the number of observed variables", 0, len(model.own_names))
    stop = start + 1 + 2 * count
    if stop != len(tokens):
        samples = _samples(tokens)
        found = f"{samples} samples, of which a file may have one" if samples > 1 else None
        raise tokens.fail(min(stop, len(tokens)), f"{count} observed variables with their states", found)
    states: dict[int, int] = {}
    for at in range(start + 1, stop, 2):
        variable = _variable(tokens, at, model)
        state = _state(tokens, at + 1, model, variable)
        if states.setdefault(variable, state) != state:
            raise tokens.fail(at, f"variable {model.names[variable]!r} in one state only")
    return states


def _samples(tokens: WordStream) -> int:
    """Return the number of samples, if a file begins with it and has a list ``n v x v x ...`` for each; otherwise 0."""
    at = samples = 0
    while (word := tokens.peek(at + 1)).isdecimal() and len(word) < 10:
        at, samples = at + 1 + 2 * int(word), samples + 1
    return samples if at + 1 == len(tokens) and tokens.peek(0) == str(samples) else 0


def _variable(tokens: WordStream, at: int, model: Model) -> int:
    named = model.index.get(tokens.peek(at))
    return tokens.integer(at, "a variable", 0, len(model.own_names) - 1) if named is None else named


def _state(tokens: WordStream, at: int, model: Model, variable: int) -> int:
    try:
        return model.state_index(variable, tokens.peek(at))
    except ModelError:
        names = model.state_names(variable)
        numbers = "" if names.are_values else f" from 0 to {names.size - 1}"
        raise tokens.fail(at, f"a state of variable {names.name!r}{numbers}") from None


_REMARK = re.compile(rb"^[ \t]*#[^\n]*", re.MULTILINE)


def read_variables(source: Source, model: Model) -> tuple[int, ...]:
    """Read a ``.query`` or ``.map`` file of the UAI evaluations: how many variables, then each by number or name.

    Lines that begin with ``#`` are comments.

    Raises
    ------
    FormatError
        If the file is malformed, or names a variable that the model does not have, or one twice.
    """
    tokens = WordStream(source.blank(BLOCK_COMMENT).blank(_REMARK))
    count = tokens.integer(0, "how many variables follow", 0, len(model.names))
    if count + 1 != len(tokens):
        raise tokens.fail(min(count + 1, len(tokens)), f"{count} variables")
    found: dict[int, None] = {}
    for at in range(1, count + 1):
        if (variable := _variable(tokens, at, model)) in found:
            raise tokens.fail(at, "each variable once")
        found[variable] = None
    return tuple(sorted(found))


def variables_of(model: Model, given: str | os.PathLike[str] | Iterable[str]) -> tuple[int, ...]:
    """Read variables of a model, ascending: names, one text of them with commas between, or a file of them.

    Raises
    ------
    ModelError
        If a name is not one of the model.
    FormatError
        If a file is malformed, or names a variable that the model does not have.
    """
    if isinstance(given, os.PathLike) or (isinstance(given, str) and os.path.exists(given)):
        return read_variables(read_source(given, default_memory_bytes()), model)
    if not isinstance(given, Iterable):
        raise ModelError(f"{given!r} are not names of variables")
    names = [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else [*given]
    for name in names:
        if not isinstance(name, str) or name not in model.index:
            neither = ", and not a file" if isinstance(given, str) else ""
            raise ModelError(f"{name!r} is not a variable of the model{neither}")
    return tuple(sorted({model.index[name] for name in names}))


def load(
    path: str | os.PathLike[str],
    evidence_path: str | os.PathLike[str] | None = None,
    memory: int | None = None,
    *,
    check: bool = True,
) -> Model:
    """Read a model, and evidence on it if a second file is given, within ``memory`` bytes.

    The format follows from the name (:func:`~.registry.formats` lists them; ``.gz``, ``.xz`` or ``.lzma`` may
    follow), which the content must not contradict, or else from the content. Of a distributed problem it is
    the model without its agents. Evidence files beside the model are never read on their own. A Bayesian network is
    checked, unless ``check`` is False.

    Raises
    ------
    FormatError
        If a file cannot be read, is malformed, is of no known format, or its name and content contradict each other.
    BudgetError
        If reading takes more than ``memory``, by default most of the free memory.
    DeadlineError
        If the deadline of :func:`~.text.source.reading_within` passes.
    """
    model = model_of(load_any(path, memory, check=check))
    return model if evidence_path is None else replace(model, evidence=load_evidence(evidence_path, model))


GivenModel = Model | str | os.PathLike[str]
"""A model, the file that holds it, or the name of an example."""


def load_named(path: str | os.PathLike[str], memory: int | str | None = None, *, check: bool = True) -> Model:
    """Read a model, or an example by its name, and keep where it is from; see :func:`load`."""
    found = file_or_example(path)
    model = model_of(load_any(found, None if memory is None else parse_size(memory), check=check))
    return replace(model, source=os.path.abspath(found))


def given_model(model: GivenModel, memory: int | str | None = None) -> Model:
    """Return a model, read if the file or the example is given that holds it."""
    return load_named(model, memory) if isinstance(model, str | os.PathLike) else checked_model(model)


def load_dcop(
    path: str | os.PathLike[str], agents_path: str | os.PathLike[str] | None = None, memory: int | None = None
) -> Dcop:
    """Read a distributed problem within ``memory`` bytes; who owns what stands in the file, or in a second one.

    In a file without agents every variable has one of its own, which has its name.

    Raises
    ------
    FormatError
        If a file cannot be read, is malformed, or is of no known format.
    ModelError
        If the model holds probabilities, or a variable has no agent.
    BudgetError
        If reading takes more than ``memory``, by default most of the free memory.
    """
    found = load_any(path, memory)
    if agents_path is not None:
        from .dcop.pydcop_agents import read_owners_file

        return read_owners_file(read_source(agents_path, default_memory_bytes() if memory is None else memory), found)
    return with_agents(found)


def load_any(path: str | os.PathLike[str], memory: int | None = None, *, check: bool = True) -> Model | Dcop:
    """Read a model as :func:`load` does, with its agents where the format has some."""
    try:
        source = read_source(path, default_memory_bytes() if memory is None else memory)
        source = source if check else replace(source, checked=False)
        with _no_search_for_cycles():
            found = detect_format(source).read(source)
    except MemoryError:
        raise BudgetError(f"{os.fspath(path)}: reading it takes more memory than this process can get") from None
    except DeadlineError as error:
        raise DeadlineError(f"{os.fspath(path)}: {error}") from None
    _check_states(source, model_of(found))
    return found


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Read without Python's search for cycles: it takes half the time of large files, and readers build no cycles.

    After the first read of a process, all objects move to the oldest generation. Otherwise the next searches would move
    them after examining each object. Later reads move nothing. Each move also resets the counts that start searches, so
    a process that reads again and again would never free objects in cycles. If the program itself has frozen objects,
    nothing is moved.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if next(_reads) == 0 and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


_reads = counter()


def _check_states(source: Source, model: Model) -> None:
    """Refuse domains whose states alone, one number each in several arrays, do not fit memory.

    Raises
    ------
    BudgetError
        If they do not.
    """
    allowed, largest = source.allowance.memory, max(model.dims, default=0)
    needed = 4 * CELL_BYTES * sum(model.dims)
    if needed > allowed:
        raise BudgetError(
            f"{source.path}: its domains of up to {largest} states need {format_bytes(needed)} of memory, allowed "
            f"{format_bytes(allowed)}; if the file is what it should be, give a larger --memory"
        )


def load_evidence(path: str | os.PathLike[str], model: Model) -> dict[int, int]:
    """Read an evidence file, or the evidence of an example by its name, into variable index → state index.

    Raises
    ------
    FormatError
        If the file is malformed or does not fit the model.
    """
    return read_evidence(read_source(file_or_example(path), default_memory_bytes()), model)


def split_evidence(model: Model, evidence: Any) -> tuple[dict[int, int], dict[int, NDArray[Any]]]:
    """Read evidence in any form, and return observed states and likelihood vectors, both by variable index.

    Parameters
    ----------
    model : Model
        Its own evidence is included.
    evidence : mapping, pandas Series, text, path or None
        Findings by name of a variable, a list ``x=1,y=no``, or a file.

    Raises
    ------
    ModelError
        If a name, a state or a likelihood does not fit the model, or a variable is observed in two states.
    FormatError
        If a file is malformed or does not fit the model.
    """
    evidence = named_findings(evidence)
    if evidence is None:
        return dict(model.evidence), {}
    if isinstance(evidence, str) and "=" in evidence and not os.path.exists(evidence):
        evidence = evidence_of(model, [evidence])
    elif isinstance(evidence, str | os.PathLike):
        evidence = model.named(load_evidence(evidence, model))
    if not isinstance(evidence, Mapping):
        raise ModelError(f"evidence is a mapping of names to states, or a file, not {evidence!r}")
    states, soft = dict[str, Any](), dict[int, NDArray[Any]]()
    for name, finding in evidence.items():
        variable = model.variable(name, "evidence names")
        if isinstance(finding, Sequence | np.ndarray) and not is_state(model, variable, finding):
            soft[variable] = likelihood(model, variable, finding)
        else:
            states[name] = finding
    return model.observe(states), soft


Finding = str | int | tuple[float, ...]
"""A state's label or index, or one likelihood a state."""
Pair = tuple[str, Finding]

_END = re.compile(r"\s*(?:,|$)")
_BLANKS = re.compile(r"[\s,]*")
_EQUALS = re.compile(r"\s*=\s*")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_BETWEEN = re.compile(r",(?![^\[]*\])")
_LIKELIHOODS = re.compile(r"\[([^\[\]]*)\]")


def evidence_of(model: Model, texts: Sequence[str]) -> dict[str, int | str | list[float]] | None:
    """Read every ``--evidence``: a file if one is there, otherwise a list; None where none is given.

    Returns
    -------
    dict of str to str, int or list of float
        Variable name → label of a state, its index where it has none, or a likelihood for each state. The model's own
        evidence is included.

    Raises
    ------
    ModelError
        If a list or a name is wrong, or a variable is observed in two states, or in one and by likelihoods.
    """
    if not texts:
        return None
    pairs = [pair for text in texts for pair in _pairs(model, text)]
    states = [(name, finding) for name, finding in pairs if not isinstance(finding, tuple)]
    found: dict[str, int | str | list[float]] = model.named(model.observe(states))
    for name, finding in pairs:
        if isinstance(finding, tuple):
            if name in dict(states) or isinstance(found.get(name), list):
                raise ModelError(f"the evidence names {name!r} twice; likelihoods of it stand alone")
            found[name] = likelihood(model, model.index[name], finding).tolist()
    return found


def _pairs(model: Model, text: str) -> Iterable[Pair]:
    if os.path.exists(file_or_example(text)):
        return [*model.named(load_evidence(text, model)).items()]
    if "=" not in text:
        raise ModelError(f"the evidence {text!r} is neither a file nor a list like x=1,y=0")
    return _List(model, text).pairs()


@dataclass
class _List:
    """A list ``x=v,y=w``, read with the names and labels of a model, which may hold commas, blanks and equals signs.

    It is read from left to right in all possible ways; at each place the first two are kept. A list with two readings
    is refused; quotes decide, as in CSV.
    """

    model: Model
    text: str

    def pairs(self) -> tuple[Pair, ...]:
        """Return the pairs of the only way that the list can be read.

        Raises
        ------
        ModelError
            If there is none, or are several.
        """
        ends = len(self.text)
        places = [_after_blanks(self.text, 0)]
        ways: dict[int, list[_Way]] = {places[0]: [_Way(None, None)]}
        while places:
            place = min(places)
            places.remove(place)
            if place == ends:
                break
            for pair, end in self._next(place):
                if end not in ways:
                    ways[end] = []
                    places.append(end)
                ways[end] += [_Way(before, pair) for before in ways[place]][: 2 - len(ways[end])]
        found = ways.get(ends, [])
        if len(found) > 1:
            one, other = (way.pairs()[-1] for way in found)
            shown = f"{one[0]}={one[1]}" if one != other else shorten(self.text)
            raise ModelError(
                f"the evidence {self.text!r} can be read in several ways, {shown!r} among them; put names and labels "
                'with commas in quotes: x="a,b"'
            )
        return found[0].pairs() if found else self._failed()

    def _next(self, place: int) -> Iterator[tuple[Pair, int]]:
        """Yield the pairs that may stand at a place, and where the next one would begin."""
        seen = set()
        for name, at in self._names(place):
            for finding, end in self._findings(name, at):
                if (name, finding, end) not in seen:
                    seen.add((name, finding, end))
                    yield (name, finding), _after_blanks(self.text, end)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.model.names), default=0)

    def _names(self, place: int) -> Iterator[tuple[str, int]]:
        """Yield the names of variables that stand at a place before a sign of equality, and where their states do."""
        if quoted := _QUOTED.match(self.text, place):
            name, equals = quoted[1].replace('""', '"'), _EQUALS.match(self.text, quoted.end())
            if equals and name in self.model.index:
                yield name, equals.end()
        last = place + self._longest + 1
        for equals in _EQUALS.finditer(self.text, place):
            if equals.start() > last:
                return
            if (name := self.text[place : equals.start()].strip()) in self.model.index:
                yield name, equals.end()

    def _findings(self, name: str, at: int) -> Iterator[tuple[Finding, int]]:
        """Yield what may be meant at a place, and where it ends: a quoted state, a label, likelihoods, or a word."""
        text, variable = self.text, self.model.index[name]
        if (quoted := _QUOTED.match(text, at)) and _END.match(text, quoted.end()):
            yield from self._known(variable, quoted[1].replace('""', '"'), quoted.end())
        labels = self.model.states[variable] or ()
        for label in labels:
            if text.startswith(label, at) and _END.match(text, at + len(label)):
                yield label, at + len(label)
        several = _LIKELIHOODS.match(text, at)
        if several and several[0] not in labels and _END.match(text, several.end()):
            yield from _numbers(several[1], several.end())
        comma = text.find(",", at)
        end = len(text) if comma < 0 else comma
        yield from self._known(variable, text[at:end].strip(), end)

    def _known(self, variable: int, word: str, end: int) -> Iterator[tuple[Finding, int]]:
        try:
            yield self.model.label(variable, self.model.state_index(variable, word)), end
        except ModelError:
            return

    def _failed(self) -> tuple[Pair, ...]:
        """Raise the error, under the assumption that no name and no label has a comma."""
        if self.text.count('"') % 2:
            raise ModelError(f"the evidence {self.text!r} has a quote that is not closed")
        for item in filter(None, map(str.strip, _BETWEEN.split(self.text))):
            name, sign, state = item.rpartition("=")
            if not sign or not name or not state:
                raise ModelError(f"the evidence has {item!r} where x=v is expected")
            variable = self.model.variable(name.strip(), "evidence names")
            if "[" not in state:
                self.model.state_index(variable, state)
        raise ModelError(f"the evidence {self.text!r} is not a list like x=1, y=yes or z=[0.2, 0.8]")


@dataclass(frozen=True)
class _Way:
    """One way to read a list as far as some place: a pair and what is before it."""

    before: _Way | None
    pair: Pair | None

    def pairs(self) -> tuple[Pair, ...]:
        """All pairs, in their order."""
        found: list[Pair] = []
        way: _Way | None = self
        while way is not None and way.pair is not None:
            found.append(way.pair)
            way = way.before
        return tuple(found[::-1])


def _after_blanks(text: str, place: int) -> int:
    """Return where what comes after blanks and commas begins."""
    found = _BLANKS.match(text, place)
    return found.end() if found else place


def _numbers(text: str, end: int) -> Iterator[tuple[tuple[float, ...], int]]:
    """Yield the numbers of a text, separated by commas or blanks, if it has nothing else."""
    try:
        yield tuple(map(float, text.replace(",", " ").split())), end
    except ValueError:
        return
