"""One step as a value: its tables and semiring, and how it becomes loops. Pure."""
