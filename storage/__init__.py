"""Tables on disk: specs, chunks, and the ledger of finished chunks."""

if (
    __name__ != "bucketflow.storage"
):  # in a checkout, whose root is the package, a room could otherwise be imported by its own name
    raise ImportError(
        f"the package {__name__} is a part of bucketflow: import bucketflow.storage instead", name=__name__
    )
