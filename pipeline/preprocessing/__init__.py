"""The network that preprocessing leaves of a model for a query, and its leaf tables."""
