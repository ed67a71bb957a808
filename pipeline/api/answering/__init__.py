"""How a question becomes a run: its way, its place, running it, and what is read from the run."""
