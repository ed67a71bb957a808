"""What preprocessing leaves of a model for a question, and its leaf tables."""
