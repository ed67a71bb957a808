"""Parts of a search for an optimum that run elsewhere: ways of their own, slices of a network."""
