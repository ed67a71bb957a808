"""The reference page of ``--json``: JSON Schemas of the commands' output, derived from examples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner

from bucketflow.pipeline.cli.main import main

Schema = dict[str, Any]

# Examples of each command; RUN is a run directory, which the first example creates.
_ASKED = {
    "solve": (
        "satellite --workdir RUN",
        "diagnosis",
        "diagnosis --query count",
        "grid --query partition",
        "satellite --representation rows",
        "meetings --upper-bound 100",
        "meetings --upper-bound 1",
    ),
    "solve --best": ("satellite --best 2", "diagnosis --best 2"),
    "marginals": ("diagnosis --joint Season,Storm", "meetings --max-marginals"),
    "plan": ("grid --query partition", "satellite"),
    "bound": ("grid --query partition", "satellite", "grid --z 8 --workers 1"),
    "info": ("diagnosis", "meetings"),
    "dpop": ("meetings", "meetings --z 4", "meetings --workers 1"),
    "inspect": ("RUN",),
    "formats": ("",),
}
# Objects whose keys are names of the model's, of phases or of engines, and not words of the format.
_NAMED = {
    "assignment",
    "evidence",
    "by_agent",
    "marginals",
    "states",
    "seconds",
    "messages",
    "message_bytes",
    "tried",
    "removed",
}
_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def json_page() -> str:
    """Return the page: for each command its examples, and the schema of their output."""
    blocks = [
        "# The output of `--json`",
        "Each command prints one JSON object to standard output. "
        "The schema of a command is derived from the output of the examples.",
    ]
    with TemporaryDirectory() as folder:
        for command, asked in _ASKED.items():
            shown = [f"bucketflow {command.split()[0]} {each} --json".replace("  ", " ") for each in asked]
            printed = [_printed(line.replace("RUN", folder)) for line in shown]
            listed = "\n".join(line.replace("RUN", "DIR") for line in shown)
            blocks += [f"## {command}", f"```sh\n{listed}\n```", f"```json\n{laid_out(schema_of(printed))}\n```"]
    return "\n\n".join(blocks)


def laid_out(value: Any, indent: str = "") -> str:
    """Return JSON in lines: an object that is too long for one line has a line for each key."""
    whole = json.dumps(value)
    if len(indent) + len(whole) <= 100 or not isinstance(value, dict):
        return whole
    lines = [f'{indent}  "{key}": {laid_out(inside, indent + "  ")}' for key, inside in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _printed(line: str) -> Any:
    done = CliRunner().invoke(main, line.split()[1:])
    if done.exit_code not in (0, 4):
        raise ValueError(f"{line} ended with {done.exit_code}: {done.output}")
    return json.loads(done.stdout)


def schema_of(values: Sequence[Any], name: str = "") -> Schema:
    """Return a JSON Schema of values; a key is required if all objects have it."""
    kinds = sorted({_TYPES[type(value)] for value in values} - {"integer"} | _integers(values))
    schema: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
    if items := [item for value in values if isinstance(value, list) for item in value]:
        schema["items"] = schema_of(items)
    objects = [value for value in values if isinstance(value, dict)]
    if objects and name in _NAMED:
        schema["additionalProperties"] = schema_of([each for value in objects for each in value.values()])
    elif objects:
        keys = list(dict.fromkeys(key for value in objects for key in value))
        schema["properties"] = {key: schema_of([v[key] for v in objects if key in v], key) for key in keys}
        schema["required"] = [key for key in keys if all(key in value for value in objects)]
    return schema


def _integers(values: Iterable[Any]) -> set[str]:
    """Return ``{"integer"}`` if some values are integers and none is a float, else an empty set."""
    kinds = {type(value) for value in values}
    return {"integer"} if int in kinds and float not in kinds else set()
