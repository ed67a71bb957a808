"""Propagations that keep all messages and compute again only what new evidence changes.

A node i of the bucket tree sends its parent p the message m_i, and receives n_i (Shafer & Shenoy 1990):

    m_i(s) = Σ f_i Π_{children c} m_c,    n_i(s) = Σ f_p n_p Π_{children c ≠ i of p} m_c.

The sums run over the variables outside the separator s. Evidence changes some f. A message is stale if one of its
inputs changed. Only stale messages are recomputed, and only if an answer needs them.

:class:`.kept_tables.Incremental` keeps each table as an array of its own, and :class:`.packed.Packed` keeps all of them
in one array for compiled loops.
:func:`.schedule.scheduled` plans the work of threads and its order; the threads take their work in
:func:`.thread_crew.work`.
"""
