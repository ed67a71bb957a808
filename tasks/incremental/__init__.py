"""Propagations that keep all messages and compute again only what new evidence changes.

:func:`.schedule.scheduled` plans the work of threads and its order; the threads take their work in
:func:`.thread_crew.work`.
"""
