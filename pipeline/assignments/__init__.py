"""Many assignments from the kept tables of one sweep: independent draws from a sum, the best ones of an optimum."""
