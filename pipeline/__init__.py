"""What to compute: models, formats, orders, trees, plans, algorithms and the command line."""
