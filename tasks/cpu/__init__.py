"""Kernels for NumPy and compiled loops: one dense step, combined and reduced without storing the join.

A step computes out(z) = ⊕_y ⊗_i t_i(y, z) over any semiring. :func:`.dense.run` and :func:`.dense.contract` choose the
kernel: a matrix product in tiles (:mod:`.product`: Goto & van de Geijn 2008), a stream over the largest input
(:mod:`.stream_loops`), or NumPy broadcasting over blocks (:mod:`.numpy_blocks`). :func:`.threads.share` splits loops
among threads.
"""
