"""Folders that one process uses at a time: of a run, a job, a batch, and those that go away with their run."""
