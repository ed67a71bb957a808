"""Pedigrees of toulbar2 (.pre): which genotypings must be wrong, as few as possible, for Mendel's laws to hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....tasks.steps.number_limits import LARGEST_INT32
from ...models.model import FORBIDDEN, Function, Model
from ..format_policy import OBJECT_BYTES
from ..text.source import Source
from ..text.tables import cell_count
from ..text.tokens import WordStream

_WORDS = 7
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
    if first > _WORDS:
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
    if len(tokens) % _WORDS or not len(tokens):
        raise tokens.fail(len(tokens), "lines of seven numbers", f"{len(tokens)} words")
    for at in range(0, len(tokens), _WORDS):
        locus, own, father, mother, _, *alleles = tokens.integers(at, at + _WORDS)
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
