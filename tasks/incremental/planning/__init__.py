"""What threads of a propagation do, from sizes alone: small steps as nests, large ones as stages; in order. Pure."""
