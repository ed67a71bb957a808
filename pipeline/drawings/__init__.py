"""Pictures and tables of whatever is to be seen: plain values in, SVG and HTML out. Nothing here knows a model."""
