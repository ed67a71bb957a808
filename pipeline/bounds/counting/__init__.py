"""Models as clauses, whose models are counted or weighed."""
