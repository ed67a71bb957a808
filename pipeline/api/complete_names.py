"""Offer the variables and states of a command's model to the shell.

The shell waits for each answer, so a model is read only if its file is small, and for a limited time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

#: Bytes of a file that is read for its names: some tenths of a second for text.
MOST_BYTES: Final = 2_000_000
# Offered names; a shell asks before it lists more, and nobody reads them.
_MOST_NAMES: Final = 1_000
# Characters of a name that a shell or an option would take for its own.
_SPECIAL: Final = re.compile(r"[\s,=:|\"'\\\[\]$`;&<>(){}*?!#~]")

States = dict[str, Sequence[str | int]]
Complete = Callable[["click.Context", "click.Parameter", str], list["CompletionItem"]]


def states_of(file: str | None) -> States:
    """Return the states of each variable of a model by name, or nothing if the model cannot be read fast."""
    from os.path import getsize, isfile

    from ..errors import BucketflowError
    from ..examples import file_or_example
    from ..formats.read import load_named
    from ..formats.text.source import reading_within

    if not file:
        return {}
    try:
        path = file_or_example(file)
        if not isfile(path) or getsize(path) > MOST_BYTES:
            return {}
        # at least ``LEAST_SECONDS`` are allowed
        with reading_within(0.0):
            return dict(load_named(path, check=False).variables)
    except (BucketflowError, OSError):
        return {}


def complete_names(separators: str = ",", files: bool = False) -> Complete:
    """Return a completion of names of variables between separators; with ``files``, of paths too."""
    return _completion(separators, False, files)


def complete_states(files: bool = False) -> Complete:
    """Return a completion of pairs such as ``Storm=yes``; with ``files``, of paths too."""
    return _completion(",", True, files)


def _completion(separators: str, states: bool, files: bool) -> Complete:
    def complete(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        # click leaves the file among the other arguments while the last option lacks its value
        file = context.params.get("file") or next(iter(context.args), None)
        words = offered(states_of(file), incomplete, separators, states)
        paths = [CompletionItem(incomplete, type="file")] if files else []
        return [*map(CompletionItem, words), *paths]

    return complete


def offered(variables: States, incomplete: str, separators: str, states: bool) -> list[str]:
    """Return the words that may continue an incomplete one.

    Parameters
    ----------
    variables : dict
        States of each variable by name.
    incomplete : str
        The characters before the cursor.
    separators : str
        Characters between names, such as ``,``; empty for a single name.
    states : bool
        Whether a name is followed by ``=`` and a state. If only one name fits, its pairs are offered: a shell writes a
        blank after a single word.

    Examples
    --------
    >>> variables = {"Season": ["winter", "summer"], "Storm": ["no", "yes"], "Flow": ["none"]}
    >>> offered(variables, "Flow=none,S", ",", True)
    ['Flow=none,Season=', 'Flow=none,Storm=']
    >>> offered(variables, "St", ",", True)
    ['Storm=no', 'Storm=yes']
    >>> offered(variables, "Storm,", ",", False)
    ['Storm,Season', 'Storm,Flow']
    """
    begin = max((incomplete.rfind(letter) + 1 for letter in separators), default=0)
    lead, last = incomplete[:begin], incomplete[begin:]
    if "[" in lead[lead.rfind("=") :]:  # numbers of a likelihood
        return []
    named = {part.partition("=")[0] for part in re.split(f"[{re.escape(separators)}]", lead)} if separators else set()
    plain = {name: labels for name, labels in variables.items() if not _SPECIAL.search(name) and name not in named}
    if states and "=" in last:
        return _pairs(lead, plain, *last.split("=", 1))
    fitting = [name for name in plain if name.startswith(last)]
    if states and len(fitting) == 1:
        return _pairs(lead, plain, fitting[0], "")
    return [f"{lead}{name}{'=' if states else ''}" for name in fitting[:_MOST_NAMES]]


def _pairs(lead: str, variables: States, name: str, begun: str) -> list[str]:
    """Return the states of a variable that begin with some characters, each after its name."""
    labels = [str(label) for label in variables.get(name, ())]
    return [f"{lead}{name}={label}" for label in labels if label.startswith(begun) and not _SPECIAL.search(label)]
