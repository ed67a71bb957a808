"""Options from the environment and from a file, where the command line does not give them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..models.option_rows import OPTION_ROWS

#: Other environment variables of options, in addition to ``BUCKETFLOW_NAME``: the names that Dask uses.
OTHER_VARIABLES = {"scheduler": "DASK_SCHEDULER_ADDRESS"}
# Options of the place of a run exclude each other. The command line overrides places given by the environment or a
# file.
_PLACES = ("workers", "scheduler", "gpus")
# Every command has these, beside the options of rows.
_LOGS = ("log", "log_level", "metrics")
_GIVEN_BEFORE = (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)


def variables_of(name: str) -> list[str]:
    """Return the variables of the environment that an option is read from."""
    return [f"BUCKETFLOW_{name.upper()}", *filter(None, [OTHER_VARIABLES.get(name)])]


def give_way(context: click.Context, cluster: object) -> None:
    """Leave out where to run, as the environment or a file has it, if the command line says another place."""
    given = {name: context.get_parameter_source(name) for name in _PLACES}
    said = cluster is not None or ParameterSource.COMMANDLINE in given.values()
    for name, source in given.items():
        if said and source in _GIVEN_BEFORE:
            context.params[name] = None


def default_path() -> Path:
    """Return where the file of options of a user is."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bucketflow" / "config.toml"


def read_settings(context: click.Context, _: object, given: str | None) -> str | None:
    """Use the options in a TOML file as defaults: the options of all commands, and one table for each command with
    options of its own.

    Raises
    ------
    BucketflowError
        If the file cannot be read, or has a name that is no option.
    """
    from ..local_paths import local_path

    path = local_path(given) if given else default_path()
    if given or path.is_file():
        context.default_map = _defaults(context, path)
    return given


def _defaults(context: click.Context, path: Path) -> dict[str, Any]:
    import tomllib

    from ..errors import FormatError

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FormatError(str(path), None, "a readable file", error.strerror or str(error)) from None
    except ValueError as error:
        raise FormatError(str(path), None, "options in TOML", str(error)) from None
    group = context.command
    assert isinstance(group, click.Group)
    tables = {name: table for name, table in found.items() if isinstance(table, dict)}
    shared = _named(path, {name: value for name, value in found.items() if name not in tables}, [*OPTION_ROWS, *_LOGS])
    made = {name: dict(shared) for name in group.list_commands(context)}
    for name, table in tables.items():
        command = group.get_command(context, name) if name in made else None
        if command is None:
            raise _unknown(path, name, [*made])
        made[name] |= _named(path, table, [param.name or "" for param in command.params])
    return made


def _named(path: Path, options: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    """Return options by the names of parameters."""
    named = {name.replace("-", "_"): value for name, value in options.items()}
    for name in named:
        if name not in known:
            raise _unknown(path, name, known)
    return named


def _unknown(path: Path, name: str, known: list[str]) -> Exception:
    from ..errors import FormatError, meant

    return FormatError(str(path), None, "names of options or commands", f"{name!r}{meant(name, known)}")
