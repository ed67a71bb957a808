"""The command line as text, for the manual page, the site and completion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc

import click

from .ending import EXIT_STATUS, guarded
from .options import Grouped

_NAME = "bucketflow"
_COMPLETE_VARIABLE = "_BUCKETFLOW_COMPLETE"  # as click has it for a program of this name

#: Commands of the manual page and the task of each. They run on the bundled examples, one after the other.
EXAMPLES = (
    ("Find a best assignment of a cost network.", "bucketflow solve satellite"),
    (
        "Compute posteriors given evidence.",
        "bucketflow marginals diagnosis --evidence Storm=yes --variables Flow,PanelPower",
    ),
    ("Show the cost of a query before it runs.", "bucketflow plan grid --query partition"),
    (
        "Solve within a memory budget, with tables on disk, in a directory from which the run can be resumed.",
        "bucketflow solve grid --query partition --memory 64MB --fit spill --workdir run",
    ),
    ("Continue a run that was stopped.", "bucketflow resume run"),
    ("Print an answer for another program.", "bucketflow solve satellite --json"),
    ("Draw a network with posteriors.", "bucketflow draw diagnosis --posteriors -o diagnosis.svg"),
    ("Convert a model to another format.", "bucketflow convert diagnosis diagnosis.uai"),
)
_FILES = {
    "~/.config/bucketflow/config.toml": "Default options in TOML: options of all commands at the top, options of one "
    "command in a table with its name. $XDG_CONFIG_HOME replaces ~/.config.",
    "~/.cache/bucketflow": "Compiled code, measured rates of this machine, and the address of the background server. "
    "$XDG_CACHE_HOME replaces ~/.cache.",
    "DIR of --workdir": "The plan, the tables and the receipts of a run, for `resume` and `inspect`.",
}
_ENVIRONMENT = {
    "BUCKETFLOW_OPTION": "The default of an option of all commands, such as BUCKETFLOW_MEMORY=8GB. The command line "
    "overrides it, and it overrides the configuration file.",
    "BUCKETFLOW_COMMAND_OPTION": "The default of an option of one command, such as BUCKETFLOW_SOLVE_QUERY=count.",
    "BUCKETFLOW_CONFIG": "The configuration file.",
    "BUCKETFLOW_CACHE": "The folder of compiled code, for example a folder that all users of a machine can read.",
    "BUCKETFLOW_DATA": "The folder of the instances of `reproduce`.",
    "DASK_SCHEDULER_ADDRESS": "The default of --scheduler.",
}
_SEE_ALSO = "dask(1), dot(1), toulbar2(1)"
# click's script for bash, with words that are split at blanks only. Bash itself splits Storm=yes at the equals sign and
# replaces only the part after it.
_BASH = """\
_bucketflow_completion() {
    local IFS=$'\\n'
    local line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##*[[:blank:]]}"
    local lead="${word%"${word##*[=:]}"}"
    local -a words
    IFS=$' \\t' read -r -a words <<< "$line"
    [[ -z $word ]] && words+=("")
    local response type value
    response=$(env COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) _BUCKETFLOW_COMPLETE=bash_complete "$1")
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == file ]]; then
            compopt -o default
        else
            COMPREPLY+=("${value#"$lead"}")
        fi
    done
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o nosort -F _bucketflow_completion bucketflow
"""


@dataclass(frozen=True)
class CommandText:
    """Texts of a command: its usage, its description, and its options by groups."""

    name: str
    usage: str
    paragraphs: tuple[str, ...]
    sections: dict[str, list[tuple[str, str]]]

    @property
    def summary(self) -> str:
        """The first sentence or so."""
        return self.paragraphs[0]


def command_texts() -> list[CommandText]:
    """Return the text of each command, in alphabetical order."""
    from .main import main

    context = click.Context(main, info_name=_NAME, **main.context_settings)
    names = main.list_commands(context)
    return [_text_of(command, context) for name in names if (command := main.get_command(context, name)) is not None]


def _text_of(command: click.Command, parent: click.Context) -> CommandText:
    context = click.Context(command, info_name=command.name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    paragraphs = tuple(" ".join(text.split()) for text in cleandoc(command.help or "").split("\n\n"))
    return CommandText(command.name or "", usage, paragraphs, _sections(command, context))


def _sections(command: click.Command, context: click.Context) -> dict[str, list[tuple[str, str]]]:
    if isinstance(command, Grouped):
        return command.sections(context)
    return {"Options": [row for param in command.get_params(context) if (row := param.get_help_record(context))]}


def man_page() -> str:
    """Return the manual page, in the language of roff."""
    from ...cluster.version import __version__

    about = "exact inference on discrete graphical models"
    lines = [f'.TH BUCKETFLOW 1 "" "bucketflow {__version__}"', ".SH NAME", f"bucketflow \\- {about}"]
    lines += [".SH SYNOPSIS", "\\fBbucketflow\\fR COMMAND [OPTIONS] [ARGS]...", ".SH COMMANDS"]
    for text in command_texts():
        lines += _command_lines(text)
    for title, rows in (
        ("EXIT STATUS", {str(code): meaning for code, meaning in EXIT_STATUS.items()}),
        ("ENVIRONMENT", _ENVIRONMENT),
        ("FILES", _FILES),
    ):
        lines += [f".SH {title}"]
        for term, meaning in rows.items():
            lines += [".TP", f"\\fB{_escaped(term)}\\fR", _escaped(meaning)]
    lines += [".SH EXAMPLES"]
    for purpose, command in EXAMPLES:
        lines += [".PP", _escaped(purpose), ".PP", ".RS 4", ".nf", _escaped(command), ".fi", ".RE"]
    lines += [".SH SEE ALSO", _escaped(_SEE_ALSO)]
    return "\n".join(lines) + "\n"


def _command_lines(text: CommandText) -> Iterator[str]:
    yield f".SS {_escaped(text.usage)}"
    for paragraph in text.paragraphs:
        yield from (".PP", _escaped(paragraph))
    for title, rows in text.sections.items():
        yield from (".PP", f"\\fI{_escaped(title)}\\fR")
        for names, meaning in rows:
            yield from (".TP", f"\\fB{_escaped(names)}\\fR", _escaped(meaning))


def _escaped(text: str) -> str:
    """Write a text as roff: backslashes, hyphens and letters beyond ASCII by name, and no line begins a request."""
    named = text.replace("\\", "\\e").replace("-", "\\-")
    ascii_only = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in named)
    return f"\\&{ascii_only}" if ascii_only.startswith((".", "'")) else ascii_only


@click.command()
@guarded
def man() -> None:
    """Print the manual page of all commands."""
    click.echo(man_page(), nl=False)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@guarded
def completion(shell: str) -> None:
    """Print the completion script of a SHELL.

    For bash, ~/.bashrc has the line: eval "$(bucketflow completion bash)"; zsh has it in ~/.zshrc, with its own name.
    For fish, the output is a file, ~/.config/fish/completions/bucketflow.fish.
    """
    from click.shell_completion import get_completion_class

    from .main import main

    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    click.echo(_BASH if shell == "bash" else kind(main, {}, _NAME, _COMPLETE_VARIABLE).source())
