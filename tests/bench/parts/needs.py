"""What a bench needs besides bucketflow; where it is missing, the bench ends in one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def data_folder() -> Path:
    """Return where the benchmark files are."""
    beside = Path(__file__).resolve().parents[3].parent / "shared" / "data"
    folder = Path(os.environ.get("BUCKETFLOW_DATA", beside))
    if not (folder / "MANIFEST.tsv").exists():
        raise SystemExit(f"benchmark instances not found in {folder}; set BUCKETFLOW_DATA")
    return folder


def cupy() -> Any:
    """Return CuPy."""
    try:
        import cupy as module
    except ImportError:
        raise SystemExit("this bench needs a GPU and CuPy: pip install -e '.[cuda13]' (or cuda12)") from None
    return module
