"""Copies of the source tree in which a number can be edited, each with a cache of its own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp

from parts.needs import data_folder
from parts.number_places import ROOMS, ROOT
from parts.number_verdicts import Answers

_PANEL = Path(__file__).with_name("number_panel.py")
#: CPU seconds of a panel at most, without and with the compilation of loops.
PANEL_SECONDS, COMPILING_SECONDS = 60.0, 200.0
#: Seconds by the clock in a CPU second at most, and bytes of the process.
_WAITING, _MOST_BYTES = 4.0, 16 << 30


@dataclass(frozen=True)
class Copy:
    """A copy of the source tree with a cache of its own."""

    folder: Path

    def filled(self, warm: Path) -> Copy:
        """Copy the tree, with the times of its files, and the cache."""
        for name in (*ROOMS, "__init__.py", "__main__.py"):
            source, target = ROOT / name, self.folder / "bucketflow" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
        shutil.copytree(warm, self.folder / "cache" / "bucketflow", dirs_exist_ok=True)
        return self

    def ask(self, part: str = "0/1", seconds: float = COMPILING_SECONDS, **settings: str) -> Answers | str:
        """Answer the panel in a fresh process; return the answers by question, or why there are none."""
        descriptor, name = mkstemp(dir=self.folder, suffix=".jsonl")
        os.close(descriptor)
        out = Path(name)
        unset = ("BUCKETFLOW_CACHE", "NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {"PYTHONPATH": f"{self.folder}{os.pathsep}{_PANEL.parents[1]}", "PYTHONHASHSEED": "0"}
        environment |= {"XDG_CACHE_HOME": str(self.folder / "cache"), "BUCKETFLOW_DATA": str(data_folder())}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **settings}

        def limit() -> None:
            for kind, most in ((resource.RLIMIT_AS, _MOST_BYTES), (resource.RLIMIT_CPU, round(seconds))):
                resource.setrlimit(kind, (most, most))

        try:
            done = subprocess.run(
                [sys.executable, str(_PANEL), str(out), part],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_WAITING * seconds,
                preexec_fn=limit,
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {_WAITING * seconds:g} s by the clock"
        answers = out.read_text().splitlines()
        if done.returncode:
            why = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:300]
            return f"after {len(answers)} questions: {why}"
        return {found["question"]: found for found in map(json.loads, answers)}
