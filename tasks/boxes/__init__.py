"""Boxes of a stage out of core: read chunks, sweep, write chunks, leave receipts."""
