"""Computing with tables: semirings, steps, kernels, sweeps, boxes."""

# in a checkout, whose root is the package, a room could otherwise be imported by its own name
if __name__ != "bucketflow.tasks":
    raise ImportError(f"the package {__name__} is a part of bucketflow: import bucketflow.tasks instead", name=__name__)
