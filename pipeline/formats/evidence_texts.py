"""What ``--evidence`` gives: files, and lists of ``x=v`` pairs.

A list is read with the names and labels of the given model, because these may contain commas, blanks and equals signs.
A known label is taken whole. A text that can be read in several ways is refused; quotes decide, as in CSV.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError, shorten
from ..models.findings import likelihood
from ..models.model import Model

Finding = str | int | tuple[float, ...]
"""A state's label or index, or one likelihood a state."""
Pair = tuple[str, Finding]

_END = re.compile(r"\s*(?:,|$)")
_BLANKS = re.compile(r"[\s,]*")
_EQUALS = re.compile(r"\s*=\s*")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_BETWEEN = re.compile(r",(?![^\[]*\])")
_LIKELIHOODS = re.compile(r"\[([^\[\]]*)\]")


def findings_of_texts(
    model: Model, texts: Sequence[str], read_file: Callable[[str], dict[int, int]]
) -> dict[str, int | str | list[float]]:
    """Read every ``--evidence``, a file if one is there, otherwise a list; with them the model's own evidence.

    Returns
    -------
    dict of str to str, int or list of float
        Variable name → label of a state, its index where it has none, or a likelihood for each state.

    Raises
    ------
    ModelError
        If a list or a name is wrong, or a variable is observed in two states, or in one and by likelihoods.
    """
    pairs = [pair for text in texts for pair in _pairs(model, text, read_file)]
    states = [(name, finding) for name, finding in pairs if not isinstance(finding, tuple)]
    found: dict[str, int | str | list[float]] = model.named(model.observe(states))
    for name, finding in pairs:
        if isinstance(finding, tuple):
            if name in dict(states) or isinstance(found.get(name), list):
                raise ModelError(f"the evidence names {name!r} twice; likelihoods of it stand alone")
            found[name] = likelihood(model, model.index[name], finding).tolist()
    return found


def _pairs(model: Model, text: str, read_file: Callable[[str], dict[int, int]]) -> Iterable[Pair]:
    from ..examples import file_or_example

    path = file_or_example(text)
    if os.path.exists(path):
        return [*model.named(read_file(str(path))).items()]
    if "=" not in text:
        raise ModelError(f"the evidence {text!r} is neither a file nor a list like x=1,y=0")
    return _List(model, text).pairs()


@dataclass
class _List:
    """A list of pairs, read from left to right in all ways there are; at each place the first two are kept."""

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
