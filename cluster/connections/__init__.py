"""Connections to schedulers: addresses, clients, clusters that a run starts, waiting for what may go away."""
