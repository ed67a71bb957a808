"""Optima by bounded rows: layers of partial assignments, and the trail they left."""
