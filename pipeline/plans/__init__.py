"""Plans as values: the options, the steps, and their division into parts. Pure."""
