"""Packed keys: the states of some variables in bit-fields of 64-bit words.

Fields stand in the order of their variables, the first one in the most significant bits of the first word, so that keys
of one layout sort like the tuples of their states. No field extends over two words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..steps.light_dataclass import dataclass
from ..steps.number_limits import WORD_ONES

#: One bit of every word stays free: signed and unsigned comparisons agree.
WORD_BITS = np.iinfo(np.int64).bits - 1

Words = NDArray[np.uint64]


Field = tuple[int, int, int]
"""Word, shift and bits of one variable's state: ``key[word] >> shift & ((1 << bits) - 1)``."""


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
    def sizes(self) -> dict[int, int]:
        """The domain size of each variable."""
        return dict(zip(self.variables, self.dims, strict=True))

    @cached_property
    def varying(self) -> list[int]:
        """The variables that have more than one state."""
        return [v for v, d in zip(self.variables, self.dims, strict=True) if d > 1]

    @cached_property
    def fields(self) -> dict[int, Field]:
        """The field of each variable; the last one ends at bit 0 of the last word."""
        back = []
        word = shift = 0
        for dim in self.dims[::-1]:
            bits = (dim - 1).bit_length()
            if shift + bits > WORD_BITS:
                word, shift = word + 1, 0
            back.append((word, shift, bits))
            shift += bits
        return {v: (word - w, s, b) for v, (w, s, b) in zip(self.variables, back[::-1], strict=True)}

    @cached_property
    def n_words(self) -> int:
        """64-bit words of a key; at least one."""
        return self.fields[self.variables[-1]][0] + 1 if self.variables else 1

    def mask(self, without: Sequence[int] = ()) -> Words:
        """Return a key with ones everywhere but in the fields of some variables, ``(words,) uint64``."""
        words = [WORD_ONES] * self.n_words
        for v in without:
            word, shift, bits = self.fields[v]
            words[word] &= ~(((1 << bits) - 1) << shift)
        return np.array(words, np.uint64)

    def mask_before(self, variable: int) -> Words:
        """Return a key with ones in all fields before that of a variable, ``(words,) uint64``."""
        word, shift, bits = self.fields[variable]
        words = [WORD_ONES] * word + [WORD_ONES >> shift + bits << shift + bits] + [0] * (self.n_words - word - 1)
        return np.array(words, np.uint64)

    @cached_property
    def span(self) -> int:
        """A number that keys of one word are below."""
        return 1 << max([shift + bits for _, shift, bits in self.fields.values()], default=0)

    def of(self, states: Sequence[int]) -> Words:
        """Pack one state of each variable into a key ``(1, words)``: of one, numbers take a tenth of arrays' time."""
        words = [0] * self.n_words
        for state, (word, shift, _) in zip(states, self.fields.values(), strict=True):
            words[word] |= state << shift
        return np.array([words], np.uint64)

    def pack(self, states: NDArray[np.integer]) -> Words:
        """Pack rows of states ``(variables, rows)`` into keys ``(rows, words)``."""
        return self.packed(list(states), states.shape[1])

    def packed(self, states: Sequence[NDArray[np.integer]], rows: int) -> Words:
        """Pack the states of each variable ``(rows,)`` into keys ``(rows, words)``."""
        keys = np.zeros((rows, self.n_words), np.uint64)
        for v, row in zip(self.variables, states, strict=True):
            word, shift, _ = self.fields[v]
            keys[:, word] |= row.astype(np.uint64) << np.uint64(shift)
        return keys

    def unpack(self, keys: Words) -> NDArray[np.int64]:
        """Unpack keys ``(rows, words)`` into states ``(variables, rows)``."""
        states = np.zeros((len(self.variables), len(keys)), np.int64)
        for row, v in zip(states, self.variables, strict=True):
            word, shift, bits = self.fields[v]
            row[:] = keys[:, word] >> np.uint64(shift) & np.uint64((1 << bits) - 1)
        return states

    def moves(self, target: Keys) -> Words:
        """Return how keys become keys of the variables of `target` that are here too: see :func:`.layer_loops.advance`.

        Neighbours that stay neighbours move together. Fields of `target` that are not here become 0; of two fields of
        one variable the smaller one has to hold all states that there are.
        """
        runs: list[tuple[int, int, int]] = []
        masks: list[int] = []
        for v, (to_word, to_shift, bits) in target.fields.items():
            if v in self.fields:
                word, shift, own = self.fields[v]
                bits, run = min(bits, own), (word, shift - to_shift, to_word)
                if not runs or runs[-1] != run:
                    runs.append(run)
                    masks.append(0)
                masks[-1] |= (1 << bits) - 1 << shift
        moves = [(w, mask, max(0, s), to, max(0, -s)) for (w, s, to), mask in zip(runs, masks, strict=True)]
        return np.array(moves, np.uint64).reshape(-1, 5)

    def gathers(self, scope: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """Return (word, shift, mask, stride) of the parts of a key that add up to the offset in a C-ordered table.

        Neighbours whose states count on as one number are one part.
        """
        parts: list[tuple[int, int, int, int]] = []
        for v, stride in zip(scope, strides, strict=True):
            word, shift, bits = self.fields[v]
            ones = (1 << bits) - 1
            if parts:
                last, behind, mask, before = parts[-1]
                if last == word and behind == shift + bits and before == stride << bits:
                    parts[-1] = (word, shift, mask << bits | ones, stride)
                    continue
            parts.append((word, shift, ones, stride))
        return [part for part in parts if part[2]]


def repacked(words: Words, moves: Words, n_words: int) -> Words:
    """Return keys in another layout; see :meth:`Keys.moves`."""
    out = np.zeros((len(words), n_words), np.uint64)
    for word, mask, right, to, left in moves:
        out[:, to] |= (words[:, word] & mask) >> right << left
    return out


def offsets(words: Words, parts: Words) -> NDArray[np.int64]:
    """Return where keys stand in a dense table; see :meth:`Keys.gathers`."""
    found = np.zeros(len(words), np.uint64)
    for word, shift, mask, stride in parts:
        found += (words[:, word] >> shift & mask) * stride
    return found.view(np.int64)
