"""Searches for an optimum in compiled loops: branch and bound (EDAC), Russian dolls (RDS), loss trees, local search.

All of them minimise E(x) = c + Σ_v u_v(x_v) + Σ_f f(x_scope(f)) over assignments x, with costs that are not negative.

* :func:`.branch_and_bound.explore`: depth-first branch and bound on a :class:`.state.State`. At each node
  :func:`.consistency.propagate` (EDAC: de Givry et al., IJCAI 2005) raises the constant, which is the lower bound.
  :func:`.enumeration.solve_rest` enumerates the rest if it is small.
* :func:`.russian_dolls.explore`: Russian doll search (RDS: Verfaillie, Lemaitre & Schiex, AAAI 1996).
* :func:`.loss_tree.explore`: recursive best-first search of an AND/OR tree (Kishimoto & Marinescu, UAI 2014).
* :func:`.annealing.anneal`, :func:`.annealing.descend` and :func:`.neighbourhood_optima.resolve`: local search. Large
  neighbourhoods are solved exactly, by bucket elimination.
"""
