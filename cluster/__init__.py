"""Where tasks run: in-process, local workers, remote schedulers."""

if (
    __name__ != "bucketflow.cluster"
):  # in a checkout, whose root is the package, a room could otherwise be imported by its own name
    raise ImportError(
        f"the package {__name__} is a part of bucketflow: import bucketflow.cluster instead", name=__name__
    )
