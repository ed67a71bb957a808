"""Models from objects of other libraries, and the reverse. The libraries are imported only when they are needed."""
