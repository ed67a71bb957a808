"""What the ways to an optimum do in their turns: each goes on where its last turn ended, with what is known by now.

A way is given up where it is hopeless or holds more memory than the others can spare.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...tasks.cpu.threads import return_freed_pages
from ..cost_networks.cost_network import CostNetwork, States
from .incumbent import Known
from .limits import Elimination
from .outcome import Outcome
from .provers.branch_and_bound import Search, search_bytes
from .provers.local_search import LocalSearch
from .provers.neighbourhood_search import SearchedNeighbourhoods, is_wide
from .turns import Way

if TYPE_CHECKING:
    from .provers.clusters import ClusterBounds
    from .provers.diagrams import Deepening
    from .provers.layer_files import Finished
    from .provers.row_layers import RowSearch
    from .provers.russian_dolls import RussianDolls
    from .provers.subtrees import SubtreeBounds
    from .provers.triangles import TriangleBounds

    _Holding = ClusterBounds | Deepening | RowSearch | Search | SearchedNeighbourhoods | SubtreeBounds

#: A local search takes this part of the memory, and begins anew in a network of at most this part of the cells.
_LOCAL_PART, _MUCH_SMALLER = 4, 2
#: Neighbourhoods are searched where there is room for so many times what a search is laid out in.
_LAID_OUT = 2
#: With less memory than this, what others freed is worth returning, which takes milliseconds.
_SCARCE_BYTES = 1 << 28
#: Many small arrays leave about this part of the memory between them.
_BETWEEN_PART = 8
#: What holds more than this part of the memory between two turns is given up, unless it is the only way.
_HELD_PART = 4
#: Rounds from this many CPU seconds on also plan an elimination of all cells, which may take seconds.
_PLANNING_FROM = 0.5
#: A way goes on at once if it is expected to complete the proof in this part of the time that was spent.
_SOON = 0.5
#: Plans take up to so much less time than the buckets of an order, which need so much for a cell.
_SAVED, _SECONDS_PER_CELL = 30.0, 1e-9
#: Triangles have their first turn in rounds of so many CPU seconds, and no other where one closed so little of the gap.
_TRIANGLES_FROM, _LITTLE = 1.0, 0.01
#: Subtrees too, and in half as long ones where there are at most so many variables.
_SUBTREES_FROM, _FEW_VARIABLES = 1.0, 128
#: They are left if more than one part is open after so many seconds, or two turns optimised no other.
_SUBTREES_SECONDS, _IDLE_TURNS = 0.25, 2
#: Where only one is left, it is much smaller than the whole, and they have this part of the time that was spent.
_ONE_PART_SHARE = 0.65
#: Russian dolls of which none is solved in so many CPU seconds are too hard.
_DOLL_SECONDS = 1.0


@dataclass
class Ways(Known):
    """The ways of a search for the least total below ``upper``, as far as they got."""

    dense: Elimination | None = None
    clusters: ClusterBounds | None = None
    diagrams: Deepening | None = None
    dolls: RussianDolls | None = None
    local: LocalSearch | None = None
    searched: SearchedNeighbourhoods | None = None
    search: Search | None = None
    rows: RowSearch | None = None
    triangles: TriangleBounds | None = None
    subtrees: SubtreeBounds | None = None
    idle: int = 0
    rounds_left: int = 0

    def _ends_soon(self, way: Way, seconds: float) -> bool:
        """Whether a way is likely to complete the proof in another turn of so many seconds, or foresees its end.

        Or whether it finds so much better assignments that whatever comes next is shorter with them.
        """
        if self.upper is None or way in self.turns.hopeless:
            return False
        if way == "local" and self.searched is not None and self.turns.is_notable(way, seconds):
            return True
        foreseen = (way == "diagram" and self._foreseen()) or (way == "subtrees" and self._one_part_left())
        return foreseen or self.turns.nearly_done(way, seconds)

    def _foreseen(self) -> bool:
        """Whether diagrams foresee their end."""
        return self.diagrams is not None and self.diagrams.seconds_left <= _SOON * self.spent

    def _one_part_left(self) -> bool:
        """Whether at most a part of the bucket tree is left to search, which is not too hard yet."""
        if self.subtrees is None or self.subtrees.parts_left > 1:
            return False
        return self.subtrees.near_end or self.turns.tried.get("subtrees", 0.0) < _ONE_PART_SHARE * self.spent

    def _row_search(self, finished: Finished | None = None) -> RowSearch:
        from .provers.row_layers import DEVICE_ROUNDS, ROUNDS, RowSearch

        rounds = ROUNDS if self.limits.device_bytes is None else DEVICE_ROUNDS
        left = rounds[len(rounds) - self.rounds_left :] if self.rounds_left else rounds
        network = self._sharpened if finished is None else self.small
        return RowSearch(
            *(network, self.order if network is self.small else None, self.upper),
            rounds=left,
            device_bytes=self.limits.device_bytes,
            threads=self.limits.threads,
            files=self.limits.files,
            finished=finished,
            best=lambda: self.best,
        )

    @property
    def _sharpened(self) -> CostNetwork:
        """The network with the costs that clusters shifted, where that is of use."""
        return (self.clusters and self.clusters.sharpened) or self.small

    @property
    def _memory_bytes(self) -> int:
        """For a way while the others wait for their next turn."""
        shifting, trees = (self.clusters, self.triangles), (self.diagrams, self.dolls, self.subtrees)
        ways = (*shifting, *trees, self.local, self.searched, self.search, self.rows)
        return self.limits.memory_bytes - sum(way.nbytes for way in ways if way is not None)

    def _holds_much(self, way: _Holding) -> bool:
        """Whether a way leaves the others too little memory."""
        return _HELD_PART * way.nbytes > self.limits.memory_bytes and not self.turns.alone

    def _rows(self, seconds: float, late: Callable[[], bool]) -> Outcome:
        """Go on with the round of the last turn."""
        self.rows = self.rows or self._row_search()
        self.rows.memory_bytes = self._memory_bytes + self.rows.nbytes
        self.rows.learn(self.upper)
        outcome = self.rows.run(late, self._hear, self._see)
        self.rounds_left = self.rows.rounds_left
        if self.rows.hopeless:
            self.turns.hopeless.add("rows")
        if self.rows.hopeless or self._holds_much(self.rows):
            self.rows.rest()
        return outcome

    def _local(self, seconds: float, late: Callable[[], bool]) -> Outcome | None:
        """Look for a better assignment; where one was found already, only after the others had a turn."""
        if self.searched is not None:
            return self._search_neighbourhoods(self.searched, late)
        if seconds < _PLANNING_FROM and self.nearby is not None:
            return None
        if self.local is None or _MUCH_SMALLER * self.small.cells < self.local.network.cells:
            memory_bytes = self.limits.memory_bytes // _LOCAL_PART
            self.local = LocalSearch(self.small, self.nearby, seed=self.limits.seed, memory_bytes=memory_bytes)
        elif self.nearby is not None and self.local.network is self.small:
            self.local.offer(self.nearby)
        while self.local.possible and not late():
            self.local.step()
        self.local.rest()
        if not self.local.possible:
            self.turns.hopeless.add("local")
        if self.local.best is not None:
            self._take(self.local.network, self.local.best[1])
        return Outcome(self.lower)

    def _search_neighbourhoods(self, searched: SearchedNeighbourhoods, late: Callable[[], bool]) -> Outcome:
        """Look for a better assignment near the best, in the network that it was found in."""
        network = searched.network

        def see(states: States) -> None:
            if network is self.small:
                self.nearby = states
            self.improve(network.restored(states))

        searched.memory_bytes = self._memory_bytes + searched.nbytes
        searched.run(late, see)
        if self._holds_much(searched):
            self.searched = None
        return Outcome(self.lower)

    def _take(self, network: CostNetwork, states: States) -> None:
        """Take an assignment of a network that preparation made, to search near it where that suits."""
        super()._take(network, states)
        if self.searched is not None:
            self.searched.offer(network, states)
        elif (
            self.method == "auto" and is_wide(network.dims) and _LAID_OUT * search_bytes(network) <= self._memory_bytes
        ):
            self.searched = SearchedNeighbourhoods(network, states, seed=self.limits.seed)

    def _clusters(self, seconds: float, late: Callable[[], bool]) -> Outcome:
        """Go on with clusters of the size of the last turn, then with larger ones."""
        from .provers.clusters import ClusterBounds

        self.clusters = self.clusters or ClusterBounds(self.small, self.upper)
        outcome = self._shifting("clusters", self.clusters, late)
        if self.clusters.hopeless or self._holds_much(self.clusters):
            self.clusters.rest()
        return outcome

    def _triangles(self, seconds: float, late: Callable[[], bool]) -> Outcome | None:
        """Go on with triangles, while that pays."""
        from .provers.triangles import TriangleBounds

        if seconds < _TRIANGLES_FROM:
            return None
        self.triangles = self.triangles or TriangleBounds(self.small, self.upper)
        before = self.lower, self.upper
        outcome = self._shifting("triangles", self.triangles, late)
        self._hear(outcome.lower)
        if self._closed(*before) < _LITTLE:
            self.turns.hopeless.add("triangles")
        return outcome

    def _shifting(self, way: Way, bounds: ClusterBounds | TriangleBounds, late: Callable[[], bool]) -> Outcome:
        """Go on with a way that shifts costs."""
        bounds.memory_bytes = self._memory_bytes + bounds.nbytes
        bounds.learn(self.upper)
        outcome = bounds.run(late, self._hear, self._see)
        if bounds.hopeless:
            self.turns.hopeless.add(way)
        return outcome

    def _diagram(self, seconds: float, late: Callable[[], bool]) -> Outcome:
        """Go on with the eliminations of the last turn."""
        from .provers.diagrams import Deepening

        if self.diagrams is None:
            memory_bytes = self._memory_bytes - self._memory_bytes // _BETWEEN_PART
            self.diagrams = Deepening(self.small, self.order, self.upper, self.lower, memory_bytes=memory_bytes)
        if self.limits.memory_bytes < _SCARCE_BYTES:
            return_freed_pages()
        left = self._memory_bytes + self.diagrams.nbytes
        self.diagrams.limit(left - left // _BETWEEN_PART)
        self.diagrams.learn(self.upper, self.lower)
        outcome = self.diagrams.run(late, self._hear, self._see)
        if not self._ends_soon("diagram", 0.0):
            self._leave_memory(self.diagrams)
        return outcome

    def _dolls(self, seconds: float, late: Callable[[], bool]) -> Outcome | None:
        """Go on with larger dolls, unless a long turn solved none."""
        from .provers.russian_dolls import RussianDolls, doll_bytes

        if self.dolls is None:
            if doll_bytes(self.small) > self._memory_bytes:
                self.turns.hopeless.add("dolls")
                return None
            self.dolls = RussianDolls(self.small, self.upper)
        self.dolls.learn(self.upper)
        left = self.dolls.dolls_left
        outcome = self.dolls.run(late, self._hear)
        if not self.dolls.possible or (seconds >= _DOLL_SECONDS and left == self.dolls.dolls_left):
            self.turns.hopeless.add("dolls")
            self.dolls = None
        return outcome

    def _subtrees(self, seconds: float, late: Callable[[], bool]) -> Outcome | None:
        """Go on with parts of the bucket tree, unless turns optimised none.

        They bound a network that was prepared further since: what took long to search is not searched again.
        """
        few = len(self.small.dims) <= _FEW_VARIABLES
        if seconds < (_SUBTREES_FROM / 2 if few else _SUBTREES_FROM):
            return None
        self.subtrees = self.subtrees or self._cut()
        if self.subtrees is None or self.subtrees.hopeless:
            self.turns.hopeless.add("subtrees")
            return None
        self.subtrees.memory_bytes = self._memory_bytes + self.subtrees.nbytes
        self.subtrees.learn(self.upper)
        solved, subtrees, start = self.subtrees.solved, self.subtrees, self.spent

        def hard() -> bool:
            return subtrees.parts_left > 1 and not self.turns.alone and self.spent - start > _SUBTREES_SECONDS

        def see(states: States) -> None:
            self._take(subtrees.network, states)

        outcome = subtrees.run(lambda: late() or hard(), self._hear, see)
        going = solved < subtrees.solved or not subtrees.parts_left or self._one_part_left()
        self.idle = 0 if going else self.idle + 1
        if subtrees.hopeless or hard() or self.idle == _IDLE_TURNS or self._holds_much(subtrees):
            self.turns.hopeless.add("subtrees")
            self.subtrees.give_up()
        return outcome

    def _cut(self) -> SubtreeBounds | None:
        """Cut the bucket tree where it is narrow; None where it is not, or in a mesh."""
        from .provers.clusters import is_mesh
        from .provers.subtree_agreement import cut_parts
        from .provers.subtrees import SubtreeBounds

        parts = cut_parts(self.small, self.order)
        if len(parts) == 1 or is_mesh(self.small):
            return None
        return SubtreeBounds(self.small, self.order, parts, self.upper)

    def _leave_memory(self, diagrams: Deepening) -> None:
        """Let go of as much of the diagrams as others need."""
        for give_up in (diagrams.rest, diagrams.begin_anew):
            if self._holds_much(diagrams):
                give_up()
        if self._holds_much(diagrams):
            self.diagrams = None

    def _search(self, seconds: float, late: Callable[[], bool]) -> Outcome | None:
        """Go on with the search of the last turn."""
        if self.search is None:
            if search_bytes(self.small) > self._memory_bytes:
                self.turns.hopeless.add("search")
                return None
            self.search = Search(self.small, self.order, self.upper)
        self.search.memory_bytes = self._memory_bytes + self.search.nbytes
        self.search.learn(self.upper, self.nearby)
        search = self.search

        def see(states: States) -> None:
            self._see(states)
            search.learn(self.upper)

        outcome = search.run(late, self._hear, see)
        if self._holds_much(search):
            self.search = None
        return outcome

    def _dense(self, seconds: float, late: Callable[[], bool]) -> Outcome | None:
        """Sweep every cell, if that is predicted to take no longer than all the rest did."""
        if self.dense is None:
            if self.method == "auto" and (
                seconds < _PLANNING_FROM or _SECONDS_PER_CELL * self._cells(self.order) > _SAVED * self.spent
            ):
                return None
            self.dense = self.limits.eliminate(self.small, self.upper)
        if self.dense is None:
            self.turns.hopeless.add("dense")
            return None
        spent = math.inf if self.method == "dense" else max(seconds, self.spent)
        return None if self.dense.seconds > spent else self.dense.run()
