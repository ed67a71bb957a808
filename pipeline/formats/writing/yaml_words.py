"""Words in YAML, which reads some as numbers or truth values."""

from __future__ import annotations

import json
import re

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def yaml_word(text: str) -> str:
    """Write a name or a key, quoted where it may be read as something else."""
    return text if _WORD.fullmatch(text) and text.lower() not in _RESERVED else yaml_quoted(text)


def yaml_quoted(text: str) -> str:
    """Quote text as YAML reads it: characters that no file may hold as such are escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
