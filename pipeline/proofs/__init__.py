"""Bounds on optima, and exact optima where bounds leave little to search.

1. A :class:`.optimum.Task` turns the network that remains after preprocessing into integer costs
  (:func:`.cost_network.cost_network`), and gives them to a :class:`.portfolio.Portfolio` with its limits: memory, time,
  gap. :class:`.incumbent.Incumbent` holds the shared results: bounds, the best assignment, the prepared network, and
  its order. A portfolio can run for some seconds, and continue later.
2. It opens (:class:`.portfolio.Opening`) with preparation (:func:`.preparation.prepare`) and a short search on the way,
   and looks for a depth-first order (:func:`.depth_first.depth_first_order`).
3. Clusters of variables on short cycles come first (:class:`.clusters.ClusterBounds`), if there are few such cycles. If
  they close much of the gap but not all of it, rows search the shifted costs. Then the provers take turns
  (:class:`.team.Team`, :class:`.team.Turns`). Each turn returns an :class:`.limits.Outcome`: a lower bound and perhaps
  an assignment. A prover is a :class:`.prover.Prover` and a line of :mod:`.prover_registry`: bounded rows with the
  bounds of mini-buckets (:class:`.row_layers.RowSearch`), eliminations on decision diagrams
  (:class:`.diagrams.Deepening`), triangles of pairs (:class:`.triangles.TriangleBounds`), a depth-first search
  (:class:`.branch_and_bound.Search`), Russian dolls (:class:`.russian_dolls.RussianDolls`), parts of the bucket tree
  (:class:`.subtrees.SubtreeBounds`), local searches (:class:`.local_search.LocalSearch`), and a dense plan of the
  remaining network, made by the task.
4. Where there are workers, ``ProofWorkers`` sends them provers and slices, each a portfolio of its own
   (:class:`.remote_prover.Helper`).
5. The best assignment is restored to the first network and evaluated on the model
   (:func:`.cut_offs.optimum_bounds`).
"""
