"""Local search over elimination orders: a region of the bucket tree is eliminated anew, compiled with Numba.

The variables of a connected part of the bucket tree, a *region*, are eliminated one after the other in some other
order. The graph that remains afterwards is the same for every order of them, so that no bucket outside of the region
changes. A new order of the region is therefore as good for the whole tree as it is for the region. It takes
microseconds to find, because the region has some tens of variables.

This is large neighbourhood search (Shaw 1998) over triangulations, with randomised greedy orders as repair. Kjaerulff
(1992, Optimal decomposition of probabilistic networks by simulated annealing) exchanges single variables instead.

Cells are counted of maximal cliques: a bucket within the bucket of a child is part of the same clique.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tasks.compiler.jit import njit
from .greedy_orders import (
    GOLDEN,
    MIN_FILL,
    MIXED,
    WEIGHTED_MIN_FILL,
    count_fill,
    eliminate,
    least_key,
    popcount,
    random_unit,
    trailing_zeros,
)

_ONE = np.uint64(1)


class BucketForest(NamedTuple):
    """The bucket tree of an order as arrays over its n variables, with the graph that it comes from.

    ``adjacency`` are the neighbours in the graph, ``buckets`` those at the time of the elimination, both bit sets of
    shape (n, words). ``logs`` are the log2 domain sizes. ``parent``, ``first`` and ``after`` are the parent, the first
    child and the next sibling, -1 for none. ``cells`` are the cells of a bucket, 0 if a child's contains it.
    ``settled`` marks variables whose neighbours were all connected: no order of them is better.
    """

    adjacency: NDArray[np.uint64]
    logs: NDArray[np.float64]
    buckets: NDArray[np.uint64]
    parent: NDArray[np.int64]
    first: NDArray[np.int64]
    after: NDArray[np.int64]
    cells: NDArray[np.float64]
    settled: NDArray[np.bool_]


class Region(NamedTuple):
    """Working memory for one region.

    The region's variables and then their neighbours have places, counted from 0. ``local`` is the place of a variable,
    and ``names`` the variable of a place. ``mark`` is 2 for variables of the region and 1 for variables that wait in
    ``queue``. ``weights`` are running sums, by variable. ``inputs`` are children outside of the region, ``messages``
    the bit sets of their buckets. ``reader`` is the place that reads a message: of the inputs, then of the places.
    ``graph`` holds neighbours and ``buckets`` buckets, both as bit sets of places; ``degree`` counts the members of a
    bucket. ``order`` and ``left`` are the places that were and were not eliminated yet. ``numbers`` holds, by place,
    log2 sizes, weights, fill, log2 of cliques, random factors, scores, and cells.
    """

    local: NDArray[np.int64]
    mark: NDArray[np.int64]
    queue: NDArray[np.int64]
    weights: NDArray[np.float64]
    names: NDArray[np.int64]
    inputs: NDArray[np.int64]
    messages: NDArray[np.uint64]
    reader: NDArray[np.int64]
    graph: NDArray[np.uint64]
    buckets: NDArray[np.uint64]
    order: NDArray[np.int64]
    left: NDArray[np.int64]
    degree: NDArray[np.int64]
    near: NDArray[np.int64]
    numbers: NDArray[np.float64]
    stale: NDArray[np.bool_]
    state: NDArray[np.uint64]


def new_forest(adjacency: NDArray[np.uint64], logs: NDArray[np.float64]) -> BucketForest:
    """Return arrays for the bucket trees of a graph."""
    n = len(logs)
    parent, first, after = np.empty((3, n), dtype=np.int64)
    return BucketForest(
        adjacency, logs, np.empty_like(adjacency), parent, first, after, np.empty(n), np.empty(n, dtype=np.bool_)
    )


def new_region(n: int) -> Region:
    """Return working memory for regions of n vertices, which fit in sets of 4 words with their neighbours."""
    words = 4
    most = 64 * words
    local, mark, queue = np.zeros((3, n), dtype=np.int64)
    names, order, left, degree, near = np.empty((5, most), dtype=np.int64)
    inputs, reader = np.empty((2, n + most), dtype=np.int64)
    graph, buckets = np.empty((2, most, words), dtype=np.uint64)
    return Region(
        *(local, mark, queue, np.empty(n), names, inputs, np.empty((n, words), dtype=np.uint64), reader),
        *(graph, buckets, order, left, degree, near, np.empty((7, most)), np.empty(most, dtype=np.bool_)),
        np.empty(1, dtype=np.uint64),
    )


@njit(nogil=True)
def _has(row: NDArray[np.uint64], v: int) -> bool:
    """Whether a bit set has a member."""
    return bool((row[v >> 6] >> np.uint64(v & 63)) & _ONE)


@njit(nogil=True)
def _count(row: NDArray[np.uint64]) -> int:
    """Return the number of members of a bit set."""
    total = 0
    for w in range(row.shape[0]):
        total += int(np.int64(popcount(row[w])))
    return total


@njit(nogil=True)
def _log_cells(row: NDArray[np.uint64], logs: NDArray[np.float64]) -> float:
    """Sum the logarithms of the members of a bit set."""
    total = 0.0
    for w in range(row.shape[0]):
        bits = row[w]
        while bits:
            total += logs[w * 64 + np.int64(trailing_zeros(bits))]
            bits &= bits - _ONE
    return total


@njit(nogil=True)
def _connected(row: NDArray[np.uint64], adjacency: NDArray[np.uint64]) -> bool:
    """Whether all members of a bit set are neighbours of each other."""
    for w in range(row.shape[0]):
        bits = row[w]
        while bits:
            u = w * 64 + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            for x in range(row.shape[0]):
                missing = row[x] & ~adjacency[u, x]
                if x == u >> 6:
                    missing &= ~(_ONE << np.uint64(u & 63))
                if missing:
                    return False
    return True


@njit(nogil=True)
def _lay_tree(forest: BucketForest, order: NDArray[np.int64], place: NDArray[np.int64]) -> None:
    """Write the bucket tree of an order; ``place`` receives the places in the order."""
    adjacency, buckets, first, after = forest.adjacency, forest.buckets, forest.first, forest.after
    n, words = adjacency.shape
    for i in range(n):
        v = order[i]
        place[v] = i
        first[v] = after[v] = forest.parent[v] = -1
    for i in range(n):
        v = order[i]
        for w in range(words):
            buckets[v, w] = np.uint64(0)
            bits = adjacency[v, w]
            while bits:
                u = w * 64 + np.int64(trailing_zeros(bits))
                bits &= bits - _ONE
                if place[u] > i:
                    buckets[v, w] |= _ONE << np.uint64(u & 63)
        settled = True
        most = 0
        child = first[v]
        while child >= 0:
            for w in range(words):
                buckets[v, w] |= buckets[child, w]
            settled &= forest.settled[child]
            most = max(most, _count(buckets[child]))
            child = after[child]
        buckets[v, v >> 6] &= ~(_ONE << np.uint64(v & 63))
        forest.settled[v] = settled and _connected(buckets[v], adjacency)
        contained = most == _count(buckets[v]) + 1
        log = min(forest.logs[v] + _log_cells(buckets[v], forest.logs), 900.0)
        forest.cells[v] = 0.0 if contained else np.exp2(log)
        up = n
        for w in range(words):
            bits = buckets[v, w]
            while bits:
                up = min(up, place[w * 64 + np.int64(trailing_zeros(bits))])
                bits &= bits - _ONE
        if up < n:
            forest.parent[v] = order[up]
            after[v], first[order[up]] = first[order[up]], v


@njit(nogil=True)
def _weigh(forest: BucketForest, region: Region) -> float:
    """Sum up the weights of the variables that regions are drawn around: the larger a clique, the more often."""
    total = 0.0
    for v in range(forest.cells.shape[0]):
        if not forest.settled[v]:
            total += np.sqrt(forest.cells[v])
        region.weights[v] = total
    return total


@njit(nogil=True)
def _enqueue(forest: BucketForest, region: Region, v: int, waiting: int) -> int:
    """Let a variable wait for its place in the region, unless it is settled; return how many wait."""
    if region.mark[v] or forest.settled[v]:
        return waiting
    region.mark[v], region.queue[waiting] = 1, v
    return waiting + 1


@njit(nogil=True)
def _draw_region(forest: BucketForest, region: Region, total: float) -> int:
    """Draw a connected part of the tree, in random steps from a variable; return its number of variables."""
    state, mark, queue, sums = region.state, region.mark, region.queue, region.weights
    aim = random_unit(state) * total
    low, high = 0, sums.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > aim:
            high = middle
        else:
            low = middle + 1
    # 4 to 64 variables: small regions are the ones that matter in networks of small cliques, large ones in grids
    limit = int(4.0 * 16.25 ** random_unit(state))
    count, waiting = 0, _enqueue(forest, region, low, 0)
    while waiting and count < limit:
        i = int(random_unit(state) * waiting)
        v = queue[i]
        waiting -= 1
        queue[i] = queue[waiting]
        region.names[count], mark[v] = v, 2
        count += 1
        if forest.parent[v] >= 0:
            waiting = _enqueue(forest, region, forest.parent[v], waiting)
        child = forest.first[v]
        while child >= 0:
            waiting = _enqueue(forest, region, child, waiting)
            child = forest.after[child]
    for i in range(waiting):
        mark[queue[i]] = 0
    return count


@njit(nogil=True)
def _translate(row: NDArray[np.uint64], region: Region, result: NDArray[np.uint64]) -> None:
    """Write a bit set of variables of the region, or neighbours of it, as a bit set of places."""
    for w in range(result.shape[0]):
        result[w] = np.uint64(0)
    for w in range(row.shape[0]):
        bits = row[w]
        while bits:
            place = region.local[w * 64 + np.int64(trailing_zeros(bits))]
            bits &= bits - _ONE
            result[place >> 6] |= _ONE << np.uint64(place & 63)


@njit(nogil=True)
def _connect_all(members: NDArray[np.uint64], graph: NDArray[np.uint64]) -> None:
    """Make the members of a bit set neighbours of each other, and of themselves."""
    for w in range(members.shape[0]):
        bits = members[w]
        while bits:
            place = w * 64 + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            for x in range(members.shape[0]):
                graph[place, x] |= members[x]


@njit(nogil=True)
def _lay_out(forest: BucketForest, region: Region, count: int, top: int) -> tuple[int, int]:
    """Write the graph before the region is eliminated; return its number of vertices, and of messages to the region.

    The neighbours of the region are connected from the start, because its elimination connects them.
    """
    local, names, graph, above = region.local, region.names, region.graph, forest.buckets[top]
    words = above.shape[0]
    for i in range(count):
        local[names[i]] = i
    size = count
    for w in range(words):
        bits = above[w]
        while bits:
            names[size] = w * 64 + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            local[names[size]] = size
            size += 1
    _translate(above, region, region.buckets[0])
    for i in range(size):
        for w in range(region.buckets.shape[1]):
            graph[i, w] = region.buckets[0, w] if i >= count else np.uint64(0)
    inputs = 0
    for i in range(count):
        v = names[i]
        for w in range(words):
            # other neighbours were eliminated before: what they left is in the messages
            bits = forest.adjacency[v, w] & forest.buckets[v, w]
            while bits:
                j = local[w * 64 + np.int64(trailing_zeros(bits))]
                bits &= bits - _ONE
                graph[i, j >> 6] |= _ONE << np.uint64(j & 63)
                graph[j, i >> 6] |= _ONE << np.uint64(i & 63)
        child = forest.first[v]
        while child >= 0:
            if region.mark[child] != 2:
                _translate(forest.buckets[child], region, region.messages[inputs])
                _connect_all(region.messages[inputs], graph)
                region.inputs[inputs] = child
                inputs += 1
            child = forest.after[child]
    for i in range(size):
        graph[i, i >> 6] &= ~(_ONE << np.uint64(i & 63))
    return size, inputs


@njit(nogil=True)
def _draw_rule(state: NDArray[np.uint64]) -> tuple[int, float, float]:
    """Draw a rule of greedy elimination, the weight of sizes in the mixed rule, and the noise."""
    draw = random_unit(state)
    rule = MIN_FILL if draw < 0.4 else WEIGHTED_MIN_FILL if draw < 0.6 else MIXED
    draw = random_unit(state)
    mix = 0.1 if draw < 0.33 else 0.3 if draw < 0.67 else 0.6
    draw = random_unit(state)
    return rule, mix, 0.05 if draw < 0.33 else 0.2 if draw < 0.67 else 0.6


@njit(nogil=True)
def _take_in(region: Region, v: int, step: int, inputs: int) -> bool:
    """Let the place ``v`` read the messages that have it; return whether its bucket is within a child's."""
    contained = False
    wanted = region.degree[v] + 1
    for i in range(inputs):
        if region.reader[i] < 0 and _has(region.messages[i], v):
            region.reader[i] = v
            contained |= _count(region.messages[i]) == wanted
    for i in range(step):
        u = region.order[i]
        if region.reader[inputs + u] < 0 and _has(region.buckets[u], v):
            region.reader[inputs + u] = v
            contained |= region.degree[u] == wanted
    return contained


@njit(nogil=True)
def _eliminate(
    region: Region, logs: NDArray[np.float64], count: int, size: int, inputs: int, limit: float
) -> tuple[float, int]:
    """Eliminate the region in a random greedy order; return its cells (more than ``limit`` if given up) and work.

    Parameters
    ----------
    logs : ndarray, shape (n,)
        log2 of the domain sizes, by variable.
    count, size, inputs : int
        Numbers of variables of the region, of these with their neighbours, and of messages to the region.
    limit : float
        Give up as soon as the cells exceed this.
    """
    rule, mix, noise = _draw_rule(region.state)
    even = rule != WEIGHTED_MIN_FILL
    # places are few: sets of up to 64 of them have one word
    graph = region.graph[:size, : (size + 63) >> 6]
    own, weights, fill, clique, jitter, key, cells = region.numbers
    left, order, stale = region.left, region.order, region.stale
    for i in range(size):
        own[i] = logs[region.names[i]]
        weights[i] = 1.0 if even else own[i]
        stale[i] = True
        left[i] = i
        region.reader[inputs + i] = -1
    for i in range(inputs):
        region.reader[i] = -1
    count_fill(graph, weights, even, fill)
    for i in range(size):
        clique[i] = own[i] + _log_cells(graph[i], own)
        jitter[i] = 1.0 + noise * random_unit(region.state)
    total, work = 0.0, 8 * size * graph.shape[1]
    for step in range(count):
        at = least_key(left[: count - step], rule, mix, fill, clique, own, jitter, key, stale)
        v = left[at]
        left[at] = left[count - step - 1]
        for w in range(region.buckets.shape[1]):
            region.buckets[v, w] = graph[v, w] if w < graph.shape[1] else np.uint64(0)
        region.degree[v] = _count(graph[v])
        contained = _take_in(region, v, step, inputs)
        order[step] = v
        cells[v] = 0.0 if contained else np.exp2(min(clique[v], 900.0))
        total += cells[v]
        if total > limit:
            break
        work += count + inputs + eliminate(v, region.near, graph, fill, clique, own, weights, even, stale)[1]
    return total, work


@njit(nogil=True)
def _replace(forest: BucketForest, region: Region, count: int, inputs: int, top: int) -> None:
    """Write the new order of the region into the tree."""
    names, parent, first, after = region.names, forest.parent, forest.first, forest.after
    last = region.order[count - 1]
    new, up, sibling = names[last], parent[top], after[top]
    if up >= 0 and first[up] == top:
        first[up] = new
    elif up >= 0:
        child = first[up]
        while after[child] != top:
            child = after[child]
        after[child] = new
    for i in range(count):
        first[names[i]] = -1
    for i in range(inputs + count):
        place = i - inputs
        v = region.inputs[i] if place < 0 else names[place]
        if place >= 0:
            forest.cells[v] = region.numbers[6, place]
            for w in range(forest.buckets.shape[1]):
                forest.buckets[v, w] = np.uint64(0)
            for w in range(region.buckets.shape[1]):
                bits = region.buckets[place, w]
                while bits:
                    u = names[w * 64 + np.int64(trailing_zeros(bits))]
                    bits &= bits - _ONE
                    forest.buckets[v, u >> 6] |= _ONE << np.uint64(u & 63)
        if place == last:
            parent[v], after[v] = up, sibling
        else:
            reader = names[region.reader[i]]
            parent[v], after[v], first[reader] = reader, first[reader], v


@njit(nogil=True)
def _read_order(forest: BucketForest, order: NDArray[np.int64], stack: NDArray[np.int64]) -> float:
    """Write the order of a tree, children before parents; return the cells of its buckets.

    The last buckets count as one clique, as in greedy orders.
    """
    n, waiting = order.shape[0], 0
    for v in range(n):
        if forest.parent[v] < 0:
            stack[waiting] = v
            waiting += 1
    for i in range(n - 1, -1, -1):
        waiting -= 1
        v = order[i] = stack[waiting]
        child = forest.first[v]
        while child >= 0:
            stack[waiting] = child
            waiting += 1
            child = forest.after[child]
    cells = 0.0
    for i in range(n):
        bucket = forest.buckets[order[i]]
        cells += np.exp2(min(forest.logs[order[i]] + _log_cells(bucket, forest.logs), 1000.0))
        if _count(bucket) == n - i - 1:
            break
    return cells


@njit(cache=True, nogil=True)
def improve_order(
    forest: BucketForest, region: Region, order: NDArray[np.int64], seed: int, max_work: int
) -> tuple[float, int]:
    """Eliminate random regions anew, and keep what is not worse; return the cells of the buckets and work.

    Parameters
    ----------
    forest : BucketForest
        Of :func:`new_forest`, overwritten.
    region : Region
        Of :func:`new_region`, overwritten.
    order : ndarray, shape (n,), int64
        An elimination order, improved in place.
    seed, max_work : int
        Operations, before no further region is drawn.
    """
    n, words = forest.adjacency.shape
    region.state[0] = np.uint64(seed * 2 + 1) * GOLDEN
    _lay_tree(forest, order, region.queue)
    for v in range(n):
        region.mark[v] = 0
    total, draws, work = 1.0, 0, 4 * n * words
    while work < max_work and total > 0.0:
        if draws % 100 == 0:
            total = _weigh(forest, region)
            work += 4 * n
        draws += 1
        count = _draw_region(forest, region, total) if total > 0.0 else 0
        before, top = 0.0, -1
        for i in range(count):
            v = region.names[i]
            before += forest.cells[v]
            if forest.parent[v] < 0 or region.mark[forest.parent[v]] != 2:
                top = v
        work += 200
        if count > 2 and before > 0.0 and count + _count(forest.buckets[top]) <= region.names.shape[0]:
            size, inputs = _lay_out(forest, region, count, top)
            limit = before * (1.0 + 1e-9)
            after, more = _eliminate(region, forest.logs, count, size, inputs, limit)
            work += more + 2 * (count + inputs) * words
            if after <= limit:
                _replace(forest, region, count, inputs, top)
        for i in range(count):
            region.mark[region.names[i]] = 0
    return _read_order(forest, order, region.queue), work
