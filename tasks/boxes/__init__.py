"""Boxes of a stage out of core: read chunks, sweep, write chunks, leave receipts.

A box fixes some variables x_B, so that its tables fit in memory, and runs the stage's steps on the other variables. If
a fixed variable has to be summed out of a table t, every box writes a partial result, and readers add these up:
t = Σ_{x_B} t_{x_B}.

Entry points: :func:`.box.run_box` for dense tables, and :func:`.row_box.run_row_box` for sparse tables.
:class:`.stores.ChunkFiles` holds the tables between stages, and :class:`.stores.Receipts` knows the finished chunks.
"""
