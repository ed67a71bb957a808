"""Runs whose tables are cut into boxes, on disk or in memory: elimination, beliefs, decoding."""
