"""Batches: many questions from one list, priced first, packed, answered once."""
