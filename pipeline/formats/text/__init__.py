"""Reading text: sources, compression, tokens, tables of numbers, and which format a file is."""
