"""The .cfn format: JSON with tables, tuples and default costs."""
