"""Computing with tables: semirings, steps, kernels, sweeps, boxes."""

if __name__ != "bucketflow.tasks":  # in a checkout, whose root is the package, a room could be imported by its own name
    raise ImportError(f"the package {__name__} is a part of bucketflow: import bucketflow.tasks instead", name=__name__)
