"""Distributed elimination: agents on a pseudo-tree that see their own functions and their children's messages."""
