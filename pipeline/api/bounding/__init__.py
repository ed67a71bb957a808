"""Answers with bounds: what an optimum or a sum lies between, and optima that bounds prove."""
