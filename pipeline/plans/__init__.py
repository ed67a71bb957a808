"""Plans as values: what was asked, the steps, how they are split. Pure."""
