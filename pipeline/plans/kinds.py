"""What a caller may ask a plan to be like, by names."""

from __future__ import annotations

from typing import Literal

TreeKind = Literal["refined", "bucket", "junction"]
Representation = Literal["auto", "dense", "rows"]
Fit = Literal["auto", "slice", "spill", "refuse"]
"""What to do with a plan that does not fit memory."""
