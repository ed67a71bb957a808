"""The command line: arguments, progress, reports."""
