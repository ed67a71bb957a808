"""Batches: many questions from one list, priced first, packed, answered once.

:func:`.batch.batch` finds the rows that are open, prices them by model (:func:`.asking.priced`) and asks them in packs
(:func:`.packing.packs`), here or on workers (:func:`.asking.answered`). Every answer is kept at once.
"""
