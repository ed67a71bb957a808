"""Packages, images, charts and timers: their files can be read, and name extras, commands and options that exist."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from dask.utils import parse_bytes

import bucketflow
from bucketflow.cluster.memory import limited_bytes
from bucketflow.pipeline.cli.main import main
from bucketflow.tasks.compiler import code_cache
from tests.test_structure import ROOT

PACKAGES = ROOT / "docs" / "packages"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# Names of conda's that differ from those of pip.
CONDA = {"dask": "dask-core", "msgpack": "msgpack-python"}
OPTION = re.compile(r"(?<![\w-])--[a-z-]+")
IMAGES = ["Dockerfile", "Dockerfile.cuda"]
INSTRUCTIONS = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}


def required(requirements: list[str]) -> dict[str, str]:
    """Return the versions that requirements ask for, by lower-case names."""
    parts = [re.fullmatch(r"([\w-]+)\s*(.*)", each) for each in requirements]
    return {found[1].lower(): found[2] for found in parts if found is not None}


def test_all_is_every_extra_for_users_but_those_that_come_with_gpus() -> None:
    (named,) = EXTRAS["all"]
    found = re.fullmatch(r"bucketflow-inference\[(.*)\]", named)
    assert found is not None
    developers = {"bench", "dev", "docs", "test"}
    assert set(found[1].split(",")) == set(EXTRAS) - developers - {"all", "cuda12", "cuda13", "torch"}


def test_the_recipe_needs_what_the_project_needs() -> None:
    recipe = yaml.safe_load((PACKAGES / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == bucketflow.__version__
    run = required(recipe["requirements"]["run"])
    assert run.pop("python") == PROJECT["requires-python"]
    asked = required(PROJECT["dependencies"])
    assert run == {CONDA.get(name, name): version for name, version in asked.items()}
    script = PROJECT["scripts"]["bucketflow"]
    assert recipe["build"]["python"]["entry_points"] == [f"bucketflow = {script}"]


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_made_of_instructions_and_extras_that_are_there(name: str) -> None:
    text = re.sub(r"^#.*\n", "", (PACKAGES / name).read_text(), flags=re.MULTILINE)
    assert {line.split()[0] for line in text.strip().splitlines()} <= INSTRUCTIONS
    for cuda in ("12", "13"):
        (extras,) = re.findall(r"""['"]\.\[([^\]]+)\]""", text.replace("$CUDA", cuda))
        assert set(extras.split(",")) <= set(EXTRAS)
    for line in re.findall(r"^RUN (.*)$", text, re.MULTILINE):
        subprocess.run(["sh", "-n", "-c", line], check=True)
    assert (PACKAGES / f"{name}.dockerignore").is_file()


def entrypoint(name: str) -> Path:
    """Return the script in the checkout that an image copies to the path of its entrypoint."""
    text = (PACKAGES / name).read_text()
    (found,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    (path,) = json.loads(found)
    copies = {target: ROOT / source for source, target in re.findall(r"^COPY (\S+) (\S+)$", text, re.MULTILINE)}
    return copies[path]


def executed(script: Path, programs: list[str], arguments: list[str], folder: Path) -> list[str]:
    """Run a script with arguments, where only stubs of programs are on the PATH; return what it executes."""
    for name in programs:
        stub = folder / name
        stub.write_text("""#!/bin/sh\nprintf '%s\\n' "${0##*/}" "$@"\n""")
        stub.chmod(0o755)
    done = subprocess.run([script, *arguments], env={"PATH": str(folder)}, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", IMAGES)
def test_images_run_programs_and_otherwise_bucketflow(name: str, tmp_path: Path) -> None:
    script = entrypoint(name)
    programs = ["bucketflow", "dask", "dask-worker", "python", "echo", "watch", "man", "--help"]
    for program in ("dask", "dask-worker", "python", "echo", "bucketflow"):
        given = [program, "--name", "a b", "", "*"]
        assert executed(script, programs, given, tmp_path) == given
    for given in ([], ["--help"], ["solve", "a b.uai", "--query", "partition"], ["watch", "grid"], ["jobs"], ["slove"]):
        assert executed(script, programs, given, tmp_path) == ["bucketflow", *given]


def test_commands_of_bucketflow_are_not_mistaken_for_programs(tmp_path: Path) -> None:
    commands = main.list_commands(click.Context(main, **main.context_settings))
    assert len(commands) > 20
    script = entrypoint("Dockerfile")
    for command in commands:
        assert executed(script, ["bucketflow", command], [command], tmp_path) == ["bucketflow", command]


def chart_arguments(values: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the arguments that Dask's Helm chart (2023.10.1) gives a scheduler and a worker."""
    worker = values["worker"]
    limits = worker["resources"]["limits"]
    threads = str(worker.get("threads_per_worker") or limits["cpu"])
    sizes = ["--nthreads", threads, "--memory-limit", str(limits["memory"])]
    pages = ["--no-dashboard", "--dashboard-address", "8790"]
    return (
        ["dask-scheduler", "--port=8786", "--dashboard-address=:8787"],
        ["dask-worker", "bucketflow-dask-scheduler:8786", *sizes, *pages],
    )


def operator_arguments(settings: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the arguments that dask-kubernetes' operator gives a scheduler and a worker."""
    command = settings.get("worker_command", "dask-worker").split(" ")
    return (
        ["dask-scheduler", "--host", "0.0.0.0"],
        [*command, "--name", "bucketflow-worker-1", "--dashboard", "--dashboard-address", "8788"],
    )


def chart() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((PACKAGES / "helm-values.yaml").read_text())
    return values


def operator() -> dict[str, Any]:
    """Return the settings of the operator's cluster in the page on clusters."""
    page = (ROOT / "docs" / "clusters.md").read_text()
    (block,) = [
        text for text in re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "KubeCluster" in text
    ]
    settings: dict[str, Any] = yaml.safe_load(block)["arguments"]
    return settings


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("started_by", ["chart", "operator"])
def test_images_are_schedulers_and_workers_with_one_thread(name: str, started_by: str, tmp_path: Path) -> None:
    from distributed.cli import dask_scheduler, dask_worker

    if started_by == "chart":
        resources = chart()["worker"]["resources"]
        scheduler, worker = chart_arguments(chart())
    else:
        resources = operator()["resources"]
        scheduler, worker = operator_arguments(operator())
    programs = ["bucketflow", "dask-scheduler", "dask-worker"]
    for given in (scheduler, worker):
        assert executed(entrypoint(name), programs, given, tmp_path) == given
    assert dask_scheduler.main.make_context(scheduler[0], scheduler[1:]).params["preload_argv"] == ()
    options = dask_worker.main.make_context(worker[0], worker[1:]).params
    assert (options["nthreads"], options["preload_argv"]) == (1, ())
    assert resources["limits"] == resources["requests"] == {"cpu": 1, "memory": options["memory_limit"]}
    task = f"{limited_bytes(parse_bytes(options['memory_limit'])) / 1e9:g} GB"
    assert f"a task may use {task}" in (ROOT / "docs" / "clusters.md").read_text()
    assert f"here {task}" in (PACKAGES / "helm-values.yaml").read_text()


@pytest.mark.parametrize("name", IMAGES)
def test_code_of_images_is_found_beside_the_cache_of_each_user(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (PACKAGES / name).read_text()
    assert not re.search(r"^ENV BUCKETFLOW_CACHE", text, re.MULTILINE)  # users would write to a folder of root
    (line,) = re.findall(r"^RUN (.* bucketflow warm --portable)$", text, re.MULTILINE)
    stub = tmp_path / "bucketflow"
    stub.write_text("""#!/bin/sh\necho "$1 $BUCKETFLOW_CACHE"\n""")
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), "/bin"])}
    done = subprocess.run(["sh", "-c", line], env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    command, _, folder = done.stdout.strip().partition(" ")
    assert command == "warm"
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("BUCKETFLOW_CACHE", folder)
    written, _ = code_cache.code_roots()
    monkeypatch.setenv("BUCKETFLOW_CACHE", str(tmp_path / "cache"))
    own, shared = code_cache.code_roots()
    assert own == tmp_path / "cache" / "machine-code"
    assert written.resolve() == shared.resolve()


def test_values_of_the_chart_use_one_image() -> None:
    values = chart()
    assert values["scheduler"]["image"] == values["worker"]["image"]
    mounts = values["worker"]["mounts"]
    assert [each["name"] for each in mounts["volumes"]] == [each["name"] for each in mounts["volumeMounts"]]


def timer_blocks(language: str) -> list[str]:
    """Code of the page on batches, from where it is on timers."""
    page = (ROOT / "docs" / "batches.md").read_text().partition("## On a timer")[2]
    return [
        text for kind, text in re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if kind == language
    ]


def test_timers_use_options_that_are_there() -> None:
    command = main.get_command(click.Context(main, **main.context_settings), "batch")
    assert command is not None
    known = {option for param in command.params for option in param.opts}
    used = [
        option for kind in ("", "ini", "python") for block in timer_blocks(kind) for option in OPTION.findall(block)
    ]
    assert len(used) >= 10
    assert set(used) <= known


def test_units_of_systemd_have_their_parts() -> None:
    service, timer = (configparser.ConfigParser() for _ in range(2))
    for unit, text in zip((service, timer), timer_blocks("ini"), strict=True):
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(text)
    assert service["Service"]["Type"] == "oneshot"
    assert "bucketflow batch" in service["Service"]["ExecStart"]
    assert timer["Timer"]["OnCalendar"]
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_line_of_cron_has_five_times_and_a_command() -> None:
    (line,) = timer_blocks("")
    found = re.fullmatch(r"((?:[\d*/,-]+ ){5})(.*)\n", line)
    assert found is not None
    subprocess.run(["sh", "-n", "-c", found[2]], check=True)


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a list of questions, for the commands of the examples."""
    (tmp_path / "questions.csv").write_text("model,query\ndiagnosis,optimum\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return tmp_path


def is_answered(folder: Path) -> bool:
    return bool(json.loads((folder / "results" / "summary.json").read_text())["exit_code"] == 0)


def test_the_line_of_cron_runs(nightly: Path) -> None:
    (line,) = timer_blocks("")
    command = line.split(" ", 5)[5].replace("/srv/models", str(nightly))
    subprocess.run(["sh", "-c", command], check=True)
    assert is_answered(nightly)
    assert (nightly / "batch.log").read_text()


def test_the_unit_of_systemd_runs(nightly: Path) -> None:
    service = configparser.ConfigParser()
    service.read_string(timer_blocks("ini")[0])
    command = service["Service"]["ExecStart"].removeprefix("/opt/bucketflow/bin/").replace("--workers 8", "--workers 1")
    subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)
    assert is_answered(nightly)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_of_systemd_are_verified(nightly: Path) -> None:
    for name, text in zip(("service", "timer"), timer_blocks("ini"), strict=True):
        there = text.replace("/opt/bucketflow/bin/bucketflow", sys.executable)
        (nightly / f"bucketflow-batch.{name}").write_text(there)
    units = [str(path) for path in nightly.glob("bucketflow-batch.*")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def flow_code(module: str) -> str:
    (code,) = [block for block in timer_blocks("python") if f"from {module}" in block]
    return code


@pytest.mark.parametrize("module", ["airflow", "prefect"])
def test_flows_are_python(module: str) -> None:
    ast.parse(flow_code(module))


def test_the_flow_of_prefect_runs(nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(nightly / "prefect"))
    testing = pytest.importorskip("prefect.testing.utilities", reason="Prefect is not installed")
    names: dict[str, Any] = {"__name__": "flow"}
    exec(flow_code("prefect"), names)
    with testing.prefect_test_harness(server_startup_timeout=None):
        names["nightly"]()
    assert is_answered(nightly)


def test_the_task_of_airflow_runs(nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(nightly / "airflow"))
    pytest.importorskip("airflow.providers.standard", reason="Airflow 3 with its standard provider is not installed")
    names: dict[str, Any] = {"__name__": "flow"}
    exec(flow_code("airflow").replace("/srv/models", str(nightly)).replace("False):", "False) as dag:"), names)
    (task,) = names["dag"].tasks
    task.execute({})
    assert is_answered(nightly)
