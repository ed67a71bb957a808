"""Propagations that keep all messages and compute again only what new evidence changes.

What threads do in which order is planned (:func:`.schedule.scheduled`); they find it for themselves in
:func:`.thread_crew.work`.
"""
