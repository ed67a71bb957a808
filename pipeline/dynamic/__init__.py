"""Networks that repeat from step to step: a slice, what it has of the one before it, and questions about many steps.

``slice_template`` pairs the variables of two files, ``slice_plan`` plans a slice once, ``slice_sums`` and
``slice_optimum`` compute it again and again with messages from before and after, ``walks`` goes along the steps in
constant memory, and ``dynamic`` is what users call.
"""
