"""Global cost functions, over any number of variables, as small functions over these and hidden variables."""
