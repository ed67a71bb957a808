"""Random Bayesian networks, and how each format and its programs write them: right, odd or wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = Callable[[Array], str]

# What a file may have that makes it no network; it is to be refused then.
WRONG = ("row", "zero", "missing", "second", "cycle", "negative")
# Formats in which a variable and its distribution are one.
_IMPOSSIBLE = {"xdsl": ("missing",), "erg": ("missing", "second")}
# What a file may have all the same, by format.
ODD = {
    "bif": ("digits", "default", "slowest", "levels", "comments", "property", "quoted"),
    "bifxml": ("digits", "blanks", "comments", "property"),
    "xdsl": ("counts", "attributes", "extensions", "comments", "deterministic"),
    "net": ("counts", "attributes", "comments", "class", "flat"),
    "uai": ("slowest", "comments"),
    "erg": ("comments",),
}


@dataclass
class Written:
    """A network, and what is odd or wrong about its file.

    Parameters
    ----------
    labels : list of list of str
        Of the states of each variable.
    parents : list of list of int
    tables : list of ndarray
        For each variable its distributions, an axis a parent and the last one its own.
    what : set of str
    rng : random.Random
    """

    labels: list[list[str]]
    parents: list[list[int]]
    tables: list[Array]
    what: set[str]
    rng: random.Random

    @property
    def names(self) -> list[str]:
        """Names of the variables."""
        return [f"v{v}" for v in range(len(self.labels))]

    def joint(self) -> Array:
        """Return the product of all distributions, an axis a variable."""
        dims = [len(labels) for labels in self.labels]
        whole = np.ones(dims)
        for v, table in enumerate(self.tables):
            scope = [*self.parents[v], v]
            order = sorted(range(len(scope)), key=scope.__getitem__)
            whole = whole * table.transpose(order).reshape([d if u in scope else 1 for u, d in enumerate(dims)])
        return whole


def network(rng: random.Random, kind: str) -> Written:
    """Make a network of a few variables, with some of what is odd in a format, and perhaps something wrong."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    what = {odd for odd in ODD[kind] if rng.random() < 0.3}
    impossible = _IMPOSSIBLE.get(kind, ())
    what |= {rng.choice([wrong for wrong in WRONG if wrong not in impossible])} if rng.random() < 0.3 else set()
    if "zero" in what:
        what.discard("slowest")  # evidence, in an order that nothing tells
    n = rng.randint(2, 4)
    labels = [[_label(k, "levels" in what, rng) for k in range(rng.randint(2, 3))] for _ in range(n)]
    parents = [sorted(rng.sample(range(v), min(v, rng.randint(0, 2)))) for v in range(n)]
    tables = []
    for v in range(n):
        shape = [len(labels[p]) for p in parents[v]]
        tables.append(numbers.dirichlet(np.ones(len(labels[v])), size=shape))
    if "deterministic" in what:
        best = tables[-1].argmax(axis=-1)
        tables[-1] = np.eye(len(labels[-1]))[best]
    return Written(labels, parents, tables, what, rng)


def _label(k: int, odd: bool, rng: random.Random) -> str:
    return (
        rng.choice([f"[{k}_{k + 1}]", f"_{k}_{k + 1}]", f"state {k}", f"s{k}", f"<{k}", f"{k}-{k + 1}/x"])
        if odd
        else f"s{k}"
    )


def file_of(made: Written, kind: str) -> str:
    """Write a network in a format."""
    _spoil(made)
    text = _WRITERS[kind](made)
    return "\n \n" + text if "blanks" in made.what else text


def _spoil(made: Written) -> None:
    """Change the tables, but not what they mean, or make them wrong."""
    what, rng = made.what, made.rng
    v = rng.randrange(len(made.tables))
    table = made.tables[v]
    row = tuple(rng.randrange(d) for d in table.shape[:-1])
    if "cycle" in what:
        made.parents[0], made.parents[-1] = [len(made.parents) - 1], [0]
        shape = (len(made.labels[-1]), len(made.labels[0]))
        made.tables[0] = np.full(shape, 1 / shape[1])
        made.tables[-1] = np.full(shape[::-1], 1 / shape[0])
    elif "row" in what:
        table[row] *= rng.choice([0.5, 0.9, 1.1, 1.5])
    elif "zero" in what:
        table[row] = 0.0
    elif "negative" in what:
        table[row][0] = -table[row][0] - 0.125


def _printed(made: Written) -> Words:
    """How numbers are written: with all digits, or few."""
    digits = made.rng.choice([3, 4, 6]) if "digits" in made.what else None

    def words(row: Array) -> str:
        numbers = row.ravel().tolist()
        return " ".join(repr(x) if digits is None else f"{x:.{digits}f}" for x in numbers)

    return words


def _counted(made: Written) -> list[Array]:
    """Tables as counts, where the format's programs keep some; what is wrong stays so."""
    if "counts" not in made.what or made.what & {"row", "negative"}:
        return made.tables
    return [table * made.rng.choice([1, 10, 250]) for table in made.tables]


def _blocks(made: Written, block: Callable[[int], str]) -> list[str]:
    """One block a variable, shuffled, without one or with one twice where that is what is wrong."""
    order = list(range(len(made.tables)))
    made.rng.shuffle(order)
    if "missing" in made.what:
        order.pop()
    if "second" in made.what:
        order.append(order[0])
    return [block(v) for v in order]


def _bif(made: Written) -> str:
    words, names = _printed(made), made.names
    quote = '"' if "quoted" in made.what else ""
    comment = " // a note: {};\n" if "comments" in made.what else ""
    prop = 'property "position = (1, 2)";' if "property" in made.what else ""

    def variable(v: int) -> str:
        shown = f"{comment}, ".join(f"{quote}{label}{quote}" for label in made.labels[v])
        return f"variable {names[v]} {{ {prop} type discrete [ {len(made.labels[v])} ] {{ {shown}{comment} }}; }}"

    def block(v: int) -> str:
        parents, table = made.parents[v], made.tables[v]
        head = f"probability ( {names[v]}{' | ' * bool(parents)}{', '.join(names[p] for p in parents)} )"
        if not parents or "slowest" in made.what:
            turned = np.moveaxis(table, -1, 0)
            return f"{head} {{ {comment} table {words(turned if parents else table)}; {prop} }}"
        rows = []
        for at in np.ndindex(*table.shape[:-1]):
            given = ", ".join(f"{quote}{made.labels[p][s]}{quote}" for p, s in zip(parents, at, strict=True))
            rows.append(f"({given}) {words(table[at]).replace(' ', ', ')};")
        made.rng.shuffle(rows)
        if "default" in made.what:
            rows[0] = "default" + rows[0].rpartition(")")[2]
        return f"{head} {{ {comment}{' '.join(rows)} }}"

    return "\n".join(["network n { }", *map(variable, range(len(names))), *_blocks(made, block)])


def _bifxml(made: Written) -> str:
    words, names = _printed(made), made.names
    prop = "<PROPERTY>position = (1, 2)</PROPERTY>" if "property" in made.what else ""
    comment = "<!-- <a> -->" if "comments" in made.what else ""

    def variable(v: int) -> str:
        outcomes = "".join(f"<OUTCOME>{label}</OUTCOME>" for label in made.labels[v])
        return f"<VARIABLE TYPE='nature'><NAME>{names[v]}</NAME>{outcomes}{prop}</VARIABLE>"

    def block(v: int) -> str:
        given = "".join(f"<GIVEN>{names[p]}</GIVEN>" for p in made.parents[v])
        return f"<DEFINITION><FOR>{names[v]}</FOR>{given}<TABLE>{words(made.tables[v])}{comment}</TABLE></DEFINITION>"

    body = "\n".join([*map(variable, range(len(names))), *_blocks(made, block)])
    return f"<?xml version='1.0'?>\n<BIF VERSION='0.3'><NETWORK><NAME>n</NAME>{comment}\n{body}</NETWORK></BIF>"


def _xdsl(made: Written) -> str:
    words, names, tables = _printed(made), made.names, _counted(made)
    extra = ' diagtype="target"' if "attributes" in made.what else ""
    last = len(names) - 1

    def node(v: int) -> str:
        parents = f"<parents>{' '.join(names[p] for p in made.parents[v])}</parents>" if made.parents[v] else ""
        states = "".join(f'<state id="{label}"/>' for label in made.labels[v])
        if "deterministic" in made.what and v == last and not made.what & set(WRONG):
            best = " ".join(made.labels[v][k] for k in tables[v].argmax(axis=-1).ravel().tolist())
            results = f"<resultingstates>{best}</resultingstates>"
            return f'<deterministic id="{names[v]}">{states}{parents}{results}</deterministic>'
        table = f"<probabilities>{words(tables[v])}</probabilities>"
        return f'<cpt id="{names[v]}"{extra}>{states}{parents}{table}</cpt>'

    more = "<extensions><genie app='GeNIe'/></extensions>" if "extensions" in made.what else ""
    comment = "<!-- by hand -->" if "comments" in made.what else ""
    return f'<smile version="1.0" id="n">{comment}<nodes>{"".join(_blocks(made, node))}</nodes>{more}</smile>'


def _net(made: Written) -> str:
    words, names, tables = _printed(made), made.names, _counted(made)
    extra = ' label = "a ; b"; HR_Color = 1;' if "attributes" in made.what else ""
    comment = " % ( { \n" if "comments" in made.what else ""

    def nested(table: Array) -> str:
        return f"({words(table)})" if table.ndim == 1 else f"({comment}{''.join(map(nested, table))})"

    nodes = [
        f"node {names[v]} {{ states = ({' '.join(f'{chr(34)}{s}{chr(34)}' for s in labels)});{extra} }}"
        for v, labels in enumerate(made.labels)
    ]

    def block(v: int) -> str:
        given = f" | {' '.join(names[p] for p in made.parents[v])}" if made.parents[v] else ""
        data = f"({words(tables[v])})" if "flat" in made.what else nested(tables[v])
        return f"potential ( {names[v]}{given} ) {{ data = {data}; }}"

    body = "\n".join([*nodes, *_blocks(made, block)])
    return f"class n {{\n{body}\n}}" if "class" in made.what else f"net {{ }}\n{body}"


def _uai(made: Written) -> str:
    words, order = _printed(made), []
    _blocks(made, lambda v: str(order.append(v)))
    slowest = "slowest" in made.what
    scopes = [[*(made.parents[v][::-1] if slowest else made.parents[v]), v] for v in order]
    tables = [np.moveaxis(made.tables[v], -1, 0) if slowest else made.tables[v] for v in order]
    lines = ["BAYES", str(len(made.labels)), " ".join(str(len(labels)) for labels in made.labels), str(len(order))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope in scopes] + [""]
    for table in tables:
        lines += [str(table.size), words(table)]
    if "comments" in made.what and not slowest:
        lines[2] += " # domains"
    return "\n".join(lines)


def _erg(made: Written) -> str:
    words = _printed(made)
    comment = "/* tables */\n" if "comments" in made.what else ""
    lines = [str(len(made.labels)), " ".join(str(len(labels)) for labels in made.labels)]
    lines += [" ".join(map(str, (len(parents), *parents))) for parents in made.parents]
    return "\n".join([*lines, *(f"{comment}{table.size}\n{words(table)}" for table in made.tables)])


_WRITERS: dict[str, Callable[[Written], str]] = {
    "bif": _bif,
    "bifxml": _bifxml,
    "xdsl": _xdsl,
    "net": _net,
    "uai": _uai,
    "erg": _erg,
}
