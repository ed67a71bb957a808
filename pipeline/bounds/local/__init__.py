"""Good assignments without a proof."""
