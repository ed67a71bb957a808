"""Steps on tables of which each has all cells, or only the rows that are possible."""
