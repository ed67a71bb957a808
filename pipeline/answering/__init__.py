"""How a question becomes a run: its way, its place, running it, and what is read from the run.

By rows it runs where all cells are refused and few of them possible, or where that is asked for: before long sweeps
:mod:`.answering.row_trials` tries rows, and runs again where a table does not fit, in more slices, or with tables of
rows on disk.
"""
