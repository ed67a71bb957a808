"""Tables on disk: specs, chunks, and the ledger of those that are done."""
