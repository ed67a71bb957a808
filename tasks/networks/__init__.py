"""Cost shifting (SRMP), dead-end elimination and decoding on networks of integer costs, compiled or in NumPy.

A network is a :class:`.flat.Flat`: a constant c, unary costs u and tables f. The cost of an assignment x is

    E(x) = c + Σ_v u_v(x_v) + Σ_f f(x_scope(f)).

Cost shifting moves costs between u and f, and from u to c. E(x) stays the same for every x. As no cost becomes
negative, c is a lower bound of the optimum (SRMP: Kolmogorov, "A New Look at Reweighted Message Passing", PAMI 2015).
Dead-end elimination removes values that some other value always replaces at no higher cost (Goldstein 1994).

Entry points: :class:`.reparametrise.Loops` and :func:`.reparametrise.remove_dominated` choose between compiled loops
and NumPy; :func:`.clusters.sweep` and :func:`.triangles.sweep` shift costs between larger sets of variables.
"""
