"""What packages, images and timers are made of: extras, recipes and examples name what is there, and can be read."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import tomllib
from typing import Any

import click
import pytest
import yaml

import bucketflow
from bucketflow.pipeline.cli.main import main
from tests.test_structure import ROOT

PACKAGES = ROOT / "docs" / "packages"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# Names of conda's that differ from those of pip.
CONDA = {"dask": "dask-core", "msgpack": "msgpack-python"}
OPTION = re.compile(r"(?<![\w-])--[a-z-]+")
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


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_images_are_made_of_instructions_and_extras_that_are_there(name: str) -> None:
    text = re.sub(r"^#.*\n", "", (PACKAGES / name).read_text(), flags=re.MULTILINE)
    assert {line.split()[0] for line in text.strip().splitlines()} <= INSTRUCTIONS
    assert "RUN bucketflow warm" in text
    for cuda in ("12", "13"):
        (extras,) = re.findall(r"""['"]\.\[([^\]]+)\]""", text.replace("$CUDA", cuda))
        assert set(extras.split(",")) <= set(EXTRAS)
    for line in re.findall(r"^RUN (.*)$", text, re.MULTILINE):
        subprocess.run(["sh", "-n", "-c", line], check=True)
    assert (PACKAGES / f"{name}.dockerignore").is_file()


def test_values_of_the_chart_use_one_image() -> None:
    values = yaml.safe_load((PACKAGES / "helm-values.yaml").read_text())
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
    command = main.get_command(click.Context(main), "batch")
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


@pytest.mark.parametrize("module", ["airflow", "prefect"])
def test_flows_are_python_and_run_where_their_tool_is_installed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [block for block in timer_blocks("python") if f"from {module}" in block]
    ast.parse(code)
    pytest.importorskip(module)
    exec(code, {"__name__": "flow"})
