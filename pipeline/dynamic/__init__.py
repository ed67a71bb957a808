"""Networks that repeat from step to step: a slice, its links to the previous slice, and queries over many steps.

``slice_template`` pairs the variables of two files, ``slice_plan`` plans a slice once and sums over it, and
``slice_optimum`` compute it repeatedly with messages from before and after, ``walks`` goes along the steps in constant
memory, and ``dynamic`` is the public interface.
"""
