"""What ``bucketflow inspect`` shows: how far a run directory is, from its plan and its ledger alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....storage import ledger
from ....storage.errors import StorageError
from ....storage.files import file_bytes
from ....storage.folders.rundir import stored_bounds, stored_plan, stored_result
from ....storage.spec import Receipt
from ...errors import IncompatibleRunError

_SLOWEST = 5


def run_facts(path: Path) -> dict[str, Any]:
    """Describe a run directory: identity, bounds so far, stages with finished boxes and bytes, slowest tasks.

    Raises
    ------
    IncompatibleRunError
        If the folder is not a run directory.
    """
    try:
        stored, result, bounded = stored_plan(path), stored_result(path), stored_bounds(path)
        plan = stored.get("plan")
        receipts = ledger.load(path / "tables") if plan else {}
    except StorageError as error:
        raise IncompatibleRunError(str(error)) from None
    return {
        "model": stored.get("source", ""),
        "query": stored["identity"]["query"],
        "status": "finished" if result else "unfinished",
        "answer": result and {name: result.get(name) for name in ("status", "value", "log10", "log10_evidence")},
        "bounds": _bounds(bounded) if bounded and not result else None,
        "stages": [_stage(stage, receipts) for stage in plan["stages"]] if plan else [],
        "disk_bytes_planned": plan["disk_bytes"] if plan else 0,
        "disk_bytes": file_bytes(path, "c*"),
        "slowest": [_slow(r) for r in sorted(receipts.values(), key=lambda r: -r.seconds)[:_SLOWEST]],
    }


def _bounds(bounded: dict[str, Any]) -> dict[str, Any]:
    proof = bounded.get("proof") or {}
    return {name: proof.get(name) for name in ("lower", "upper", "gap")}


def _stage(stage: dict[str, Any], receipts: dict[Any, Receipt]) -> dict[str, Any]:
    name = stage["table"]
    done = [r for r in receipts.values() if r.table == name]
    return {
        "table": name,
        "boxes": stage["boxes"],
        "chunks_done": len(done),
        "bytes": sum(r.nbytes for r in done),
        "peak_bytes_planned": stage["peak_bytes"],
        "seconds": round(sum(r.seconds for r in done), 3),
    }


def _slow(receipt: Receipt) -> dict[str, Any]:
    return {"table": receipt.table, "chunk": list(receipt.chunk), "seconds": round(receipt.seconds, 3)}
