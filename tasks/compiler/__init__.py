"""Building blocks of compiled kernels: vectors, atomic words, calls by address, and when compiling pays.

Programs of other authors, which are compiled already, run beside this process: :mod:`.outside_process`.
"""
