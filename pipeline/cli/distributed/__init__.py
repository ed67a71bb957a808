"""Commands for problems of agents."""
