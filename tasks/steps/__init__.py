"""One step as a value: semiring, axes, loops. Pure."""
