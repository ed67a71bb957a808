"""Networks that repeat from step to step: a slice, its links to the previous slice, and queries over many steps.

``slice_template`` pairs the variables of two files. ``slice_plan`` plans a slice once, and sums over it repeatedly with
messages from the slices before and after it. ``walks`` goes along the steps in constant memory. ``dynamic`` is the
public interface.
"""
