"""Sparse tables: relations that store only the possible cells as rows, their joins and sums, and layers of a search.

A row is a packed key (the states of the table's variables, :class:`.keys.Keys`) and a value. A step of bucket
elimination joins the rows of its inputs t_i and sums out variables y:

    out(z) = ⊕_y ⊗_i t_i(y, z).

Only cells (y, z) that are possible in every input are computed (FAQ: Abo Khamis, Ngo & Rudra, PODS 2016).

Entry points: :class:`.relation.Relation` and :class:`.relation.Dense` are the tables; :class:`.algebra.PlainRows`,
:class:`.scaled_rows.SumProductRows` and :func:`.device_algebra.device_rows_program` run steps on them, with the memory
of a :class:`.memory_account.MemoryAccount`; :class:`.layers.Operations` makes the layers of a search.
:func:`.row_backend.backend_of` chooses NumPy, compiled loops or CUDA kernels; all give the same bits.
"""
