"""Mini-buckets: bounds from bucket elimination whose tables are kept small by splitting buckets."""
