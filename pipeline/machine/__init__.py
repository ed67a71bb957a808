"""How fast this machine is: measured once, kept, and used for predictions."""
