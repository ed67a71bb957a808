"""Mini-buckets whose messages leave memory: boxes of each bucket, run from the chunks that are there."""
