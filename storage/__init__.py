"""Tables on disk: specs, chunks, run directories."""
