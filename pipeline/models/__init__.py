"""A model as its file says it, what preprocessing leaves of it, and its leaf tables."""
