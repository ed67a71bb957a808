"""Run the command line as ``python -m bucketflow``."""

from .pipeline.cli.main import main


def _end(code: int) -> None:
    """End as a script does: a module would die of SIGINT if Ctrl-C ever met code that was compiled from a text."""
    import ctypes

    ctypes.pythonapi.Py_Exit(code)


try:
    main()
except SystemExit as ended:
    if ended.code and isinstance(ended.code, int):
        _end(ended.code)
    raise
