"""Calibration: measured once, kept by machine, device and version, and used where it is there."""

from __future__ import annotations

import json
import platform
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.cluster import gpus
from bucketflow.cluster.gpus import GpuWorker
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.machine import device as calibrate_device
from bucketflow.pipeline.machine import rates as rate_files
from bucketflow.pipeline.machine import resources
from bucketflow.pipeline.machine.device import DeviceRates, cached_device_rates, least_device_cells
from bucketflow.pipeline.machine.rates import cached_rates, measure_again
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.trees.costs import Rates, gpu_rates
from bucketflow.tasks.steps.semiring import Semiring, min_plus
from bucketflow.tasks.sweeps.device_sweep import LEAST_CELLS, DevicePlaces, on_device
from bucketflow.tasks.sweeps.sweep import Plain
from tests.models import grid

INT32 = min_plus("int32", 4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BUCKETFLOW_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def calibrated(monkeypatch: pytest.MonkeyPatch, *flags: str) -> Any:
    monkeypatch.setattr(calibrate_device, "SEMIRINGS", (INT32,))
    return CliRunner().invoke(main, ["calibrate", *flags], catch_exceptions=False)


def test_the_command_measures_and_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached_rates(INT32) is None
    found = json.loads(calibrated(monkeypatch, "--json").output)
    rates = cached_rates(INT32)
    assert rates is not None
    assert found["cpu"]["min_plus int32"]["cells_per_second"] == rates.cells_per_second
    assert Path(found["cache"]).exists()
    assert found["disk_bytes_per_second"] > 0
    assert (found["gpu"] is None) == ("gpu_missing" in found)


def test_what_others_run_meanwhile_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are of CPU time: on a machine that two others used streaming steps seemed to take twice as long."""
    worked, passed = [0.0], [0.0]

    def action() -> None:
        worked[0] += 1e-3
        passed[0] += 3e-3

    clocks = SimpleNamespace(thread_time=lambda: worked[0], perf_counter=lambda: passed[0])
    monkeypatch.setattr(rate_files, "time", clocks)
    assert rate_files._best(action) == pytest.approx(1e-3)


def test_the_table_names_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    output = calibrated(monkeypatch).output
    assert "min_plus int32" in output
    assert "disk" in output
    assert "…" not in output.partition("rates a second")[2]


@pytest.mark.parametrize("content", ["", "[]", '{"min_plus int32": 3}', '{"min_plus int32": {"cells_per_second": -1}}'])
def test_a_damaged_cache_is_measured_again(content: str) -> None:
    path = rate_files.path_of(rate_files.machine())
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert cached_rates(INT32) is None
    assert measure_again(INT32) == cached_rates(INT32)


def test_other_entries_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    rate_files.write("machine", {"a": 1})
    rate_files.write("machine", {"b": 2})
    assert rate_files.read("machine") == {"a": 1, "b": 2}
    monkeypatch.setattr(rate_files, "__version__", "another")
    assert rate_files.read("machine") == {}


def test_launches_of_an_earlier_version_are_reported_and_not_used() -> None:
    asked = ["plan", "grid", "--query", "partition"]
    rate_files.write(rate_files.machine(), {"launches": None})
    assert "tune" not in CliRunner().invoke(main, asked, catch_exceptions=False).output
    rate_files.write(rate_files.machine(), {"launches": {"features": ["cells"]}})
    assert "`tune` was removed in this version" in rate_files.removed_launches(rate_files.machine())
    shown = " ".join(CliRunner().invoke(main, asked, catch_exceptions=False).output.split())
    assert "are not used: `tune` was removed in this version" in shown
    assert "there is nothing to do instead" in shown
    assert "are not used" in json.loads(CliRunner().invoke(main, [*asked, "--json"]).output)["plan"]["launches"]


@pytest.mark.parametrize("arguments", [["tune"], ["tune", "--gpus", "1", "--minutes", "2"], ["tune", "--help"]])
def test_the_removed_command_ends_with_one_sentence(arguments: list[str]) -> None:
    ended = CliRunner().invoke(main, arguments)
    assert ended.exit_code == 2
    assert ended.output.count("\n") == 1
    assert "`tune` was removed in this version" in ended.output
    with pytest.raises(AttributeError, match="`tune` was removed in this version"):
        _ = bucketflow.tune


def test_a_measured_disk_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = rate_files.keep_disk_rate(tmp_path)
    monkeypatch.setattr(rate_files, "sampled_rate", lambda _: pytest.fail("measured again"))
    assert rate_files.measured_disk_rate(tmp_path) == kept


def test_the_fastest_round_is_the_rate_of_a_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seconds = iter([3.0, 0.5, 2.0, 1.0, *[4.0] * 4])
    monkeypatch.setattr(rate_files, "sample_seconds", lambda *_: next(seconds))
    assert rate_files.sampled_rate(tmp_path / "busy") == 2 * rate_files.SAMPLE_BYTES / 0.5


def test_machines_of_one_model_share_rates_but_not_disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = rate_files.machine()
    rate_files.keep_disk_rate(tmp_path)
    rate_files.sampled_rate.cache_clear()
    rate_files.machine.cache_clear()
    monkeypatch.setattr(platform, "node", lambda: "another")
    assert rate_files.machine() == name
    monkeypatch.setattr(rate_files, "sample_seconds", lambda *_: 1.0)
    assert rate_files.measured_disk_rate(tmp_path) == 2.0 * rate_files.SAMPLE_BYTES
    rate_files.sampled_rate.cache_clear()


def known_cpu() -> None:
    rates = {"cells_per_second": 1e9, "matmul_cells_per_second": 8e9, "bytes_per_second": 5e9, "step_seconds": 1e-5}
    rate_files.write(rate_files.machine(), {"min_plus int32": rates})


def test_slow_links_and_launches_keep_more_steps_on_the_cpu() -> None:
    def least(launch: float, link: float) -> int:
        return least_device_cells(INT32, DeviceRates(Rates(1e12, 1e13, 3e12, launch), link, launch))

    assert least(1e-5, 5e10) == LEAST_CELLS
    known_cpu()
    assert least(1e-5, 5e10) < least(1e-4, 5e10) < least(1e-3, 5e10)
    assert least(1e-5, 1e8) == 1 << 40
    threshold = least(1e-4, 5e10)
    here, there = (lambda n: 1e-5 + n / 1e9), (lambda n: 2e-4 + n / 1e12 + 4 * n / 5e10)
    assert here(threshold) > there(threshold)
    assert here(threshold // 2) <= there(threshold // 2)


def test_steps_go_where_the_calibration_says() -> None:
    places = on_device(Plain(INT32), 1000).places  # type: ignore[attr-defined]
    assert isinstance(places, DevicePlaces)
    assert places.least_cells == 1000
    assert on_device(Plain(INT32)).places.least_cells == DevicePlaces().least_cells  # type: ignore[attr-defined]


def test_rates_of_a_cluster_are_those_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(_: Semiring) -> DeviceRates:
        raise AssertionError("looked at this machine's device")

    options = Options(scheduler="tcp://somewhere:1", gpus="all")
    there = DeviceRates(Rates(1.0, 2.0, 3.0, 4.0), 5.0, 6.0)
    workers = (GpuWorker("tcp://there:1", 1),)
    monkeypatch.setattr(calibrate_device, "cached_device_rates", measured)
    client = SimpleNamespace(run=lambda _, workers: dict.fromkeys(workers, rates))
    monkeypatch.setattr(resources, "connected", lambda *_: nullcontext(client))
    monkeypatch.setattr(gpus, "gpu_workers", lambda *_: workers)
    rates = {INT32: (there, 7)}
    assert resources.Resources(options).least_cells(INT32) == 7
    assert resources.Resources(options).device_rates(INT32) == there
    rates = {}
    assert resources.Resources(options).least_cells(INT32) is None
    assert resources.Resources(options).device_rates(INT32) == DeviceRates(gpu_rates(INT32))


def test_a_worker_tells_what_was_measured_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    there = DeviceRates(Rates(1e12, 1e12, 1e12, 1e-5), 5e10, 1e-5)
    monkeypatch.setattr(calibrate_device, "cached_device_rates", lambda s: there if s == INT32 else None)
    monkeypatch.setattr(calibrate_device, "least_device_cells", lambda s, rates: 8)
    assert calibrate_device.known_device_rates() == {INT32: (there, 8)}


@pytest.mark.gpu
def test_a_gpu_is_measured_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    found = json.loads(calibrated(monkeypatch, "--json").output)
    device = cached_device_rates(INT32)
    assert device is not None
    assert found["gpu"]["kernels"]["min_plus int32"]["bytes_per_second"] == device.rates.bytes_per_second
    assert 1e11 < device.rates.bytes_per_second < 1e13
    assert device.rates.matmul_cells_per_second > device.rates.cells_per_second / 2
    assert 1e9 < device.link_bytes_per_second < 1e12
    model = grid(8, 8, 4)
    plan = bucketflow.plan(model, gpus=1)
    assert plan is not None
    assert bucketflow.solve(model, gpus=1).value == bucketflow.solve(model).value
