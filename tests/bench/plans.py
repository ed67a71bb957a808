"""Compare the plans found with those of PLANS.tsv: python tests/bench/plans.py [--up-to 40] [--seconds 8].

Cells are counted as PLANS.tsv counts them: after conditioning on the evidence and absorbing functions whose
scope another one includes; the search minimises cells unless --machine asks for predicted seconds.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from math import log2
from pathlib import Path

from parts.needs import data_folder

from bucketflow.pipeline.formats.read import load, load_evidence
from bucketflow.pipeline.orders.tree_search import TreeSearch
from bucketflow.pipeline.trees.costs import Rates, tree_cost
from bucketflow.pipeline.trees.cutsets import slice_count, slice_tree
from bucketflow.pipeline.trees.tree import Tree

#: Counts cells only: nothing but arithmetic takes time.
CELLS_ONLY = Rates(1e9, 1e9, 1e30, 0.0, 0.0)
#: A difference below this is no difference: PLANS.tsv has one decimal.
TOLERANCE = 0.06


def problem(path: Path) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return domain sizes and scopes of a file, without the observed variables and the included scopes."""
    model = load(path)
    observed = set(model.evidence)
    beside = path.with_suffix("") if path.suffix == ".xz" else path
    for name in (f"{beside}.evid", f"{beside}.evid.xz"):
        if Path(name).exists():
            observed |= set(load_evidence(name, model))
    scopes = {frozenset(v for v in f.scope if v not in observed and model.dims[v] > 1) for f in model.functions}
    kept: list[frozenset[int]] = []
    holders: dict[int, list[frozenset[int]]] = {}
    for scope in sorted(scopes - {frozenset()}, key=lambda s: (-len(s), sorted(s))):
        rarest = min(scope, key=lambda v: len(holders.get(v, ())))
        if any(scope <= other for other in holders.get(rarest, ())):
            continue
        kept.append(scope)
        for v in scope:
            holders.setdefault(v, []).append(scope)
    return model.dims, [tuple(sorted(s)) for s in kept]


def verdict(ours: float, theirs: float) -> str:
    """Say how our number compares."""
    if ours > theirs + TOLERANCE:
        return "WORSE"
    return "better" if ours < theirs - TOLERANCE else "equal"


def sliced_work(tree: Tree, max_cells: int, rates: Rates, seconds: float) -> tuple[float, int]:
    """Return log2 cells and the number of slices, the better of before and after rearranging the tree for them."""
    sliced = slice_tree(tree, max_cells, rates)
    found = []
    search = TreeSearch(tree.dims, tree.leaves, seconds=seconds, rates=rates)
    for each in (tree, search.refined(tree, sliced) if sliced else tree):
        sliced = slice_tree(each, max_cells, rates)
        count = slice_count(each, sliced)
        found.append((log2(tree_cost(each, rates, sliced=sliced).cells * count), count))
    return min(found)


def sliced_line(tree: Tree, columns: list[str], rates: Rates, seconds: float) -> str:
    """Compare slices at 2^28 and 2^33 cells."""
    cells = log2(tree_cost(tree, rates).cells)
    parts = []
    for limit, slices, overhead in ((28, columns[0], columns[1]), (33, columns[2], columns[3])):
        if not slices:
            continue
        start = time.process_time()
        work, count = sliced_work(tree, 2**limit, rates, seconds)
        parts.append(
            f"2^{limit}: 2^{log2(count):.1f} slices x{2.0 ** min(work - cells, 999.0):.3g} "
            f"(2^{log2(int(slices)):.1f} x{float(overhead):.3g}) {time.process_time() - start:.1f} s"
        )
    return "; ".join(parts)


def main() -> None:
    """Print one line per instance and the count of verdicts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--up-to", type=float, default=1e9, help="largest log2 cells of their refined plan")
    parser.add_argument("--from", dest="start", type=float, default=0.0, help="smallest log2 cells")
    parser.add_argument("--seconds", type=float, default=8.0, help="planning effort")
    parser.add_argument("--machine", action="store_true", help="minimise predicted seconds, not cells")
    parser.add_argument("--slices", action="store_true", help="compare slicing too")
    parser.add_argument("--only", default="", help="part of the path")
    options = parser.parse_args()
    rates = Rates() if options.machine else CELLS_ONLY
    counts: Counter[str] = Counter()
    lines = (data_folder() / "PLANS.tsv").read_text().splitlines()[1:]
    print(f"{'path':46} {'buckets':>13} {'refined':>13} {'largest':>13} {'CPU-s':>6}")
    for line in lines:
        path, _, _, bucket, _, refined, largest, *slices = line.split("\t")
        if not options.start <= float(refined) <= options.up_to or options.only not in path:
            continue
        dims, scopes = problem(data_folder() / path)
        start = time.process_time()
        tree = TreeSearch(dims, scopes, seconds=options.seconds, rates=rates).cheapest()
        spent = time.process_time() - start
        cost = tree_cost(tree, rates)
        plain = TreeSearch(dims, scopes, tree="bucket", seconds=options.seconds / 4, rates=rates).cheapest()
        ours = log2(cost.cells)
        word = verdict(ours, float(refined))
        counts[word] += 1
        print(
            f"{path:46} {log2(tree_cost(plain, rates).cells):6.2f} {bucket:>6} {ours:6.2f} {refined:>6} "
            f"{log2(cost.largest_table_cells):6.1f} {largest:>6} {spent:6.1f} {word}",
            flush=True,
        )
        if options.slices and any(slices):
            print("    " + sliced_line(tree, [*slices, "", "", "", ""], rates, options.seconds / 4), flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))


if __name__ == "__main__":
    main()
