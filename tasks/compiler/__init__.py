"""Building blocks of compiled kernels: vectors, atomic words, calls by address, and the decision when compiling pays."""
