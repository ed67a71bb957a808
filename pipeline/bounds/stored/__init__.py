"""Layers of rows on disk, for bounded searches whose layers exceed memory."""
