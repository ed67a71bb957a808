"""Building blocks of compiled kernels: vectors, atomic words, calls by address, and when compiling pays."""
