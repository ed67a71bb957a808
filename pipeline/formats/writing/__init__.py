"""Writers, one module a format; who owns what beside formats without agents."""
