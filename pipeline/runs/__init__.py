"""Running a plan: slices, parts and boxes as tasks of a pool, with receipts."""
