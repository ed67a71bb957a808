"""The papers and their tables: which figures they print, where instances are, and how ours are measured. Pure.

Columns have the names of ``figures.json``, and measurements have the names in :class:`.papers.Way`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..errors import ModelError
from .message_launches import launch_tables
from .papers import (
    AGENTS,
    AGENTS_GPU,
    ANY,
    ANY_POINT,
    BOUND,
    CORE,
    DENSE_GPU,
    PROPAGATIONS,
    ROWS,
    ROWS_GPU,
    TREE,
    WIDTH,
    Z_GPU,
    Figure,
    Paper,
    PaperRow,
    PaperTable,
    Ratio,
    Way,
    Z,
    published_tables,
)

Problem = Callable[[Mapping[str, Figure]], Mapping[str, Any]]


def _table(
    title: str,
    figures: str,
    *ways: Way,
    files: Sequence[str] = (),
    problem: Problem | None = None,
    known: Mapping[str, int | None] | None = None,
    **more: Any,
) -> PaperTable:
    """Describe a table of published figures.

    Parameters
    ----------
    title, figures : str
        The title, and the name of the figures in ``figures.json``.
    *ways : Way
    files : sequence of str
        Places of an instance; ``{}`` stands for its name, ``{_}`` for its name with ``_`` for ``-``.
    problem : callable, optional
        From a published row to the arguments of :func:`bucketflow.generate`.
    known : mapping, optional
        Optima of instances that the table prints no optimum of, or a wrong one.
    **more
        Other fields of `PaperTable`.
    """
    found = published_tables()[figures]
    columns, keys = tuple(found["columns"]), more.get("keys", 1)
    rows = []
    for cells in found["rows"]:
        published = dict(zip(columns, cells, strict=True))
        names = [str(cell) for cell in cells[:keys]]
        name = names[0] if keys == 1 else " ".join(f"{c}={n}" for c, n in zip(columns, names, strict=False))
        where = tuple(file.format(name, _=name.replace("-", "_")) for file in _FILES.get(name, files))
        answer = (known or {}).get(name, published.get("optimum"))
        drawn = {} if problem is None else problem(published)
        z = published.get("z")
        rows.append(
            PaperRow(
                *(name, published, where, answer if isinstance(answer, int) else None),
                problem=drawn,
                z=z if isinstance(z, int) else None,
            )
        )
    return PaperTable(title, columns, tuple(rows), ways, **more)


# Files whose names are other than in the papers.
_FILES: Final = {
    **{"GEOM40-6": ("wcsp/coloring/GEOM40_6.wcsp",), "connell": ("wcsp/pedigree/oconnell.wcsp",)},
    "414": ("wcsp/spot5/414.wcsp", "wcsp/spot5_orig/414.wcsp", "wcsp/spot5_orig/11.wcsp"),
    **{f"myciel5g-{d}": (f"wcsp/coloring/myciel5_{d}.wcsp",) for d in range(3, 7)},
}
_NETWORKS: Final = ("bn/{}.bif", "bn/{}.net", "bn/net/{}.net")
_SPOT5: Final = ("wcsp/spot5/{}.wcsp", "wcsp/spot5_orig/{}.wcsp")
# Optima from public lists of SPOT5 (MaxSAT evaluations), where the papers print none.
_SPOT5_OPTIMA: Final = {
    **{"54": 37, "29": 8059, "404": 114, "503": 11113, "408": 6228, "505": 21253, "509": 36446},
    **{"28": 270105, "1401": 459106, "1403": 459246, "1506": 354517},
}

_TREE_NOTE: Final = (
    "ours: sizes of the junction tree of `plan --tree junction`, whose separators and cliques are counted alike; the "
    "papers' trees are from other triangulations"
)
_PARTS_NOTE: Final = (
    "ours: one core and one GPU send all messages over that junction tree and read all posteriors; preprocessing is "
    "compiling the model (orders, tree, first tables). Joins and sums are one pass, so reduction and scattering have "
    "no times of their own; `tests/bench/published.py` times them for the papers' layouts"
)


def _random(kind: str, size: str, **fixed: Any) -> Problem:
    """Return the arguments of random problems of a published row: d states, half of the entries forbidden."""

    def problem(row: Mapping[str, Figure]) -> Mapping[str, Any]:
        given = row[size]
        assert isinstance(given, int)
        variables = given * given if kind == "grid" else given
        density = {"density": row["p1"]} if "p1" in row else {}
        return {"kind": kind, "variables": variables, "domain": row["d"], "tightness": 0.5, **density, **fixed}

    return problem


def _dcop(number: int, kind: str, size: str, keys: int, note: str, **fixed: Any) -> PaperTable:
    named = " | ".join(published_tables()[f"gpudbe {number}"]["columns"][:keys])
    width = " | ours: w*" if keys < 3 else ""
    return _table(
        f"Table {number}: {kind} DCOPs",
        f"gpudbe {number}",
        *(ANY_POINT, WIDTH, CORE, AGENTS, DENSE_GPU, AGENTS_GPU),
        problem=_random(kind, size, **fixed),
        ratios=(
            *(Ratio("BE CPU / one core", "BE CPU s", "core"), Ratio("BE GPU / one GPU", "BE GPU s", "gpu")),
            *(Ratio("DPOP CPU / ours", "DPOP CPU s", "agents"), Ratio("core / GPU", "core", "gpu")),
        ),
        first=f"{named} | theirs: w* | theirs: BE CPU s{width} | ours: one core, dense s | theirs: DPOP CPU s | "
        "ours: DPOP s | checked",
        notes=(
            "ours: means over random problems with the printed parameters and p2 = 0.5, costs of 0 to 100; the paper's "
            "own problems are not published, and it takes means over 50",
            note,
        ),
        keys=keys,
    )


def _fioretto(number: int, family: str, files: Sequence[str], *notes: str, **more: Any) -> PaperTable:
    return _table(
        f"Table {number}: {family}",
        f"gpube {number}",
        *(ANY, WIDTH, CORE, BOUND, DENSE_GPU),
        files=files,
        ratios=(Ratio("their GPU / our GPU", "w* s", "gpu"), Ratio("core / GPU", "core", "gpu")),
        first="instance | theirs: w* s | theirs: zmax bound | ours: any engine s | "
        "ours: one core, dense s | ours: lower | checked",
        notes=(
            "theirs: wall-clock seconds on a GeForce GTX Titan; speed-up over one core; columns `w*` are exact bucket "
            "elimination, `zmin` to `zmax` mini-buckets",
            "ours: lower and upper are bounds by mini-buckets that grow for half of the time limit; bounds for a given "
            "z stand in the table of bounds by z",
            *notes,
        ),
        **more,
    )


_FELL: Final = "theirs: as printed, although a bound should not fall with z: "


def _bounds_by_z() -> PaperTable:
    """Describe the sweep by z: an instance of each family, and with ``--all`` every instance of the data."""
    families: Mapping[str, tuple[Sequence[str], Mapping[str, int | None]]] = {
        "SPOT5": (
            _SPOT5,
            {"54": 37, "29": 8059, "404": 114, "503": 11113, "8": 2, "408": 6228, "505": 21253, "1504": None},
        ),
        "ISCAS": (
            ("wcsp/iscas89/{}.wcsp",),
            {"s386": 29, "c432": 101, "c880": 162, "s1196": 95, "s1238": 95, "s1423": 231, "s1494": 32, "s953": 124},
        ),
        "CELAR": (
            ("wcsp/celar/{}.wcsp",),
            {
                "CELAR6-SUB0": 159,
                "CELAR6-SUB1": 2669,
                "CELAR6-SUB3": 3079,
                "CELAR6-SUB4-20": 2716,
                "CELAR7-SUB0": 10310,
            },
        ),
        "colouring": (
            ("wcsp/coloring/{}.wcsp",),
            {"myciel5_3": 16, "myciel5_5": 1, "GEOM40_6": 0, "queen5_5_4": 12, "DSJC125.1.5": 0, "le450_5a_2": None},
        ),
        "pedigrees": (("wcsp/pedigree/{}.wcsp",), {"oconnell": 1}),
    }
    rows = [
        PaperRow(name, {}, tuple(f.format(name) for f in files), answer, z=z, extra=name != next(iter(instances)))
        for files, instances in families.values()
        for name, answer in instances.items()
        for z in range(2, 11)
    ]
    return PaperTable(
        "Figures 10 and 11: bounds by z",
        (),
        tuple(rows),
        (Z, Z_GPU),
        (Ratio("core / GPU", "z", "gpu z"),),
        "instance | z | ours: lower | ours: upper | ours: lower / optimum | ours: one core s | checked",
        (
            "the paper prints these figures as curves; its numbers in the text are in the table of statements",
            "ours: mini-buckets of at most z variables with moment matching; the paper's are plain, which is looser",
        ),
    )


def _mini_bucket_ways() -> tuple[Way, ...]:
    """Return the ways of table 5: each kind of graph on one core and on a GPU, with the largest widths of the paper."""
    common = {"domain": 10, "tightness": 0.5}
    kinds: Mapping[str, Mapping[str, Any]] = {
        "grid": {"kind": "grid", "variables": 100},
        "random": {"kind": "random", "variables": 20, "density": 0.3},
        "scale-free": {"kind": "scale-free", "variables": 20, "links": _LINKS},
    }
    ways = []
    for kind, problem in kinds.items():
        drawn = {**common, **problem}
        shown = {"seconds": f"{kind} s", "ratio": f"{kind} lower / upper"}
        ways.append(Way(kind, "bound", shown, {"threads": 1}, problem=drawn))
        ways.append(Way(f"gpu {kind}", "bound", {"seconds": f"{kind} GPU s"}, gpu=True, problem=drawn))
    return tuple(ways)


# Links of a new node. With this number, the widths for 10 to 20 variables are nearest to the widths in table 2.
_LINKS: Final = 5

_SIZES: Final = Way("core", "tree", TREE)


def _sizes_table(title: str, figures: str, *notes: str) -> PaperTable:
    return _table(
        *(title, figures, _SIZES),
        files=_NETWORKS,
        first="network | theirs: cliques | theirs: max clique | ours: cliques | ours: max clique | checked",
        notes=(_TREE_NOTE, *notes),
    )


def _propagations(title: str, figures: str, ratios: Sequence[Ratio], first: str, notes: Sequence[str]) -> PaperTable:
    """Describe a table of times of belief propagation; ``ratios`` compare theirs with ours."""
    return _table(
        *(title, figures, *PROPAGATIONS),
        files=_NETWORKS,
        ratios=(*ratios, Ratio("core / GPU", "core", "gpu")),
        first=first,
        notes=(*notes, _PARTS_NOTE),
    )


def _cube() -> Paper:
    return Paper(
        "cube",
        "Bistaffa, Bombieri and Farinelli: An Efficient Approach for Accelerating Bucket Elimination on GPUs. IEEE "
        "Transactions on Cybernetics 47 (11), 2017 (online 2016)",
        "NVIDIA Tesla K40",
        (
            "up to 696.02 times as fast as the sequential version (abstract)",
            "up to 466% faster than the GPU technique before it (abstract)",
        ),
        "The paper eliminates buckets of incomplete tables, in pieces that fit in the memory of its GPU. Ours: “any "
        "engine” is what `solve` does; “dense” and “rows” eliminate the buckets with complete and incomplete tables.",
        (
            _sizes_table("Table I: junction trees", "cube I"),
            _propagations(
                "Table II: belief propagation",
                "cube II",
                (Ratio("CPU R/S / one core", "CPU R/S ms", "core"), Ratio("GPU R/S / GPU", "GPU R/S ms", "gpu")),
                first="network | theirs: CPU R/S ms | theirs: GPU R/S ms | ours: one core ms | "
                "ours: own tree, all cores ms | CPU R/S / one core | checked",
                notes=(
                    "theirs: R/S is reduction and scattering, without preprocessing and transfers; SVR is the method "
                    "of Zheng and Mengshoel 2013, run by these authors",
                    "the sequential 123 ms (water) and 1057 ms (barley) are of this paper; 120 and 974 ms are of the "
                    "papers of 2013 and 2014",
                ),
            ),
            _table(
                "Table III: SPOT5",
                "cube III",
                *(ANY, WIDTH, CORE, ROWS, DENSE_GPU, ROWS_GPU),
                files=_SPOT5,
                known=_SPOT5_OPTIMA,
                ratios=(
                    *(Ratio("CPU / one core, rows", "CPU s", "rows"), Ratio("GPU / GPU, rows", "GPU s", "gpu rows")),
                    *(Ratio("core / GPU", "core", "gpu"), Ratio("rows: core / GPU", "rows", "gpu rows")),
                ),
                first="instance | theirs: w* | theirs: CPU s | theirs: GPU s | ours: w* | "
                "ours: one core, dense s | ours: one core, rows s | checked",
                notes=("theirs: runtimes include preprocessing and transfers; GpuBE is the method of Fioretto et al.",),
            ),
        ),
    )


def _gpube() -> Paper:
    return Paper(
        "gpube",
        _FIORETTO,
        "NVIDIA GeForce GTX Titan",
        (_FIORETTO_CLAIM,),
        "The paper eliminates dense buckets in its own order. Ours counts the whole call with planning. “any engine” "
        "may prove an optimum by search and bounds; “dense” eliminates every bucket on one core or one GPU.",
        (
            _fioretto(
                *(6, "CELAR", ("wcsp/celar/{}.wcsp",)),
                "theirs, as printed: the optimum of CELAR6-SUB4reduc is that of a CELAR7 instance (not used as a "
                "check); w* is 1 for CELAR6-SUB4 and CELAR7-SUB4",
                _FELL + "scen06-30 and CELAR7-SUB4-22",
                known={"CELAR6-SUB4reduc": None},
            ),
            _fioretto(7, "graph colouring", ("wcsp/coloring/{_}.wcsp",), _FELL + "le450-5a-4"),
            _fioretto(8, "ISCAS89", ("wcsp/iscas89/{}.wcsp",), known={"c432": 101, "c880": 162}),
            _fioretto(9, "pedigrees", ("wcsp/pedigree/{}.wcsp",), _FELL + "pedck1000 and sheep4r-4-2"),
            _fioretto(10, "SPOT5", _SPOT5, known=_SPOT5_OPTIMA),
            _bounds_by_z(),
            _table("Figures 10 and 11: numbers in the text", "gpube text", first="statement | theirs: value"),
        ),
    )


def _gpudbe() -> Paper:
    return Paper(
        "gpudbe",
        f"{_FIORETTO}; distributed problems",
        "NVIDIA GeForce GTX Titan; table 5 also Tesla M2075 and GTX Titan X",
        (_FIORETTO_CLAIM,),
        "The problems of the paper are not published; ours are random problems with the same parameters. BE is one "
        "solver that sees the whole problem, DPOP its agents; DPOP seconds are of all agents together.",
        (
            _dcop(1, "random", "n", 3, "our widths are near the printed ones"),
            _dcop(
                *(2, "scale-free", "n", 2),
                f"the links of a node are not printed: ours have {_LINKS}, with widths nearest to the printed ones",
                links=_LINKS,
            ),
            _dcop(
                *(3, "grid", "sqrt n", 2),
                "the printed widths cannot be reproduced: no order of a square grid of side k has a width "
                "below k, so dense elimination of the larger grids exceeds time or memory",
            ),
            _table(
                "Table 5: mini-bucket speed-up by z",
                "gpudbe 5",
                *_mini_bucket_ways(),
                ratios=tuple(Ratio(f"{k} core / GPU", k, f"gpu {k}") for k in ("grid", "random", "scale-free")),
                first="z | theirs: grid Titan | theirs: random Titan | theirs: scale-free Titan | ours: grid s | "
                "ours: random s | ours: scale-free s | checked",
                notes=(
                    "theirs: seconds on one core over seconds on each GPU",
                    "ours: grids of side 10, random and scale-free graphs of 20 variables, d = 10, p2 = 0.5; the "
                    "paper's sizes are not in our copy",
                ),
            ),
        ),
    )


_FIORETTO: Final = (
    "Fioretto, Pontelli, Yeoh and Dechter: Accelerating exact and approximate inference for (distributed) discrete "
    "optimization with GPUs. Constraints 23 (1), 2018"
)
_FIORETTO_CLAIM: Final = "up to 345 times as fast as a sequential version (abstract)"


def _gottoli() -> Paper:
    return Paper(
        "gottoli",
        "Gottoli and Pettenuzzo: Parallelizzazione dell’algoritmo di belief propagation tramite CUDA. Università di "
        "Verona, 2014",
        "NVIDIA GeForce GTX 680 beside one core of an Intel Core i7-3770",
        (
            "with transfers, belief propagation on the GPU is 1.796 times as fast as on the CPU (Munin1); without "
            "transfers, marginalisation is 2.0 to 12.6 times as fast, and scattering 6 to 16.6 times",
        ),
        "The report updates cliques and separators of a junction tree with two kernels that it times separately.",
        (
            _propagations(
                "Table 2: one belief propagation",
                "gottoli 2",
                (Ratio("CPU / one core", "CPU ms", "core"), Ratio("GPU / GPU", "GPU ms", "gpu")),
                first="network | theirs: CPU ms | theirs: GPU ms | ours: max clique | ours: one core ms | "
                "CPU / one core | checked",
                notes=(
                    "theirs: `CPU ms` and `GPU ms` are whole propagations, with transfers; marg. and scatt. are "
                    "marginalisation and scattering",
                    _TREE_NOTE,
                ),
            ),
        ),
    )


def _bp_layout() -> Paper:
    return Paper(
        "bp-layout",
        "Bistaffa, Farinelli and Bombieri: Optimising Memory Management for Belief Propagation in Junction Trees using "
        "GPGPUs. ICPADS 2014",
        "NVIDIA GeForce GTX 780 (one copy engine)",
        ("up to 594% faster than the state of the art (abstract)",),
        "The paper reorders the clique tables so that threads read consecutive entries.",
        (
            _sizes_table(
                *("Table I: junction trees", "bp-layout I"),
                "the paper takes these trees from Zheng and Mengshoel 2013, and adds Munin1",
            ),
            _propagations(
                "Table II: belief propagation",
                "bp-layout II",
                (Ratio("CPU / one core", "CPU ms", "core"), Ratio("GPU / GPU", "GPU kernels ms", "gpu")),
                first="network | theirs: CPU ms | theirs: GPU kernels ms | ours: one core ms | "
                "ours: own tree, all cores ms | CPU / one core | checked",
                notes=(
                    "the sequential 120 ms (water) and 974 ms (barley) are of 2013 and 2014; the paper of 2016 prints "
                    "123 and 1057 ms",
                    "theirs: preprocessing and transfers are separate; with one copy engine they overlap less",
                ),
            ),
        ),
    )


def _bp_regression() -> Paper:
    return Paper(
        "bp-regression",
        "Zheng and Mengshoel: Optimizing Parallel Belief Propagation in Junction Trees using Regression. KDD 2013",
        "not named in our copy",
        (
            "average speed-up of 10.70 (arithmetic mean) and 8.68 (geometric mean), against 3.43 and 2.44 before",
            "three measures of a regression: residual sum of squares, squared deviance, and miss rate",
        ),
        "The paper chooses the parameters of each kernel launch by a regression.",
        (
            _propagations(
                "Table 4: one propagation",
                "bp-regression 4",
                (Ratio("CPU / one core", "CPU ms", "core"), Ratio("SVR / GPU", "SVR ms", "gpu")),
                first="network | theirs: mean clique | theirs: SVR ms | theirs: CPU ms | ours: mean clique | "
                "ours: one core ms | checked",
                notes=(
                    "theirs, as printed: the mean separators (`Ave. SPT size`) are shifted against table I of "
                    "Bistaffa, Farinelli and Bombieri 2014, which quotes them",
                    _TREE_NOTE,
                ),
            ),
            *launch_tables(),
            _table("Numbers in the text", "bp-regression text", first="statement | theirs: value"),
        ),
    )


_PAPERS: Final[Mapping[str, Callable[[], Paper]]] = {
    **{"cube": _cube, "gpube": _gpube, "gpudbe": _gpudbe, "gottoli": _gottoli},
    **{"bp-layout": _bp_layout, "bp-regression": _bp_regression},
}
PAPERS: Final = tuple(_PAPERS)


def paper(name: str) -> Paper:
    """Return the paper of a name.

    Raises
    ------
    ModelError
        If there is none.
    """
    if name not in PAPERS:
        raise ModelError(f"no paper {name!r}; one of {', '.join(PAPERS)}")
    return _PAPERS[name]()
