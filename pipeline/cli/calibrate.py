"""``bucketflow warm``: every kind of question once, small, so that the first real one finds its loops compiled.

And all modules as bytecode, which some installers leave to the first run, and images may forbid to write. As many kinds
as there are cores are asked at once, in processes: compilers of one process wait for each other.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...tasks.steps.number_limits import LARGEST_INT32
from ..errors import BucketflowError
from .ending import guarded
from .options import json_option

if TYPE_CHECKING:
    from ..cost_networks.cost_network import CostNetwork
    from ..models.model import Kind, Model


_DTYPES = ("float64", "int64", "int32", "int16")
_TREES = "orders and trees"
_LOOKING_FOR_TREES = frozenset(("rows", "diagram", "search", "mini-buckets", "marginal MAP", "compiled models"))


@click.command("warm")
@click.option("--portable", is_flag=True, help="Compile for any x86-64-v3 processor too.")
@guarded
def warm(portable: bool) -> None:
    """Compile all loops ahead of time, for images and workers.

    Python's bytecode of all modules is written beside them. The code of loops is stored in the folder
    $BUCKETFLOW_CACHE, by default in the user's cache directory. Folders that other users can write to are not used.

    If this machine has a GPU, its kernels are compiled too, except kernels that depend on the sizes of tables. CuPy
    stores their code in its own folder.

    Loops are compiled for this machine's processor. With --portable they are also compiled for every processor that has
    the instructions of x86-64-v3 (Intel Haswell, AMD Zen and later).
    """
    from ...tasks.compiler.code_cache import PORTABLE, code_home, host_processor, runs_portable_code

    try:
        click.echo(f"storing machine code in {code_home()}")
    except OSError as error:
        raise BucketflowError(f"no folder can store machine code: {error}") from None
    for name, seconds in _compiled_ahead(host_processor()):
        click.echo(f"{name:24}{seconds:6.1f} s")
    if portable and not runs_portable_code():
        click.echo(f"this processor lacks instructions of {PORTABLE}, so loops are compiled for it alone", err=True)
    elif portable:
        click.echo(f"for every {PORTABLE} processor")
        for name, seconds in _compiled_ahead(PORTABLE):
            click.echo(f"{name:24}{seconds:6.1f} s")


def _compiled_ahead(processor: str) -> Iterator[tuple[str, float]]:
    """Do all jobs for a processor, and yield their names and CPU seconds as they end."""
    names = [name for name, _ in warm_jobs()]
    cores = min(len(os.sched_getaffinity(0)), len(names))
    # the search for trees starts only when its loops are compiled, so that they are compiled once
    waiting = [name for name in names if name in _LOOKING_FOR_TREES]
    with ProcessPoolExecutor(cores, get_context("spawn"), _start, (processor,)) as pool:
        running = {pool.submit(_done, name) for name in names if name not in waiting}
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for name, seconds in (each.result() for each in ended):
                yield name, seconds
                if name == _TREES:
                    running |= {pool.submit(_done, later) for later in waiting}


def _start(processor: str) -> None:
    """Prepare a process of the pool: Ctrl-C ends it, and it compiles for a processor."""
    from ...tasks.compiler.code_cache import compile_for

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    compile_for(processor)


def _done(name: str) -> tuple[str, float]:
    """Do a job in this process."""
    from ...tasks.compiler.code_cache import impatient

    start = time.process_time()
    with impatient():
        dict(warm_jobs())[name]()
    return name, time.process_time() - start


def warm_jobs() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of jobs that compile ahead, and the function of each job.

    Each job can run by itself in any process.
    """
    from ...cluster.gpus import is_asleep
    from ...tasks.compiler.numba_parts import unknown_numba
    from ..api.bound import bound
    from ..api.solve import solve

    costs = _grid("cost")
    yield "modules", _modules
    yield "steps of tables", _steps
    yield _TREES, partial(solve, costs, method="dense", order_time=0.1)
    yield "preparation", _preparation
    for method in ("rows", "diagram", "search"):
        yield method, partial(solve, costs, method=method, prune=False)
    yield "joins of rows", _joins
    yield "clusters", _clusters
    yield "triangles", _triangles
    yield "Russian dolls", _dolls
    yield "local search", _local_search
    yield "sums on diagrams", _sums
    yield "counts by search", _counts
    yield "mini-buckets", partial(bound, _grid("markov"), query="partition", z=3)
    yield "marginal MAP", _losses
    yield "cases", _cases
    if not unknown_numba():
        yield "compiled models", _compiled
        yield "threads", _threads
        yield "reads", _reads
    if is_asleep() or "cupy" in sys.modules:
        yield "kernels of GPUs", _kernels


def _kernels() -> None:
    """Compile the GPU's kernels that do not depend on a model: propagations, draws, decoding and joins of sparse
    tables.

    The kernels of joins of dense tables depend on the sizes of the tables.
    """
    import numpy as np

    from ...cluster.connect import ClusterError
    from ...cluster.gpus import count_gpus
    from ...tasks.gpu.decoding import decode_kernel
    from ...tasks.gpu.gather import gather_kernel
    from ...tasks.gpu.kernels import compile_together
    from ...tasks.gpu.messages.propagation import propagation_kernels
    from ...tasks.gpu.small_steps import small_kernel
    from ...tasks.rows.device import join_kernels
    from ...tasks.steps.semiring import LOG_SUM, SUM_PRODUCT, min_plus, mod_sum_product
    from ...tasks.sweeps.conditional_draws import walk_kernels

    try:
        count_gpus("all")
    except ClusterError:
        return  # CuPy is installed, but it finds no usable device
    costs, residues = [*map(min_plus, _DTYPES)], mod_sum_product(LARGEST_INT32)
    kernels = [
        each for law in ("sum_product", "min_plus") for group in (1, 2) for each in propagation_kernels(law, group)
    ]
    kernels += [each for dtype in ("int16", "int32") for each in walk_kernels(np.dtype(dtype))]
    kernels += [gather_kernel(nbytes) for nbytes in (2, 4, 8)]
    kernels += [*map(decode_kernel, costs), *map(small_kernel, (*costs, residues))]
    for semiring in (*costs, SUM_PRODUCT, LOG_SUM, residues):
        kernels += join_kernels(1, semiring)
    compile_together(kernels)


def _modules() -> None:
    """Write bytecode where that can be written."""
    from compileall import compile_dir, compile_file

    package = Path(__file__).parents[2]
    compile_file(package / "__init__.py", quiet=2)
    for room in ("cluster", "pipeline", "storage", "tasks"):
        compile_dir(package / room, quiet=2)


def _grid(kind: Kind, n: int = 5, d: int = 3) -> Model:
    """Functions of four neighbours on a grid; variables of its diagonal have another size."""
    import numpy as np

    from ..models.model import Model

    rng = np.random.default_rng(0)
    names = {f"x{r}_{c}": d + (r == c) for r, c in product(range(n), repeat=2)}
    functions = []
    for r, c in product(range(n - 1), repeat=2):
        scope = [f"x{r + i}_{c + j}" for i, j in product(range(2), repeat=2)]
        values = rng.integers(1, 1000, [names[name] for name in scope])
        functions.append((scope, values if kind == "cost" else values / 1000))
    return Model.build(kind, names, functions)


def _joins() -> None:
    """Every operation on rows, in every arithmetic, though there are few rows."""
    import numpy as np

    from ...tasks.rows.host import HostRows, Sorted
    from ...tasks.rows.keys import Keys
    from ...tasks.steps.policy import RowPolicy
    from ...tasks.steps.semiring import LOG_SUM, SUM_PRODUCT, min_plus, mod_sum_product

    keys, turned, host = Keys((0, 1), (8, 8)), Keys((1, 0), (8, 8)), HostRows()
    words, backwards = np.arange(64, dtype=np.uint64)[:, None], np.arange(64, dtype=np.uint64)[::-1, None].copy()
    nothing, parts = np.zeros(1, np.uint64), np.array(keys.gathers((0, 1), (8, 1)), np.uint64)
    with RowPolicy.using(warm_rows=0, cold_rows=0, block_rows=8):
        host.repacked(words, keys.moves(turned), 1)
        host.index(backwards, keys, ascending=False).find(words)
        Sorted(host, words, False).find(backwards)
        matches = Sorted(host, words, True).find(words)
        for semiring in (*map(min_plus, _DTYPES), SUM_PRODUCT, LOG_SUM, mod_sum_product(LARGEST_INT32)):
            values = np.ones(64, semiring.dtype)
            joined = (matches[0], np.cumsum(matches[1])), (0, 64), (words, words), (values, values), semiring
            host.expanded(*joined)
            host.expanded_sums(*joined, 64)
            host.multiplied(words, values, parts, values, semiring)
            host.merged([(words, values), (words, values)])
            host.gathered(backwards, values, semiring, nothing, ~nothing)


def _network() -> CostNetwork:
    from ..cost_networks.cost_network import cost_network
    from ..preprocessing.preprocess import reduce_model

    return cost_network(reduce_model(_grid("cost"), "optimum", {}))[0]


def _steps() -> None:
    """Products of matrices, and joins along rows, in every arithmetic."""
    import numpy as np

    from ...tasks.cpu.dense import contract
    from ...tasks.steps.semiring import SUM_PRODUCT, min_plus, mod_sum_product

    sizes = {0: 64, 1: 64, 2: 64, 3: 4}
    shapes = (((0, 1), (1, 2)), (0, 2)), (((0, 1), (1, 2), (0, 3)), (0, 2, 3)), (((0, 1, 2), (2, 3)), (0, 1))
    for semiring in (*map(min_plus, _DTYPES), SUM_PRODUCT, mod_sum_product(LARGEST_INT32)):
        for inputs, output in shapes:
            tables = [np.ones([sizes[v] for v in scope], semiring.dtype).reshape(-1) for scope in inputs]
            contract(tables, inputs, output, sizes, semiring)


def _preparation() -> None:
    """Shift costs in a network whose variables have many neighbours, and eliminate a variable with one."""
    import numpy as np

    from ..cost_networks.cost_network import CostNetwork, CostTable
    from ..cost_networks.preparation import prepare

    prepare(_network())
    prepare(CostNetwork((2, 2), (CostTable((0, 1), np.eye(2)),)))


def _local_search() -> None:
    from ..proofs.provers.local_search import improve

    improve(_network(), None, most_work=100_000_000, memory_bytes=1 << 28)


def _clusters() -> None:
    """Bounds of a cycle of four."""
    import numpy as np

    from ..cost_networks.cost_network import CostNetwork, CostTable
    from ..proofs.provers.clusters import ClusterBounds

    tables = tuple(CostTable((v, (v + 1) % 4), np.eye(2)) for v in range(4))
    bounds = ClusterBounds(CostNetwork((2,) * 4, tables), None)
    bounds.memory_bytes = 1 << 20
    bounds.run(bool, lambda lower, total: None, lambda states: None)


def _triangles() -> None:
    """Bounds of a cycle of three."""
    import numpy as np

    from ..cost_networks.cost_network import CostNetwork, CostTable
    from ..proofs.provers.triangles import TriangleBounds

    tables = tuple(CostTable(scope, np.eye(2)) for scope in ((0, 1), (0, 2), (1, 2)))
    bounds = TriangleBounds(CostNetwork((2,) * 3, tables), None)
    bounds.memory_bytes = 1 << 20
    bounds.run(bool, lambda lower, total: None, lambda states: None)


def _dolls() -> None:
    """Two variables that must differ."""
    import numpy as np

    from ..cost_networks.cost_network import CostNetwork, CostTable
    from ..proofs.provers.russian_dolls import RussianDolls

    costs = np.where(np.eye(2), np.inf, 0.0)
    RussianDolls(CostNetwork((2, 2), (CostTable((0, 1), costs),)), None).run()


def _sums() -> None:
    import numpy as np

    from ..queries.sum_diagrams import DiagramBudget, SumElimination

    model = _grid("markov", 3)
    order = range(len(model.dims))
    for modulus in (0, LARGEST_INT32):
        tables = [(f.scope, np.asarray(f.values) if not modulus else np.ones(f.values.shape)) for f in model.functions]
        SumElimination(model.dims, iter(tables), order, modulus).run(DiagramBudget(1 << 28))


def _counts() -> None:
    """A count in integers, and a sum in floats, by search; a component that is forgotten."""
    import numpy as np

    from ...tasks.counting.components import forget
    from ...tasks.counting.count_state import ENTRIES, clauses_of, new_known, new_state
    from ..api.solve import solve
    from ..models.model import Model

    clause = (np.arange(8.0) > 0.0).astype(np.float64).reshape(2, 2, 2)
    functions = [(["x0"], np.array([0.25, 0.75]))]
    functions += [([f"x{(v + k) % 8}" for k in (0, 1, 3)], clause) for v in range(8)]
    model = Model.build("markov", {f"x{v}": 2 for v in range(8)}, functions)
    for query in ("count", "partition"):
        solve(model, query, method="search")
    state = new_state(clauses_of(2, [(0, 2)], np.zeros(2)))
    state.counters[ENTRIES] = 1
    forget(state, new_known(1, 1, 1, wide=False))


def _losses() -> None:
    """Compile the loss search: the state of a variable with the least loss, beside a summed variable."""
    import numpy as np

    from ..cost_networks.cost_network import CostTable
    from ..minibuckets.loss_search import LossSearch
    from ..minibuckets.mixed_bound import MixedBound
    from ..minibuckets.partition import Size, partition

    scope = (0, 1)
    mixed = MixedBound(partition((2, 2), [scope], [1, 0], Size(cells=4)), [CostTable(scope, np.zeros((2, 2)))], [0])
    mixed.improve(lambda: True, 1)
    LossSearch(mixed, None, {}, 1 << 20).compile()


def _cases() -> None:
    """A case of two variables that observes one."""
    import numpy as np

    from ...tasks.sweeps.observed_cases import ObservedCases
    from ...tasks.sweeps.scaled import Scaled

    cases = ObservedCases((2, 2), [(0, 1)], {0: Scaled(np.ones(4))}, [(0,)], 1 << 10)
    cases.answer(np.array([[-1, 0]]), 1)


def _compiled() -> None:
    from ...tasks.incremental import packed
    from ..compiled.compiled import compile_model

    assert packed is not None  # as it is imported, small models use it too
    compiled = compile_model(_grid("markov", 4, 2))
    compiled.marginals("all")
    compiled.add("x0_0", 1)
    compiled.marginals("all")


def _threads() -> None:
    """A crew of one thread, which has nothing to do."""
    import numpy as np

    from ...tasks.compiler.pthreads import blocks, together
    from ...tasks.incremental.thread_crew import functions

    nothing = np.zeros(1 << 12, np.int64)
    given = np.array([functions().work, nothing.ctypes.data, 0])
    crew = blocks(1, functions().work_in_thread, given.ctypes.data)
    together(crew.ctypes.data)


def _reads() -> None:
    """Files of sparse tables, as a GPU's blocks read them."""
    from ...tasks.boxes.read_loops import reading_code

    reading_code()


# ``bucketflow calibrate``: measure this machine, so that predictions and decisions are about it.


@click.command("calibrate")
@json_option
@guarded
def calibrate(as_json: bool) -> None:
    """Measure CPU, disk and GPU, and store their rates for later plans.

    Predictions, the choice between slices and boxes, and what runs on a GPU follow what was measured.
    """
    import json

    from ..machine.device import calibrated
    from .show_run import print_calibration

    found = calibrated()
    if as_json:
        click.echo(json.dumps(found))
    else:
        print_calibration(found)
