"""The measurements of ours that tables share: optima, bounds, propagations, agents. Pure."""

from __future__ import annotations

from typing import Final

from .papers import Way

ANY: Final = Way("any", "optimum", {"answer": "optimum", "by": "engine", "seconds": "any engine s"})
ONE_CORE: Final = {"threads": 1, "tree": "bucket"}
WIDTH: Final = Way("width", "width", {"width": "w*"})
CORE: Final = Way("core", "optimum", {"seconds": "one core, dense s"}, {"method": "dense", **ONE_CORE})
DENSE_GPU: Final = Way(
    *("gpu", "optimum", {"seconds": "one GPU, dense s"}, {"method": "dense", "tree": "bucket"}), gpu=True
)
ROWS: Final = Way("rows", "optimum", {"seconds": "one core, rows s"}, {"representation": "rows", **ONE_CORE})
ROWS_GPU: Final = Way(
    *("gpu rows", "optimum", {"seconds": "one GPU, rows s"}, {"representation": "rows", "tree": "bucket"}), gpu=True
)
BOUND: Final = Way("bound", "bound", {"lower": "lower", "upper": "upper", "size": "mini-buckets"})
Z: Final = Way(
    *("z", "bound", {"lower": "lower", "upper": "upper", "quality": "lower / optimum", "seconds": "one core s"}),
    {"threads": 1},
)
Z_GPU: Final = Way("gpu z", "bound", {"seconds": "one GPU s"}, gpu=True)
TREE: Final = {
    **{"cliques": "cliques", "most": "max clique", "mean": "mean clique", "least": "min clique"},
    **{"separator": "max separator", "mean separator": "mean separator", "least separator": "min separator"},
}
JUNCTION: Final = Way(
    *("core", "propagation", {**TREE, "preprocessing": "preprocessing ms", "seconds": "one core ms"}),
    {"tree": "junction", "threads": 1},
)
OWN_TREE: Final = Way("own", "propagation", {"seconds": "own tree, all cores ms"})
JUNCTION_GPU: Final = Way(
    *("gpu", "propagation", {"graph": "one GPU, no transfers ms", "seconds": "one GPU, with transfers ms"}),
    {"tree": "junction"},
    gpu=True,
)
PROPAGATIONS: Final = (JUNCTION, OWN_TREE, JUNCTION_GPU)
AGENTS: Final = Way(
    *("agents", "agents", {"agent width": "DPOP width", "load": "network load", "seconds": "DPOP s"}), {"threads": 1}
)
AGENTS_GPU: Final = Way("gpu agents", "agents", {"seconds": "one GPU, DPOP s"}, {"threads": 1}, gpu=True)
ANY_POINT: Final = Way("any", "optimum", {"drawn": "problems", "seconds": "any engine s"})
