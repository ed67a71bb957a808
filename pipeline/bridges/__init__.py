"""Models from objects of other libraries, and as such: nothing of these libraries is imported before it is needed."""
