"""The two sides that rows stand on: operations in the memory of the host, and on a device."""
