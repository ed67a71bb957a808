"""What to compute: models, formats, orders, trees, plans, algorithms and the command line."""

if (
    __name__ != "bucketflow.pipeline"
):  # in a checkout, whose root is the package, a room could otherwise be imported by its own name
    raise ImportError(
        f"the package {__name__} is a part of bucketflow: import bucketflow.pipeline instead", name=__name__
    )
