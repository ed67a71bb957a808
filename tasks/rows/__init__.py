"""Tables of rows in memory: packed keys and costs, and the layers of a bounded search over them."""
