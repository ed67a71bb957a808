"""Experiments of published papers, repeated: their tables beside ours.

``figures.json`` has all published figures. :mod:`.paper_tables` describes the tables: instances, measurements, ratios.
:mod:`.experiments` measures through the public functions. :mod:`.comparison` runs a paper, each row in a process of its
own if time is limited, and shows it.
"""
