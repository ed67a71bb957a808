"""Mini-buckets whose messages leave memory.

:func:`.boxing.boxed` says what boxes of each bucket fix, :class:`.stored.boxes.Boxes` runs those whose chunks have no
receipt yet, and :mod:`.spilled` has the rules of least costs and of sums.
"""
