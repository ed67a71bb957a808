"""Models and problems of agents as their files say them."""
