"""Packed keys: the states of some variables in bit-fields of 64-bit words.

Fields stand in the order of their variables, the first one in the most significant bits of the first word, so that
keys of one layout sort like the tuples of states do; no field is cut by the end of a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: One bit of every word stays free: signed and unsigned comparisons agree.
WORD_BITS = 63

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Field:
    """Where one variable's state stands: ``key[word] >> shift & mask``."""

    word: int
    shift: int
    bits: int

    @property
    def mask(self) -> int:
        """Ones for every bit of the field, at its right end."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class Keys:
    """Layout of packed keys.

    Parameters
    ----------
    variables : tuple of int
        Most significant first.
    dims : tuple of int
        Their domain sizes.
    """

    variables: tuple[int, ...]
    dims: tuple[int, ...]

    @cached_property
    def fields(self) -> dict[int, Field]:
        """The field of each variable; the last one ends at bit 0 of the last word."""
        back: dict[int, tuple[int, int, int]] = {}
        word = shift = 0
        for v, dim in zip(self.variables[::-1], self.dims[::-1], strict=True):
            bits = (dim - 1).bit_length()
            if shift + bits > WORD_BITS:
                word, shift = word + 1, 0
            back[v] = (word, shift, bits)
            shift += bits
        return {v: Field(word - w, s, b) for v, (w, s, b) in back.items()}

    @property
    def n_words(self) -> int:
        """64-bit words of a key; at least one."""
        return 1 + max((field.word for field in self.fields.values()), default=0)

    def mask(self, variables: Sequence[int]) -> Words:
        """Return a key with ones in the fields of some variables, ``(words,) uint64``."""
        words = [0] * self.n_words
        for v in variables:
            field = self.fields[v]
            words[field.word] |= field.mask << field.shift
        return np.array(words, np.uint64)

    def pack(self, states: NDArray[np.integer]) -> Words:
        """Pack rows of states ``(variables, rows)`` into keys ``(rows, words)``."""
        keys = np.zeros((states.shape[1], self.n_words), np.uint64)
        for v, row in zip(self.variables, states, strict=True):
            field = self.fields[v]
            keys[:, field.word] |= row.astype(np.uint64) << np.uint64(field.shift)
        return keys

    def unpack(self, keys: Words) -> NDArray[np.int64]:
        """Unpack keys ``(rows, words)`` into states ``(variables, rows)``."""
        states = np.zeros((len(self.variables), len(keys)), np.int64)
        for row, v in zip(states, self.variables, strict=True):
            field = self.fields[v]
            row[:] = keys[:, field.word] >> np.uint64(field.shift) & np.uint64(field.mask)
        return states

    def moves(self, target: Keys) -> Words:
        """Return how keys become keys of the variables of `target` that are here too: see :func:`.loops.advance`.

        Neighbours that stay neighbours move together. Fields of `target` that are not here become 0.
        """
        runs: list[list[int]] = []
        for v in target.variables:
            if v not in self.fields:
                continue
            here, there = self.fields[v], target.fields[v]
            right, left = max(0, here.shift - there.shift), max(0, there.shift - here.shift)
            mask = here.mask << here.shift
            if runs and [runs[-1][i] for i in (0, 2, 3, 4)] == [here.word, right, there.word, left]:
                runs[-1][1] |= mask
            else:
                runs.append([here.word, mask, right, there.word, left])
        return np.array(runs, np.uint64).reshape(-1, 5)

    def gathers(self, scope: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """Return (word, shift, mask, stride) of the parts of a key that add up to the offset in a C-ordered table.

        Neighbours whose states count on as one number are one part.
        """
        parts: list[tuple[int, int, int, int]] = []
        for v, stride in zip(scope, strides, strict=True):
            field = self.fields[v]
            part = (field.word, field.shift, field.mask, stride)
            if parts:
                word, shift, mask, before = parts[-1]
                if word == field.word and shift == field.shift + field.bits and before == stride << field.bits:
                    parts[-1] = (word, field.shift, mask << field.bits | field.mask, stride)
                    continue
            parts.append(part)
        return [part for part in parts if part[2]]
