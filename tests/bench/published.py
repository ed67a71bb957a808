"""Published papers beside ours, and their layouts on this machine: ``python tests/bench/published.py [NAME …]``.

One propagation of each network in each published layout of clique tables (:mod:`parts.layouts`) beside ours, on the
same devices in the same run; then every table of the papers that ``bucketflow reproduce`` repeats. NAMEs choose
networks; ``--papers none`` leaves out the papers, ``--layouts none`` the layouts.

A layout's propagation sends all messages over a junction tree of least total size, in double precision, and reads no
posterior. CPU is NumPy on one core. GPU is by events of the device, all launches as one CUDA graph, which is kinder
than the papers were; where the CPU has a part, it is by the host's clock, transfers included. Reduction, scattering and
reordering are timed apart by running these alone. Ours reads all posteriors: CPU is a compiled model on one core from
its leaves, GPU its graph alone, and ``answer`` the call in Python. What is published is of the papers' own devices.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from parts.junction import JunctionTree, belief, clique_tables, junction_of
from parts.layouts import DeviceKernels, HostKernels, Kernels, Kind, Layout, by_size, chunked, layout_bytes, mapped
from parts.needs import data_folder
from rich.console import Console
from rich.table import Table

import bucketflow
from bucketflow.pipeline.errors import format_bytes
from bucketflow.pipeline.reproduce.comparison import compared
from bucketflow.pipeline.reproduce.experiments import Measurement, prepared
from bucketflow.pipeline.reproduce.paper_tables import PAPERS, paper
from bucketflow.pipeline.reproduce.papers import Instances, PaperRow, Way

NETWORKS = ["pigs", "munin1", "munin2", "munin3", "munin4", "munin", "mildew", "water", "barley", "diabetes", "link"]
"""``munin`` is the whole network, which has three nodes more than Munin4."""
PARTS: tuple[Kind, ...] = ("reduction", "scattering", "reordering")
OF_PAPER = {"mapped": "bp-regression", "mapped, small on CPU": "gottoli", "chunked": "bp-layout"}
HEADINGS = ("network", "layout", "tables", "index", "theirs CPU / GPU", "CPU", *(f"CPU {p[:4]}." for p in PARTS))

Seconds = Mapping[str, float]
"""Of a whole propagation ("all"), and of each part."""


def wall_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least wall seconds of some calls, after a first call."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class Device:
    """CuPy, and how a call is timed by its events."""

    cupy: Any
    kernels: Kernels
    seconds: Callable[[Callable[[], object], int], float]


def device(gpus: str | None) -> Device | None:
    """Return the device, if one is asked for."""
    if gpus is None:
        return None
    from gpu import cp, seconds

    return Device(cp, DeviceKernels(cp), seconds)


def timed_on_host(layout: Layout, repeats: int) -> Seconds:
    """Time a layout, and its parts, by the host's clock."""
    found = {"all": wall_seconds(layout.run, repeats)}
    return found | {p: wall_seconds(lambda p=p: layout.run((p,)), repeats) for p in PARTS if p in layout.kinds}


def timed_on_device(layout: Layout, there: Device, repeats: int) -> Seconds:
    """Time a layout, and its parts, as graphs of the device."""
    found = {}
    for name in ("all", *(p for p in PARTS if p in layout.kinds)):
        kinds = () if name == "all" else (name,)
        layout.run(kinds)
        stream = there.cupy.cuda.Stream(non_blocking=True)
        there.cupy.cuda.get_current_stream().synchronize()
        with stream:
            stream.begin_capture()
            layout.run(kinds)
            graph = stream.end_capture()
        found[name] = there.seconds(lambda graph=graph: graph.launch(there.cupy.cuda.get_current_stream()), repeats)
    return found


def timed_with_host(layout: Layout, there: Device, repeats: int) -> Seconds:
    """Time a layout of which the CPU has a part, by the host's clock."""

    def whole() -> None:
        layout.run()
        there.cupy.cuda.get_current_stream().synchronize()

    return {"all": wall_seconds(whole, repeats)}


@dataclass(frozen=True)
class Network:
    """A network, its junction tree and initial tables, and the posteriors that ours finds."""

    name: str
    path: Path
    compiled: bucketflow.Compiled
    tree: JunctionTree
    posteriors: bucketflow.Marginals

    def tables(self) -> list[Any]:
        """Initial tables of the cliques."""
        return clique_tables(self.compiled, self.tree, {})

    def difference(self, layout: Layout) -> float:
        """Largest difference of posteriors from ours."""
        tables, worst, network = layout.read(), 0.0, self.compiled.skeleton.network
        for v, at in network.local.items():
            home = self.tree.smallest[at]
            found = belief(tables[home], self.tree.cliques[home], at)
            ours = self.posteriors[network.model.names[v]][network.domains[v]]
            worst = max(worst, float(np.abs(found - ours).max()))
        return worst


def network(name: str, instances: Instances) -> Network | None:
    """Read and compile a network; None where there is no file of it."""
    path = instances.path(f"bn/{name}.bif", f"bn/{name}.net", f"bn/net/{name}.net")
    if path is None:
        return None
    compiled = bucketflow.compile(str(path), tree="junction", threads=1, memory="32GB", background=False)
    return Network(name, path, compiled, junction_of(compiled), compiled.marginals())


def published(name: str, layout: str) -> str:
    """Return what the layout's paper prints of a network: milliseconds on its CPU and GPU."""
    table = next(table for table in paper(OF_PAPER[layout]).tables if "propagation" in table.title)
    rows = [row.published for row in table.rows if row.instance == name]
    columns = [next(key for key in table.columns if key.startswith(where)) for where in ("CPU", "GPU")]
    return " / ".join(str(row[key]) for row in rows for key in columns)


def layouts(of: Network, there: Device | None, repeats: int) -> Iterator[list[str]]:
    """Yield a line for each layout."""
    host = HostKernels()
    makers: dict[str, Callable[[Kernels], Layout]] = {
        "mapped": lambda kernels: mapped(of.tree, of.tables(), lambda _: kernels),
        "mapped, small on CPU": lambda kernels: mapped(of.tree, of.tables(), by_size(of.tree, host, kernels)),
        "chunked": lambda kernels: chunked(of.tree, of.tables(), kernels),
    }
    for name, make in makers.items():
        mixed = name == "mapped, small on CPU"
        on_host: Seconds = {}
        on_device: Seconds = {}
        gap = 0.0
        if not mixed:
            layout = make(host)
            on_host = timed_on_host(layout, repeats)
            gap = of.difference(make_run(make(host)))
        if there is not None:
            layout = make(there.kernels)
            gap = max(gap, of.difference(make_run(make(there.kernels))))
            on_device = (timed_with_host if mixed else timed_on_device)(layout, there, repeats)
        elif mixed:
            continue
        sizes = [format_bytes(layout.table_bytes), format_bytes(layout.index_bytes)]
        cells = [_ms(found.get(part)) for found in (on_host, on_device) for part in ("all", *PARTS)]
        yield [of.name, name, *sizes, published(of.name, name), *cells, "", f"{gap:.1g}"]
        del layout
        if there is not None:
            there.cupy.get_default_memory_pool().free_all_blocks()


def make_run(layout: Layout) -> Layout:
    """Run a layout once, from its initial tables."""
    layout.run()
    return layout


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def ours(of: Network, there: Device | None) -> list[str]:
    """Return the line of this package's own propagation, with all posteriors."""
    (call,) = prepared(Measurement(Way("core", "propagation", {}, {"threads": 1}), PaperRow(of.name), of.path))
    core = call()
    cells, index = [_ms(core.figures["seconds"]), "", "", ""], ""
    gap = 0.0 if core.right else float("nan")
    if there is not None:
        compiled = bucketflow.compile(str(of.path), gpus=1)
        found = compiled.marginals()
        gap = max(float(np.abs(found[name] - of.posteriors[name]).max()) for name in found)
        on_device = compiled.device
        assert on_device is not None
        single = on_device._device._single
        assert single is not None
        records = on_device._program.records
        index = format_bytes(records.words.nbytes + records.items.nbytes)
        graph = there.seconds(lambda: single.graph.launch(there.cupy.cuda.get_current_stream()), 20)
        cells += [_ms(graph), "", "", "", _ms(wall_seconds(compiled.marginals, 10))]
    else:
        cells += [""] * 5
    plan = of.compiled.plan
    assert plan is not None
    return [of.name, "ours, all posteriors", format_bytes(plan.kept_bytes), index, "", *cells, f"{gap:.1g}"]


def refused(of: Network, most_cells: int, memory: int) -> str | None:
    """Say why the layouts of a network are not made."""
    largest, (tables, index) = max(of.tree.clique_cells), layout_bytes(of.tree)
    if largest > most_cells:
        return f"refused: a clique of {largest:,} cells"
    if 2 * tables + index > memory:
        return f"refused: {format_bytes(2 * tables + index)} of tables and index"
    return None


def print_layouts(names: Sequence[str], instances: Instances, there: Device | None, options: Any) -> None:
    """Print the table of layouts."""
    where = "no GPU" if there is None else there.cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    table = Table(title=f"one propagation, ms; one core of this machine, {where}")
    for heading in (*HEADINGS, "GPU", *(f"GPU {p[:4]}." for p in PARTS), "answer", "differs"):
        table.add_column(heading, overflow="fold", justify="left" if heading in HEADINGS[:2] else "right")
    for name in names:
        of = network(name, instances)
        if of is None:
            table.add_row(name, "no file")
        elif reason := refused(of, options.cells, options.memory << 30):
            table.add_row(name, reason)
            table.add_row(*ours(of, there))
        else:
            for cells in (*layouts(of, there, options.repeat), ours(of, there)):
                table.add_row(*cells)
            print(f"{name}: {len(of.tree.cliques)} cliques, {sum(of.tree.clique_cells):,} cells", flush=True)
        table.add_section()
    Console(width=200).print(table)


def chosen(text: str, known: Sequence[str]) -> list[str]:
    """Return names of a list in text: all, none, or some with commas between them."""
    names = {"all": list(known), "none": []}.get(text, text.split(","))
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no {unknown[0]!r}; there are {', '.join(known)}")
    return names


def main() -> None:
    """Print the papers' tables, and the layouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks of the layouts")
    parser.add_argument("--gpus", help="how many GPUs are asked besides; layouts take one")
    parser.add_argument("--papers", default="all", help=f"all, none, or some of {','.join(PAPERS)}")
    parser.add_argument("--layouts", default="all", choices=("all", "none"))
    parser.add_argument("--time", type=float, default=20.0, metavar="S", help="of each figure of the papers")
    parser.add_argument("--sample", type=int, metavar="N", help="at most N rows of each table of the papers")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="propagations that are timed")
    parser.add_argument("--cells", type=int, default=1 << 26, metavar="N", help="most cells of a clique")
    parser.add_argument("--memory", type=int, default=16, metavar="GIB", help="of a layout's tables and index")
    options = parser.parse_args()
    papers = chosen(options.papers, PAPERS)
    instances = Instances(data_folder())
    there = device(options.gpus)
    if options.layouts == "all":
        print_layouts(options.names or NETWORKS, instances, there, options)
    for name in papers:
        asked = paper(name).only((), options.sample)
        found = compared(asked, instances, options.gpus, options.time, lambda text: print(text, flush=True))
        print(found.to_markdown(), flush=True)


if __name__ == "__main__":
    main()
