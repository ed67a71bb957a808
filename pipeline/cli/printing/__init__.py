"""What commands print: plans, runs, progress, and how lines and tables look."""
