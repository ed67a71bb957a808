"""Tables of rows in memory: packed keys and costs, and the layers of a bounded search over them."""

from typing import Final

#: A row of a join takes as long as so many cells of a loop.
CELLS_OF_A_ROW: Final = 50
