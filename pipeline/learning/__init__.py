"""Parameters of Bayesian networks from data: counting, and expectation-maximization (EM) for missing cells.

With the structure given, the likelihood of complete data is largest where each distribution is the observed frequency:
``θ(x | u) = N(x, u) / N(u)`` for the states ``x`` of a variable and ``u`` of its parents. With missing cells, EM
(Dempster, Laird and Rubin 1977) repeats two steps. The E-step replaces ``N`` by its expectation under the present
parameters, a sum of joint posteriors over the rows (Lauritzen 1995). The M-step divides these counts as above. No
iteration lowers the likelihood. A Dirichlet prior adds pseudo-counts to ``N``.

:func:`bucketflow.fit` is the entry point.
"""
