"""Readers and writers of model files, one module a format."""
