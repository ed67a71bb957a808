"""Experiments of published papers, repeated: their tables beside what this package takes for the same questions.

A paper is a file of this folder (:mod:`.papers`): its tables, the figures of which a source is at hand, and which are
missing. :mod:`.experiments` asks the questions of a kind of table through the public functions, each in a process of
its own where time is limited (:mod:`.timed_call`), and :mod:`.comparison` puts the figures beside the published ones.
"""
