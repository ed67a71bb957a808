"""Answer a question: choose an engine and a place, plan, run, and read the answer from the run.

:mod:`.answer_question` is the entry. Dense tables are the usual way of a sweep. Sparse tables are used if dense tables
are refused and few rows are possible, or if the caller asks for them. Before a long dense sweep,
:mod:`.answering.row_trials` tries sparse tables for a short time. If a sparse table does not fit in memory, the run is
repeated in more slices, or with tables on disk.
"""
