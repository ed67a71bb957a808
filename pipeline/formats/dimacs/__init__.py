"""The DIMACS formats: formulas in conjunctive normal form, with weights of literals or of clauses."""
