"""How plans are made from sizes alone: steps up and back, messages made again, parts for workers. Pure."""
