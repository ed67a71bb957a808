"""Sweeps by rows whose tables do not fit memory: on disk, step by step and box by box.

Sizes are known only when tables are made, and so are their boxes (:class:`.rows.tables.RowTables`), one way or both: a
step that does not fit memory (:class:`.steps.BoxedStep`) is cut into ranges of states by keys that were sampled from
its inputs (:func:`.splits.split`), each range a task (:func:`.row_boxes.run_row_box`) that writes a sorted run; one
that turns out not to fit is cut again, and readers merge runs that overlap.
"""
