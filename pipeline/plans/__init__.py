"""Plans as values, and how they are made from sizes alone. Pure."""
