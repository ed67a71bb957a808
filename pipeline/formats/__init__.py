"""Readers and writers of models, a module for each format; :mod:`.formats.read` chooses among them."""
