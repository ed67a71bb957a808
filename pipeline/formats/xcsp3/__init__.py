"""XCSP3, core: variables, constraints and objectives over integers."""
