"""Run directories outlive releases: those of this format that another version left half done are finished here.

``half-done-runs.tar.xz`` holds them as the first version of the format wrote them. Where this test fails, the format
has changed: raise ``FORMAT``, and write the file anew with ``python -m tests.pipeline.runs.test_kept_format``.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.answering import run_folder as answering_folder
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.machine import rates
from bucketflow.storage import ledger, run_folder
from bucketflow.storage.ledger import to_line
from bucketflow.storage.run_folder import JobDir
from tests.models import grid
from tests.pipeline.runs.test_damage import answer, budget, equal

STORED = Path(__file__).with_name("half-done-runs.tar.xz")
#: Query, model, way, and the part of the memory that is allowed.
RUNS: dict[str, tuple[str, tuple[int, int, int, str], str, int]] = {
    "slices": ("optimum", (3, 4, 3, "cost"), "slice", 2),
    "boxes": ("optimum", (5, 5, 3, "cost"), "spill", 6),
    "beliefs": ("marginals", (4, 4, 3, "markov"), "slice", 2),
}


def ask(name: str, run: Path | None, **options: Any) -> dict[str, Any]:
    query, shape, *_ = RUNS[name]
    model = grid(*shape)
    if query == "marginals":
        return answer(bucketflow.marginals(model, workdir=run, **options))
    return answer(bucketflow.solve(model, query, workdir=run, **options))


def half_done(name: str, run: Path) -> None:
    """Leave a run of which the later half of the receipts is lost."""
    query, shape, fit, share = RUNS[name]
    ask(name, run, **budget(grid(*shape), query, fit, share))
    (run / "result.json").unlink()
    for book in (run / "ledger" / "tables").glob("*"):
        lines = book.read_bytes().splitlines(keepends=True)
        book.write_bytes(b"".join(lines[: (len(lines) + 1) // 2]))
        book.rename(book.with_name("elsewhere-1.jsonl"))


def write_all() -> None:
    """Write runs of every kind, half done."""
    rates.sampled_rate = lambda _: 1e9  # type: ignore[attr-defined]
    with TemporaryDirectory() as folder, tarfile.open(STORED, "w:xz") as packed:
        for name in RUNS:
            half_done(name, Path(folder) / name)
            for path in sorted((Path(folder) / name).rglob("*")):
                if path.is_file() and path.name != "lock":
                    member = tarfile.TarInfo(str(path.relative_to(folder)))
                    member.size = path.stat().st_size
                    packed.addfile(member, io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("name", RUNS)
def test_runs_that_an_earlier_version_left_are_finished(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "sampled_rate", lambda _: 1e9)
    with tarfile.open(STORED) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # not in the first releases of Python 3.11
        packed.extractall(tmp_path)
    run = tmp_path / name
    before = ledger.load(run / "tables")
    assert before
    found, expected = ask(name, run), ask(name, None)
    assert found.keys() == expected.keys()
    assert all(equal(found[key], expected[key]) for key in expected)
    after = ledger.history(run / "tables")
    assert len(after) == len({receipt.key for _, receipt in after}), "a chunk that had its receipt was made again"
    assert {key: receipt.checksum for key, receipt in before.items()} == {
        receipt.key: receipt.checksum for _, receipt in after if receipt.key in before
    }


def test_another_version_goes_on_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucketflow.save(grid(4, 4, 3), tmp_path / "grid.wcsp")
    monkeypatch.setattr(answering_folder, "__version__", "0.0.1")
    first = bucketflow.solve(bucketflow.load(tmp_path / "grid.wcsp"), workdir=tmp_path / "run")
    monkeypatch.setattr(answering_folder, "__version__", "9.9.9")
    assert run_folder.stored_plan(tmp_path / "run")["bucketflow"] == "0.0.1"
    assert bucketflow.resume(tmp_path / "run").value == first.value


def test_jobs_and_batches_of_other_formats_are_refused_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucketflow.save(grid(3, 3, 3), tmp_path / "grid.wcsp")
    (tmp_path / "list.csv").write_text("model\ngrid.wcsp\n")
    with monkeypatch.context() as earlier:
        earlier.setattr(run_folder, "FORMAT", 4)
        (tmp_path / "run").mkdir()
        JobDir(tmp_path / "run").write({"id": "grid-1"})
        assert bucketflow.batch(tmp_path / "list.csv", tmp_path / "out").answered == 1
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"job\.json has format 4, this .* reads format 6"):
        _ = bucketflow.Job(tmp_path / "run").record
    listed = CliRunner().invoke(main, ["jobs", str(tmp_path), "--json"])
    assert (listed.exit_code, listed.stdout) == (0, "[]\n")
    assert "job.json has format 4, this version of bucketflow reads format 6" in listed.stderr
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"answers\.jsonl has format 4, this .* reads format 6"):
        bucketflow.batch(tmp_path / "list.csv", tmp_path / "out")
    # before there was a number, lines had none
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "answers.jsonl").write_bytes(to_line({"key": "abc", "status": "answered"}))
    with pytest.raises(bucketflow.IncompatibleRunError, match=r"answers\.jsonl has format 1, this"):
        bucketflow.batch(tmp_path / "list.csv", tmp_path / "old")


if __name__ == "__main__":
    write_all()
