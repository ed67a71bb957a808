"""Where messages of mini-buckets may be: in memory, or in a run directory that holds all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....storage.files import file_bytes, free_bytes
from ....storage.folders.rundir import MESSAGES
from ...errors import BudgetError
from ...resources import Resources
from ...text import format_bytes

if TYPE_CHECKING:
    from ...bounds.buckets.partition import Partition
    from ...bounds.buckets.stored.spilled import Spilling


@dataclass(frozen=True)
class Place:
    """Whether messages are kept in memory, or where they are on disk."""

    keep: bool
    spilling: Spilling | None = None

    @property
    def disk_bytes(self) -> int:
        """What messages take on disk."""
        return 0 if self.spilling is None else self.spilling.boxing.disk_bytes

    @property
    def seconds(self) -> float:
        """What writing and reading them is predicted to take."""
        from ...budget.spill import DISK_RATE

        return 0.0 if self.spilling is None else (self.disk_bytes + self.spilling.boxing.read_bytes) / DISK_RATE


@dataclass(frozen=True)
class Room:
    """What messages may take.

    Parameters
    ----------
    resources : Resources
    beside : int
        Bytes of the model.
    """

    resources: Resources
    beside: int

    def place(self, split: Partition, needed: bool) -> Place | None:
        """Return where the messages of an elimination can be; None if nowhere and it is not needed.

        Raises
        ------
        BudgetError
            If nowhere and it is needed, with both numbers.
        """
        memory = self.resources.memory_bytes
        if split.kept_bytes + self.beside <= memory:
            return Place(True)
        refusal = None
        if (folder := self.resources.asked.folder) is not None:
            try:
                return Place(False, self._spilling(split, folder / MESSAGES))
            except BudgetError as error:
                refusal = error
        if refusal is not None and needed:
            raise refusal
        if split.live_bytes + self.beside <= memory:
            return Place(False)
        if needed:
            raise self._refusal(split)
        return None

    def _spilling(self, split: Partition, folder: Path) -> Spilling:
        from ...bounds.buckets.stored.boxing import boxed
        from ...bounds.buckets.stored.spilled import Spilling

        boxing = boxed(split, self.resources.memory_bytes - self.beside)
        asked = self.resources.asked.disk_bytes
        there = free_bytes(folder) + file_bytes(folder, "c.*") if asked is None else asked
        if boxing.disk_bytes > there:
            raise BudgetError(
                f"messages of mini-buckets of {split.largest} cells take {format_bytes(boxing.disk_bytes)} of disk, "
                f"more than the {format_bytes(there)} there are; give a smaller --z, a larger --memory or --disk, or "
                "another --workdir"
            )
        return Spilling(boxing, folder)

    def _refusal(self, split: Partition) -> BudgetError:
        wanted, there = format_bytes(split.live_bytes + self.beside), format_bytes(self.resources.memory_bytes)
        return BudgetError(
            f"mini-buckets of {split.largest} cells take {wanted}, more than the {there} of memory; give a smaller "
            "--z, a larger --memory, a --workdir for messages on disk, or --time without --z: mini-buckets grow while "
            "they fit"
        )
