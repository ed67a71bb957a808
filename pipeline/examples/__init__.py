"""Example models that ship with the package."""

from __future__ import annotations

from os import PathLike, fspath
from os.path import exists
from pathlib import Path

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError, meant, public
from ..local_paths import local_path


@dataclass(frozen=True)
class Example:
    """An example model, and a question worth asking about it.

    Parameters
    ----------
    name, file : str
        What :func:`example_path` accepts.
    title, description : str
        A few words, and a paragraph.
    query : str
        The suggested question, in words.
    commands : tuple of str
        What answers it on the command line, behind ``bucketflow``.
    evidence, data : str, optional
        The files with the suggested evidence, and with rows of data.
    """

    name: str
    file: str
    title: str
    description: str
    query: str
    commands: tuple[str, ...]
    evidence: str | None = None
    data: str | None = None


_EXAMPLES = (
    Example(
        "satellite",
        "satellite.wcsp",
        "a day of an earth-observation satellite",
        "40 photographs on one orbit, each with a profit. A mono photograph is not taken (0) or taken by "
        "one of three cameras (1, 2, 3); a stereo photograph needs the front and the rear camera (1). Two "
        "photographs close in time cannot share a camera, and some triples would fill the recorder. The "
        "cost is the profit of all photographs that are left out.",
        "Which photographs should be taken, and how much profit is lost?",
        ("solve satellite",),
    ),
    Example(
        "frequency",
        "frequency.wcsp",
        "channels for twenty radio links",
        "Ten sites in a row, with one link in each direction, and 8 or 9 channels a link. The two links of "
        "a site must be two channels apart, neighbours in the same direction must differ, and channels that are "
        "too close interfere at a cost that falls with their distance. Some channels cost extra.",
        "Which channels give the least interference in total?",
        ("solve frequency",),
    ),
    Example(
        "diagnosis",
        "diagnosis.bif",
        "faults of a pumping station",
        "A Bayesian network of 26 variables: season, storms and overdue service cause hidden faults in "
        "power supply, motor, bearings, seals and intake, which show in gauges, lamps and alarms.",
        "The alarm sounds, the motor draws a high current, but nothing shakes and the panel is lit: "
        "what is the posterior of every fault?",
        ("marginals diagnosis --evidence diagnosis.evid", "fit diagnosis diagnosis.csv -o learnt.bif"),
        "diagnosis.evid",
        "diagnosis.csv",
    ),
    Example(
        "grid",
        "grid.uai",
        "a 12 by 12 spin glass",
        "144 binary variables on a square grid, with random fields and couplings of mixed sign: a Markov "
        "network without any structure to exploit but its treewidth of 12.",
        "What are the partition function and the most probable configuration?",
        ("solve grid --query partition", "solve grid"),
    ),
    Example(
        "fields",
        "fields.wcsp",
        "crops for 210 fields",
        "Each field is sown with one of five crops, at a cost that depends on its soil. Fields that are close share "
        "their pests where they have the same crop, at a cost that depends on the pair and the crop. Sweeping every "
        "cell would take terabytes; bounds prove the best plan in a second.",
        "Which crop should every field get?",
        ("plan fields", "solve fields"),
    ),
    Example(
        "meetings",
        "meetings.yaml",
        "eight meetings of seven people",
        "Everyone has a variable for each meeting to attend: the hour at which it begins. Everyone knows only their "
        "own "
        "costs of hours. All participants of a meeting must choose the same hour, and the meetings of one person must "
        "be at different hours. The seven people are agents that find the best hours by messages; one solver that "
        "knows "
        "all costs finds them too.",
        "When should the meetings be, and how many messages do the agents need?",
        ("dpop meetings", "dpop meetings --order max-degree", "solve meetings"),
    ),
)


@public
def examples() -> list[Example]:
    """Return the examples that ship with the package.

    Examples
    --------
    >>> import bucketflow
    >>> [each.name for each in bucketflow.examples()]
    ['satellite', 'frequency', 'diagnosis', 'grid', 'fields', 'meetings']
    """
    return list(_EXAMPLES)


def file_or_example(path: str | PathLike[str]) -> str | PathLike[str]:
    """Return the path itself, or where the example is that it names if no such file is there.

    Raises
    ------
    ModelError
        If it is no path, or a URL.
    """
    if not isinstance(path, str | PathLike):
        raise ModelError(f"the path of a file is expected, found {type(path).__name__}")
    local_path(path)
    return path if exists(path) or fspath(path) not in _known_files() else example_path(fspath(path))


def meant_example(path: str) -> str:
    """Return the end of a sentence about a path that is not there: the example that was meant, if one is like it."""
    return meant(path, _known_files())


def example_path(name: str) -> Path:
    """Return where an example's file is, by name or file name; files of evidence and data count as well.

    Raises
    ------
    ModelError
        If there is no such example.
    """
    known = _known_files()
    if name not in known:
        names = ", ".join(example.name for example in _EXAMPLES)
        raise ModelError(f"there is no example {name!r}; there are {names}")
    return Path(__file__).with_name(known[name])


def _known_files() -> dict[str, str]:
    known = {key: example.file for example in _EXAMPLES for key in (example.name, example.file)}
    return known | {file: file for example in _EXAMPLES for file in (example.evidence, example.data) if file}
