"""Decision diagrams with costs on their edges: tables in which equal parts are stored once."""
