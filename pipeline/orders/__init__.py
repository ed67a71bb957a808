"""The search for elimination orders and contraction trees. Pure."""
