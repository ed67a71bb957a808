"""What compiled kernels are made of: vectors, atomic words, calls by address, and when compiling pays."""
