"""Batches: many questions from one list, priced first, packed, answered once.

:func:`.batch.batch` finds the rows that are open, prices them (:class:`.pricing.Pricing`), keeps the prices, and asks
them in packs (:func:`.batch.packs`), here or on workers (:func:`.answering.answered`). Every answer is kept at once.
"""
