"""What agents will do, from sizes alone: pseudo-trees, steps and messages, cuts, and the network between them. Pure."""
