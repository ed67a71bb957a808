"""Which passes a step takes on a GPU, and their tiles, as pure values."""
