"""Tables of rows: those entries of a table that are not the semiring's zero."""
