"""Problems that toulbar2 has formats for: satellite photographs, quadratic problems of 0 and 1, and pedigrees.

Read are SPOT 5's choice of cameras (.spot), schedules of one camera (.bep), the entries of a quadratic matrix over 0
and 1 or 1 and -1 (.qpbo), and pedigrees (.pre): the fewest genotypings that are wrong under Mendel's laws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import LARGEST_DECIMALS, LARGEST_INT32
from ...errors import FormatError
from ...models.model import FORBIDDEN, Function, Model
from ..decimal_costs import decimal_places
from ..format_policy import OBJECT_BYTES, STATE_BYTES
from ..global_functions.decomposition import Decomposition
from ..text.source import Source
from ..text.tables import cell_count, tuple_table
from ..text.tokens import WordStream
from .linear_draft import LinearDraft, LinearTerm
from .wide_sums import decided, linear_machine

_NOT_TAKEN = "none"
_BEP_COLUMNS = ("number", "x", "y", "duration", "earliest", "latest", "revenue")


@dataclass(frozen=True)
class _Photograph:
    """The value of a photograph, and its states after the first; the first state means not taken."""

    worth: int
    labels: tuple[str, ...]
    used: tuple[Decimal, ...] = ()

    def cost(self) -> NDArray[np.int64]:
        """Costs of its states."""
        return np.array([self.worth, *([0] * len(self.labels))], np.int64)


def _model(source: Source, names: Sequence[str], taken: Sequence[_Photograph], parts: Decomposition) -> Model:
    parts.functions[:0] = [Function((v,), each.cost()) for v, each in enumerate(taken)]
    return parts.model(names, [(_NOT_TAKEN, *each.labels) for each in taken], name=source.stem)


def read_spot(source: Source) -> Model:
    """Read a problem of SPOT 5: photographs with profits and cameras, and tuples of cameras that are forbidden.

    A photograph that is not taken costs its profit. State 0 means not taken; the other states have the file's camera
    names. The data of taken photographs must fit the recorder's capacity, if the file gives one (E. Bensana, M.
    Lemaître and G. Verfaillie, Earth observation satellite management, Constraints 4, 1999).

    Raises
    ------
    FormatError
        If the file is malformed.
    BudgetError
        If the capacity is one of too many sums.
    """
    tokens = WordStream(source)
    lines = _lines(source)
    reader = _SpotReader(tokens, lines)
    taken = [reader.photograph(v) for v in range(reader.count)]
    parts = Decomposition([1 + len(each.labels) for each in taken], FORBIDDEN, source.allowance)
    at = reader.start(reader.count + 1)
    tuples = tokens.integer(at, "the number of forbidden sets", 0, len(tokens))
    if reader.count + 2 + tuples > len(lines) or reader.count + 3 + tuples < len(lines):
        raise tokens.fail(len(tokens), f"{tuples} lines of forbidden tuples", f"{len(lines) - reader.count - 2} lines")
    for line in range(reader.count + 2, len(lines)):
        if lines[line] == 1:
            _limit(parts, taken, _capacity(tokens, reader.start(line)))
        else:
            reader.conflict(parts, taken, line)
    return _model(source, [str(v) for v in range(reader.count)], taken, parts)


def _lines(source: Source) -> list[int]:
    """Return the number of words of each non-empty line."""
    source.allowance.take(0, "its lines", for_now=64 * source.data.count(b"\n"))
    return [count for count in (len(line.split()) for line in source.data.splitlines()) if count]


def _capacity(tokens: WordStream, at: int) -> Decimal:
    return _amount(tokens, at, "the capacity")


def _amount(tokens: WordStream, at: int, what: str) -> Decimal:
    (number,) = tokens.converted([tokens.peek(at)], Decimal, f"{what}, a number", at.__add__)
    if not (number.is_finite() and 0 <= number <= LARGEST_INT32):
        raise tokens.fail(at, f"{what} from 0 to {LARGEST_INT32}")
    return number


class _SpotReader:
    """Reads the lines of a .spot."""

    def __init__(self, tokens: WordStream, lines: Sequence[int]) -> None:
        self.tokens, self.lines = tokens, lines
        self.starts = [0, *np.cumsum(lines).tolist()]
        self.count = tokens.integer(0, "the number of photographs", 1, len(tokens))

    def start(self, line: int) -> int:
        """Where a line begins."""
        return int(self.starts[min(line, len(self.lines))])

    def photograph(self, v: int) -> _Photograph:
        """Read the line of a photograph: its number, its profit, and its cameras with their data sizes."""
        tokens, at = self.tokens, self.start(v + 1)
        tokens.allowance.take(OBJECT_BYTES, "its photographs")
        tokens.integer(at, "photographs in order,", v, v)
        worth = tokens.integer(at + 1, "a profit", 0, LARGEST_INT32)
        cameras = tokens.integer(at + 2, "the number of cameras", 0, len(tokens))
        places = range(at + 3, at + 3 + 2 * cameras, 2)
        if self.start(v + 2) < at + 3 + 2 * cameras:
            raise tokens.fail(at, f"a line of {cameras} cameras, each with its data size")
        labels = tuple(str(tokens.integer(k, "a camera", 1, LARGEST_INT32)) for k in places)
        if len({*labels}) < cameras:
            raise tokens.fail(at + 3, "different cameras")
        return _Photograph(worth, labels, tuple(_amount(tokens, k + 1, "what a camera records") for k in places))

    def conflict(self, parts: Decomposition, taken: Sequence[_Photograph], line: int) -> None:
        """Read a line of forbidden tuples: how many photographs, which ones, and their cameras."""
        tokens, at = self.tokens, self.start(line)
        arity = tokens.integer(at, "the number of photographs of a tuple", 1, self.lines[line] - 1)
        scope = [tokens.integer(at + 1 + k, "a photograph", 0, self.count - 1) for k in range(arity)]
        rest = self.lines[line] - 1 - arity
        if len({*scope}) < arity or rest % arity:
            raise tokens.fail(at, f"{arity} different photographs, and tuples of as many cameras")
        rows = [*self._rows(taken, scope, at + 1 + arity, rest)]
        array = np.array(rows, np.int32).reshape(len(rows), arity)
        parts.add(tuple_table(scope, parts.dims, array, np.full(len(rows), FORBIDDEN, np.int64), 0))

    def _rows(self, taken: Sequence[_Photograph], scope: Sequence[int], at: int, count: int) -> Iterator[list[int]]:
        """Yield forbidden tuples by states; none where a photograph has no such camera."""
        for start in range(at, at + count, len(scope)):
            words = [str(self.tokens.integer(start + k, "a camera", 1)) for k in range(len(scope))]
            if all(word in taken[v].labels for word, v in zip(words, scope, strict=True)):
                yield [1 + taken[v].labels.index(word) for word, v in zip(words, scope, strict=True)]


def _limit(parts: Decomposition, taken: Sequence[_Photograph], capacity: Decimal) -> None:
    """Forbid that more than the capacity is recorded."""
    factor = 10 ** decimal_places([capacity, *(used for each in taken for used in each.used)])
    sums = [[0, *(int(used * factor) for used in each.used)] for each in taken]
    scope = [v for v, own in enumerate(sums) if any(own)]
    sums, right = [sums[v] for v in scope], int(capacity * factor)
    if decided(0, sum(map(max, sums)), "<=", right) is None:
        parts.what = "the capacity of the recorder"
        parts.machine(scope, linear_machine(sums, "<=", right, None))


def read_bep(source: Source) -> Model:
    """Read toulbar2's photographs of an agile satellite: when one camera takes each, with delays between every two.

    States are the times at which a photograph may begin, and that it is not taken, which costs its revenue. Lines are
    two of text, the number of photographs, for each its number, two coordinates, duration, earliest beginning, latest
    end and revenue, and a matrix of delays.

    Raises
    ------
    FormatError
        If the file is malformed.
    """
    heads = source.data.split(b"\n", 3)
    title, skipped = heads[1:2], len(b"".join(heads[2:3]).split())
    source.data[: sum(len(head) + 1 for head in heads[:2])] = b"\n\n"
    tokens = WordStream(source)
    count = tokens.integer(0, "the number of photographs", 1, len(tokens))
    first = skipped + len(_BEP_COLUMNS) * count
    if len(tokens) != first + count * count:
        expected = f"{len(_BEP_COLUMNS)} words of each of {count} photographs, and {count * count} delays"
        raise tokens.fail(len(tokens), expected, f"{len(tokens) - skipped} words")
    delays = tokens.integer_array(first, len(tokens), "a delay").reshape(count, count)
    begins, taken, durations = _schedule(tokens, skipped, count)
    if int(np.abs(delays).max()) > LARGEST_INT32:
        raise tokens.fail(first + int(np.abs(delays).argmax()), f"a delay up to {LARGEST_INT32}")
    parts = Decomposition([1 + len(own) for own in begins], FORBIDDEN, source.allowance)
    for i in range(count):
        for j in range(i + 1, count):
            gaps = durations[i] + int(delays[i, j]), durations[j] + int(delays[j, i])
            _apart(parts, (i, j), (begins[i], begins[j]), gaps)
    model = _model(source, [f"t{v + 1}" for v in range(count)], taken, parts)
    name = b" ".join(title).decode(source.encoding).strip()
    note = f"the value is the revenue of the photographs not taken; toulbar2 counts it {count - 1} times"
    return replace(model, name=name or model.name, notes=(note,) if count > 2 else ())


def _schedule(
    tokens: WordStream, start: int, count: int
) -> tuple[list[NDArray[np.int64]], list[_Photograph], list[int]]:
    """Return the possible start times of each photograph, its value, and its duration."""
    begins: dict[int, NDArray[np.int64]] = {}
    taken: dict[int, _Photograph] = {}
    durations: dict[int, int] = {}
    for at in range(start, start + len(_BEP_COLUMNS) * count, len(_BEP_COLUMNS)):
        place = tokens.integer(at, "the number of a photograph", 1, count) - 1
        if place in taken:
            raise tokens.fail(at, "one line of each photograph", "a second one")
        duration = tokens.integer(at + 3, "a duration", 0, LARGEST_INT32)
        earliest = max(0, tokens.integer(at + 4, "an earliest beginning", -LARGEST_INT32, LARGEST_INT32))
        latest = tokens.integer(at + 5, "a latest end", -LARGEST_INT32, LARGEST_INT32) - duration
        worth = tokens.integer(at + 6, "a revenue", 0, LARGEST_INT32)
        times = max(0, latest - earliest + 1)
        tokens.allowance.take(OBJECT_BYTES + STATE_BYTES * times, f"{times} times of a photograph")
        begins[place], durations[place] = np.arange(earliest, earliest + times), duration
        taken[place] = _Photograph(worth, tuple(map(str, begins[place].tolist())))
    places = range(count)
    return [begins[k] for k in places], [taken[k] for k in places], [durations[k] for k in places]


def _apart(
    parts: Decomposition, scope: tuple[int, int], begins: Sequence[NDArray[np.int64]], gaps: tuple[int, int]
) -> None:
    """Forbid pairs of start times at which neither photograph begins late enough after the other."""
    x, y = begins[0][:, None], begins[1][None, :]
    parts.allowance.take(0, "a function of two photographs", for_now=4 * 8 * x.size * y.size)
    near = (y < x + gaps[0]) & (x < y + gaps[1])
    if near.any():
        parts.table(scope, np.pad(np.where(near, FORBIDDEN, 0), ((1, 0), (1, 0))))


_ROUNDED: Final = Context(prec=40)


def read_qpbo(source: Source) -> Model:
    """Read ``N M`` and M entries ``i j cost``: the sum of cost times x_i times x_j, and twice that where i is not j.

    A negative N is for variables of 1 and -1, in this order of their states; a negative M maximises.

    Costs are exact if 64 bits hold them, or else rounded, as in toulbar2, to as many decimals as fit, with a note.

    Raises
    ------
    FormatError
        If the file is malformed.
    """
    tokens = WordStream(source)
    count = tokens.integer(0, "the number of variables", -len(source.data), len(source.data))
    entries = tokens.integer(1, "the number of entries", -len(tokens), len(tokens))
    if len(tokens) != 2 + 3 * abs(entries):
        raise tokens.fail(len(tokens), f"{abs(entries)} entries, three words each", f"{len(tokens) - 2} words")
    source.allowance.take(OBJECT_BYTES * (abs(count) + abs(entries)), "its variables and entries")
    pairs, costs = list[tuple[int, int]](), list[Decimal]()
    for at in range(2, len(tokens), 3):
        i, j = (tokens.integer(at + k, "a variable", 1, abs(count)) for k in range(2))
        pairs.append((i, j))
        costs += tokens.converted([tokens.peek(at + 2)], Decimal, "a finite number", (at + 2).__add__)
        if not costs[-1].is_finite():
            raise tokens.fail(at + 2, "a finite number")

    def model_of(costs: list[Decimal]) -> Model:
        draft = LinearDraft[int](source, lambda at, *what: tokens.fail(at, *what), maximize=entries < 0)
        draft.domains = {f"x{k}": (0, 1) for k in range(1, abs(count) + 1)}
        for (i, j), cost in zip(pairs, costs, strict=True):
            draft.objective += _terms(i, j, cost if i == j else 2 * cost, signs=count < 0)
        model = draft.model()
        return model if count > 0 else _labelled(model)

    try:
        return model_of(costs)
    except FormatError:
        decimals, digits = decimal_places(costs), 1 + max(cost.adjusted() for cost in costs)
        # a cost counts twice for two variables, and four times in their product of signs
        digits += len(str(2 * 4 * len(costs)))
        if decimals == 0 or digits > LARGEST_DECIMALS:
            raise
    fit = min(LARGEST_DECIMALS - digits, decimals - 1)
    model = model_of([cost.quantize(Decimal(1).scaleb(-fit), context=_ROUNDED) for cost in costs])
    note = f"costs of {decimals} decimals are rounded to {fit}, because costs are integers of 64 bits"
    return replace(model, notes=(*model.notes, note))


def _terms(i: int, j: int, cost: Decimal, *, signs: bool) -> list[LinearTerm]:
    """Return a product of two variables; of signs 1 - 2x each, where x is the state."""
    first, second = (f"x{i}", False), (f"x{j}", False)
    if not signs:
        return [LinearTerm(cost, (first, second))]
    if i == j:
        return [LinearTerm(cost, ())]
    return [
        LinearTerm(cost, ()),
        LinearTerm(-2 * cost, (first,)),
        LinearTerm(-2 * cost, (second,)),
        LinearTerm(4 * cost, (first, second)),
    ]


def _labelled(model: Model) -> Model:
    """Return a model whose states are called 1 and -1."""
    return replace(model, states=(("1", "-1"),) * len(model.dims))


_COLUMNS = ("locus", "individual", "father", "mother", "sex", "allele", "allele")
Genotype = tuple[int, int]


@dataclass
class _Person:
    """Father and mother, and two alleles; 0 means unknown."""

    father: int = 0
    mother: int = 0
    alleles: Genotype = (0, 0)
    line: bool = False

    @property
    def parents(self) -> list[int]:
        return [each for each in (self.father, self.mother) if each]


def read_pedigree(source: Source) -> Model:
    """Read lines ``locus individual father mother sex allele allele`` of one locus; 0 is not known.

    Variables are the individuals who have a genotyped descendant or are it, their states the genotypes. Each
    genotyping that does not fit costs 1; children who have no allele of a parent are forbidden (M. Sanchez, S. de
    Givry & T. Schiex, Mendelian error detection in complex pedigrees using weighted constraint satisfaction
    techniques, Constraints 13, 2008).

    Parameters
    ----------
    source : Source
        The bytes of the file, with its path, budget and deadline.

    Raises
    ------
    FormatError
        If the file is malformed, has several loci, or has no genotyped person.
    """
    tokens = WordStream(source)
    first = len(source.data.lstrip().partition(b"\n")[0].split())
    if first > len(_COLUMNS):
        raise tokens.fail(0, "one locus, seven numbers a line", f"{first} numbers: haplotypes are not read")
    people = _people(tokens)
    alleles = sorted({a for person in people.values() for a in person.alleles if a})
    typed = [each for each, person in people.items() if any(person.alleles)]
    if not typed:
        raise tokens.fail(len(tokens), "a pedigree with genotypings", "none")
    genotypes = [(a, b) for k, a in enumerate(alleles) for b in alleles[k:]]
    ancestors = _ancestors(people, typed)
    # a person without genotyped descendants restricts nobody
    kept = [each for each in people if each in ancestors]
    index, size = {each: v for v, each in enumerate(kept)}, len(genotypes)
    most = max((len(people[each].parents) for each in kept), default=0) + 1
    source.allowance.take(8 * cell_count(range(most), [size] * most), f"a table of {size}^{most} genotypes")
    tables = [_inherited(genotypes, count) for count in range(1, most)]
    functions = [Function((index[each],), _misfits(genotypes, people[each].alleles)) for each in typed]
    for each in kept:
        if parents := people[each].parents:
            scope = (*(index[parent] for parent in parents), index[each])
            functions.append(Function(scope, tables[len(parents) - 1]))
    labels = tuple(f"{a}/{b}" for a, b in genotypes)
    return Model(
        "cost",
        tuple(map(str, kept)),
        (size,) * len(kept),
        (labels,) * len(kept),
        tuple(functions),
        top=len(typed) + 1,
        name=source.stem,
    )


def _people(tokens: WordStream) -> dict[int, _Person]:
    people: dict[int, _Person] = {}
    if len(tokens) % len(_COLUMNS) or not len(tokens):
        raise tokens.fail(len(tokens), "lines of seven numbers", f"{len(tokens)} words")
    for at in range(0, len(tokens), len(_COLUMNS)):
        locus, own, father, mother, _, *alleles = tokens.integers(at, at + len(_COLUMNS))
        for k, (what, low) in enumerate((("a locus", 0), ("an individual", 1), ("a father", 0), ("a mother", 0))):
            tokens.integer(at + k, what, low, LARGEST_INT32)
        for k in (5, 6):
            tokens.integer(at + k, "an allele", 0, LARGEST_INT32)
        if locus != tokens.integer(0, "a locus"):
            raise tokens.fail(at, "one locus", "a second one")
        tokens.allowance.take(OBJECT_BYTES, "its individuals")
        if people.setdefault(own, _Person()).line:
            raise tokens.fail(at + 1, "one line of each individual", "a second one")
        people[own] = _Person(father, mother, (alleles[0], alleles[1]), line=True)
        if father == mother != 0 or own in (father, mother):
            raise tokens.fail(at + 2, "a father and a mother, who are others", f"{father} and {mother} of {own}")
        for parent in people[own].parents:
            people.setdefault(parent, _Person())
    return people


def _ancestors(people: dict[int, _Person], typed: Sequence[int]) -> set[int]:
    """Return some individuals with all their ancestors."""
    found, open_ = set[int](), [*typed]
    while open_:
        if (each := open_.pop()) not in found:
            found.add(each)
            open_ += people[each].parents
    return found


def _misfits(genotypes: Sequence[Genotype], seen: Genotype) -> NDArray[np.int64]:
    """Return 1 for genotypes that contradict the observed alleles; one observed allele may be unknown."""
    known = [a for a in seen if a]
    fits = [sorted(own) == sorted(known) if len(known) == 2 else known[0] in own for own in genotypes]
    return 1 - np.array(fits, np.int64)


def _inherited(genotypes: Sequence[Genotype], parents: int) -> NDArray[np.int64]:
    """Return which genotypes of one or both parents and, on the last axis, of their child are forbidden."""
    return np.array([*_laws(genotypes, parents)], np.int64).reshape([len(genotypes)] * (parents + 1))


def _laws(genotypes: Sequence[Genotype], parents: int) -> Iterator[int]:
    for one in genotypes:
        for other in genotypes if parents > 1 else [None]:
            for a, b in genotypes:
                both = other is None or (a in one and b in other) or (b in one and a in other)
                yield 0 if both and (a in one or b in one) else FORBIDDEN
