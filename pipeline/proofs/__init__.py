"""Bounds on optima, and exact optima where bounds leave little to search.

1. A :class:`.optimum.Task` turns what preprocessing left of a model into integer costs
   (:func:`.cost_network.cost_network`) and gives them to a :class:`.portfolio.Chain` with its limits: memory, time,
   gap. What is known (bounds, the best assignment, the network that preparation left, its order) is
   :class:`.incumbent.Known`.
2. The chain prepares (:func:`.preparation.prepare`), with a short search on the way, and looks for a depth-first order
   (:func:`.depth_first.depth_first_order`).
3. Clusters of variables on short cycles come first (:class:`.clusters.ClusterBounds`), where there are few such
   cycles; where they close much of the gap but not all, rows search the costs that they shifted. Then the ways take
   turns (:class:`.turns.Turns`), and each returns an :class:`.outcome.Outcome`: a lower bound, and perhaps an
   assignment. They are bounded rows with the bounds of mini-buckets (:class:`.row_layers.RowSearch`), eliminations on
   decision diagrams (:class:`.diagrams.Deepening`), triangles of pairs (:class:`.triangles.TriangleBounds`), a
   depth-first search (:class:`.branch_and_bound.Search`), Russian dolls (:class:`.russian_dolls.RussianDolls`), parts
   of the bucket tree (:class:`.subtrees.SubtreeBounds`), and a dense plan of what is left, made by the task.
4. Where there are workers, :class:`.helpers.Helpers` sends them ways and slices, each a chain of its own
   (:class:`.remote_prover.Helper`).
5. The best assignment is restored to the first network and evaluated on the model
   (:func:`.cut_offs.optimum_bounds`).
"""
