"""Models that keep their tree, plan and messages for many questions, one by one or in batches."""
