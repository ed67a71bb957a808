"""Plans keep their promises: measured memory, slicing and recomputation give the same answer within the budget."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dask.utils import parse_bytes

import bucketflow
from bucketflow import Model
from bucketflow.cluster.memory import COMPILED_PROCESS_BYTES, default_memory_bytes
from bucketflow.pipeline.answering.prepared import prepare
from bucketflow.pipeline.answering.question import Question
from bucketflow.pipeline.budget.budget_policy import BudgetPolicy
from bucketflow.pipeline.errors import format_bytes
from bucketflow.pipeline.machine.resources import Resources
from bucketflow.pipeline.options import Options, parse_size
from bucketflow.pipeline.plans.plan import Plan
from bucketflow.tasks.compiler.code_cache import impatient
from tests.memory import traced
from tests.models import grid

# Python objects that are not tables: the plan, lists, small temporaries of NumPy.
SLACK_BYTES = 5_000_000


def measured_peak(model: Model, query: str, within: int | None = None, **options: Any) -> tuple[int, bucketflow.Result]:
    """Peak bytes that NumPy and Python allocate while solving within a budget, or what its plan says."""

    def most(result: bucketflow.Result) -> int:
        assert result.plan is not None
        return (within or result.plan.peak_bytes) + SLACK_BYTES - model.nbytes

    gc.collect()
    return traced(lambda: bucketflow.solve(model, query, **options), most)


@pytest.mark.parametrize("tree", ["refined", "bucket", "junction"])
@pytest.mark.parametrize(("query", "kind"), [("optimum", "cost"), ("optimum", "markov"), ("partition", "markov")])
def test_measured_peak_is_within_the_plan(query: str, kind: str, tree: str) -> None:
    model = grid(10, 10, 4, kind)
    with impatient():
        bucketflow.solve(grid(7, 7, 4, kind), query, tree=tree, method="dense")  # imports and compiled kernels
    peak, result = measured_peak(model, query, tree=tree, method="dense")
    assert result.plan is not None
    assert result.plan.peak_bytes > SLACK_BYTES
    assert peak + model.nbytes <= result.plan.peak_bytes + SLACK_BYTES


@pytest.mark.parametrize(
    ("query", "kind"), [("optimum", "cost"), ("partition", "markov"), ("partition", "steep"), ("count", "forbids")]
)
def test_smaller_budgets_give_the_same_answer(query: str, kind: str) -> None:
    model = grid(8, 8, 4, kind) if query == "count" else grid(9, 9, 4, kind)
    with impatient():
        free = bucketflow.solve(model, query, method="dense")  # imports and compiled kernels, too
    assert free.plan is not None
    for share in (2, 4 if query == "count" else 8):  # a count sweeps all slices seven times
        budget = free.plan.peak_bytes // share
        peak, tight = measured_peak(model, query, budget, memory=budget, fit="slice")
        assert tight.plan is not None
        assert share == 2 or tight.plan.slices > 1 or tight.plan.cuts
        assert tight.plan.peak_bytes <= budget
        assert peak + model.nbytes <= budget + SLACK_BYTES
        assert tight.value == free.value
        assert (tight.log10 is None) == (free.log10 is None)
        if free.log10 is not None:
            assert tight.log10 == pytest.approx(free.log10, rel=1e-12)


def test_recomputation_is_chosen_before_slicing() -> None:
    """A long chain of wide messages: keeping them all is what does not fit; less memory needs both."""
    model = grid(8, 40, 3)
    free = bucketflow.plan(model, tree="bucket")
    assert isinstance(free, Plan)
    value = bucketflow.solve(model).value
    cut = bucketflow.solve(model, memory=free.peak_bytes // 2, tree="bucket", fit="slice")
    assert cut.plan is not None
    assert cut.plan.slices == 1
    assert cut.plan.cuts
    assert cut.value == value
    both = bucketflow.solve(model, memory=free.peak_bytes * 2 // 5, tree="bucket", fit="slice")
    assert both.plan is not None
    assert both.plan.slices > 1
    assert both.plan.cuts
    assert both.value == value


def test_impossible_budget_names_both_numbers() -> None:
    with pytest.raises(bucketflow.BudgetError, match=r"needs .* allowed 20 kB"):
        bucketflow.solve(grid(9, 9, 4), memory=20_000)


@pytest.mark.parametrize("memory", [1, 500_000, 1_060_000])
def test_refused_boxes_are_told_in_terms_of_the_budget(memory: int) -> None:
    with pytest.raises(bucketflow.BudgetError) as refused:
        bucketflow.plan(grid(9, 9, 4), memory=memory, fit="spill")
    sentence = r"needs .* of memory, allowed ([\d.]+ \w+): 1.05 MB in reserve, .* at least ([\d.]+ \w+)"
    allowed, needed = re.findall(sentence, str(refused.value))[0]
    assert parse_size(allowed) == memory
    assert parse_size(needed) > max(memory, 1 << 20)
    assert " 1 cells" not in str(refused.value)


def test_sizes_are_read_as_dask_reads_them() -> None:
    units = ["", "b", "B", "k", "kB", "KB", "kib", "Mi", "MB", "gB", "GB", "TiB", "p", "pib"]
    for size in (
        f"{number}{gap}{unit}" for number in ("0", "1", "5.4", "1e6", ".5") for gap in ("", " ") for unit in units
    ):
        assert parse_size(size) == parse_bytes(size)
    assert parse_size("MB") == parse_bytes("MB")
    for wrong in ("5 foos", "i", "1ib", "1eb", "nan", "inf GB", "-1", "GB5", "1,5 kB", True, "", " "):
        with pytest.raises(bucketflow.ModelError, match="is not a size"):
            parse_size(wrong)


def test_plans_are_deterministic() -> None:
    model = grid(8, 8, 3)
    first, second = (prepare(Question(model, "optimum"), Resources(Options(seed=3))).plan for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.tree == second.tree
    assert first.layouts == second.layouts


class Machine:
    """A made-up tree of /proc and /sys with control groups for memory."""

    def __init__(self, root: Path, cgroup: str, mountinfo: str) -> None:
        self.root = root
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(cgroup)
        (root / "proc/self/mountinfo").write_text(mountinfo)

    def group(self, folder: str, **files: object) -> None:
        """Write the files of a group; dots in their names are written as underscores, twice."""
        path = self.root / folder
        path.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            (path / name.replace("__", ".")).write_text(f"{value}\n")


GB = 10**9
V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 {inside} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def budget_of(machine: Machine) -> int:
    """What is free there by default, before the share of others and the process's own."""
    left = default_memory_bytes(machine.root)
    return round((left + COMPILED_PROCESS_BYTES) / 0.8)


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 GB that are free."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=100 * GB))


@pytest.mark.usefixtures("available")
def test_no_control_groups(tmp_path: Path) -> None:
    assert round((default_memory_bytes(tmp_path) + COMPILED_PROCESS_BYTES) / 0.8) == 100 * GB
    assert budget_of(Machine(tmp_path, "0::/\n", "1 0 0:1 / / rw - ext4 /dev/sda rw\n")) == 100 * GB


@pytest.mark.usefixtures("available")
def test_what_the_kernel_says_is_available(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/\n", "1 0 0:1 / / rw - ext4 /dev/sda rw\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal:       9 kB\nMemAvailable:   7340032 kB\n")
    assert budget_of(machine) == 7 << 30


@pytest.mark.usefixtures("available")
def test_the_least_limit_of_nested_groups_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/slurm/job_1/step_0\n", V2)
    machine.group("sys/fs/cgroup/slurm/job_1/step_0", memory__max="max", memory__current=GB)
    assert budget_of(machine) == 100 * GB
    machine.group("sys/fs/cgroup/slurm", memory__max=30 * GB, memory__current=10 * GB)
    assert budget_of(machine) == 20 * GB
    machine.group("sys/fs/cgroup/slurm/job_1", memory__max=8 * GB, memory__current=2 * GB)
    assert budget_of(machine) == 6 * GB
    machine.group("sys/fs/cgroup/slurm/job_1", memory__stat="anon 5\ninactive_file 1500000000")
    assert budget_of(machine) == 7.5 * GB
    machine.group("sys/fs/cgroup/slurm/other", memory__max=GB, memory__current=0)
    assert budget_of(machine) == 7.5 * GB


@pytest.mark.usefixtures("available")
@pytest.mark.parametrize("inside", ["/", "/docker/abc"])
def test_limits_of_the_first_version(tmp_path: Path, inside: str) -> None:
    """Also those of a container that sees its own part of the tree under the paths of all of it."""
    machine = Machine(tmp_path, "4:cpuset:/\n3:blkio,memory:/docker/abc\n0::/\n", V1.format(inside=inside))
    own = "sys/fs/cgroup/memory" + ("/docker/abc" if inside == "/" else "")
    usage = {"memory__limit_in_bytes": 4 * GB, "memory__usage_in_bytes": 3 * GB}
    machine.group(own, **usage, memory__stat="inactive_file 0\ntotal_inactive_file 2000000000")
    assert budget_of(machine) == 3 * GB


@pytest.mark.usefixtures("available")
def test_a_small_limit_leaves_something(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0::/\n", V2)
    machine.group("sys/fs/cgroup", memory__max=100_000_000, memory__current=20_000_000)
    assert default_memory_bytes(tmp_path) == 20_000_000
    machine.group("sys/fs/cgroup", memory__max=100_000_000, memory__current=200_000_000)
    assert default_memory_bytes(tmp_path) == 0


@pytest.mark.parametrize("query", ["optimum", "marginals"])
@pytest.mark.parametrize("beside", [-850_000, 0, 1_000])
def test_a_refusal_to_spill_says_what_is_left_for_a_box_and_how_much_is_enough(query: str, beside: int) -> None:
    """Not that a step of one cell needs a megabyte, which is the margin."""
    model = grid(7, 7, 4, "markov" if query == "marginals" else "cost")
    memory = BudgetPolicy.margin_bytes + model.nbytes + beside
    refusals: list[str] = []
    for _ in range(9):  # a stage after the other
        try:
            bucketflow.plan(model, query, fit="spill", memory=memory)
            break
        except bucketflow.BudgetError as error:
            refusals.append(str(error))
            if memory <= BudgetPolicy.margin_bytes + model.nbytes:  # less than the reserve alone
                found = re.fullmatch(
                    r"a run with tables on disk needs (.*) of memory, allowed (.*): 1.05 MB in reserve, (.*) for the "
                    r"model, and (.*) for the smallest box of a step; give --memory of at least (.*), or another --fit",
                    refusals[-1],
                )
                assert found is not None, refusals[-1]
                needed, given, nbytes, box, enough = found.groups()
                assert (needed, given, nbytes) == (enough, format_bytes(memory), format_bytes(model.nbytes))
                assert parse_size(box) < 100_000
                assert parse_size(enough) > memory
                memory = parse_size(enough)
                continue
            found = re.search(
                r"the step of (\S+) cells needs (.*) for its smallest box, allowed (.*): of (.*) in all the model "
                r"takes (.*) and a margin 1.05 MB; try --memory of at least (.* [kM]?B)",
                refusals[-1],
            )
            assert found is not None, refusals[-1]
            cells, box, allowed, given, nbytes, enough = found.groups()
            assert 4 < float(cells) < 4**12
            assert parse_size(box) < 100_000
            assert allowed == format_bytes(memory - BudgetPolicy.margin_bytes - model.nbytes)
            assert (given, nbytes) == (format_bytes(memory), format_bytes(model.nbytes))
            assert parse_size(enough) > memory
            memory = parse_size(enough)
    assert 0 < len(refusals) < 9
