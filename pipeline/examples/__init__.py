"""Example models that ship with the package."""
