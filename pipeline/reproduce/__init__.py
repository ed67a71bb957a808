"""Experiments of published papers, repeated: their tables beside what this package takes for the same questions.

A paper is a file of this folder (:mod:`.papers`): its tables, the figures available to us, and the missing ones.
:mod:`.experiments` runs the queries of a table through the public functions, each in a process of its own if the time
is limited (:mod:`.timed_call`). :mod:`.comparison` puts our figures beside the published ones.
"""
