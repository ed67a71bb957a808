"""Folders of jobs and of batches."""
