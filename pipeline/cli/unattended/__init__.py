"""Commands about runs that nobody waits for: jobs and batches."""
