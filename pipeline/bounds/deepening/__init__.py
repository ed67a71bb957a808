"""Eliminations on decision diagrams that leave out what reaches a cut-off, and cut-offs that grow."""
